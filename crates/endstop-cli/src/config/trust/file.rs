//! Reads settings files: whole, bounded, and only once, so that the bytes that were checked are the
//! bytes that are used.

use super::{owner, shown};
use crate::failure::{Failure, Result};
use endstop::Limits;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use toml::de::{DeTable, DeValue};

/// Maximum size of a settings file, in bytes.
pub(crate) const MOST: u64 = 1 << 20;

/// The tables whose members are separate settings.
const TABLES: [&str; 8] =
    ["agents", "http", "limits", "mcp", "notify", "params", "prices", "spend"];

/// A parsed settings file.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    /// The name for errors.
    pub(crate) name: String,
    /// The SHA-256 hash of the bytes, in hexadecimal.
    pub(crate) sha256: String,
    pub(crate) entries: Vec<Entry>,
}

/// One setting of a file.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// The name as written: `model`, `limits.max_turns`, `mcp.files`.
    pub(crate) name: String,
    pub(crate) value: Value,
    /// The table that contains it, and its key in that table.
    table: Option<&'static str>,
    key: String,
    /// The line of the key, from 1, if a file has it.
    pub(crate) line: Option<usize>,
}

impl Entry {
    pub(crate) fn new(table: Option<&'static str>, key: String, value: Value) -> Entry {
        let name = table.map_or_else(|| key.clone(), |table| format!("{table}.{key}"));
        Entry { name, value, table, key, line: None }
    }

    /// Returns the settings of a table as entries.
    ///
    /// # Errors
    /// Names the key that must be a table.
    pub(crate) fn all_of(table: Map<String, Value>) -> std::result::Result<Vec<Entry>, String> {
        let mut entries = Vec::new();
        for (key, value) in table {
            let Some(table) = TABLES.into_iter().find(|table| *table == key) else {
                entries.push(Entry::new(None, key, value));
                continue;
            };
            let Value::Object(members) = value else {
                return Err(format!("`{table}`: expected a table"));
            };
            let members = members.into_iter();
            entries.extend(members.map(|(key, value)| Entry::new(Some(table), key, value)));
        }
        Ok(entries)
    }

    /// Returns the table and the key in it, or the key alone if it is in no table.
    pub(crate) fn parts(&self) -> (&str, Option<&str>) {
        self.table.map_or((&self.key, None), |table| (table, Some(&self.key)))
    }

    /// Returns the name of the setting that it changes: `limits.timeout_ms` sets `limits.timeout`.
    pub(crate) fn sets(&self) -> &str {
        match self.parts() {
            ("limits", Some(key)) if !Limits::NAMES.contains(&key) => {
                self.name.strip_suffix("_ms").unwrap_or(&self.name)
            }
            _ => &self.name,
        }
    }
}

impl SettingsFile {
    pub(crate) fn parse(name: String, bytes: Vec<u8>) -> Result<SettingsFile> {
        let sha256 = Sha256::digest(&bytes).iter().fold(String::new(), |mut text, byte| {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let lines = lines(&bytes);
        let mut entries = Entry::all_of(toml_table(&name, bytes)?)
            .map_err(|problem| Failure::usage(format!("{name}: {problem}")))?;
        for entry in &mut entries {
            entry.line = lines.get(&entry.name).copied();
        }
        Ok(SettingsFile { name, sha256, entries })
    }
}

/// Returns the line of each key, and of each key of a table. Empty if the file is not TOML.
fn lines(bytes: &[u8]) -> BTreeMap<String, usize> {
    let text = std::str::from_utf8(bytes).unwrap_or_default();
    let Ok(table) = DeTable::parse(text) else { return BTreeMap::new() };
    let mut lines = BTreeMap::new();
    for (key, value) in table.get_ref() {
        lines.insert(key.get_ref().to_string(), line_of(text, key.span().start));
        if let DeValue::Table(members) = value.get_ref() {
            lines.extend(members.keys().map(|member| {
                let name = format!("{}.{}", key.get_ref(), member.get_ref());
                (name, line_of(text, member.span().start))
            }));
        }
    }
    lines
}

/// Returns the line of an offset, from 1.
fn line_of(text: &str, at: usize) -> usize {
    1 + text.get(..at).unwrap_or_default().matches('\n').count()
}

/// Returns the bytes of a regular file and the metadata of the opened file. Links are followed; a
/// device, a pipe or a folder is an error.
pub(crate) fn regular(path: &Path, most: u64) -> io::Result<(Vec<u8>, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    // Without NONBLOCK, opening a pipe that has no writer would block.
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
    }
    let file = options.open(path)?;
    // The metadata of the open file and not of the path, which may name another file by now.
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::other("it is a directory, not a regular file"));
    }
    if !metadata.is_file() {
        return Err(io::Error::other("it is a device or a pipe, not a regular file"));
    }
    Ok((bounded(file, most)?, metadata))
}

/// Like [`regular`], for a file that must be the user's own choice: it decides what a program may do, or who may
/// use it.
///
/// # Errors
/// Another user may have written or replaced the file.
pub(crate) fn chosen(path: &Path) -> io::Result<(Vec<u8>, Metadata)> {
    let (bytes, metadata) = regular(path, MOST)?;
    match owner::problem_of_path(path, &metadata) {
        None => Ok((bytes, metadata)),
        Some(problem) => Err(io::Error::new(io::ErrorKind::PermissionDenied, problem)),
    }
}

/// Reads all bytes, up to a bound.
fn bounded(reader: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the file is too large without reading all of it.
    reader.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it is larger than {} KiB", most >> 10)));
    }
    Ok(bytes)
}

/// Reads a file that the user named: a regular file that no other user can change, `-` for standard
/// input, `/dev/null` for no settings, or a pipe that the shell opened (`<(…)`). Only a regular file has
/// metadata.
pub(crate) fn named(path: &Path) -> Result<(Vec<u8>, Option<Metadata>)> {
    let opened = path.starts_with("/dev/fd") || path.starts_with("/proc/self/fd");
    let read = if path == Path::new("-") {
        bounded(io::stdin().lock(), MOST).map(|bytes| (bytes, None))
    } else if opened || path == Path::new("/dev/null") {
        File::open(path).and_then(|file| bounded(file, MOST)).map(|bytes| (bytes, None))
    } else {
        chosen(path).map(|(bytes, metadata)| (bytes, Some(metadata)))
    };
    read.map_err(|error| Failure::usage(format!("{}: {error}", name_of(path))))
}

/// Returns the name of a file for errors.
pub(crate) fn name_of(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        shown(&path.display().to_string())
    }
}

/// Reads a TOML file that the user named as JSON values.
pub(crate) fn toml_file(path: &Path) -> Result<Map<String, Value>> {
    toml_table(&name_of(path), named(path)?.0)
}

/// Parses TOML as JSON values. Keys that an error quotes are escaped.
fn toml_table(name: &str, bytes: Vec<u8>) -> Result<Map<String, Value>> {
    let wrong = |problem: String| Failure::usage(format!("{name}: {}", shown(&problem)));
    let text = String::from_utf8(bytes).map_err(|error| wrong(format!("not UTF-8: {error}")))?;
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The parser's full message quotes the line, which may contain a key. Only its summary is
        // used.
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or_default();
        let is_blank = text
            .get(at..)
            .is_none_or(|rest| rest.lines().next().is_none_or(|l| l.trim().is_empty()));
        // The parser would advise to quote the value.
        let problem = if is_blank && before.trim_end().ends_with('=') {
            "a value is missing after `=`"
        } else {
            error.message()
        };
        wrong(format!("line {}: not valid TOML: {problem}", line_of(&text, at)))
    })?;
    as_json(&table).map_err(wrong)
}

/// Converts a table to JSON. An error names the key of the value that JSON cannot represent.
fn as_json(table: &toml::Table) -> std::result::Result<Map<String, Value>, String> {
    let member = |(key, value)| match plain(value) {
        Ok(value) => Ok((String::clone(key), value)),
        Err(problem) => Err(format!("`{key}`: {problem}")),
    };
    table.iter().map(member).collect()
}

/// Converts a value to JSON. `nan` and `inf` are errors, because JSON would turn them into `null`,
/// which disables a limit.
fn plain(value: &toml::Value) -> std::result::Result<Value, String> {
    use toml::Value as Toml;
    Ok(match value {
        Toml::String(text) => text.as_str().into(),
        Toml::Integer(number) => (*number).into(),
        Toml::Boolean(switch) => (*switch).into(),
        Toml::Datetime(time) => time.to_string().into(),
        Toml::Table(table) => Value::Object(as_json(table)?),
        Toml::Array(items) => {
            Value::Array(items.iter().map(plain).collect::<std::result::Result<_, _>>()?)
        }
        Toml::Float(number) => serde_json::Number::from_f64(*number)
            .ok_or_else(|| format!("expected a finite number, found {number}"))?
            .into(),
    })
}
