//! The list of runs, with what is needed of each to filter and count it.

use crate::catalog::{Catalog, Decision, Entry, HeadState, Summary};
use crate::store::StoreError;
use endstop_serve::backend::{Filter, RunState, Totals};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which counters use the order of the runs that was read last.
const FRESH: Duration = Duration::from_millis(500);

/// The part of a run that filters and counters need.
#[derive(Clone, Debug, PartialEq)]
struct Brief {
    agent: String,
    state: RunState,
    began: bool,
    /// The termination, its category, and the cost in US dollars.
    ending: Option<(String, String, Option<f64>)>,
}

/// Numbers and ids, the newest first.
type Order = Arc<Vec<(i64, String)>>;

/// The list of runs. Its methods block.
pub(super) struct List {
    catalog: Catalog,
    order: Mutex<Option<(Instant, Order)>>,
    /// The runs that have ended, which do not change any more.
    ended: Mutex<HashMap<String, Brief>>,
}

/// Returns the state of a run.
pub(super) fn state_of(entry: &Entry) -> RunState {
    match (&entry.ended, entry.head.as_ref().map(|head| head.state)) {
        (Some(_), _) | (None, Some(HeadState::Ended)) => RunState::Ended,
        (None, Some(HeadState::Parked)) => RunState::Parked,
        (None, Some(HeadState::Running)) => RunState::Running,
        (None, None) if entry.began.is_some() => RunState::Running,
        (None, None) => RunState::Queued,
    }
}

impl List {
    pub(super) fn new(catalog: Catalog) -> List {
        List { catalog, order: Mutex::default(), ended: Mutex::default() }
    }

    fn ended(&self) -> MutexGuard<'_, HashMap<String, Brief>> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the order, because a run was added.
    pub(super) fn changed(&self) {
        *self.order.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Returns the order as it was at most this long ago.
    fn order(&self, fresh: Duration) -> Result<Order, StoreError> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_at, known)) = &*order
            && read_at.elapsed() < fresh
        {
            return Ok(Arc::clone(known));
        }
        // Under the lock, so that many requests do not read the folder at the same time.
        let read = Arc::new(self.catalog.list()?);
        *order = Some((Instant::now(), Arc::clone(&read)));
        Ok(read)
    }

    /// Returns a run that was accepted.
    pub(super) fn entry(&self, run: &str) -> Result<Option<Entry>, StoreError> {
        let entry = self.catalog.get(run)?;
        Ok(entry.filter(|entry| entry.decision == Some(Decision::Accepted)))
    }

    /// Returns the runs that a filter fits, the newest first.
    pub(super) fn find(&self, filter: &Filter) -> Result<Vec<(String, Entry)>, StoreError> {
        let mut found = Vec::new();
        // Read again each time, so that a run is listed as soon as any server has accepted it.
        for (number, run) in self.order(Duration::ZERO)?.iter() {
            if found.len() >= filter.most as usize {
                break;
            }
            if filter.before.is_some_and(|before| *number >= before) {
                continue;
            }
            // A run that was removed from the store is left out.
            let Some(brief) = self.brief(run)? else { continue };
            if fits(&brief, filter)
                && let Some(entry) = self.entry(run)?
            {
                found.push((run.clone(), entry));
            }
        }
        Ok(found)
    }

    fn brief(&self, run: &str) -> Result<Option<Brief>, StoreError> {
        if let Some(known) = self.ended().get(run) {
            return Ok(Some(known.clone()));
        }
        let Some(entry) = self.entry(run)? else { return Ok(None) };
        let ending =
            |ended: &Summary| (ended.termination.clone(), ended.category.clone(), ended.cost_usd);
        let brief = Brief {
            state: state_of(&entry),
            began: entry.began.is_some(),
            ending: entry.ended.as_ref().map(ending),
            agent: entry.accepted.request.agent,
        };
        if brief.ending.is_some() {
            self.ended().insert(run.to_owned(), brief.clone());
        }
        Ok(Some(brief))
    }

    /// Counts the runs of the store.
    pub(super) fn totals(&self) -> Result<Totals, StoreError> {
        let mut totals = Totals::default();
        let order = self.order(FRESH)?;
        for (_, run) in order.iter() {
            let Some(brief) = self.brief(run)? else { continue };
            match brief.state {
                RunState::Queued => totals.queued += 1,
                RunState::Running => totals.running += 1,
                RunState::Parked => totals.parked += 1,
                RunState::Ended => {}
            }
            if brief.began {
                *totals.started.entry(brief.agent.clone()).or_default() += 1;
            }
            if let Some((termination, _, cost_usd)) = brief.ending {
                *totals.cost_usd.entry(brief.agent.clone()).or_default() += cost_usd.unwrap_or(0.0);
                *totals.ended.entry((brief.agent, termination)).or_default() += 1;
            }
        }
        // Runs that were removed from the store must not stay in memory.
        let known = self.ended().len();
        if known > 2 * order.len() {
            self.ended().clear();
        }
        Ok(totals)
    }
}

fn fits(brief: &Brief, filter: &Filter) -> bool {
    let category = brief.ending.as_ref().map(|(_, category, _)| category);
    filter.state.is_none_or(|state| state == brief.state)
        && filter.category.as_ref().is_none_or(|asked| Some(asked) == category)
        && filter.agents.as_ref().is_none_or(|agents| agents.contains(&brief.agent))
}
