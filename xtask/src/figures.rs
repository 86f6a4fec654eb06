//! Figures about the language of Rust sources: words of comments, doc comments, and names of tests.
//!
//! ```text
//! let mut figures = Figures::default();
//! figures.read(path, &text);          // once for each file of a group
//! print_table(&by_group);
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Words that no summary line of a doc comment should open with.
const OPENERS: [&str; 11] =
    ["It", "Its", "What", "Whether", "How", "Which", "That", "Who", "Where", "When", "Why"];
/// Words that the name of a test has at most.
const MOST_NAME_WORDS: usize = 6;
/// Characters that the subject of a commit has at most.
const MOST_SUBJECT: usize = 72;

/// The figures of a crate, or of another folder.
#[derive(Default)]
pub(crate) struct Figures {
    words: usize,
    ifs: usize,
    becauses: usize,
    wheres: usize,
    docs: usize,
    /// Places of doc comments that open with one of [`OPENERS`].
    pub(crate) openers: Vec<String>,
    /// Places of examples that do not compile.
    pub(crate) ignored: Vec<String>,
    inline: usize,
    code: usize,
    tests: usize,
    /// Names of tests that have too many words.
    long_names: usize,
}

impl Figures {
    /// Counts a file.
    pub(crate) fn read(&mut self, file: &Path, text: &str) {
        // Only the sources count for the density of comments, because tests explain themselves.
        let is_source = file.iter().any(|part| part == "src");
        let mut in_doc = false;
        let mut is_test = false;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let place = || format!("{}:{}", file.display(), number + 1);
            let Some(comment) = line.strip_prefix("//") else {
                in_doc = false;
                self.code += usize::from(is_source && !line.is_empty());
                is_test = self.read_code(line, is_test);
                continue;
            };
            let doc = comment.strip_prefix(['/', '!']);
            let words = words(doc.unwrap_or(comment));
            self.count_words(&words);
            if doc.is_none() {
                self.inline += usize::from(is_source);
            } else if !in_doc {
                self.docs += 1;
                if words.first().is_some_and(|word| OPENERS.contains(word)) {
                    self.openers.push(place());
                }
            }
            in_doc = doc.is_some();
            let fence = doc.and_then(|doc| doc.trim_start().strip_prefix("```"));
            if fence.is_some_and(|info| info.split(',').any(|word| word.trim() == "ignore")) {
                self.ignored.push(place());
            }
        }
    }

    fn count_words(&mut self, words: &[&str]) {
        let count = |wanted: &str| words.iter().filter(|w| w.eq_ignore_ascii_case(wanted)).count();
        self.words += words.len();
        self.ifs += count("if");
        self.becauses += count("because");
        self.wheres += count("where");
    }

    /// Reads a line of code. Returns `true` if the next function is a test.
    fn read_code(&mut self, line: &str, is_test: bool) -> bool {
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            return true;
        }
        let name = line.split_once("fn ").map(|(_, rest)| rest.split('(').next().unwrap_or(rest));
        let Some(name) = name.filter(|_| is_test) else { return is_test };
        self.tests += 1;
        self.long_names += usize::from(name.split('_').count() > MOST_NAME_WORDS);
        false
    }

    fn per_words(&self, count: usize) -> f64 {
        count as f64 * 1e4 / self.words.max(1) as f64
    }

    /// Returns the percentage of doc comments that open with one of [`OPENERS`].
    pub(crate) fn share_of_openers(&self) -> f64 {
        self.openers.len() as f64 * 100.0 / self.docs.max(1) as f64
    }
}

/// Splits a comment into words.
fn words(comment: &str) -> Vec<&str> {
    let between = |c: char| !c.is_ascii_alphabetic() && c != '\'';
    comment.split(between).filter(|word| !word.is_empty()).collect()
}

/// Prints the figures, a line for each group.
pub(crate) fn print_table(groups: &BTreeMap<String, Figures>) {
    println!(
        "{:<28}{:>7}{:>7}{:>9}{:>7}{:>10}{:>10}{:>9}{:>7}{:>7}",
        "per 10,000 comment words:",
        "words",
        "if",
        "because",
        "where",
        "openers %",
        "// : code",
        "ignored",
        "tests",
        "long"
    );
    for (name, figures) in groups {
        println!(
            "{name:<28}{:>7}{:>7.1}{:>9.1}{:>7.1}{:>10.1}{:>10.3}{:>9}{:>7}{:>7}",
            figures.words,
            figures.per_words(figures.ifs),
            figures.per_words(figures.becauses),
            figures.per_words(figures.wheres),
            figures.share_of_openers(),
            figures.inline as f64 / figures.code.max(1) as f64,
            figures.ignored.len(),
            figures.tests,
            figures.long_names,
        );
    }
}

/// Prints the number of commits since a revision whose subject is too long.
pub(crate) fn count_subjects(since: &str) -> Result<(), String> {
    let range = format!("{since}..HEAD");
    let log = Command::new("git").args(["log", "--format=%s", &range, "--"]).output();
    let log = log.map_err(|error| format!("git: {error}"))?;
    if !log.status.success() {
        let problem = String::from_utf8_lossy(&log.stderr);
        return Err(format!("git log {range}: {}", problem.trim()));
    }
    let subjects = String::from_utf8_lossy(&log.stdout);
    let long = subjects.lines().filter(|subject| subject.chars().count() > MOST_SUBJECT).count();
    let all = subjects.lines().count();
    println!("commit subjects over {MOST_SUBJECT} characters since {since}: {long} of {all}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_names_are_counted() {
        let text = "//! What it does.\n\n// Because if it were.\nlet x = 1;\n#[test]\n#[cfg(unix)]\n\
                    fn one_two_three_four_five_six_seven() {}\n#[tokio::test]\nasync fn short() {}\n\
                    fn this_is_no_test_but_a_helper_function() {}\n/// ```ignore\n";
        let mut figures = Figures::default();
        figures.read(Path::new("crates/x/src/lib.rs"), text);
        assert_eq!((figures.ifs, figures.becauses, figures.wheres), (1, 1, 0));
        assert_eq!((figures.inline, figures.code, figures.docs), (1, 7, 2));
        assert_eq!(figures.openers, ["crates/x/src/lib.rs:1"]);
        assert_eq!(figures.ignored, ["crates/x/src/lib.rs:11"]);
        assert_eq!((figures.tests, figures.long_names), (2, 1));
    }
}
