//! `endstop audit`: scans the sessions that coding agents left on disk: how each ended, the cost of
//! its loops, claims that the record does not support, and what limits would have saved; as text,
//! as JSON, or as an HTML page with a chart. It only reads files and contacts no server.

mod find;
mod page;
mod picture;
mod text;
mod words;

use crate::args::AuditArgs;
use crate::date::now_ms;
use crate::new_file::NewFile;
use crate::{Failure, Result, journal_runs, output};
use endstop_trajectory::Prices;
use endstop_trajectory::Trajectory;
use endstop_trajectory::audit::{Audit, Session, time_ms};
use endstop_trajectory::read::{Options, Problem, ReadStats, UnknownFormat, for_each};
use find::Looked;
use serde_json::json;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

pub(crate) fn run(args: &AuditArgs, as_json: bool) -> Result {
    // Sessions are files of other programs and may contain keys of this environment.
    let keys = endstop::process::environment_secrets();
    output::hide(&keys);
    for path in args.paths.iter().filter(|path| *path != Path::new("-")) {
        // A mistyped path must be an error, because an empty result would look like a clean one.
        std::fs::metadata(path)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
    }
    let report = args.report.as_deref();
    let report = report.map(|path| NewFile::of("--report", path, args.overwrite)).transpose()?;
    let since_ms = args.since.as_deref().map(|text| since(text, now_ms())).transpose()?;
    let mut found = Found::new(args.top, since_ms);
    let mut options = Options::default();
    options.format.clone_from(&args.format);
    let wrong = |error: UnknownFormat| Failure::usage(format!("--format: {error}"));
    for path in &args.paths {
        if journal_runs::is_one(path) {
            found.journal(path)?;
            continue;
        }
        let read = for_each(path, &options, &mut |run| found.take(run)).map_err(wrong)?;
        found.files += read.files;
        // The reader skipped the journals, so they are moved from the skipped to the read files.
        found.skipped += read.skipped;
        for journal in journal_runs::in_folder(path).filter(|_| args.format.is_none()) {
            found.found_journal(&journal);
            found.skipped = found.skipped.saturating_sub(1);
        }
    }
    if args.find {
        for place in find::places() {
            let mut looked = Looked::new(&place);
            let before = found.audit.sessions + found.too_old;
            for file in place.files(&mut looked) {
                if journal_runs::is_ours(&file) {
                    found.found_journal(&file);
                    continue;
                }
                let read = for_each(file, &options, &mut |run| found.take(run)).map_err(wrong)?;
                found.files += read.files;
            }
            looked.sessions = found.audit.sessions + found.too_old - before;
            found.looked.push(looked);
        }
    }
    found.progress.end();
    // The file is written before anything is printed, because it can fail.
    if let Some(file) = &report {
        file.write(&page::page(&found))?;
    }
    if as_json {
        let _ = output::json_without(&found.json(), &keys);
    } else {
        for line in text::report(&found) {
            let _ = output::line(&keys.out_of_text(&line));
        }
    }
    if let Some(file) = &report {
        output::note(&format!("written: {}", file.path().display()));
    }
    // Paths were given, but nothing in them could be read.
    let nothing = found.audit.sessions + found.too_old == 0;
    Ok(if nothing && !args.find && !found.stats.problems.is_empty() { 2 } else { 0 })
}

/// The results of a scan.
struct Found {
    audit: Audit,
    stats: ReadStats,
    prices: Prices,
    /// The places that `--find` looked at.
    looked: Vec<Looked>,
    /// Sessions that ended before this time, in Unix milliseconds, are left out.
    since_ms: Option<i64>,
    too_old: u64,
    /// Number of files with sessions.
    files: u64,
    /// Number of files that are clearly not sessions.
    skipped: u64,
    progress: Progress,
}

impl Found {
    fn new(top: usize, since_ms: Option<i64>) -> Found {
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
    fn journal(&mut self, path: &Path) -> Result<()> {
        journal_runs::each(path, &mut |run| self.take(run.map(|run| run.trajectory)))?;
        self.files += 1;
        Ok(())
    }

    /// Adds the runs of a journal that was found in a folder; problems are counted instead of
    /// returned.
    fn found_journal(&mut self, path: &Path) {
        journal_runs::each_found(path, &mut |run| self.take(run.map(|run| run.trajectory)));
        self.files += 1;
    }

    fn take(&mut self, run: std::result::Result<Trajectory<'_>, Problem>) {
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

    fn json(&self) -> serde_json::Value {
        let problems: serde_json::Map<String, serde_json::Value> = self
            .stats
            .problems
            .iter()
            .map(|(kind, found)| {
                let said = json!({"count": found.count, "first": found.first});
                (kind.as_str().to_owned(), said)
            })
            .collect();
        let mut value = json!({
            "type": "audit",
            "looked_at": self.looked,
            "files": self.files,
            "skipped": self.skipped,
            "too_old": self.too_old,
            "twice": self.stats.twice_in_file.count + self.stats.twice_over_files.count,
            "problems": problems,
        });
        if let (Some(all), Ok(serde_json::Value::Object(audit))) =
            (value.as_object_mut(), serde_json::to_value(&self.audit))
        {
            all.extend(audit);
        }
        value
    }
}

/// Parses a point in time in Unix milliseconds: a duration before now, or a day.
fn since(text: &str, now_ms: u64) -> Result<i64> {
    let wrong = || {
        Failure::usage(format!(
            "invalid --since `{text}`: expected a duration such as 7d or 12h, or a day such as 2026-11-21"
        ))
    };
    let units = [('d', 86_400_000u64), ('h', 3_600_000), ('m', 60_000)];
    let ago = units.iter().find_map(|(unit, ms)| {
        // Saturating, so that an absurd age means the beginning of time instead of an overflow.
        text.strip_suffix(*unit)?.parse::<u64>().ok().map(|many| many.saturating_mul(*ms))
    });
    match ago {
        Some(ago) => Ok(i64::try_from(now_ms.saturating_sub(ago)).unwrap_or(i64::MAX)),
        None => time_ms(text).ok_or_else(wrong),
    }
}

/// The progress line on the terminal.
struct Progress {
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    fn new() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: None, on: io::stderr().is_terminal() && !dumb }
    }

    fn show(&mut self, sessions: u64, file: &str) {
        // At most ten updates a second, because drawing would slow the scan of many small files.
        let soon = |then: Instant| then.elapsed() < Duration::from_millis(100);
        if !self.on || self.shown.is_some_and(soon) {
            return;
        }
        self.shown = Some(Instant::now());
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let line = crate::card::visible(&format!("{sessions} sessions · {file}"));
        let line: String = line.replace('\n', " ").chars().take(width.saturating_sub(1)).collect();
        let mut err = io::stderr().lock();
        let _ = write!(err, "\r\x1b[2K{}", output::hidden(&line)).and_then(|()| err.flush());
    }

    fn end(&self) {
        if self.shown.is_some() {
            let mut err = io::stderr().lock();
            let _ = err.write_all(b"\r\x1b[2K").and_then(|()| err.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::since;

    #[test]
    fn since_accepts_duration_or_day() {
        let now = 1_795_290_254_190;
        assert_eq!(since("7d", now).unwrap(), 1_795_290_254_190 - 7 * 86_400_000);
        assert_eq!(since("12h", now).unwrap(), 1_795_290_254_190 - 12 * 3_600_000);
        assert_eq!(since("2000-02-29", now).unwrap(), 951_782_400_000);
        assert_eq!(since("2000-02-29T00:00:01Z", now).unwrap(), 951_782_401_000);
        for text in ["", "d", "-7d", "yesterday", "7"] {
            assert!(since(text, now).is_err(), "{text}");
        }
    }
}
