//! `cargo xtask style`: looks for words of the old dialect, and prints figures about the language.
//!
//! The patterns are in `xtask/dialect.txt`, the rules in `docs/STYLE.md`. Sources are searched in
//! comments and string literals only, Markdown outside code. The task fails on a match, on an
//! example that does not compile (`ignore`), on more than 0.5 % of a crate's doc comments that open
//! with a word such as "What", and if more items than before have a private word as their name.
//! `--count [REV]` only prints the figures, with the subjects of the commits since a revision; it
//! does not fail.

use crate::figures::{Figures, count_subjects, print_table};
use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const PATTERNS: &str = "xtask/dialect.txt";
/// Folders and files that contain text for people.
const PLACES: [&str; 15] = [
    "crates",
    "bench",
    "examples",
    "fuzz",
    "xtask",
    "deploy",
    "packaging",
    "Cargo.toml",
    ".ci",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "testdata/conformance/FORMAT.md",
];
/// Folders that are not searched.
const LEFT_OUT: [&str; 3] = ["target", "node_modules", "clean"];
/// Pages that quote the old words on purpose, or quote others.
const EXEMPT: [&str; 1] = ["docs/STYLE.md"];
/// A folder whose items only readers of one test see.
const TESTS: &str = "tests";
/// Kinds of files with comments or text.
const EXTENSIONS: [&str; 9] = ["rs", "md", "toml", "py", "pyi", "ts", "mts", "mjs", "sh"];
/// Keywords before the name of an item.
const ITEMS: [&str; 8] = ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"];
/// Words that only this project used for resume, notify, charge, answered, repeat, default and record.
const PRIVATE_WORDS: [&str; 12] = [
    "go_on",
    "GoesOn",
    "CannotGoOn",
    "Hear",
    "Teller",
    "Letter",
    "again",
    "usual",
    "books",
    "enters",
    "told",
    "Books",
];
/// Number of items that still have such a name. Lower it after a renaming.
const PRIVATE_NAMES: usize = 37;
/// Share of doc comments, in percent, that may open with such a word.
const MOST_OPENERS: f64 = 0.5;

/// Runs the task.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let counts_only = match args {
        [] => false,
        [flag] | [flag, _] if flag == "--count" => true,
        [other, ..] => {
            return Err(format!("unknown argument `{other}`: expected nothing, or --count [REV]"));
        }
    };
    let patterns = patterns()?;
    let mut problems = Vec::new();
    let mut private: Vec<String> = Vec::new();
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    for place in PLACES {
        for file in files_at(Path::new(place), &EXTENSIONS)? {
            if EXEMPT.iter().any(|exempt| file == Path::new(exempt)) {
                continue;
            }
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let extension = file.extension().and_then(|ext| ext.to_str()).unwrap_or_default();
            let lines = match extension {
                "rs" => {
                    let group: PathBuf = file.iter().take(2).collect();
                    let group = figures.entry(group.display().to_string()).or_default();
                    group.read(&file, &text);
                    let at = |line: usize| format!("{}:{line}", file.display());
                    if !file.iter().any(|part| part == TESTS) {
                        private.extend(
                            private_names(&text)
                                .map(|(line, name)| format!("{}: {name}", at(line))),
                        );
                    }
                    rust_text(&text)
                }
                "md" => markdown_text(&text),
                "py" | "pyi" | "toml" | "sh" => script_text(&text, "#"),
                _ => script_text(&text, "//"),
            };
            for (number, line) in lines {
                for (pattern, instead) in &patterns {
                    for found in pattern.captures_iter(&line) {
                        if found.name("ok").is_none() && found.name("ok2").is_none() {
                            let word = &found[0];
                            let at = file.display();
                            problems.push(format!("{at}:{number}: `{word}`: write {instead}"));
                        }
                    }
                }
            }
        }
    }
    print_table(&figures);
    if counts_only {
        return args.get(1).map_or(Ok(()), |since| count_subjects(since));
    }
    for (name, figures) in &figures {
        let openers = figures.share_of_openers();
        if openers > MOST_OPENERS {
            problems.push(format!(
                "{name}: {openers:.1} % of the doc comments open with a word such as `What`; \
                 at most {MOST_OPENERS} %: {}",
                figures.openers.join(", ")
            ));
        }
        let sketch = |at: &String| format!("{at}: an example that does not compile");
        problems.extend(figures.ignored.iter().map(sketch));
    }
    if private.len() > PRIVATE_NAMES {
        problems.push(format!(
            "{} items have a private word as their name, {PRIVATE_NAMES} before; docs/STYLE.md has the words of the \
             field:\n  {}",
            private.len(),
            private.join("\n  ")
        ));
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

/// Returns the items of a Rust source whose name is a private word, with their lines.
fn private_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(number, line)| {
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        words.find(|word| ITEMS.contains(word))?;
        let name = words.next()?;
        PRIVATE_WORDS.contains(&name).then_some((number + 1, name))
    })
}

fn patterns() -> Result<Vec<(Regex, String)>, String> {
    let text = fs::read_to_string(PATTERNS).map_err(|error| format!("{PATTERNS}: {error}"))?;
    let mut patterns = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let at = format!("{PATTERNS}:{}", number + 1);
        let (pattern, instead) =
            line.split_once('\t').ok_or_else(|| format!("{at}: expected PATTERN, tab, WORDS"))?;
        let regex = Regex::new(&format!("(?i){pattern}")).map_err(|e| format!("{at}: {e}"))?;
        patterns.push((regex, instead.to_owned()));
    }
    Ok(patterns)
}

/// Returns the files at a place whose names have one of these extensions, in order.
pub(crate) fn files_at(place: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut open = vec![place.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            // Folders of tools, which contain the work of others.
            if LEFT_OUT.iter().any(|left_out| path.ends_with(left_out)) {
                continue;
            }
            let entries = fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else if path.extension().is_some_and(|ext| extensions.iter().any(|one| ext == *one)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The lines of a Rust source with everything but comments and string literals left out.
fn rust_text(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut in_fence = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let comment = trimmed.strip_prefix("//");
        if let Some(comment) = comment {
            let comment = comment.trim_start_matches(['/', '!']);
            if comment.trim_start().starts_with("```") {
                in_fence = !in_fence;
            } else if !in_fence {
                lines.push((number + 1, without_code(comment)));
            }
            continue;
        }
        in_fence = false;
        // A literal over several lines loses its later lines, which is good enough for a check of
        // words.
        let literals: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
        if !literals.is_empty() {
            lines.push((number + 1, literals.join(" ")));
        }
    }
    lines
}

/// The comments of a script, and the docstrings of a module: lines in `"""`, and lines that `mark` or `*` begins.
fn script_text(text: &str, mark: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut in_string = false;
    for (number, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let was_in_string = in_string;
        if mark == "#" && line.matches("\"\"\"").count() % 2 == 1 {
            in_string = !in_string;
        }
        let comment = if was_in_string || trimmed.starts_with("\"\"\"") {
            Some(line)
        } else if mark == "//" && (trimmed.starts_with("/**") || trimmed.starts_with("* ")) {
            Some(trimmed)
        } else {
            trimmed
                .strip_prefix(mark)
                .or_else(|| line.split_once(&format!(" {mark} ")).map(|(_, comment)| comment))
        };
        lines.extend(comment.map(|comment| (number + 1, without_code(comment))));
    }
    lines
}

/// The lines of a page without code.
fn markdown_text(text: &str) -> Vec<(usize, String)> {
    let mut in_fence = false;
    let mut lines = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence && !line.starts_with("    ") {
            lines.push((number + 1, without_code(line)));
        }
    }
    lines
}

/// A line without the parts between backticks, which quote names.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}
