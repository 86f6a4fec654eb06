//! Counters of runs, calls and spending: of one run for its report, of all runs for metrics.
//!
//! ```
//! use endstop_guard::run::Meter;
//! use std::time::Duration;
//! let meter = Meter::default();
//! meter.first_byte(Duration::from_millis(80));
//! let tally = meter.read();
//! assert_eq!((tally.first_bytes[0], tally.first_bytes[1]), (0, 1));
//! ```

use endstop_core::Termination;
use endstop_core::guest::Spending;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram of the time to the first byte, in milliseconds. A last bucket has
/// everything above.
pub const BUCKETS_MS: [u64; 10] = [50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Counts what runs do. All counters only grow.
#[derive(Debug, Default)]
pub struct Meter {
    runs: AtomicU64,
    calls: AtomicU64,
    finals: AtomicU64,
    refusals: AtomicU64,
    input_tokens: AtomicU64,
    output_tokens: AtomicU64,
    cost: AtomicU64,
    endings: Mutex<BTreeMap<&'static str, u64>>,
    first_bytes: [AtomicU64; BUCKETS_MS.len() + 1],
    first_bytes_us: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs that started.
    pub runs: u64,
    /// Model calls that were forwarded.
    pub calls: u64,
    /// Calls that got a text with the reason why their run ended.
    pub finals: u64,
    /// Calls that were refused.
    pub refusals: u64,
    /// Prompt tokens, with those read from and written to caches.
    pub input_tokens: u64,
    /// Generated tokens.
    pub output_tokens: u64,
    /// Cost in billionths of a US dollar.
    pub nano_usd: u64,
    /// Runs that ended, by their ending.
    pub endings: BTreeMap<&'static str, u64>,
    /// Responses by the time to their first byte: one number for each of [`BUCKETS_MS`], and one
    /// for what is above.
    pub first_bytes: [u64; BUCKETS_MS.len() + 1],
    /// Sum of the times to the first byte.
    pub first_bytes_sum: Duration,
}

/// Numbers for the report of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Model calls that were forwarded.
    pub calls: u64,
    /// The most of them that were in flight at once, each until the end of its response was read.
    pub most_in_flight: u64,
    /// Calls that are not turns: titles, routers, summaries.
    pub auxiliary: u64,
    /// Calls after the end that got a final text.
    pub finals: u64,
    /// Calls after the end that were refused.
    pub refusals: u64,
    /// Those of the calls that make no text: embeddings, images, speech.
    pub metered: u64,
    /// Calls that guard could not read, and that passed.
    pub unread: u64,
    /// Model calls that guard refused before the end: they are not valid, or a limit could not be kept with them.
    pub rejected: u64,
    /// POST requests that are no model calls which guard knows, such as embeddings or batches, and
    /// that passed. Their cost is not known.
    pub others: u64,
    /// Those of them that are known to have a bill, such as embeddings of a run without limits.
    pub others_billed: u64,
    /// The calls of both kinds that make no text and were answered.
    pub without_text: u64,
    /// The time of those requests together.
    pub others_time: Duration,
    /// Conversations.
    pub threads: u64,
}

impl Counts {
    /// `true` if a model call has come, whatever its answer was.
    pub fn has_model_calls(&self) -> bool {
        let Counts { calls, metered, unread, rejected, finals, refusals, .. } = *self;
        let calls = calls.saturating_sub(metered);
        [calls, unread, rejected, finals, refusals].into_iter().any(|count| count > 0)
    }
}

impl Meter {
    pub(super) fn started(&self) {
        // Relaxed, because no counter depends on another.
        self.runs.fetch_add(1, Relaxed);
    }

    pub(super) fn called(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(super) fn final_text(&self) {
        self.finals.fetch_add(1, Relaxed);
    }

    /// Counts a call that was refused.
    pub fn refused(&self) {
        self.refusals.fetch_add(1, Relaxed);
    }

    pub(super) fn spent(&self, spending: &Spending) {
        let output = spending.usage.generated_tokens().unwrap_or(0);
        self.input_tokens.fetch_add(spending.usage.prompt_tokens(), Relaxed);
        self.output_tokens.fetch_add(output, Relaxed);
        self.cost.fetch_add(spending.cost.0, Relaxed);
    }

    pub(super) fn ended(&self, termination: Termination) {
        // A closed set of names bounds the map.
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        *endings.entry(termination.as_str()).or_default() += 1;
    }

    /// Counts a response by the time from its request to its first byte.
    pub fn first_byte(&self, waited: Duration) {
        let at = BUCKETS_MS.iter().position(|most| waited <= Duration::from_millis(*most));
        self.first_bytes[at.unwrap_or(BUCKETS_MS.len())].fetch_add(1, Relaxed);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.first_bytes_us.fetch_add(micros, Relaxed);
    }

    /// Reads the counters.
    pub fn read(&self) -> Tally {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        Tally {
            runs: get(&self.runs),
            calls: get(&self.calls),
            finals: get(&self.finals),
            refusals: get(&self.refusals),
            input_tokens: get(&self.input_tokens),
            output_tokens: get(&self.output_tokens),
            nano_usd: get(&self.cost),
            endings: self.endings.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            first_bytes: std::array::from_fn(|at| get(&self.first_bytes[at])),
            first_bytes_sum: Duration::from_micros(get(&self.first_bytes_us)),
        }
    }
}
