//! `endstop runs prune`: removes old runs from the journal and frees their disk space.

use crate::args::PruneArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::amounts::{count, thousands};
use endstop::journal::{PruneSpec, Pruned, SqliteJournal};
use serde_json::json;
use std::time::Duration;

pub(crate) fn run(args: &PruneArgs, as_json: bool) -> Result {
    let wrong = |error: endstop::journal::JournalError| Failure::usage(error.to_string());
    // Opened for reading first, because `open` would create a missing journal.
    let path =
        journal_path::to_read(&JournalPath::of(args.journal.as_deref(), None)?)?.path().to_owned();
    let journal = SqliteJournal::open(&path).map_err(wrong)?;
    let spec = PruneSpec {
        older_than: args.older_than,
        keep: args.keep,
        max_bytes: args.max_size,
        unfinished: args.unfinished.then_some(Duration::ZERO),
        dry_run: args.dry_run,
    };
    let pruned = journal.prune(&spec).map_err(wrong)?;
    if as_json {
        output::json(&json!({
            "type": "pruned",
            "dry_run": args.dry_run,
            "removed": pruned.removed,
            "left": pruned.left,
            "spared": pruned.spared,
            "bytes_before": pruned.bytes_before,
            "bytes_after": pruned.bytes_after,
            "bytes_freed": pruned.freed(),
        }));
        return Ok(0);
    }
    output::line(&summary(&pruned, args.dry_run));
    if pruned.spared > 0 {
        // Explains why a bound is still exceeded.
        let hint = if args.unfinished {
            "a process is driving them"
        } else {
            "they have not ended, and can be resumed; --unfinished removes those that no process is driving"
        };
        output::line(&format!("{} beyond the bound stay: {hint}", count(pruned.spared, "run")));
    }
    Ok(0)
}

fn summary(pruned: &Pruned, dry_run: bool) -> String {
    let (removed, has) =
        if dry_run { ("would remove", "would take") } else { ("removed", "takes") };
    let runs = pruned.removed.len() as u64;
    format!(
        "{removed} {} of {}, freed {} bytes: the journal {has} {} bytes",
        count(runs, "run"),
        thousands(runs + pruned.left),
        thousands(pruned.freed()),
        thousands(pruned.bytes_after)
    )
}
