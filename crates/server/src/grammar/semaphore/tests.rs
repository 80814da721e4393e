use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;

fn client(name: &str) -> Arc<str> {
    Arc::from(name)
}

/// Result of polling a future once.
fn once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn place(semaphore: &Arc<FairSemaphore>, name: &str) -> Option<Permit> {
    once(pin!(semaphore.place(&client(name)))).map(|place| place.expect("a place"))
}

#[test]
fn a_client_has_one_place_and_leaves_the_others() {
    let semaphore = Arc::new(FairSemaphore::new(2));
    let first = place(&semaphore, "a").expect("all are free");
    assert!(place(&semaphore, "a").is_none(), "one is enough");
    let second = place(&semaphore, "b").expect("the other is free");
    assert!(place(&semaphore, "c").is_none(), "none is left");
    // Dropped waits hold nothing.
    drop((first, second));
    assert_eq!(semaphore.n_working(), 0);
    assert!(place(&semaphore, "a").is_some());
}

#[test]
fn clients_are_served_in_turn() {
    let semaphore = Arc::new(FairSemaphore::new(1));
    let names = ["a", "a", "a", "b", "c"].map(client);
    let held = place(&semaphore, "a");
    let mut waits: Vec<_> = names
        .iter()
        .map(|name| Box::pin(semaphore.place(name)))
        .collect();
    waits
        .iter_mut()
        .for_each(|wait| assert!(once(wait.as_mut()).is_none()));
    drop(held);
    let mut order = Vec::new();
    let mut names: Vec<&str> = names.iter().map(|name| &**name).collect();
    while !waits.is_empty() {
        let called = (0..waits.len()).find_map(|i| Some((i, once(waits[i].as_mut())?)));
        let (i, place) = called.expect("someone is called");
        order.push(names.remove(i));
        drop(waits.remove(i));
        drop(place);
    }
    assert_eq!(order, ["b", "c", "a", "a", "a"]);
}

#[test]
fn who_has_spent_the_least_is_next() {
    let semaphore = Arc::new(FairSemaphore::new(1));
    for (name, seconds) in [("costly", 8), ("cheap", 1), ("dear", 60)] {
        semaphore
            .state()
            .charge(&client(name), Duration::from_secs(seconds));
    }
    let held = place(&semaphore, "first").expect("it is free");
    let names = ["dear", "costly", "cheap", "new"].map(client);
    let mut waits: Vec<_> = names
        .iter()
        .map(|name| Box::pin(semaphore.place(name)))
        .collect();
    waits
        .iter_mut()
        .for_each(|wait| assert!(once(wait.as_mut()).is_none()));
    drop(held);
    for i in [3, 2, 1, 0] {
        assert!(once(waits[i].as_mut()).is_some(), "{}", names[i]);
    }
    // Time spent long ago no longer counts.
    let hour = Duration::from_secs(3600);
    let old = Account {
        seconds: 1e6,
        at: Instant::now().checked_sub(hour).expect("a clock"),
    };
    assert!(old.now() < 1e-6);
    // The number of tracked clients is bounded.
    let mut state = semaphore.state();
    (0..3 * MAX_KNOWN).for_each(|i| state.charge(&client(&i.to_string()), Duration::from_secs(9)));
    assert!(state.spent.len() <= MAX_KNOWN);
}

#[test]
fn who_is_called_and_has_left_gives_the_place_to_the_next() {
    let semaphore = Arc::new(FairSemaphore::new(1));
    let held = place(&semaphore, "a");
    let (b, c) = (client("b"), client("c"));
    let mut left = Box::pin(semaphore.place(&b));
    let mut next = Box::pin(semaphore.place(&c));
    assert!(once(left.as_mut()).is_none() && once(next.as_mut()).is_none());
    // Called, but not polled again.
    drop(held);
    assert!(once(next.as_mut()).is_none());
    drop(left);
    assert!(once(next.as_mut()).is_some());
}

#[test]
fn too_many_of_one_client_are_refused_and_a_closed_desk_serves_nobody() {
    let semaphore = Arc::new(FairSemaphore::new(1));
    let held = place(&semaphore, "a");
    let (a, b) = (client("a"), client("b"));
    let mut waits: Vec<_> = (0..MAX_WAITING)
        .map(|_| Box::pin(semaphore.place(&a)))
        .collect();
    waits
        .iter_mut()
        .for_each(|wait| assert!(once(wait.as_mut()).is_none()));
    let refused = once(pin!(semaphore.place(&a))).expect("at once");
    assert!(matches!(refused, Err(SubmitError::QueueFull { .. })));
    let mut other = Box::pin(semaphore.place(&b));
    assert!(once(other.as_mut()).is_none(), "others may wait");
    semaphore.close();
    assert!(matches!(
        once(other.as_mut()),
        Some(Err(SubmitError::Unloading))
    ));
    assert!(matches!(
        once(pin!(semaphore.place(&b))),
        Some(Err(SubmitError::Unloading))
    ));
    assert!(once(pin!(semaphore.closed())).is_some());
    drop(held);
}
