//! The lines of a log, by which it is recognised and read.

/// The type of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Trial(&'a str),
    Section(&'a str),
    /// A line around a heading.
    Frame,
    Context,
    Question(&'a str),
    Reflections(&'a str),
    Thought(&'a str),
    Action(&'a str),
    Observation(&'a str),
    Gold(&'a str),
    /// A continuation of the line before.
    Other,
}

/// Creates a line from the text after its prefix.
type Kind<'a> = fn(&'a str) -> Line<'a>;

impl<'a> Line<'a> {
    /// Classifies a line. `turn` is the number that the line may have; `None` if there was no
    /// question yet.
    pub(super) fn of(line: &'a str, turn: Option<u64>) -> Line<'a> {
        Line::of_run(line, turn, None)
    }

    /// As [`Line::of`]. `numbered` is whether the lines of the run have numbers, if that is known.
    pub(super) fn of_run(line: &'a str, turn: Option<u64>, numbered: Option<bool>) -> Line<'a> {
        if let Some(heading) = line.strip_prefix("---").map(|line| line.trim_matches(['-', ' '])) {
            return heading.strip_prefix("BEGIN ").map_or(Line::Other, Line::Section);
        }
        if let Some(trial) = line.strip_prefix("BEGIN TRIAL ") {
            return Line::Trial(trial.trim());
        }
        if line.starts_with("Trial summary: ")
            // The summary is framed by long lines of `#`; a short one may be a Markdown heading.
            || line.len() >= 20 && line.bytes().all(|byte| byte == b'#')
        {
            return Line::Frame;
        }
        if let Some(question) = line.strip_prefix("Question:") {
            return Line::Question(question.trim());
        }
        if line.starts_with("Context:") {
            return Line::Context;
        }
        let Some(turn) = turn else { return Line::Other };
        if let Some(gold) = line.strip_prefix("Correct answer:") {
            return Line::Gold(gold.trim());
        }
        if let Some(told) = line.strip_prefix("Reflections:").or(line.strip_prefix("Reflection:")) {
            return Line::Reflections(told.trim());
        }
        let kinds: [(&str, Kind<'a>); 3] = [
            ("Thought", Line::Thought),
            ("Action", Line::Action),
            ("Observation", Line::Observation),
        ];
        for (name, kind) in kinds {
            let Some(rest) = line.strip_prefix(name) else { continue };
            let Some((number, said)) = rest.split_once(':') else { continue };
            // A retrieved passage may contain a line with the same prefix, so the number must
            // match.
            let fits = match number.trim().parse::<u64>() {
                Ok(number) => numbered != Some(false) && turn == number,
                Err(_) => numbered != Some(true) && number.is_empty(),
            };
            if fits {
                return kind(said.trim());
            }
        }
        Line::Other
    }
}

/// Splits a line into the end of a context and the question after it.
pub(super) fn asked_after(line: &str) -> Option<(&str, &str)> {
    line.rsplit_once("Question: ")
}
