//! Keeps the journal bounded: `endstop run` removes the oldest runs in the background if there are too
//! many, or if the file is too large.
//!
//! ```ignore
//! let _retention = Retention::begin(journal.as_ref(), args);
//! run();  // when it is dropped, it reports in one line what was removed
//! ```

use crate::args::RunArgs;
use crate::card::{count, thousands};
use crate::output;
use endstop::journal::{JournalError, JournalErrorKind, PruneSpec, Pruned, SqliteJournal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Unless `--journal-keep` says otherwise.
pub(crate) const KEEP: u64 = 10_000;
/// Unless `--journal-max-size` says otherwise: 1 GiB.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Pieces of the work that are done although the run has ended already.
const LEAST: u32 = 2;
/// A run that could be resumed is kept so long, whatever the bounds.
const RESUMABLE_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The bounds of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    runs: Option<u64>,
    bytes: Option<u64>,
}

/// Removes runs in the background as long as it lives.
pub(crate) struct Retention {
    work: Option<JoinHandle<Result<Option<Pruned>, JournalError>>>,
    stop: Arc<AtomicBool>,
}

impl Retention {
    pub(crate) fn begin(journal: Option<&SqliteJournal>, args: &RunArgs) -> Retention {
        let bounds = Bounds {
            runs: args.journal_keep.map_or(Some(KEEP), |keep| keep.0),
            bytes: args.journal_max_size.map_or(Some(MAX_BYTES), |size| size.0),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = journal.cloned().and_then(|journal| {
            let asked = AtomicU32::new(0);
            let more = move || {
                // At least this much, so that a series of short runs bounds the journal as well.
                asked.fetch_add(1, Ordering::Relaxed) < LEAST || !stopped.load(Ordering::Relaxed)
            };
            let work = move || within(&journal, bounds, &more);
            // Without a thread the journal is bounded by a later run.
            std::thread::Builder::new().name("journal retention".to_owned()).spawn(work).ok()
        });
        Retention { work, stop }
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        // What is left is removed by the next run.
        self.stop.store(true, Ordering::Relaxed);
        match self.work.take().map(JoinHandle::join) {
            Some(Ok(Ok(Some(pruned)))) if !pruned.removed.is_empty() => {
                output::note(&format!(
                    "endstop: the journal reached its bound: the oldest {} removed ({} bytes freed); --journal-keep and --journal-max-size set it",
                    match pruned.removed.len() {
                        1 => "run was".to_owned(),
                        runs => format!("{} were", count(runs as u64, "run")),
                    },
                    thousands(pruned.freed())
                ));
            }
            // Another process holds the file, or removes runs itself.
            Some(Ok(Err(error))) if error.kind != JournalErrorKind::Busy => {
                output::note(&format!("endstop: old runs were not removed: {error}"));
            }
            _ => {}
        }
    }
}

/// Removes the oldest runs if a bound is exceeded, down to nine tenths of it, so that this is not the
/// work of each run.
fn within(
    journal: &SqliteJournal,
    bounds: Bounds,
    more: &dyn Fn() -> bool,
) -> Result<Option<Pruned>, JournalError> {
    let (runs, bytes) = journal.extent()?;
    let nine_tenths = |bound: u64| bound - bound / 10;
    let spec = PruneSpec {
        keep: bounds.runs.filter(|most| runs > *most).map(nine_tenths),
        max_bytes: bounds.bytes.filter(|most| bytes > *most).map(nine_tenths),
        unfinished: Some(RESUMABLE_FOR),
        ..PruneSpec::default()
    };
    if spec.keep.is_none() && spec.max_bytes.is_none() {
        return Ok(None);
    }
    journal.prune_while(&spec, more).map(Some)
}
