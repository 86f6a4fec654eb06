//! `endstop audit`: scans the sessions that coding agents left on disk: how each ended, the cost of
//! its loops, claims that the record does not support, and what limits would have saved; as text,
//! as JSON, or as an HTML page with a chart. It only reads files and contacts no server.

use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::recorded::audit::Found;
use crate::recorded::audit::find::{self, Place};
use crate::recorded::{journal_runs, nothing_read, opencode};
use crate::recorded_args::AuditArgs;
use crate::render::date::now_ms;
use crate::render::html::escaper;
use endstop_report::audit::{json, lines, page};
use endstop_trajectory::audit::time_ms;
use endstop_trajectory::read::{Options, UnknownFormat, formats};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) fn run(args: &AuditArgs, as_json: bool) -> Result {
    if args.paths.is_empty() && !args.find {
        return Err(Failure::usage(
            "no sessions are named: give files or folders, or pass --find to search the default folders of known agents",
        ));
    }
    for path in args.paths.iter().filter(|path| *path != Path::new("-")) {
        // A mistyped path must be an error, because an empty result would look like a clean one.
        std::fs::metadata(path).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound if path == Path::new("last") => {
                    "; `audit` reads files and folders, `endstop explain last` the newest run of the journal"
                }
                _ => "",
            };
            Failure::usage(format!("{}: {error}{hint}", path.display()))
        })?;
    }
    let report = args.report.as_deref();
    let report = report.map(|path| NewFile::of("--report", path, args.overwrite)).transpose()?;
    let since_ms = args.since.as_deref().map(|text| since(text, now_ms())).transpose()?;
    let mut found = Found::new(args.top, since_ms);
    let mut options = Options::default();
    options.format.clone_from(&args.format);
    if let Some(name) = args.format.as_ref().filter(|name| !is_known(name)) {
        return Err(Failure::usage(format!("--format: {}", UnknownFormat(name.clone()))));
    }
    for path in &args.paths {
        named(path, args.format.as_deref(), &options, &mut found)?;
    }
    if args.find {
        for place in find::places() {
            searched(&place, &options, &mut found);
        }
    }
    found.progress.end();
    let nothing = found.audit.sessions + found.too_old == 0;
    let found = found.report();
    // A page or a table of it would look like a clean result.
    if nothing && !args.find && !as_json && !found.problems.is_empty() {
        let problems =
            found.problems.iter().flat_map(|(_, examples)| &examples.first).map(String::as_str);
        return Err(nothing_read("no sessions could be read", problems));
    }
    // The file is written before anything is printed, because it can fail.
    if let Some(file) = &report {
        file.write(&page(&found, &escaper()))?;
    }
    if as_json {
        output::json(&json(&found));
    } else {
        for line in lines(&found) {
            output::line(&line);
        }
    }
    if nothing && args.find {
        output::note(
            "next: name the folder of your sessions, for example endstop audit ~/sessions; or look at some runs first: endstop demo loop",
        );
    }
    if let Some(file) = &report {
        output::note(&format!("written: {}", file.path().display()));
    }
    // Paths were given, but nothing in them could be read.
    Ok(if nothing && !args.find && !found.problems.is_empty() { 2 } else { 0 })
}

fn is_known(format: &str) -> bool {
    formats().iter().any(|(known, _)| *known == format)
}

/// Reads a path that the user named.
fn named(path: &Path, format: Option<&str>, options: &Options, found: &mut Found) -> Result<()> {
    if opencode::is_one(path) {
        found.database(path);
        return Ok(());
    }
    if journal_runs::is_one(path) {
        return found.journal(path);
    }
    found.files(&[path.to_owned()], options);
    // The reader skipped the journals and databases, so they are moved from the skipped to the read
    // files.
    if format.is_none() {
        for journal in journal_runs::in_folder(path) {
            found.found_journal(&journal);
            found.not_skipped(&journal);
        }
    }
    if format.is_none_or(|format| format == "opencode") {
        for database in opencode::in_folder(path) {
            found.database(&database);
            found.not_skipped(&database);
        }
    }
    // A home directory contains its sessions in hidden folders, which the walk left out.
    let places = find::places_in(path);
    // Several places may lie in the same hidden folder, which was skipped once.
    let hidden: BTreeSet<PathBuf> =
        places.iter().filter_map(|place| place.entry_of(path)).collect();
    for entry in &hidden {
        found.not_skipped(entry);
    }
    for place in places {
        searched(&place, options, found);
    }
    Ok(())
}

/// Reads the sessions of a folder of a known agent.
fn searched(place: &Place, options: &Options, found: &mut Found) {
    let mut looked = find::looked(place);
    let before = found.audit.sessions + found.too_old;
    let (databases, files): (Vec<PathBuf>, Vec<PathBuf>) =
        place.files(&mut looked).partition(|file| journal_runs::application_id(file).is_some());
    found.files(&files, options);
    for file in databases {
        if journal_runs::is_ours(&file) {
            found.found_journal(&file);
        } else {
            found.database(&file);
        }
    }
    looked.sessions = found.audit.sessions + found.too_old - before;
    found.looked.push(looked);
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
