//! The results of a scan of sessions.

use super::progress::Progress;
use crate::failure::Result;
use crate::recorded::{journal_runs, opencode};
use endstop_report::audit::{Looked, Report};
use endstop_trajectory::audit::{Audit, Noticed, Session, time_ms};
use endstop_trajectory::backtest::Examples;
use endstop_trajectory::read::{HIDDEN, Options, Parallel, Problem, ReadStats};
use endstop_trajectory::{Prices, Trajectory};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

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
    /// The irregularities of the input.
    noticed: Noticed,
    pub(crate) progress: Progress,
    /// The position of the next part of the input.
    base: u64,
}

/// Returns `true` if all of a session was before this time. A session without times could be of any
/// date, so it is not filtered out.
fn is_old(run: &Trajectory<'_>, since_ms: Option<i64>) -> bool {
    let Some(since) = since_ms else { return false };
    let times = run.steps.iter().filter_map(|step| time_ms(step.at.as_deref()?));
    times.max().is_some_and(|last| last < since)
}

/// Counts the irregularities of a run, or a problem.
fn notice(noticed: &mut Noticed, run: std::result::Result<&Trajectory<'_>, &Problem>) {
    match run {
        Ok(run) => noticed.run(None, run),
        Err(problem) => noticed.problem(None, problem),
    }
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
            noticed: Noticed::default(),
            progress: Progress::new(),
            base: 0,
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

    /// Adds the sessions of a database of opencode.
    pub(crate) fn database(&mut self, path: &Path) {
        opencode::each(path, &mut |run| self.take(run));
        self.files += 1;
    }

    /// Reads files and folders on several threads.
    pub(crate) fn files(&mut self, paths: &[PathBuf], options: &Options) {
        let read_so_far = (std::mem::take(&mut self.stats), std::mem::take(&mut self.noticed));
        let counts = Mutex::new(read_so_far);
        let since_ms = self.since_ms;
        let (audit, too_old, progress) = (&mut self.audit, &mut self.too_old, &mut self.progress);
        let base = self.base;
        let parallel = Parallel { options: options.clone(), ..Parallel::default() };
        let read = parallel.each(
            paths,
            &Prices::new,
            &|prices, (chunk, nth), run| {
                let old = run.as_ref().is_ok_and(|run| is_old(run, since_ms));
                if !old {
                    let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    counts.0.run_at((base + chunk, nth), run.as_ref());
                    notice(&mut counts.1, run.as_ref());
                }
                let run = run.ok()?;
                let file = run.origin.file.clone();
                Some((file, (!old).then(|| Box::new(Session::of(&run, prices)))))
            },
            &mut |one| {
                let Some((file, session)) = one else { return };
                match session {
                    Some(session) => audit.add(*session),
                    None => *too_old += 1,
                }
                progress.show(audit.sessions + *too_old, &file);
            },
        );
        (self.stats, self.noticed) = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.files += read.files;
        self.skipped += read.skipped;
        self.noticed.skipped.merge(read.skipped_for);
        self.advance();
    }

    /// Takes an entry back that a walk skipped, because it is read after all.
    pub(crate) fn not_skipped(&mut self, path: &Path) {
        let name = path.display().to_string();
        let is_hidden =
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if self.noticed.skipped.remove(&name, |why| (why == HIDDEN) == is_hidden) {
            self.skipped = self.skipped.saturating_sub(1);
        }
    }

    /// Begins the next part of the input: what follows is counted after all that was read.
    fn advance(&mut self) {
        self.base += 1 << 32;
        self.stats.move_to((self.base, 0));
    }

    pub(crate) fn take(&mut self, run: std::result::Result<Trajectory<'_>, Problem>) {
        let run = match run {
            Ok(run) => run,
            Err(problem) => {
                self.noticed.problem(None, &problem);
                return self.stats.problem(&problem);
            }
        };
        if is_old(&run, self.since_ms) {
            self.too_old += 1;
        } else {
            self.stats.run(&run);
            self.noticed.run(None, &run);
            self.audit.add(Session::of(&run, &self.prices));
        }
        self.progress.show(self.audit.sessions + self.too_old, &run.origin.file);
    }

    /// Returns the report.
    pub(crate) fn report(self) -> Report {
        let stats = self.stats;
        Report {
            audit: self.audit,
            looked: self.looked,
            files: self.files,
            skipped: self.skipped,
            skipped_for: Examples::of(self.noticed.skipped),
            too_old: self.too_old,
            twice: stats.twice_in_file.count + stats.twice_over_files.count,
            problems: Examples::of(self.noticed.problems),
            notes: Examples::of(self.noticed.notes),
        }
    }
}
