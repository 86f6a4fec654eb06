//! The spending of a run's threads, in order, so that each thread counts all of it against the
//! limits that they share.
//!
//! ```text
//! thread 0: turn, $0.02      a thread hears the entries of the others before its next call
//! thread 1: turn, $0.01
//! ```

use super::meter::Meter;
use endstop_core::NanoUsd;
use endstop_core::guest::Spending;
use endstop_core::usage::Unreported;
use std::collections::VecDeque;
use std::sync::Arc;

/// The entries that some thread has not heard, and the sum of the earlier ones.
#[derive(Debug, Default)]
pub(super) struct Books {
    entries: VecDeque<Entry>,
    /// Number of entries that were dropped because every thread has heard them.
    dropped: usize,
    /// The sum of all entries, for threads that begin later.
    sum: Spending,
    meter: Arc<Meter>,
}

#[derive(Debug)]
struct Entry {
    thread: usize,
    spending: Spending,
}

impl Books {
    /// Starts empty books whose spending also counts in a meter.
    pub(super) fn new(meter: Arc<Meter>) -> Books {
        Books { meter, ..Books::default() }
    }

    /// Enters what a thread spent. Nothing spent makes no entry.
    pub(super) fn add(&mut self, thread: usize, spending: Spending) {
        if is_nothing(&spending) {
            return;
        }
        add(&mut self.sum, &spending);
        self.meter.spent(&spending);
        self.entries.push_back(Entry { thread, spending });
    }

    /// The number of entries so far.
    pub(super) fn len(&self) -> usize {
        self.dropped + self.entries.len()
    }

    /// Returns what threads other than this one spent after the first `told` entries.
    pub(super) fn since(&self, told: usize, thread: usize) -> Option<Spending> {
        if told < self.dropped {
            // Only a new thread has heard less than what was dropped, and nothing is its own.
            return (!is_nothing(&self.sum)).then(|| self.sum.clone());
        }
        let skip = told.saturating_sub(self.dropped);
        let mut news: Option<Spending> = None;
        for entry in self.entries.iter().skip(skip).filter(|entry| entry.thread != thread) {
            match &mut news {
                Some(sum) => add(sum, &entry.spending),
                None => news = Some(entry.spending.clone()),
            }
        }
        news
    }

    /// Drops the entries that every thread has heard.
    pub(super) fn forget(&mut self, told_by_all: usize) {
        while self.dropped < told_by_all && self.entries.pop_front().is_some() {
            self.dropped += 1;
        }
    }

    /// The sum of all entries.
    pub(super) fn sum(&self) -> &Spending {
        &self.sum
    }
}

/// Adds `more` to a sum.
fn add(sum: &mut Spending, more: &Spending) {
    sum.usage.add(&more.usage);
    sum.cost += more.cost;
    sum.cost_unknown |= more.cost_unknown;
    sum.turns = sum.turns.saturating_add(more.turns);
    let unbounded = |spending: &Spending| Unreported::of_unknown(spending.cost_unknown);
    let mut unreported = sum.unreported.unwrap_or(unbounded(sum));
    unreported += more.unreported.unwrap_or(unbounded(more));
    sum.unreported = Some(unreported);
}

fn is_nothing(spending: &Spending) -> bool {
    let unreported = spending.unreported.unwrap_or(Unreported::NOTHING);
    spending.turns == 0
        && spending.cost == NanoUsd::ZERO
        && !spending.cost_unknown
        && unreported == Unreported::NOTHING
        && spending.usage.total_tokens() == 0
}
