//! Bounds the journal: `endstop run` removes the oldest runs in the background if there are too
//! many, or if the file is too large.

use crate::output;
use crate::render::amounts::{count, thousands};
use crate::run_args::RetentionArgs;
use endstop::journal::{JournalError, JournalErrorKind, PruneSpec, Pruned, SqliteJournal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of runs, unless `--journal-keep` sets another.
pub(crate) const KEEP: u64 = 10_000;
/// Maximum size of the file in bytes, 1 GiB, unless `--journal-max-size` sets another.
pub(crate) const MAX_BYTES: u64 = 1 << 30;
/// Number of batches that are processed even if the run has already ended.
const LEAST: u32 = 2;
/// Time for which a run that can be resumed is exempt from the bounds.
const RESUMABLE_FOR: Duration = Duration::from_secs(30 * 86_400);

/// The bounds of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    runs: Option<u64>,
    bytes: Option<u64>,
}

/// The background removal; dropping it stops the work and reports the removed runs.
pub(crate) struct Retention {
    work: Option<JoinHandle<Result<Option<Pruned>, JournalError>>>,
    stop: Arc<AtomicBool>,
}

impl Retention {
    pub(crate) fn begin(journal: Option<&SqliteJournal>, args: RetentionArgs) -> Retention {
        let bounds = Bounds {
            runs: args.journal_keep.map_or(Some(KEEP), |keep| keep.0),
            bytes: args.journal_max_size.map_or(Some(MAX_BYTES), |size| size.0),
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let work = journal.cloned().and_then(|journal| {
            let asked = AtomicU32::new(0);
            let more = move || {
                // A minimum, because otherwise a series of short runs would never bound the
                // journal.
                asked.fetch_add(1, Ordering::Relaxed) < LEAST || !stopped.load(Ordering::Relaxed)
            };
            let work = move || within(&journal, bounds, &more);
            // If no thread can be started, a later run bounds the journal.
            std::thread::Builder::new().name("journal retention".to_owned()).spawn(work).ok()
        });
        Retention { work, stop }
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        // The next run removes what is left.
        self.stop.store(true, Ordering::Relaxed);
        match self.work.take().map(JoinHandle::join) {
            Some(Ok(Ok(Some(pruned)))) if !pruned.removed.is_empty() => {
                output::note(&format!(
                    "endstop: the journal exceeded its bound: the oldest {} removed ({} bytes freed); set it with --journal-keep and --journal-max-size",
                    match pruned.removed.len() {
                        1 => "run was".to_owned(),
                        runs => format!("{} were", count(runs as u64, "run")),
                    },
                    thousands(pruned.freed())
                ));
            }
            // A busy journal is not reported: another process uses it, or removes runs itself.
            Some(Ok(Err(error))) if error.kind != JournalErrorKind::Busy => {
                output::note(&format!("endstop: old runs were not removed: {error}"));
            }
            _ => {}
        }
    }
}

/// Removes the oldest runs if a bound is exceeded, down to nine tenths of the bound, so that not
/// every run has to remove some.
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
        // A run that was interrupted recently must still be resumable.
        unfinished: Some(RESUMABLE_FOR),
        ..PruneSpec::default()
    };
    if spec.keep.is_none() && spec.max_bytes.is_none() {
        return Ok(None);
    }
    journal.prune_while(&spec, more).map(Some)
}
