use super::*;
use proptest::prelude::*;

fn queue(turns: usize, per_person: usize, waiting_per_person: usize, room: usize) -> Queue<&'static str> {
    Queue::new(Bounds { turns, per_person, waiting_per_person }, QueueRoom::new(room))
}

fn uid(n: u8) -> Uid {
    Uid::parse(&format!("{n:02x}")).unwrap()
}

fn granted(asked: Asked) -> Seat {
    match asked {
        Asked::Granted(seat) => seat,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_queued_a_hundred_lets_another_in_next() {
    let mut queue = queue(1, 10, 200, 1000);
    let mut seat = granted(queue.ask(&uid(1), ""));
    for _ in 0..100 {
        assert!(matches!(queue.ask(&uid(1), "first"), Asked::Waits(..)));
    }
    assert!(matches!(queue.ask(&uid(2), "second"), Asked::Waits(..)));
    let mut served = Vec::new();
    while let Some((next, who)) = queue.release(seat) {
        served.push(who);
        seat = next;
    }
    assert_eq!(served.len(), 101);
    assert_eq!(served[0], "second");
    assert!(served[1..].iter().all(|who| *who == "first"));
}

#[test]
fn people_take_turns_whatever_each_has_queued() {
    let mut queue = queue(1, 1, 10, 1000);
    let mut seat = granted(queue.ask(&uid(1), ""));
    for who in ["a", "a", "a", "a"] {
        queue.ask(&uid(1), who);
    }
    for who in ["b", "b"] {
        queue.ask(&uid(2), who);
    }
    queue.ask(&uid(3), "c");
    let mut served = String::new();
    while let Some((next, who)) = queue.release(seat) {
        served.push_str(who);
        seat = next;
    }
    // With one permit each, "a" is lined up only after its own release: behind "b" and "c".
    assert_eq!(served, "bcabaaa");
}

#[test]
fn a_person_at_the_bound_does_not_hold_up_others() {
    let mut queue = queue(4, 2, 5, 1000);
    let first = granted(queue.ask(&uid(1), ""));
    granted(queue.ask(&uid(1), ""));
    assert!(matches!(queue.ask(&uid(1), "third"), Asked::Waits(..)));
    granted(queue.ask(&uid(2), ""));
    assert_eq!(queue.release(first).map(|(_, who)| who), Some("third"));
}

#[test]
fn both_bounds_on_waiting_hold() {
    let mut queue = queue(1, 1, 2, 3);
    granted(queue.ask(&uid(1), ""));
    assert!(matches!(queue.ask(&uid(1), ""), Asked::Waits(..)));
    let Asked::Waits(seat, ticket) = queue.ask(&uid(1), "") else { panic!() };
    assert!(matches!(queue.ask(&uid(1), ""), Asked::Full));
    assert!(matches!(queue.ask(&uid(2), ""), Asked::Waits(..)));
    assert!(matches!(queue.ask(&uid(3), ""), Asked::Full));
    assert_eq!(queue.people(), 2);
    assert!(queue.withdraw(seat, ticket));
    assert!(!queue.withdraw(seat, ticket));
    assert!(matches!(queue.ask(&uid(3), ""), Asked::Waits(..)));
}

#[test]
fn work_taken_over_counts_beyond_the_bound() {
    let mut queue = queue(1, 1, 5, 10);
    let (first, second) = (queue.take_over(&uid(1)), queue.take_over(&uid(1)));
    assert_eq!(queue.in_flight(), 2);
    assert!(matches!(queue.ask(&uid(2), "waits"), Asked::Waits(..)));
    assert!(queue.release(first).is_none());
    assert_eq!(queue.release(second).map(|(_, who)| who), Some("waits"));
}

#[derive(Debug, Clone)]
enum Step {
    Ask(u8),
    Release(usize),
    Withdraw(usize),
    TakeOver(u8),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8).prop_map(Step::Ask),
        4 => any::<usize>().prop_map(Step::Release),
        2 => any::<usize>().prop_map(Step::Withdraw),
        1 => (0..6_u8).prop_map(Step::TakeOver),
    ]
}

proptest! {
    #[test]
    fn the_books_balance_after_every_step(steps in proptest::collection::vec(step(), 1..200)) {
        let bounds = Bounds { turns: 3, per_person: 2, waiting_per_person: 3 };
        let room = QueueRoom::new(8);
        let mut queue = Queue::new(bounds, room.clone());
        let (mut held, mut waiting): (Vec<Seat>, Vec<(Seat, Ticket, u64)>) = (Vec::new(), Vec::new());
        for (number, step) in (0_u64..).zip(steps) {
            match step {
                Step::Ask(n) => match queue.ask(&uid(n), number) {
                    Asked::Granted(seat) => held.push(seat),
                    Asked::Waits(seat, ticket) => waiting.push((seat, ticket, number)),
                    Asked::Full => {}
                },
                Step::TakeOver(n) => held.push(queue.take_over(&uid(n))),
                Step::Release(at) if !held.is_empty() => {
                    let seat = held.swap_remove(at % held.len());
                    if let Some((next, number)) = queue.release(seat) {
                        let at = waiting.iter().position(|(_, _, other)| *other == number);
                        let (seat, ..) = waiting.remove(at.expect("only a waiter is woken"));
                        prop_assert_eq!(seat, next);
                        held.push(next);
                    }
                }
                Step::Withdraw(at) if !waiting.is_empty() => {
                    let (seat, ticket, _) = waiting.swap_remove(at % waiting.len());
                    prop_assert!(queue.withdraw(seat, ticket));
                }
                Step::Release(_) | Step::Withdraw(_) => {}
            }
            prop_assert_eq!(queue.in_flight(), held.len());
            prop_assert_eq!(queue.waiting(), waiting.len());
            prop_assert_eq!(room.taken(), waiting.len());
            // Nobody waits who may take a free permit.
            let may = waiting.iter().any(|(seat, ..)| held.iter().filter(|h| *h == seat).count() < 2);
            prop_assert!(queue.in_flight() >= 3 || !may);
        }
        for (seat, ticket, _) in waiting {
            queue.withdraw(seat, ticket);
        }
        for seat in held {
            prop_assert!(queue.release(seat).is_none());
        }
        prop_assert_eq!((queue.people(), queue.in_flight(), room.taken()), (0, 0, 0));
    }
}
