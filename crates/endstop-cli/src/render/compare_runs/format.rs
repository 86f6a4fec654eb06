//! Text shared by the page and the terminal: endings, amounts, and the sentence about a pair.

use super::difference::Kind;
use super::path::{Path, Step};
use super::{Comparison, Pair};
use crate::render::amounts::{count, seconds, thousands};
use crate::render::card::known_cost;
use crate::visible::shorten;
use endstop::Outcome;

/// The columns of the table of runs, after its letter and its name.
pub(super) const COLUMNS: [&str; 6] = ["ended as", "cost", "turns", "calls", "tokens", "time"];

/// Returns the cells of a run.
pub(super) fn cells(path: &Path) -> [String; 6] {
    let Some(ending) = &path.timeline.ending else {
        let none = || "–".to_owned();
        let turns = (path.last() - path.before).to_string();
        let ended = format!("({})", path.timeline.state);
        return [ended, none(), turns, none(), none(), none()];
    };
    [
        ended_as(ending),
        known_cost(ending.cost, ending.cost_unknown),
        ending.turns.to_string(),
        ending.tool_calls.to_string(),
        thousands(ending.usage.total_tokens()),
        seconds(ending.duration),
    ]
}

fn ended_as(ending: &Outcome) -> String {
    let verified = match ending.verified {
        Some(true) => ", verified",
        Some(false) => ", rejected",
        None => "",
    };
    format!("{} ({}{verified})", ending.termination, ending.category())
}

/// Returns the decision that ended the run.
pub(super) fn decided(path: &Path) -> Option<String> {
    let ending = path.timeline.ending.as_ref()?;
    Some(shorten(&ending.decided_by.to_string(), 200).replace('\n', " "))
}

/// Describes where a run branched off, and the sums with the turns before.
pub(super) fn branch(path: &Path) -> Option<String> {
    let from = path.branched_from()?;
    let mut text = format!("branch of {} after turn {}", from.run_id, from.turn);
    if let Some(ending) = &path.timeline.ending {
        let unknown = from.cost_unknown || ending.cost_unknown;
        text = format!(
            "{text}; with the turns before: {}, {} tokens, {}",
            count(path.last(), "turn"),
            thousands(from.tokens.saturating_add(ending.usage.total_tokens())),
            known_cost(from.cost + ending.cost, unknown)
        );
    }
    Some(shorten(&text, 300).replace('\n', " "))
}

/// States where the two runs of a pair diverge.
pub(super) fn sentence(compared: &Comparison, pair: &Pair) -> String {
    let both = format!("A and {}", Comparison::letter(pair.other));
    let same = match pair.same {
        0 => format!("{both} differ from turn 1 on"),
        1 => format!("{both} are the same in turn 1"),
        turns => format!("{both} are the same up to turn {turns}"),
    };
    let Some(found) = &pair.diverge else {
        return match pair.same {
            0 => format!("{both} have no turn"),
            turns => format!("{both} are the same in all {}", count(turns, "turn")),
        };
    };
    let other = &compared.runs[pair.other];
    match found.kind {
        Kind::Text => format!("{same}; the text of turn {} differs", found.turn),
        Kind::Calls => format!("{same}; the calls of turn {} differ", found.turn),
        Kind::Results => {
            format!("{same}; turn {} has the same calls with other results", found.turn)
        }
        Kind::Ended => {
            let longer = if other.at(found.turn).is_some() {
                Comparison::letter(pair.other)
            } else {
                "A".to_owned()
            };
            format!("{same}; only {longer} has a turn {}", found.turn)
        }
    }
}

/// Formats a turn: its text, then a line for each call.
pub(super) fn step(step: Option<&Step>) -> Vec<String> {
    let Some(step) = step else { return vec!["no such turn".to_owned()] };
    let line = |text: &str, most| shorten(text, most).replace('\n', " ⏎ ");
    let mut lines = Vec::new();
    if !step.text.is_empty() {
        lines.push(format!("text {:?}", line(&step.text, 160)));
    }
    for call in &step.calls {
        let (name, arguments) = (line(&call.name, 60), line(&call.arguments, 160));
        let result = line(&call.result, 120);
        lines.push(format!("{name}({arguments}) → {}: {result}", call.status));
    }
    if lines.is_empty() {
        lines.push("a blank answer".to_owned());
    }
    lines
}
