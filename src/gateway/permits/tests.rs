use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::tasks::Tasks;

fn turns(max_turns: usize, per_person: usize, queue_per_person: usize, wait: Duration) -> Turns {
    let queue_total = QueueRoom::new(1000);
    let limits = TurnLimits { max_turns, per_person, queue_per_person, queue_total, queue_wait: wait };
    Turns::new(limits, Gauge::noop(), Gauge::noop())
}

fn uid(n: u8) -> Uid {
    Uid::parse(&format!("{n:02x}")).unwrap()
}

const LONG: Duration = Duration::from_secs(60);

/// Polls a future once: it must wait.
async fn must_wait<F: Future>(future: std::pin::Pin<&mut F>) {
    let mut future = Some(future);
    std::future::poll_fn(|cx| {
        assert!(future.take().unwrap().poll(cx).is_pending());
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn a_freed_permit_goes_straight_to_the_waiter() {
    let (turns, never) = (turns(1, 1, 4, LONG), Cancellation::new());
    let first = turns.admit(&uid(1), &never).await.unwrap();
    let (second, third) = (uid(2), uid(3));
    let mut second = std::pin::pin!(turns.admit(&second, &never));
    must_wait(second.as_mut()).await;
    drop(first);
    // It is the second's already, although the second has not run since.
    assert_eq!((turns.in_flight(), turns.queued()), (1, 0));
    let mut third = std::pin::pin!(turns.admit(&third, &never));
    must_wait(third.as_mut()).await;
    let second = second.await.unwrap();
    drop(second);
    drop(third.await.unwrap());
    assert_eq!((turns.in_flight(), turns.queued()), (0, 0));
}

#[tokio::test]
async fn a_hundred_queued_turns_of_one_person_let_another_in_next() {
    let (turns, never) = (turns(10, 10, 200, LONG), Cancellation::new());
    let tasks = Tasks::new();
    let (alice, bob) = (uid(1), uid(2));
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(turns.admit(&alice, &never).await.unwrap());
    }
    let served = Arc::new(Mutex::new(Vec::new()));
    for who in std::iter::repeat_n(&alice, 100).chain([&bob]) {
        let (turns, never, who, served) = (turns.clone(), never.clone(), who.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let permit = turns.admit(&who, &never).await.unwrap();
            served.lock().unwrap().push(who);
            drop(permit);
        });
    }
    while turns.queued() < 101 {
        tokio::task::yield_now().await;
    }
    drop(held.pop());
    assert!(tasks.drain(LONG).await);
    let served = served.lock().unwrap();
    assert_eq!((served.len(), &served[0]), (101, &bob));
    drop(held);
    assert_eq!((turns.in_flight(), turns.queued()), (0, 0));
}

#[tokio::test]
async fn a_dropped_waiter_leaves() {
    let (turns, never) = (turns(1, 1, 1, LONG), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    let second = uid(2);
    {
        let mut second = std::pin::pin!(turns.admit(&second, &never));
        must_wait(second.as_mut()).await;
        assert_eq!(turns.queued(), 1);
    }
    assert_eq!(turns.queued(), 0);
    drop(held);
    assert_eq!(turns.in_flight(), 0);
}

#[tokio::test]
async fn a_waiter_dropped_after_the_hand_over_passes_the_permit_on() {
    let (turns, never) = (turns(1, 1, 1, LONG), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    let (second, third) = (uid(2), uid(3));
    let mut third = std::pin::pin!(turns.admit(&third, &never));
    {
        let mut second = std::pin::pin!(turns.admit(&second, &never));
        must_wait(second.as_mut()).await;
        must_wait(third.as_mut()).await;
        drop(held);
        assert_eq!((turns.in_flight(), turns.queued()), (1, 1));
    }
    drop(third.await.unwrap());
    assert_eq!((turns.in_flight(), turns.queued()), (0, 0));
}

#[tokio::test]
async fn a_revoked_waiter_leaves_and_a_revoked_person_never_enters() {
    let (turns, never) = (turns(1, 1, 1, LONG), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    let (second, revoked) = (uid(2), Cancellation::new());
    let mut waiting = std::pin::pin!(turns.admit(&second, &revoked));
    must_wait(waiting.as_mut()).await;
    revoked.cancel();
    assert_eq!(waiting.await.unwrap_err(), AdmitError::Revoked);
    assert_eq!(turns.queued(), 0);
    drop(held);
    assert_eq!(turns.admit(&second, &revoked).await.unwrap_err(), AdmitError::Revoked);
    assert_eq!(turns.in_flight(), 0);
}

#[tokio::test]
async fn revocation_wins_over_a_permit_that_came_with_it() {
    let (turns, never) = (turns(1, 1, 1, LONG), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    let (second, revoked) = (uid(2), Cancellation::new());
    let mut waiting = std::pin::pin!(turns.admit(&second, &revoked));
    must_wait(waiting.as_mut()).await;
    drop(held);
    revoked.cancel();
    assert_eq!(waiting.await.unwrap_err(), AdmitError::Revoked);
    assert_eq!((turns.in_flight(), turns.queued()), (0, 0));
}

#[tokio::test]
async fn the_wait_has_an_end() {
    let wait = Duration::from_millis(30);
    let (turns, never) = (turns(1, 1, 1, wait), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    let since = Instant::now();
    assert_eq!(turns.admit(&uid(2), &never).await.unwrap_err(), AdmitError::Timeout);
    assert!(since.elapsed() >= wait);
    assert_eq!((turns.in_flight(), turns.queued()), (1, 0));
    drop(held);
    assert_eq!(turns.in_flight(), 0);
}

#[tokio::test]
async fn a_permit_tells_how_long_it_was_waited_for() {
    let (turns, never) = (turns(1, 1, 1, LONG), Cancellation::new());
    let held = turns.admit(&uid(1), &never).await.unwrap();
    assert_eq!(held.waited(), Duration::ZERO);
    let second = uid(2);
    let mut waiting = std::pin::pin!(turns.admit(&second, &never));
    must_wait(waiting.as_mut()).await;
    drop(held);
    assert!(waiting.await.unwrap().waited() > Duration::ZERO);
}

#[tokio::test]
async fn with_the_default_bounds_the_eighth_turn_is_refused() {
    let (turns, never) = (turns(10, 3, 4, LONG), Cancellation::new());
    let alice = uid(1);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(turns.admit(&alice, &never).await.unwrap());
    }
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(turns.admit(&alice, &never))).collect();
    for waiter in &mut waiting {
        must_wait(waiter.as_mut()).await;
    }
    assert_eq!(turns.admit(&alice, &never).await.unwrap_err(), AdmitError::QueueFull);
    assert!(turns.admit(&uid(2), &never).await.is_ok());
}

#[tokio::test]
async fn two_gateways_share_the_room_to_wait() {
    let queue_total = QueueRoom::new(1);
    let limits =
        TurnLimits { max_turns: 1, per_person: 1, queue_per_person: 4, queue_total, queue_wait: Duration::ZERO };
    let one = Turns::new(limits.clone(), Gauge::noop(), Gauge::noop());
    let other = Turns::new(limits, Gauge::noop(), Gauge::noop());
    let never = Cancellation::new();
    let _held = (one.admit(&uid(1), &never).await.unwrap(), other.admit(&uid(1), &never).await.unwrap());
    let second = uid(2);
    let mut waiting = Box::pin(one.admit(&second, &never));
    must_wait(waiting.as_mut()).await;
    assert_eq!(other.admit(&uid(3), &never).await.unwrap_err(), AdmitError::QueueFull);
    drop(waiting);
    assert_eq!(other.admit(&uid(3), &never).await.unwrap_err(), AdmitError::Timeout);
}

/// A random number below `bound`, good enough to shuffle a test.
fn below(bound: u64) -> u64 {
    let mut bytes = [0; 8];
    crate::secret::fill_random(&mut bytes);
    u64::from_ne_bytes(bytes) % bound
}

struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn counters_return_to_zero_under_random_aborts() {
    const MAX: usize = 5;
    let turns = turns(MAX, 2, 50, Duration::from_millis(20));
    let tasks = Tasks::new();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = Arc::new(AtomicUsize::new(0));
    for number in 0..2000_u64 {
        let (turns, served) = (turns.clone(), Arc::clone(&served));
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        tasks.spawn(async move {
            let revoked = Cancellation::new();
            let turn = async {
                let person = uid(u8::try_from(number % 7).unwrap());
                let Ok(_permit) = turns.admit(&person, &revoked).await else { return };
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let _running = Running(&running);
                tokio::task::yield_now().await;
                served.fetch_add(1, Ordering::SeqCst);
            };
            let upset = async {
                tokio::time::sleep(Duration::from_micros(below(8000))).await;
                if below(2) == 0 {
                    revoked.cancel();
                    std::future::pending::<()>().await;
                }
            };
            // Dropped here, at whatever point the turn has reached, unless it ends first.
            tokio::select! { () = turn => {} () = upset => {} }
        });
    }
    assert!(tasks.drain(LONG).await);
    assert_eq!((turns.in_flight(), turns.queued()), (0, 0));
    // Every third turn is let alone, and the first of them finds all permits free.
    assert!(served.load(Ordering::SeqCst) > 0);
    assert!(most.load(Ordering::SeqCst) <= MAX);
}
