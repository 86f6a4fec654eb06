//! Reads an `.eval` file: a zip archive with one entry per sample. One sample is in memory at a
//! time.
//!
//! ```text
//! header.json   samples/ID_epoch_N.json …   summaries.json   _journal/start.json
//! ```
//!
//! A log whose evaluation crashed has no header, but its journal contains the start record. Samples
//! of version 3 may be folders of chunks (`samples/ID_epoch_N/sample.json`); these are reported and
//! not read.

use super::log::{Of, too_new, without_non_numbers};
use super::sample::give;
use crate::read::build::fields::Fields;
use crate::read::format::{Place, Sink};
use crate::read::io::memory;
use crate::read::io::repair::repaired;
use crate::read::problem::{Problem, ProblemKind};
use endstop_core::bounded_json;
use memchr::memmem;
use serde_json::Value;
use std::io::{Cursor, Read};
use zip::ZipArchive;

/// Maximum length of an unpacked entry, because a small archive can unpack to any size.
const LONGEST: u64 = 64 << 20;

/// Maximum weight of the header in bytes of parsed values, because it is held while the samples are
/// read.
const HEADER: u64 = 64 << 20;

/// Maximum number of entries. The archive's directory is held while its samples are read, at some
/// hundred bytes per entry.
const ENTRIES: u64 = 1 << 17;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// Returns `true` if the first entry of an archive is that of a log: the journal's start, a sample
/// or the header.
pub(super) fn has_entry_of_a_log(bytes: &[u8]) -> bool {
    // A local file header is 30 bytes long, followed by the entry's name.
    bytes.get(30..).is_some_and(|name| {
        [&b"_journal/"[..], b"samples/", b"header.json"].iter().any(|own| name.starts_with(own))
    })
}

pub(super) fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let problem = |at, kind, what: String| Problem { file: place.file.to_owned(), at, kind, what };
    if let Some(entries) = too_many_entries(bytes) {
        let what = format!("an archive of {entries} entries: expected at most {ENTRIES}");
        return sink(Err(problem(None, ProblemKind::TooManyValues, what)));
    }
    let mut archive = match ZipArchive::new(Cursor::new(bytes)) {
        Ok(archive) => archive,
        // The directory is at the end of the archive, so a truncated archive cannot be opened.
        Err(e) => {
            let what = format!("an archive that cannot be opened: {e}");
            return sink(Err(problem(None, ProblemKind::Unreadable, what)));
        }
    };
    let header = match header(&mut archive) {
        Ok(header) => header,
        Err((kind, what)) => {
            sink(Err(problem(None, kind, what)));
            Fields::new()
        }
    };
    if let Some(what) = too_new(header.get("version")) {
        return sink(Err(problem(None, ProblemKind::UnknownVersion, what)));
    }
    let nothing = Fields::new();
    let of = Of {
        eval: header.get("eval").and_then(Value::as_object).unwrap_or(&nothing),
        status: header.get("status").and_then(Value::as_str),
        beside: None,
    };
    let (mut at, mut chunked) = (0, 0_u64);
    for index in 0..archive.len() {
        let Some(name) = archive.name_for_index(index) else { continue };
        let Some(name) = name.strip_prefix("samples/") else { continue };
        if name.ends_with("/sample.json") {
            chunked += 1;
        }
        // A sample's id may contain a slash.
        let epoch = name.strip_suffix(".json").and_then(|name| name.rsplit_once("_epoch_"));
        if epoch.is_none_or(|(_, epoch)| epoch.parse::<u64>().is_err()) {
            continue;
        }
        at += 1;
        match unpack(&mut archive, index) {
            Ok(bytes) => {
                let finite = without_non_numbers(&bytes).unwrap_or(bytes);
                match memory::room_for(&finite) {
                    Ok(_turn) => give(&finite, &of, Some(at), place, sink),
                    Err(heavy) => sink(Err(problem(Some(at), heavy.kind, heavy.what))),
                }
            }
            Err((kind, what)) => sink(Err(problem(Some(at), kind, what))),
        }
    }
    if chunked > 0 {
        let what = format!("samples in chunks, which are not supported: {chunked}");
        sink(Err(problem(None, ProblemKind::UnknownVersion, what)));
    } else if at == 0 {
        sink(Err(problem(None, ProblemKind::NoTrajectory, "a log without samples".to_owned())));
    }
}

/// Returns the number of entries if it exceeds the limit: the number in the directory, or the
/// number that the end of the directory claims.
fn too_many_entries(bytes: &[u8]) -> Option<u64> {
    let listed = memmem::find_iter(bytes, b"PK\x01\x02").count() as u64;
    // The end record of a large archive. The zip library would allocate room for its count.
    let claimed = memmem::find_iter(bytes, b"PK\x06\x06")
        .filter_map(|at| bytes.get(at + 32..)?.first_chunk())
        .map(|count| u64::from_le_bytes(*count));
    claimed.chain([listed]).max().filter(|most| *most > ENTRIES)
}

fn header(archive: &mut Archive<'_>) -> Result<Fields, (ProblemKind, String)> {
    for name in ["header.json", "_journal/start.json"] {
        let Some(index) = archive.index_for_name(name) else { continue };
        let wrong = |kind, what: String| (kind, format!("{name}: {what}"));
        let bytes = unpack(archive, index).map_err(|(kind, what)| wrong(kind, what))?;
        let finite = without_non_numbers(&bytes).unwrap_or(bytes);
        bounded_json::check(&finite, HEADER)
            .map_err(|heavy| wrong(ProblemKind::TooManyValues, heavy.to_string()))?;
        return serde_json::from_slice(&finite)
            .map_err(|error| wrong(ProblemKind::Malformed, error.to_string()));
    }
    Err((ProblemKind::Malformed, "the archive has no `header.json`".to_owned()))
}

fn unpack(archive: &mut Archive<'_>, index: usize) -> Result<Vec<u8>, (ProblemKind, String)> {
    let unreadable =
        |e: String| (ProblemKind::Unreadable, format!("cannot read an archive entry: {e}"));
    let entry = archive.by_index(index).map_err(|e| unreadable(e.to_string()))?;
    if entry.size() > LONGEST {
        let what = format!("an entry of {} bytes: expected at most {LONGEST}", entry.size());
        return Err((ProblemKind::TooLong, what));
    }
    let mut bytes = Vec::new();
    // The size in the directory may be wrong, so limit what is actually unpacked.
    entry.take(LONGEST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(e.to_string()))?;
    if bytes.len() as u64 > LONGEST {
        let what = format!("an entry longer than {LONGEST} bytes");
        return Err((ProblemKind::TooLong, what));
    }
    Ok(repaired(&bytes).into_owned())
}
