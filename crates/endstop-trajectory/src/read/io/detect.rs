//! Detects the format of a file from its first bytes.
//!
//! ```text
//! let first = first_value(bytes);
//! let head = Head::new("run.json", bytes, first.as_ref());
//! match find(&head, &options, false) { Found::Format(format) => …, … }
//! ```

use super::truncated::closed;
use super::unpack::HEAD;
use crate::read::format::{Format, Head, Shape};
use crate::read::formats::all;
use crate::read::options::Options;
use crate::read::problem::ProblemKind;
use endstop_core::bounded_json;
use memchr::memchr_iter;
use serde_json::Value;

/// The result of format detection.
pub(crate) enum Found {
    Format(&'static Format, &'static Shape),
    /// Not a run, and not meant to be one; holds the reason.
    NotMeant(&'static str),
    None(ProblemKind, String),
}

/// Detects the format of a file. `in_folder` is `true` if the file was found in a folder, not named
/// by the user.
pub(crate) fn find(head: &Head<'_>, options: &Options, in_folder: bool) -> Found {
    let fits = |format: &&Format| (format.recognises)(head);
    let Some(named) = options.format.as_deref() else {
        // Detection wins over the file name: a run named `notes.txt` is read if its content is
        // recognised.
        return match all().find(fits) {
            Some(format) => found(format),
            None => {
                if let Some(why) = not_meant(head).filter(|_| in_folder) {
                    Found::NotMeant(why)
                } else {
                    let what = format!("unknown format; it is {}", looks_like(head));
                    Found::None(ProblemKind::NoTrajectory, what)
                }
            }
        };
    };
    if let Some(format) = all().filter(|format| format.name == named).find(fits) {
        return found(format);
    }
    if let Some(why) = not_meant(head).filter(|_| in_folder) {
        return Found::NotMeant(why);
    }
    let what = match all().find(fits) {
        Some(other) => format!("not in the format `{named}`; it looks like `{}`", other.name),
        None => format!("not in the format `{named}`; it is {}", looks_like(head)),
    };
    Found::None(ProblemKind::WrongFormat, what)
}

/// Returns the result for a recognised format, which a build may lack the reader of.
fn found(format: &'static Format) -> Found {
    if let Some(shape) = &format.shape {
        return Found::Format(format, shape);
    }
    let what = format!(
        "in the format `{}`, which this build cannot read: build endstop-cli with `--features benchmarks`",
        format.name
    );
    Found::None(ProblemKind::NotBuilt, what)
}

/// Returns the first JSON value of a text. If the text is truncated or broken, closes the open
/// brackets before the break, because a file that is broken further on still has its format.
pub(crate) fn first_value(bytes: &[u8]) -> Option<Value> {
    let bytes = &bytes[..bytes.len().min(HEAD)];
    let error = match serde_json::Deserializer::from_slice(bytes).into_iter::<Value>().next()? {
        Ok(value) => return Some(value),
        Err(error) => error,
    };
    // For a syntax error, only the text before the error is kept.
    let end = if error.is_eof() { bytes.len() } else { place(bytes, &error) };
    let closed = closed(&bytes[..end]);
    bounded_json::from_slice(&closed).ok().filter(|value| *value != Value::Null)
}

/// Converts a JSON error's line and column into a byte offset.
fn place(bytes: &[u8], error: &serde_json::Error) -> usize {
    let line = match error.line() {
        0 | 1 => 0,
        line => memchr_iter(b'\n', bytes).nth(line - 2).map_or(0, |end| end + 1),
    };
    (line + error.column().saturating_sub(1)).min(bytes.len())
}

/// Returns the reason why a file in a folder of runs is obviously not a run.
fn not_meant(head: &Head<'_>) -> Option<&'static str> {
    const ENDINGS: &[&str] = &[
        "md", "rst", "html", "htm", "css", "js", "ts", "py", "rs", "go", "sh", "toml", "yaml",
        "yml", "lock", "ini", "cfg", "csv", "tsv", "png", "jpg", "jpeg", "gif", "svg", "webp",
        "ico", "pdf", "diff", "patch", "log", "txt", "db", "sqlite", "sqlite3",
    ];
    const NAMES: &[&str] = &["license", "licence", "copying", "notice", "readme", "changelog"];
    /// Files that accompany runs and are read together with them.
    const COMPANIONS: &[&str] = &["result.json", "results.json", "config.json", "outcomes.json"];
    let name = head.name.to_ascii_lowercase();
    if NAMES.iter().any(|start| name.starts_with(start)) {
        return Some("a licence or a note");
    }
    if COMPANIONS.contains(&name.as_str()) {
        return Some("accompanies runs");
    }
    if head.member("transcript_format_version").is_some() && head.member("session").is_some() {
        return Some("describes a transcript next to it");
    }
    if name.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending)) {
        return Some("not a run, by its file extension");
    }
    is_binary(head.bytes).then_some("binary")
}

// As git does: a NUL byte near the beginning marks a binary file.
fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(8 << 10)].contains(&0)
}

/// Describes a file's content, for a user who expected it to contain runs.
fn looks_like(head: &Head<'_>) -> String {
    let text = head.bytes.trim_ascii();
    if text.is_empty() {
        return "empty".to_owned();
    }
    match head.first {
        Some(Value::Object(object))
            if object.get("type").is_some_and(|kind| kind == "recording") =>
        {
            "a recording of a provider, which `endstop run --replay` plays".to_owned()
        }
        Some(Value::Object(object)) => {
            let names: Vec<String> = object.keys().take(6).map(|key| shown(key)).collect();
            let dots = if object.len() > names.len() { ", …" } else { "" };
            format!("a JSON object with {}{dots}", names.join(", "))
        }
        Some(Value::Array(list)) => match list.first() {
            Some(Value::Object(object)) => {
                let names: Vec<String> = object.keys().take(6).map(|key| shown(key)).collect();
                format!("a JSON list of objects with {}", names.join(", "))
            }
            _ => "a JSON list".to_owned(),
        },
        Some(_) => "a JSON value that is neither an object nor a list".to_owned(),
        None if is_binary(text) => "binary".to_owned(),
        None => "not JSON".to_owned(),
    }
}

/// Quotes a name from a file, shortened to 40 characters and without control characters, because
/// the name is untrusted and the message goes to a terminal.
fn shown(name: &str) -> String {
    let mut short: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    if short.len() < name.len() {
        short.push('…');
    }
    format!("`{short}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_file_is_described() {
        let none = |name: &str, bytes: &[u8]| {
            let first = first_value(bytes);
            let head = Head::new(name, bytes, first.as_ref());
            match find(&head, &Options::default(), false) {
                Found::None(ProblemKind::NoTrajectory, what) => what,
                _ => panic!("{name}"),
            }
        };
        assert!(none("a.json", b"").ends_with("it is empty"));
        assert!(none("a.json", b"hello").ends_with("it is not JSON"));
        assert!(none("a.bin", b"\x7fELF\0\0").ends_with("it is binary"));
        assert!(none("a.json", b"{\"tools\": [1").contains("a JSON object with `tools`"));
        assert!(none("a.json", b"[{\"x\": 1}, {").contains("a JSON list of objects with `x`"));
    }

    #[test]
    fn unrelated_file_in_folder_is_skipped() {
        let head = Head::new("README.md", b"# Runs", None);
        assert!(matches!(find(&head, &Options::default(), true), Found::NotMeant(_)));
        assert!(matches!(find(&head, &Options::default(), false), Found::None(..)));
        let bytes = br#"{"transcript_format_version": 5, "source": "cursor", "session": {}}"#;
        let first = first_value(bytes);
        let head = Head::new("manifest.json", bytes, first.as_ref());
        assert!(matches!(find(&head, &Options::default(), true), Found::NotMeant(_)));
    }
}
