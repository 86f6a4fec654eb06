//! The spending of the last minute and hour, and the time at which it is below a rate.
//!
//! A call waits as long as the spending of the last minute or hour has reached the rate. What a call costs is known when it
//! has ended, so that each window exceeds its rate by the cost of the calls in flight at most.

use crate::limits::{Per, Quantity, Rates, amount};
use crate::usage::NanoUsd;
use std::collections::VecDeque;
use std::time::Duration;

/// Number of entries into which the spending of a window is divided, so that its memory is bounded.
const ENTRIES: u32 = 60;

/// The spending of the last minute, and of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    of: [VecDeque<Entry>; Per::ALL.len()],
}

/// The spending at about the same time.
#[derive(Debug)]
struct Entry {
    first: Duration,
    last: Duration,
    usd: NanoUsd,
    tokens: u64,
}

impl Entry {
    fn amount(&self, quantity: Quantity) -> u64 {
        match quantity {
            Quantity::Usd => self.usd.0,
            Quantity::Tokens => self.tokens,
        }
    }
}

/// A rate that is reached.
#[derive(Debug)]
pub(crate) struct ReachedRate {
    /// The time from which the spending is below the rate.
    pub(crate) until: Duration,
    /// Description of the spending.
    pub(crate) evidence: String,
}

impl Recent {
    /// Adds what was spent now.
    pub(crate) fn add(&mut self, usd: NanoUsd, tokens: u64, now: Duration) {
        if usd == NanoUsd::ZERO && tokens == 0 {
            return;
        }
        for (per, entries) in Per::ALL.into_iter().zip(&mut self.of) {
            while entries.front().is_some_and(|first| !counts(first, per, now)) {
                entries.pop_front();
            }
            match entries.back_mut() {
                // An entry counts until its last part is out of the window, so that no window has too little.
                Some(entry) if now.saturating_sub(entry.first) < per.length() / ENTRIES => {
                    entry.last = now;
                    entry.usd += usd;
                    entry.tokens = entry.tokens.saturating_add(tokens);
                }
                _ => entries.push_back(Entry { first: now, last: now, usd, tokens }),
            }
        }
    }

    /// Returns the rate that is reached; of several the one that is reached for longest.
    pub(crate) fn reached(&self, rates: &Rates, now: Duration) -> Option<ReachedRate> {
        let reached = rates.iter().filter_map(|(quantity, per, most)| {
            let entries = || self.of[per as usize].iter().filter(|one| counts(one, per, now));
            let all = entries().fold(0, |sum: u64, one| sum.saturating_add(one.amount(quantity)));
            if all < most {
                return None;
            }
            let mut left = all;
            let last = entries().find(|one| {
                left = left.saturating_sub(one.amount(quantity));
                left < most
            })?;
            let (used, most) = (amount(quantity, all), amount(quantity, most));
            let name = per.name();
            let evidence = format!("{used} of {most} per {name} spent in the last {name}");
            Some(ReachedRate { until: last.last.saturating_add(per.length()), evidence })
        });
        reached.max_by_key(|one| one.until)
    }
}

fn counts(entry: &Entry, per: Per, now: Duration) -> bool {
    entry.last.saturating_add(per.length()) > now
}
