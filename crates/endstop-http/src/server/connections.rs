//! The connections of a server, with bounds that a client which only connects cannot use up.
//!
//! ```
//! use endstop_http::Connections;
//! let connections = Connections::at_most(4);
//! let first = connections.open([127, 0, 0, 1].into()).unwrap();
//! first.admit(); // its client has sent a request that is served
//! assert_eq!(connections.count(), 1);
//! drop(first);
//! assert_eq!(connections.count(), 0);
//! ```

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The connections of a server. Copies count the same ones.
///
/// A connection is admitted with its first request that is served. If there is no room for another
/// connection, the oldest one that is not admitted is closed, so that clients which send no request, or
/// none that is served, cannot shut out the others. One address has three quarters of the places; the
/// loopback addresses count as one, and so does each `/64` network of IPv6.
#[derive(Clone, Debug)]
pub struct Connections {
    most: usize,
    most_of_address: usize,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, Open>,
    by_address: HashMap<IpAddr, usize>,
    /// Connections in the order in which they came; some are admitted or closed by now.
    waiting: VecDeque<u64>,
    next: u64,
}

#[derive(Debug)]
struct Open {
    address: IpAddr,
    is_admitted: bool,
    task: Option<AbortHandle>,
}

/// The place of a connection, which becomes free when this value is dropped.
#[derive(Debug)]
pub struct Place {
    number: u64,
    state: Arc<Mutex<State>>,
}

impl Connections {
    /// Returns a server without connections, which may have this number of them.
    pub fn at_most(most: usize) -> Connections {
        // A single place must be there for any address.
        let most_of_address = (most - most / 4).max(1);
        Connections { most, most_of_address, state: Arc::default() }
    }

    /// `true` if another connection can be accepted.
    pub fn has_room(&self) -> bool {
        let mut state = lock(&self.state);
        state.open.len() < self.most || state.oldest(|_| true).is_some()
    }

    /// Takes a place for a connection of this address, if necessary that of the oldest connection that is
    /// not admitted. `None` if there is none: the connection must be closed.
    pub fn open(&self, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let mut state = lock(&self.state);
        let of_address = state.by_address.get(&address).copied().unwrap_or_default();
        if of_address >= self.most_of_address {
            let oldest = state.oldest(|open| open.address == address)?;
            state.close(oldest);
        } else if state.open.len() >= self.most {
            let oldest = state.oldest(|_| true)?;
            state.close(oldest);
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number, Open { address, is_admitted: false, task: None });
        *state.by_address.entry(address).or_default() += 1;
        state.wait(number);
        drop(state);
        Some(Place { number, state: Arc::clone(&self.state) })
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        lock(&self.state).open.len()
    }

    /// Names the task that serves a connection, which is aborted if its place is needed.
    pub fn served_by(&self, number: u64, task: AbortHandle) {
        match lock(&self.state).open.get_mut(&number) {
            Some(open) => open.task = Some(task),
            // Its place was taken, or it has ended already.
            None => task.abort(),
        }
    }
}

impl Place {
    /// Returns the number of the connection.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Records that a request of the connection is served.
    pub fn admit(&self) {
        if let Some(open) = lock(&self.state).open.get_mut(&self.number) {
            open.is_admitted = true;
        }
    }

    /// `true` if a request of the connection was served.
    pub fn is_admitted(&self) -> bool {
        lock(&self.state).open.get(&self.number).is_some_and(|open| open.is_admitted)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.state).remove(self.number);
    }
}

impl State {
    /// Returns the oldest connection that is not admitted and fits.
    fn oldest(&mut self, fits: impl Fn(&Open) -> bool) -> Option<u64> {
        let State { open, waiting, .. } = self;
        let waits = |number: &u64| open.get(number).is_some_and(|open| !open.is_admitted);
        while waiting.front().is_some_and(|number| !waits(number)) {
            waiting.pop_front();
        }
        let fits =
            |number: &&u64| open.get(*number).is_some_and(|open| !open.is_admitted && fits(open));
        waiting.iter().find(fits).copied()
    }

    /// Adds a connection to those that are not admitted.
    fn wait(&mut self, number: u64) {
        let State { open, waiting, .. } = self;
        waiting.push_back(number);
        // Those that are admitted or closed are removed now and then, so that the list is not much longer
        // than that of the connections.
        if waiting.len() > 2 * open.len() + 16 {
            waiting.retain(|number| open.get(number).is_some_and(|open| !open.is_admitted));
        }
    }

    fn close(&mut self, number: u64) {
        if let Some(task) = self.remove(number).and_then(|open| open.task) {
            task.abort();
        }
    }

    fn remove(&mut self, number: u64) -> Option<Open> {
        let open = self.open.remove(&number)?;
        if let Some(count) = self.by_address.get_mut(&open.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&open.address);
            }
        }
        Some(open)
    }
}

// Each change of the state is complete before anything can panic.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the address that stands for all those which one client can easily have.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        address if address.is_loopback() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn oldest_unadmitted_connection_makes_room() {
        let connections = Connections::at_most(4);
        let open = |address: &str| connections.open(ip(address));
        let places: Vec<Place> = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"]
            .map(|address| open(address).unwrap())
            .into();
        places[0].admit();
        assert!(connections.has_room(), "one that is not admitted");
        let fifth = open("10.0.0.5").unwrap();
        assert_eq!(connections.count(), 4);
        // The second one had to leave, and cannot come back.
        places[1].admit();
        assert!(places[0].is_admitted() && !places[1].is_admitted());
        places[2].admit();
        places[3].admit();
        fifth.admit();
        assert!(!connections.has_room());
        assert!(open("10.0.0.6").is_none());
        // A place that was lost is not given back twice.
        drop(places);
        assert_eq!(connections.count(), 1);
    }

    #[test]
    fn address_has_three_quarters_of_the_places() {
        for (one, same, other) in [
            ("10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"),
            ("127.0.0.1", "127.9.9.9", "10.0.0.1"),
            ("::1", "127.0.0.1", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::ffff:0:0:2", "2001:db8:0:1::1"),
        ] {
            let connections = Connections::at_most(8);
            let admitted = |address: &str| {
                let place = connections.open(ip(address));
                place.iter().for_each(Place::admit);
                place
            };
            let first: Vec<_> =
                (0..6).map(|n| admitted(if n % 2 == 0 { one } else { same })).collect();
            assert!(first.iter().all(Option::is_some), "{one}");
            assert!(admitted(one).is_none() && admitted(same).is_none(), "{one}");
            let rest = [admitted(other), admitted(other), admitted(other)];
            assert_eq!(rest.map(|place| place.is_some()), [true, true, false], "{other}");
            drop(first);
            assert!(admitted(same).is_some(), "{one}");
        }
        assert!(Connections::at_most(1).open(ip("10.0.0.1")).is_some());
    }

    #[test]
    fn list_of_waiting_connections_stays_short() {
        let connections = Connections::at_most(3);
        let kept = connections.open(ip("10.0.0.1")).unwrap();
        for _ in 0..10_000 {
            connections.open(ip("10.0.0.2")).unwrap().admit();
            assert!(connections.has_room());
        }
        assert!(lock(&connections.state).waiting.len() < 64);
        drop(kept);
        assert_eq!(lock(&connections.state).by_address.len(), 0);
    }

    #[tokio::test]
    async fn closed_connection_ends_its_task() {
        let connections = Connections::at_most(1);
        let mut tasks = tokio::task::JoinSet::new();
        let mut start = || {
            let place = connections.open(ip("10.0.0.1")).unwrap();
            let number = place.number();
            let task = tasks.spawn(async move {
                let _place = place;
                std::future::pending::<()>().await;
            });
            connections.served_by(number, task);
        };
        start();
        start();
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
        assert_eq!((connections.count(), tasks.len()), (1, 1));
        // A task that is named too late is aborted as well.
        let task = tasks.spawn(std::future::pending());
        connections.served_by(0, task);
        assert!(tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
    }
}
