//! Queue: who gets the next permit. Plain data without locks, clocks or wakers, so that every step can be tested alone.
//!
//! Invariants: while a permit is free, nobody waits who may take it; people take turns, whatever each has queued; a
//! person who comes new stands before the one that was served last. Nothing here is unbounded: each person's queue has
//! a bound of its own, and all waiters together take places in a shared [`QueueRoom`].

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::names::Uid;

/// Room for all waiting turns together, over all gateways. Clones share it.
#[derive(Debug, Clone)]
pub struct QueueRoom(Arc<Room>);

#[derive(Debug)]
struct Room {
    taken: AtomicUsize,
    size: usize,
}

impl QueueRoom {
    /// Room for `size` waiting turns.
    pub fn new(size: usize) -> Self {
        QueueRoom(Arc::new(Room { taken: AtomicUsize::new(0), size }))
    }

    /// Turns that wait now.
    pub fn taken(&self) -> usize {
        self.0.taken.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<Place> {
        let more = |taken| (taken < self.0.size).then_some(taken + 1);
        self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Place(Arc::clone(&self.0)))
    }
}

/// One place in a [`QueueRoom`], given back on drop.
#[derive(Debug)]
struct Place(Arc<Room>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bounds that one gateway's queue keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Permits for all people together.
    pub(super) turns: usize,
    /// Permits of one person.
    pub(super) per_person: usize,
    /// Waiters of one person.
    pub(super) waiting_per_person: usize,
}

/// Index of a person's entry; valid while the person holds a permit or waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat(usize);

/// One waiter's number; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// What became of a request for a permit.
#[derive(Debug)]
pub(super) enum Asked {
    /// A permit was free.
    Granted(Seat),
    /// Wait; the waker will be handed out by [`Queue::release`].
    Waits(Seat, Ticket),
    /// No room to wait.
    Full,
}

#[derive(Debug)]
struct Waiter<W> {
    ticket: Ticket,
    waker: W,
    _place: Place,
}

#[derive(Debug)]
struct Person<W> {
    uid: Uid,
    holds: usize,
    waiters: VecDeque<Waiter<W>>,
    /// Whether the person's seat stands in `Queue::order`.
    in_order: bool,
}

/// One gateway's permits and waiters. `W` wakes a waiter.
#[derive(Debug)]
pub(super) struct Queue<W> {
    bounds: Bounds,
    room: QueueRoom,
    in_flight: usize,
    waiting: usize,
    next_ticket: u64,
    seats: HashMap<Uid, Seat>,
    people: Vec<Option<Person<W>>>,
    vacant: Vec<Seat>,
    /// Those who wait and may hold one more permit, next one first.
    order: VecDeque<Seat>,
    last_served: Option<Seat>,
}

impl<W> Queue<W> {
    pub(super) fn new(bounds: Bounds, room: QueueRoom) -> Self {
        Queue {
            bounds,
            room,
            in_flight: 0,
            waiting: 0,
            next_ticket: 0,
            seats: HashMap::new(),
            people: Vec::new(),
            vacant: Vec::new(),
            order: VecDeque::new(),
            last_served: None,
        }
    }

    /// Permits in use.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Turns that wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// People who hold a permit or wait.
    #[cfg(test)]
    pub(super) fn people(&self) -> usize {
        self.seats.len()
    }

    /// Asks for a permit; `waker` is kept only when the answer is to wait.
    pub(super) fn ask(&mut self, uid: &Uid, waker: W) -> Asked {
        let bounds = self.bounds;
        let seat = self.seat(uid);
        let person = self.person(seat);
        if self.in_flight < bounds.turns && person.is_none_or(|person| person.holds < bounds.per_person) {
            // By the first invariant this person has no waiter that could be overtaken.
            self.grant(seat);
            return Asked::Granted(seat);
        }
        let place = match self.person(seat) {
            Some(person) if person.waiters.len() >= bounds.waiting_per_person => None,
            _ => self.room.take(),
        };
        let Some(place) = place else {
            self.leave_if_done(seat);
            return Asked::Full;
        };
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.waiting += 1;
        if let Some(person) = self.person_mut(seat) {
            person.waiters.push_back(Waiter { ticket, waker, _place: place });
        }
        self.enter_order(seat);
        Asked::Waits(seat, ticket)
    }

    /// Takes a permit whether or not one is free: for work that the gateway already does.
    pub(super) fn take_over(&mut self, uid: &Uid) -> Seat {
        let seat = self.seat(uid);
        self.grant(seat);
        seat
    }

    /// Gives a permit back. When somebody may have it, it is theirs at once: wake them.
    pub(super) fn release(&mut self, seat: Seat) -> Option<(Seat, W)> {
        self.in_flight -= 1;
        if let Some(person) = self.person_mut(seat) {
            person.holds -= 1;
        }
        self.enter_order(seat);
        self.leave_if_done(seat);
        if self.in_flight >= self.bounds.turns {
            return None;
        }
        let next = self.order.pop_front()?;
        let person = self.person_mut(next)?;
        person.in_order = false;
        let waiter = person.waiters.pop_front()?;
        self.waiting -= 1;
        self.grant(next);
        self.enter_order(next);
        Some((next, waiter.waker))
    }

    /// Takes a waiter out; false when it waits no more.
    pub(super) fn withdraw(&mut self, seat: Seat, ticket: Ticket) -> bool {
        let Some(person) = self.person_mut(seat) else { return false };
        let Ok(at) = person.waiters.binary_search_by_key(&ticket, |waiter| waiter.ticket) else { return false };
        person.waiters.remove(at);
        let ends = person.waiters.is_empty() && std::mem::take(&mut person.in_order);
        self.waiting -= 1;
        if ends {
            self.order.retain(|other| *other != seat);
        }
        self.leave_if_done(seat);
        true
    }

    fn person(&self, seat: Seat) -> Option<&Person<W>> {
        self.people.get(seat.0)?.as_ref()
    }

    fn person_mut(&mut self, seat: Seat) -> Option<&mut Person<W>> {
        self.people.get_mut(seat.0)?.as_mut()
    }

    fn seat(&mut self, uid: &Uid) -> Seat {
        if let Some(seat) = self.seats.get(uid) {
            return *seat;
        }
        let person = Person { uid: uid.clone(), holds: 0, waiters: VecDeque::new(), in_order: false };
        let seat = self.vacant.pop().unwrap_or(Seat(self.people.len()));
        match self.people.get_mut(seat.0) {
            Some(entry) => *entry = Some(person),
            None => self.people.push(Some(person)),
        }
        self.seats.insert(uid.clone(), seat);
        seat
    }

    fn grant(&mut self, seat: Seat) {
        self.in_flight += 1;
        self.last_served = Some(seat);
        if let Some(person) = self.person_mut(seat) {
            person.holds += 1;
        }
    }

    /// Lines a person up who waits and may hold one more.
    fn enter_order(&mut self, seat: Seat) {
        let per_person = self.bounds.per_person;
        let Some(person) = self.person_mut(seat) else { return };
        if person.in_order || person.waiters.is_empty() || person.holds >= per_person {
            return;
        }
        person.in_order = true;
        // Who was served last goes behind everyone, also behind those who come after.
        if self.order.back().is_some_and(|last| Some(*last) == self.last_served) {
            let before_last = self.order.len() - 1;
            self.order.insert(before_last, seat);
        } else {
            self.order.push_back(seat);
        }
    }

    fn leave_if_done(&mut self, seat: Seat) {
        let Some(entry) = self.people.get_mut(seat.0) else { return };
        let Some(person) = entry.take_if(|person| person.holds == 0 && person.waiters.is_empty()) else { return };
        self.seats.remove(&person.uid);
        self.vacant.push(seat);
        if self.last_served == Some(seat) {
            self.last_served = None;
        }
    }
}

#[cfg(test)]
mod tests;
