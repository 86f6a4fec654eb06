//! The results of a scan of sessions.

use super::progress::Progress;
use crate::failure::Result;
use crate::recorded::journal_runs;
use endstop_report::audit::{Looked, Report};
use endstop_trajectory::audit::{Audit, Session, time_ms};
use endstop_trajectory::backtest::Examples;
use endstop_trajectory::read::{Finding, Problem, ReadStats};
use endstop_trajectory::{Prices, Trajectory};
use std::path::Path;

/// The results of a scan.
pub(crate) struct Found {
    pub(crate) audit: Audit,
    pub(crate) stats: ReadStats,
    pub(crate) prices: Prices,
    /// The places that `--find` looked at.
    pub(crate) looked: Vec<Looked>,
    /// Sessions that ended before this time, in Unix milliseconds, are left out.
    pub(crate) since_ms: Option<i64>,
    pub(crate) too_old: u64,
    /// Number of files with sessions.
    pub(crate) files: u64,
    /// Number of files that are clearly not sessions.
    pub(crate) skipped: u64,
    pub(crate) progress: Progress,
}

impl Found {
    pub(crate) fn new(top: usize, since_ms: Option<i64>) -> Found {
        Found {
            audit: Audit::new(top),
            stats: ReadStats::new(),
            prices: Prices::new(),
            looked: Vec::new(),
            since_ms,
            too_old: 0,
            files: 0,
            skipped: 0,
            progress: Progress::new(),
        }
    }

    /// Adds the runs of an Endstop journal that the user named.
    pub(crate) fn journal(&mut self, path: &Path) -> Result<()> {
        journal_runs::each(path, &mut |run| self.take(run.map(|run| run.trajectory)))?;
        self.files += 1;
        Ok(())
    }

    /// Adds the runs of a journal that was found in a folder; problems are counted instead of
    /// returned.
    pub(crate) fn found_journal(&mut self, path: &Path) {
        journal_runs::each_found(path, &mut |run| self.take(run.map(|run| run.trajectory)));
        self.files += 1;
    }

    pub(crate) fn take(&mut self, run: std::result::Result<Trajectory<'_>, Problem>) {
        let run = match run {
            Ok(run) => run,
            Err(problem) => return self.stats.problem(&problem),
        };
        let times = || run.steps.iter().filter_map(|step| time_ms(step.at.as_deref()?));
        // A session without times could be of any date, so it is not filtered out.
        if self.since_ms.is_some_and(|since| times().max().is_some_and(|last| last < since)) {
            self.too_old += 1;
        } else {
            self.stats.run(&run);
            self.audit.add(Session::of(&run, &self.prices));
        }
        self.progress.show(self.audit.sessions + self.too_old, &run.origin.file);
    }

    /// Returns the report.
    pub(crate) fn report(self) -> Report {
        let stats = self.stats;
        let examples = |one: Finding| Examples { count: one.count, first: one.first };
        Report {
            audit: self.audit,
            looked: self.looked,
            files: self.files,
            skipped: self.skipped,
            too_old: self.too_old,
            twice: stats.twice_in_file.count + stats.twice_over_files.count,
            problems: stats
                .problems
                .into_iter()
                .map(|(kind, one)| (kind.as_str().to_owned(), examples(one)))
                .collect(),
        }
    }
}
