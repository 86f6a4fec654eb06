//! `cargo xtask promises`: lists sentences that promise something absolute, and fails if one names no test.
//!
//! A promise is "never exceeds", or "strict" and "always" in a paragraph about limits, secrets, histories or endings. The
//! README, the pages of the book and the help texts are searched. A paragraph of a page names its test in an HTML
//! comment, a help text in a line `// test:` below it:
//!
//! ```text
//! A call that does not fit is refused, so the ceiling is strict. <!-- test: endstop-guard::cap::wide_call_is_refused -->
//! ```
//!
//! The path is the crate, the end of the path of a file, and a test in that file.

use crate::style::files_at;
use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// The README and the book.
const PAGES: [&str; 2] = ["README.md", "docs/src"];
/// Folders and files with help texts.
const HELP: [&str; 2] = ["crates/endstop-cli/src", "crates/endstop-core/src/limits/mod.rs"];

/// A paragraph with its place.
struct Paragraph {
    file: PathBuf,
    line: usize,
    text: String,
}

/// Runs the task.
pub(crate) fn run() -> Result<(), String> {
    let regex = |pattern: &str| Regex::new(pattern).map_err(|error| error.to_string());
    let absolute = regex(r"(?i)\bnever exceed(s|ed)?\b")?;
    let strong = regex(r"(?i)(^|[^-`\w])(strict|always)\b")?;
    let subject = regex(
        r"(?i)\b(limits?|ceilings?|budgets?|costs?|secrets?|keys?|credentials?|histor(y|ies)|endings?|outcomes?|ends|ended)\b",
    )?;
    let named = regex(r"test: ([\w:-]+)")?;
    let mut paragraphs = Vec::new();
    for place in PAGES {
        for page in files_at(Path::new(place), &["md"])? {
            paragraphs.extend(paragraphs_of(&page, &read(&page)?));
        }
    }
    for place in HELP {
        for file in files_at(Path::new(place), &["rs"])? {
            paragraphs.extend(help_texts(&file, &read(&file)?));
        }
    }
    let mut problems = Vec::new();
    for Paragraph { file, line, text } in &paragraphs {
        let is_promise =
            absolute.is_match(text) || (strong.is_match(text) && subject.is_match(text));
        let tests: Vec<&str> = named.captures_iter(text).map(|c| c.extract::<1>().1[0]).collect();
        let at = format!("{}:{line}", file.display());
        if is_promise && tests.is_empty() {
            problems.push(format!(
                "{at}: a promise without a test: reword it, or add `<!-- test: … -->`: {text}"
            ));
        }
        for test in tests {
            println!("{at}: {test}");
            if !exists(test)? {
                problems.push(format!("{at}: there is no test `{test}`"));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// Returns the paragraphs, list items and table rows of a page. Code is left out, but not comments in it.
fn paragraphs_of(file: &Path, text: &str) -> Vec<Paragraph> {
    let mut paragraphs: Vec<Paragraph> = Vec::new();
    let (mut in_fence, mut starts) = (false, true);
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            in_fence = !in_fence;
            starts = true;
            continue;
        }
        let line = match line.split_once("# ") {
            Some((_, comment)) if in_fence => comment,
            None if in_fence => "",
            _ => line,
        };
        let own_line = in_fence || trimmed.starts_with(['|', '#', '-', '*']);
        match paragraphs.last_mut() {
            _ if line.trim().is_empty() => starts = true,
            Some(last) if !starts && !own_line => {
                last.text.push(' ');
                last.text.push_str(trimmed);
            }
            _ => {
                paragraphs.push(Paragraph {
                    file: file.to_owned(),
                    line: number + 1,
                    text: line.to_owned(),
                });
                starts = trimmed.starts_with(['|', '#']) || in_fence;
            }
        }
    }
    paragraphs
}

/// Returns the doc comments of items with the line `// test:` below them, if there is one.
fn help_texts(file: &Path, text: &str) -> Vec<Paragraph> {
    let mut texts: Vec<Paragraph> = Vec::new();
    let mut is_open = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = trimmed
            .strip_prefix("/// ")
            .or_else(|| trimmed.strip_prefix("// ").filter(|text| text.starts_with("test: ")));
        match (comment, texts.last_mut()) {
            (Some(comment), Some(last)) if is_open => {
                last.text.push(' ');
                last.text.push_str(comment);
            }
            (Some(comment), _) => texts.push(Paragraph {
                file: file.to_owned(),
                line: number + 1,
                text: comment.to_owned(),
            }),
            (None, _) => {}
        }
        is_open = comment.is_some();
    }
    texts
}

/// Reports whether a file of the crate whose path ends with the modules has a test of that name.
fn exists(test: &str) -> Result<bool, String> {
    let parts: Vec<&str> = test.split("::").collect();
    let [krate, modules @ .., name] = parts.as_slice() else { return Ok(false) };
    let end = modules.join("/");
    let function =
        Regex::new(&format!(r"#\[(tokio::)?test[^\n]*\n(\s*#\[[^\n]*\n)*\s*(async )?fn {name}\("))
            .map_err(|error| error.to_string())?;
    for file in files_at(&Path::new("crates").join(krate), &["rs"])? {
        let path = file.with_extension("");
        let path = if path.ends_with("mod") { path.with_file_name("") } else { path };
        if path.ends_with(&end) && function.is_match(&read(&file)?) {
            return Ok(true);
        }
    }
    Ok(false)
}
