//! The journal of a guarded run, which records its lead conversation, and the credentials that it must not have.

use crate::exchange::each_in_body;
use crate::proxy::RequestHead;
use endstop::agent::{GuestJournal, GuestRecord};
use endstop::journal::RunHeader;
use endstop_core::guest::Recorded;
use endstop_core::{Outcome, RunSpec};
use endstop_wire::redact::KnownKeys;
use serde_json::Value;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of credentials that are remembered for a run. A client has one or two.
const MOST_KEYS: usize = 256;
/// Maximum number of those of which it is not sure that they are credentials. Values that differ in each
/// request must not take the place of keys, and each new one costs time.
const MOST_GUESSES: usize = 32;

/// A journal for guarded runs, and what it stores of each in addition to its events.
#[derive(Clone)]
pub struct JournalSettings {
    /// The journal. Settings that share it have one thread that writes.
    pub journal: GuestJournal,
    /// The task, for lists of runs: usually the command line of the program.
    pub task: String,
    /// The policy as it is written in configuration, so that a replay can build it again.
    pub policy: Option<Value>,
    /// Settings of the program that runs the guard. Must not contain a key.
    pub settings: Value,
    /// Secrets that must not be stored. Keys in the requests of clients need not be among them.
    pub keys: KnownKeys,
    /// Receives the failure of the journal, at most once for each run, on the thread that writes.
    pub report: Arc<dyn Fn(String) + Send + Sync>,
    /// The bound on runs that are recorded at once, for runs that clients start and name; `None` for
    /// a single run. The id of such a run is its name with the time of its start, because a name may
    /// be used again.
    pub many: Option<Records>,
}

/// Counts the runs that are recorded at once, because each may have events that wait for a slow disk.
#[derive(Clone, Debug)]
pub struct Records {
    live: Arc<AtomicUsize>,
    most: usize,
}

impl Records {
    /// Creates a counter that allows at most this number.
    pub fn at_most(most: usize) -> Records {
        Records { live: Arc::default(), most }
    }

    fn take_place(&self) -> Option<Place> {
        let more = |live: usize| (live < self.most).then_some(live + 1);
        self.live.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Place(Arc::clone(&self.live)))
    }
}

/// The place of a run among those that are recorded.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for JournalSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JournalSettings").finish_non_exhaustive()
    }
}

/// The record of a run. It begins with the first call, because a key in the command line may be known
/// only from there.
#[derive(Default)]
pub(super) struct RunRecord {
    settings: Option<JournalSettings>,
    record: Option<GuestRecord>,
    place: Option<Place>,
    /// Events before the first call.
    waiting: Vec<Recorded>,
    /// The credentials of all requests so far, and the secrets of the run.
    raw: Vec<String>,
    /// Number of those of which it is not sure that they are credentials.
    guesses: usize,
    /// These and those of the settings, ready to be searched for.
    keys: KnownKeys,
    sets: Arc<KeySets>,
}

impl RunRecord {
    pub(super) fn new(settings: Option<JournalSettings>, sets: Arc<KeySets>) -> RunRecord {
        let keys = settings.as_ref().map(|one| one.keys.clone()).unwrap_or_default();
        RunRecord { settings, keys, sets, ..RunRecord::default() }
    }

    /// Returns the id of a run with this name.
    pub(super) fn id(&self, name: &str, wall_ms: u64) -> String {
        let many = self.settings.as_ref().is_some_and(|settings| settings.many.is_some());
        if many { format!("{name}-{wall_ms:x}") } else { name.to_owned() }
    }

    /// The secrets of the run, of its requests so far and of its settings.
    pub(super) fn keys(&self) -> &KnownKeys {
        &self.keys
    }

    /// Redacts the credentials of a request from what is recorded and reported from now on.
    pub(super) fn hide_keys_of(&mut self, head: &RequestHead, body: &[u8]) {
        let known = self.raw.len();
        let mut found = |key: &str, is_guess: bool| {
            let is_full = is_guess && self.guesses >= MOST_GUESSES;
            self.guesses += usize::from(!is_full && self.add(key) && is_guess);
        };
        head.each_credential(&mut found);
        each_in_body(body, |key| found(key, true));
        self.renew(known);
    }

    /// Redacts a secret of the run from what is recorded and reported from now on.
    pub(super) fn hide(&mut self, secret: &str) {
        let known = self.raw.len();
        self.add(secret);
        self.renew(known);
    }

    fn add(&mut self, key: &str) -> bool {
        let is_new = self.raw.len() < MOST_KEYS && !self.raw.iter().any(|known| known == key);
        if is_new {
            self.raw.push(key.to_owned());
        }
        is_new
    }

    /// Builds the search tables, if there are more secrets than before.
    fn renew(&mut self, known: usize) {
        if self.raw.len() == known {
            return;
        }
        let others = self.settings.as_ref().map(|one| one.keys.clone()).unwrap_or_default();
        self.keys = self.sets.of(&self.raw, &others);
        if let Some(record) = &self.record {
            record.hide(&self.keys);
        }
    }

    /// Begins the record, if it has not begun. The lead conversation has this specification.
    pub(super) fn begin(&mut self, id: &str, started_ms: u64, spec: impl FnOnce() -> RunSpec) {
        let Some(settings) = self.settings.as_ref().filter(|_| self.record.is_none()) else {
            return;
        };
        if let Some(many) = &settings.many {
            self.place = many.take_place();
            if self.place.is_none() {
                (settings.report)(format!(
                    "run {id} is not recorded, because {} other runs are",
                    many.most
                ));
                self.settings = None;
                self.waiting = Vec::new();
                return;
            }
        }
        let header = RunHeader {
            id: id.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_ms,
            spec: spec().clone_with(None),
            policy: settings.policy.clone(),
            settings: settings.settings.clone(),
            keys: self.keys.clone(),
            ..RunHeader::default()
        };
        let report = Arc::clone(&settings.report);
        let record = settings.journal.begin(header, move |problem| report(problem));
        record.events(std::mem::take(&mut self.waiting), false);
        self.record = Some(record);
    }

    /// Records events of the lead conversation; `ended` is `true` if the last of them ended it.
    pub(super) fn events(&mut self, events: Vec<Recorded>, ended: bool) {
        match &self.record {
            Some(record) => record.events(events, ended),
            None if self.settings.is_some() => self.waiting.extend(events),
            None => {}
        }
    }

    /// Records the outcome; nothing follows.
    pub(super) fn ended(&mut self, outcome: &Arc<Outcome>) {
        if let Some(record) = &self.record {
            record.ended(Arc::clone(outcome));
        }
    }

    /// Takes the record, to wait until it is written.
    pub(super) fn take(&mut self) -> Option<GuestRecord> {
        self.place = None;
        self.record.take()
    }
}

/// Number of sets that are remembered. Most guards serve clients with the same key, or with few.
const MOST_SETS: usize = 16;

/// Search tables for credentials, shared by runs whose clients send the same ones. To build them takes
/// longer than a call, and they are larger than the rest of a short run.
#[derive(Default)]
pub(super) struct KeySets(Mutex<VecDeque<(Vec<String>, KnownKeys)>>);

impl KeySets {
    /// Returns the tables for these credentials together with `others`.
    pub(super) fn of(&self, credentials: &[String], others: &KnownKeys) -> KnownKeys {
        let known = {
            let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let at = sets.iter().position(|(of, _)| of == credentials);
            at.and_then(|at| sets.remove(at))
        };
        let build = || (credentials.to_vec(), KnownKeys::new(credentials));
        let (credentials, keys) = known.unwrap_or_else(build);
        // A union of sets of which one contains the other is cheap, so what is remembered is the union.
        let keys = keys.and(others);
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sets.push_front((credentials, keys.clone()));
        sets.truncate(MOST_SETS);
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &str = "own-4f1c9a77b2e84d0d9c3e5a61-key";

    fn credentials(number: usize) -> Vec<String> {
        vec![format!("sk-proj-{number}-9b1f0c77d2e84d0d9c3e5a61")]
    }

    fn hides(keys: &KnownKeys, secret: &str) -> bool {
        keys.out_of_text(secret) == "[redacted]"
    }

    #[test]
    fn set_has_all_secrets_and_no_others() {
        let sets = KeySets::default();
        let others = KnownKeys::new([OTHERS]);
        // More than are remembered, so that some are built again.
        for number in (0..2 * MOST_SETS).chain(0..2 * MOST_SETS) {
            let keys = sets.of(&credentials(number), &KnownKeys::default());
            assert!(hides(&keys, &credentials(number)[0]));
            let both = sets.of(&credentials(number), &others);
            assert!(hides(&both, &credentials(number)[0]) && hides(&both, OTHERS));
        }
        assert_eq!(sets.0.lock().unwrap().len(), MOST_SETS);
    }
}
