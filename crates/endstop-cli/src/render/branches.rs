//! The runs that `endstop backtest --branch` has chosen: as text with the commands that continue them,
//! and as JSON.

use super::advice::in_journal;
use crate::recorded::backtest::branches::{Chosen, Stopped};
use crate::render::amounts::count;
use endstop_report::advice::quoted;
use serde_json::{Value, json};

/// Returns the command that continues a run from the turn at which it would have been stopped.
fn command(one: &Stopped) -> String {
    // Quoted, because a journal may come from another user.
    let command = format!("endstop branch {} --at {}", quoted(&one.run), one.at);
    in_journal(&command, Some(&one.journal))
}

/// Returns the lines of the report.
pub(crate) fn lines(chosen: &Chosen) -> Vec<String> {
    let mut lines = vec![String::new()];
    let name = &chosen.candidate;
    if chosen.can + chosen.cannot == 0 {
        lines.push(format!("{name} would have stopped no run before its last turn"));
        return lines;
    }
    if let Some(first) = chosen.runs.first() {
        lines.push(format!(
            "{} of {} that {name} would have stopped; to see if they were lost, continue them from there:",
            chosen.runs.len(),
            count(chosen.can, "run")
        ));
        for one in &chosen.runs {
            let ended = match one.success {
                Some(true) => "good",
                Some(false) => "failed",
                None => "without an outcome",
            };
            let command = command(one);
            lines.push(format!("  {command}   # turn {} of {}, {ended}", one.at, one.turns));
        }
        let compare = format!("endstop compare runs {} last", quoted(&first.run));
        lines.push(format!("  {}   # after the first", in_journal(&compare, Some(&first.journal))));
    }
    if chosen.cannot > 0 {
        lines.push(format!(
            "{} that {name} would have stopped cannot be continued: not runs of `endstop run` in a journal",
            count(chosen.cannot, "run")
        ));
    }
    lines
}

/// Returns the chosen runs as one object.
pub(crate) fn json(chosen: &Chosen) -> Value {
    let run = |one: &Stopped| {
        json!({
            "run_id": one.run,
            "at": one.at,
            "turns": one.turns,
            "success": one.success,
            "command": command(one),
        })
    };
    json!({
        "candidate": chosen.candidate,
        "runs": chosen.runs.iter().map(run).collect::<Vec<_>>(),
        "can_be_continued": chosen.can,
        "cannot_be_continued": chosen.cannot,
    })
}
