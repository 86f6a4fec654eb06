//! Reader for ReAct logs in plain text, as written by Reflexion's experiments with HotpotQA: one
//! file with many runs.
//!
//! ```text
//! BEGIN TRIAL 1
//! ------------- BEGIN CORRECT AGENTS -------------
//!
//! Question: Which of Jonny Craig and Pete Doherty has been a member of more bands ?
//! Thought 1: I need to search Jonny Craig and Pete Doherty …
//! Action 1: Search[Jonny Craig]
//! Observation 1: Jonathan Monroe Craig (born March 26, 1986) is …
//! Correct answer: Jonny" Craig
//! ```
//!
//! Quirks:
//!
//! - Nothing is escaped. A line is recognised by its prefix and, if it has one, by its number,
//!   which must be the next one; any other line continues the line before. A question comes after
//!   an empty line, or after its context.
//! - In chain-of-thought logs the lines have no numbers, and the question has a context before it:
//!   on lines of its own, or with the question at the end of its last line.
//! - The correctness of the answer is in the last observation, otherwise in the heading of the
//!   section; halted runs have a section of their own. A file with a single section may lack its
//!   heading: then the ending of a run without a judged answer is unknown.
//! - Prompts for such agents look the same. A log is recognised by its headings, or by an answer
//!   that was judged.
//! - A log that was cut between two runs, or at the end of a heading's line, looks complete,
//!   because a section may be empty. The numbers in its summary do not match its runs then, but
//!   excerpts of logs have such numbers, too.
//! - All trials use the same questions. Correct answers are written again in each later trial: the
//!   task is the question, and the run id is the file's name with the position of the run; the
//!   trial is stored in the run.
//! - Reflections before a trial are part of its prompt.
//! - Failures are recognised by the environment's messages: `Could not find`, `Invalid Action`,
//!   `There are no more`, `The last page Searched`.

mod line;
#[cfg(feature = "benchmarks")]
mod reader;

use crate::read::format::{Format, Head};
use line::{Line, asked_after};

pub(crate) const FORMATS: &[Format] = &[Format {
    name: "react-log",
    about: "ReAct logs in plain text: Reflexion's experiments",
    recognises,
    of_a_person: false,
    shape: benchmark!(Whole(reader::read)),
}];

fn recognises(head: &Head<'_>) -> bool {
    let ending = head.name.rsplit_once('.').map_or("", |(_, ending)| ending);
    // Any text file could contain these words, so only the usual extensions are tried.
    if !matches!(ending, "" | "txt" | "log" | "out") {
        return false;
    }
    // A prompt for such agents also contains questions and actions, but no judged answer.
    let (mut context, mut asked, mut acted, mut judged) = (false, false, false, false);
    let text = String::from_utf8_lossy(head.bytes);
    for line in text.lines() {
        match Line::of(line, asked.then_some(1)) {
            Line::Trial(_) | Line::Section(_) => judged = true,
            Line::Context => context = true,
            Line::Question(_) => asked = true,
            Line::Action(_) => acted |= asked,
            Line::Gold(_) => judged |= acted,
            _ => asked |= context && asked_after(line).is_some(),
        }
        judged |= acted && line.starts_with("Observation") && line.trim_end().ends_with("CORRECT");
        if acted && judged {
            return true;
        }
    }
    false
}
