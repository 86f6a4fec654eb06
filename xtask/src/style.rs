//! `cargo xtask style`: looks for words of the old dialect, and prints figures about the language.
//!
//! The patterns are in `xtask/dialect.txt`, the rules in `docs/STYLE.md`. Rust sources are searched
//! in comments and string literals only, Markdown outside code. The task fails on a match, on an
//! example that does not compile (`ignore`), and on more than 0.5 % of a crate's doc comments
//! that open with a word such as "What".

use regex::Regex;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const PATTERNS: &str = "xtask/dialect.txt";
/// Folders and files that contain text for people.
const PLACES: [&str; 11] = [
    "crates",
    "bench",
    "examples",
    "fuzz",
    "xtask/src",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "testdata/conformance/FORMAT.md",
];
/// Pages that quote the old words on purpose, or quote others.
const EXEMPT: [&str; 1] = ["docs/STYLE.md"];
/// Words that no summary line of a doc comment should open with.
const OPENERS: [&str; 11] =
    ["It", "Its", "What", "Whether", "How", "Which", "That", "Who", "Where", "When", "Why"];
/// Share of doc comments, in percent, that may open with such a word.
const MOST_OPENERS: f64 = 0.5;

/// Runs the task.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    if let Some(other) = args.first() {
        return Err(format!("unknown argument `{other}`: cargo xtask style takes none"));
    }
    let patterns = patterns()?;
    let mut problems = Vec::new();
    let mut figures: BTreeMap<String, Figures> = BTreeMap::new();
    for place in PLACES {
        for file in text_files(Path::new(place))? {
            if EXEMPT.iter().any(|exempt| file == Path::new(exempt)) {
                continue;
            }
            let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
            let lines = if file.extension().is_some_and(|ext| ext == "rs") {
                let group: PathBuf = file.iter().take(2).collect();
                let group = figures.entry(group.display().to_string()).or_default();
                group.read(&file, &text, &mut problems);
                rust_text(&text)
            } else {
                markdown_text(&text)
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
    println!(
        "{:<28}{:>7}{:>7}{:>9}{:>7}{:>10}{:>10}",
        "per 10,000 comment words:", "words", "if", "because", "where", "openers %", "// : code"
    );
    for (name, figures) in &figures {
        let openers = figures.share_of_openers();
        println!(
            "{name:<28}{:>7}{:>7.1}{:>9.1}{:>7.1}{openers:>10.1}{:>10.3}",
            figures.words,
            figures.per_words(figures.ifs),
            figures.per_words(figures.becauses),
            figures.per_words(figures.wheres),
            figures.inline as f64 / figures.code.max(1) as f64,
        );
        if openers > MOST_OPENERS {
            problems.push(format!(
                "{name}: {openers:.1} % of the doc comments open with a word such as `What`; \
                 at most {MOST_OPENERS} %: {}",
                figures.openers.join(", ")
            ));
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
}

#[derive(Default)]
struct Figures {
    words: usize,
    ifs: usize,
    becauses: usize,
    wheres: usize,
    docs: usize,
    /// Places of doc comments that open with such a word.
    openers: Vec<String>,
    inline: usize,
    code: usize,
}

impl Figures {
    fn read(&mut self, file: &Path, text: &str, problems: &mut Vec<String>) {
        let is_source = file.iter().any(|part| part == "src");
        let mut in_doc = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let Some(comment) = line.strip_prefix("//") else {
                in_doc = false;
                self.code += usize::from(is_source && !line.is_empty());
                continue;
            };
            let doc = comment.strip_prefix(['/', '!']);
            let words: Vec<&str> = doc
                .unwrap_or(comment)
                .split(|c: char| !c.is_ascii_alphabetic() && c != '\'')
                .filter(|word| !word.is_empty())
                .collect();
            self.words += words.len();
            let count =
                |wanted: &str| words.iter().filter(|w| w.eq_ignore_ascii_case(wanted)).count();
            self.ifs += count("if");
            self.becauses += count("because");
            self.wheres += count("where");
            if doc.is_none() {
                self.inline += usize::from(is_source);
            } else if !in_doc {
                self.docs += 1;
                if words.first().is_some_and(|word| OPENERS.contains(word)) {
                    self.openers.push(format!("{}:{}", file.display(), number + 1));
                }
            }
            in_doc = doc.is_some();
            let fence = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
            if fence.is_some_and(|info| info.split(',').any(|word| word.trim() == "ignore")) {
                let at = file.display();
                let number = number + 1;
                problems.push(format!("{at}:{number}: an example that does not compile"));
            }
        }
    }

    fn per_words(&self, count: usize) -> f64 {
        count as f64 * 1e4 / self.words.max(1) as f64
    }

    fn share_of_openers(&self) -> f64 {
        self.openers.len() as f64 * 100.0 / self.docs.max(1) as f64
    }
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

fn text_files(place: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    let mut open = vec![place.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            if path.ends_with("target") || path.ends_with("node_modules") {
                continue;
            }
            let entries = fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            open.extend(entries.filter_map(Result::ok).map(|entry| entry.path()));
        } else if path.extension().is_some_and(|ext| ext == "rs" || ext == "md") {
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
