//! The card printed at the end of a run: the termination, its meaning, the component that decided
//! and its evidence, the resources spent and their limits, and the next step.
//!
//! ```text
//! ── stopped: error_max_turns (capacity) ───────────────────────────
//!   why      the turn cap was reached
//!   decided  limit `max_turns`: 25 of 25 turns
//!   spent    25/25 turns · 25 model calls · 30 tool calls · 41,230 tokens · $0.12 · 48.1 s
//!   cache    36,100 tokens read · 2,400 written · saved $0.09
//!   next     raise --max-turns, or reduce the task
//! ```

use crate::render::advice::Facts;
use crate::render::amounts::{count, seconds, thousands};
use crate::visible::shorten;
use endstop::core::{Billing, CacheUse, ModelUse, RuleHit, StoppedWork, VerifyRound, WatchMode};
use endstop::{BranchPoint, Category, Limits, NanoUsd, Outcome};
use std::fmt::Write as _;

/// The parts of the card that do not come from the outcome.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// The next step.
    pub(crate) next: Option<String>,
    /// The verifier's command. Only `explain` names it, because it is shown long after the run.
    pub(crate) verifier: Option<String>,
    /// The run's id in the journal, with the `endstop explain` command for it.
    pub(crate) run: Option<String>,
    /// The first difference from the recording that was replayed.
    pub(crate) diverged: Option<String>,
    /// Rules that fired in other conversations of a guarded program than the first one.
    pub(crate) fired_elsewhere: Vec<RuleHit>,
    /// The own ending of a guarded program.
    pub(crate) agent: Option<String>,
    /// `true` if the verifier was stopped before it gave a result.
    pub(crate) unverified: bool,
}

/// A row of the card: its name and its text, which may have several lines.
pub(crate) type Row = (&'static str, String);

/// Rows that hold a command to be copied. A terminal that breaks them copies them whole.
const COMMANDS: [&str; 2] = ["next", "run"];

/// Formats the card of an outcome. `color` colours its first line; `width` is that of the terminal, at which the texts
/// are wrapped.
pub(crate) fn card(
    outcome: &Outcome,
    limits: &Limits,
    beside: &Beside,
    color: bool,
    width: Option<usize>,
) -> String {
    let termination = outcome.termination;
    let head = format!("stopped: {termination} ({})", termination.category());
    // 66 columns keep the card within a terminal of 80, also in a quoted mail or an issue.
    let columns = width.map_or(66, |width| width.min(66));
    let rule = "─".repeat(columns.saturating_sub(head.chars().count() + 4));
    let painted = match (color, termination.category()) {
        (false, _) => head,
        (true, Category::Success) => format!("\x1b[1;32m{head}\x1b[0m"),
        (true, Category::Fatal) => format!("\x1b[1;31m{head}\x1b[0m"),
        (true, _) => format!("\x1b[1;33m{head}\x1b[0m"),
    };
    let mut out = format!("── {painted} {rule}\n");
    for (name, text) in rows(outcome, limits, beside) {
        let room =
            width.filter(|_| !COMMANDS.contains(&name)).map(|width| width.saturating_sub(11));
        let lines = text.lines().flat_map(|line| wrapped(line, room.unwrap_or(usize::MAX)));
        for (n, line) in lines.enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(out, "  {name:<9}{line}");
        }
    }
    // The caller ends the last line.
    out.pop();
    out
}

/// Breaks a line at spaces into lines of at most `room` characters. A longer word stays whole.
fn wrapped(line: &str, room: usize) -> Vec<&str> {
    // Fewer would make a column of single words.
    if room < 16 {
        return vec![line];
    }
    let mut lines = Vec::new();
    let mut rest = line;
    while let Some((end, _)) = rest.char_indices().nth(room) {
        let fits = rest[end..].starts_with(' ').then_some(end);
        let space =
            fits.or_else(|| rest[..end].rfind(' ').filter(|at| !rest[..*at].trim().is_empty()));
        // Without a space, the end of the word that is longer than the room.
        let Some(at) = space.or_else(|| rest[end..].find(' ').map(|at| end + at)) else { break };
        lines.push(&rest[..at]);
        rest = rest[at..].trim_start();
    }
    lines.push(rest);
    lines
}

/// Returns the rows of the card, which the card of `run`, and the text and the page of `explain`
/// have in common.
pub(crate) fn rows(outcome: &Outcome, limits: &Limits, beside: &Beside) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row = |name, text: &str| rows.push((name, text.to_owned()));
    // 400 characters keep a long answer or an error body from pushing the rest off the screen.
    row("why", &shorten(&Facts::of(outcome).meaning(), 400));
    let by = &outcome.decided_by;
    // An error begins with its class, which is the decision.
    let name = by.decision.to_string();
    let rest = by.evidence.strip_prefix(&name).filter(|rest| rest.starts_with([':', ' ']));
    let said = rest.map_or_else(|| format!(": {}", by.evidence), str::to_owned);
    row("decided", &shorten(&format!("{} `{name}`{said}", by.layer), 400));
    if let Some(answer) = outcome.deliverable.as_ref() {
        let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
        row("answer", &shorten(&text, 400));
    }
    if let Some(summary) = &outcome.summary {
        row("summary", &shorten(summary, 400));
    }
    if let Some(text) = &outcome.hand_over {
        row("handover", &shorten(text, 1000));
    }
    for StoppedWork { handle, name, .. } in outcome.background.iter().take(4) {
        let what = format!(
            "background call {handle} (`{}`) was still running; it may have done part of its work",
            shorten(name, 60)
        );
        row("stopped", &what);
    }
    if let Some(snapshot) = &outcome.no_progress_snapshot {
        for call in &snapshot.calls {
            row(
                "repeats",
                &shorten(&format!("{}({}) → {}", call.name, call.arguments, call.result), 200),
            );
        }
    }
    if !outcome.also.is_empty() {
        let also: Vec<&str> = outcome.also.iter().map(|t| t.as_str()).collect();
        row("also", &format!("{} (also true at that moment, but did not decide)", also.join(", ")));
    }
    for fired in &outcome.fired {
        row("watch", &watched(fired, ""));
    }
    for fired in beside.fired_elsewhere.iter().take(4) {
        row("watch", &watched(fired, " of another conversation"));
    }
    if let Some(agent) = &beside.agent {
        row("agent", &shorten(agent, 400));
    }
    row("spent", &spent(outcome, limits));
    // With one model the row above has the same figures.
    if outcome.models.len() > 1 {
        for model in &outcome.models {
            row("model", &model_use(model));
        }
    }
    if let Some(from) = &outcome.branched_from {
        row("branch", &shorten(&format!("of {}", branch_point(from)), 400));
    }
    if !outcome.suspended.is_zero() {
        let time = seconds(outcome.suspended);
        row("paused", &format!("{time} suspended, which no timeout of a model call includes"));
    }
    if let Some(cache) = &outcome.cache {
        row("cache", &cached(cache));
    }
    if let Some(verified) = verified(outcome.verified, beside.unverified) {
        match &beside.verifier {
            Some(command) => {
                let command = shorten(command, 200).replace('\n', " ");
                row("verified", &format!("{verified} (`{command}`)"));
            }
            None => row("verified", verified),
        }
    }
    for (nth, round) in (1..).zip(&outcome.verify_rounds) {
        row("round", &round_of(nth, round));
    }
    if let Some(diverged) = &beside.diverged {
        row("replay", &shorten(&format!("DIVERGED: {diverged}"), 400));
    }
    // Never shortened, because a shortened command would not run.
    if let Some(next) = &beside.next {
        row("next", next);
    }
    if let Some(run) = &beside.run {
        row("run", run);
    }
    rows
}

/// Formats a rule that fired: the turn, what it saw, its name and what it does.
fn watched(fired: &RuleHit, place: &str) -> String {
    let name = fired.rule.split(['(', '[', '=']).next().unwrap_or_default();
    let does = match fired.mode {
        WatchMode::Observe => "observes",
        WatchMode::Warn => "warns",
        WatchMode::Nudge => "nudges",
        WatchMode::Stop => "stops",
    };
    let seen = shorten(&fired.evidence, 160);
    format!("turn {}{place}: {seen} ({name} {does})", fired.turn)
}

/// Formats the resources that were spent, each with its limit if there is one.
fn spent(outcome: &Outcome, limits: &Limits) -> String {
    let of = |used: String, allowed: Option<String>| match allowed {
        Some(allowed) => format!("{used}/{allowed}"),
        None => used,
    };
    let usage = &outcome.usage;
    let estimated = if usage.estimated { "~" } else { "" };
    let max_usd = limits.max_budget_usd.map(|max| NanoUsd::from_usd(max).to_string());
    // Zero tokens after a call mean that the provider reported no usage.
    let counted = usage.total_tokens() > 0 || outcome.model_calls == 0;
    // A call without a reported usage or without a price must not be shown as $0.00, because it did
    // cost something.
    let cost = match outcome.cost_upper {
        None if outcome.cost.0 == 0 => Some("cost unknown (no price)".to_owned()),
        Some(upper) if upper > outcome.cost && outcome.cost.0 == 0 => {
            Some(format!("cost unknown (no usage reported), at most {upper}"))
        }
        Some(upper) if upper > outcome.cost => Some(format!(
            "{} (at most {upper})",
            of(format!("{estimated}{}", outcome.cost), max_usd)
        )),
        None if outcome.cost_unknown => {
            Some(format!("at least {}", of(format!("{estimated}{}", outcome.cost), max_usd)))
        }
        Some(_) if usage.billing == Billing::AtMost => {
            Some(format!("at most {}", of(format!("{estimated}{}", outcome.cost), max_usd)))
        }
        // No provider answered, so $0.00 would claim a price that may not be known. A run with a
        // cost ceiling has one.
        _ if !counted && outcome.cost.0 == 0 && max_usd.is_none() => None,
        _ => Some(of(format!("{estimated}{}", outcome.cost), max_usd)),
    };
    let max_tokens = limits.max_tokens.map(thousands);
    let counts = limits.tokens_counted();
    let used = if counted {
        of(format!("{estimated}{}", thousands(counts.of(usage))), max_tokens)
    } else {
        of("unknown".to_owned(), max_tokens)
    };
    let turns = match limits.max_turns {
        Some(max) => format!("{}/{max} turns", outcome.turns),
        None => count(outcome.turns.into(), "turn"),
    };
    let mut spent = vec![
        turns,
        count(outcome.model_calls.into(), "model call"),
        count(outcome.tool_calls.into(), "tool call"),
        format!("{used} {}tokens", counts.qualifier()),
    ];
    spent.extend(cost);
    spent.push(of(seconds(outcome.duration), limits.timeout.map(seconds)));
    spent.join(" · ")
}

/// Formats what was used of a model.
fn model_use(of: &ModelUse) -> String {
    let name: Vec<&str> =
        [&of.provider, &of.model].into_iter().flatten().map(String::as_str).collect();
    let least = if of.cost_unknown { "at least " } else { "" };
    let calls = count(of.calls.into(), "model call");
    let tokens = thousands(of.usage.total_tokens());
    format!("{}: {calls} · {tokens} tokens · {least}{}", shorten(&name.join("/"), 200), of.cost)
}

/// Formats a cost that may be a lower bound. A bound of 0 has no meaning.
pub(crate) fn known_cost(cost: NanoUsd, unknown: bool) -> String {
    match (unknown, cost.0) {
        (true, 0) => "unknown cost".to_owned(),
        (true, _) => format!("at least {cost}"),
        (false, _) => cost.to_string(),
    }
}

/// Describes the place at which a run branched off, and the cost up to there.
pub(crate) fn branch_point(from: &BranchPoint) -> String {
    let mut text = format!(
        "run {} after turn {}; its {} and {} tokens up to there are not included",
        from.run_id,
        from.turn,
        known_cost(from.cost, from.cost_unknown),
        thousands(from.tokens)
    );
    if from.left_out > 0 {
        let parts = count(from.left_out, "part");
        let _ = write!(text, "; {parts} of another API left out");
    }
    text
}

/// Formats the use of prompt caches, and what it saved or cost.
fn cached(cache: &CacheUse) -> String {
    let mut parts = vec![
        format!("{} tokens read", thousands(cache.read_tokens)),
        format!("{} written", thousands(cache.write_tokens)),
    ];
    parts.extend(cache.saved.map(|saved| match NanoUsd(saved.0.unsigned_abs()) {
        lost if saved.0 < 0 => format!("cost {lost} more than without"),
        saved => format!("saved {saved}"),
    }));
    parts.join(" · ")
}

/// Describes a verdict; a rejection ends with the last line of the verifier's output.
fn round_of(nth: u32, round: &VerifyRound) -> String {
    let VerifyRound { turn, passed, output } = round;
    if *passed {
        return format!("{nth}, after turn {turn}: accepted");
    }
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    format!("{nth}, after turn {turn}: rejected: {}", shorten(last, 200))
}

/// Describes the verifier's result; `stopped` means that it was stopped before it gave one.
fn verified(found: Option<bool>, stopped: bool) -> Option<&'static str> {
    match found {
        Some(true) => Some("yes"),
        Some(false) => Some("NO: the verifier rejected the work"),
        None if stopped => Some("unknown: the verifier was stopped before it gave a result"),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::wrapped;

    #[test]
    fn lines_break_at_spaces_and_lose_no_word() {
        let text = "turn 3: the same call gave the same result at least 3 times: read_file (stuck observes)";
        for room in 16..120 {
            let lines = wrapped(text, room);
            assert_eq!(lines.join(" "), text, "{room}");
            assert!(lines.iter().all(|line| line.chars().count() <= room), "{room}: {lines:?}");
        }
        let long = "a 0123456789012345678901234567890123456789 b";
        assert_eq!(wrapped(long, 20), ["a", "0123456789012345678901234567890123456789", "b"]);
        assert_eq!(wrapped("ä ö ü ß ä ö ü ß ä ö ü ß", 17), ["ä ö ü ß ä ö ü ß ä", "ö ü ß"]);
        assert_eq!(
            wrapped("narrow terminals are left alone", 5),
            ["narrow terminals are left alone"]
        );
        assert_eq!(wrapped("", 20), [""]);
    }
}
