//! Text shared by the page and the terminal report of an audit.

use super::report::Report;
use crate::amounts::{count, thousands};
use crate::date::date;
use crate::visible::shorten;
use endstop_trajectory::Spent;
use endstop_trajectory::audit::{AgentGroup, Audit, How, Loop, Session, Sign, Stop};
use endstop_trajectory::backtest::Examples;
use std::fmt::Write as _;

/// The signs before amounts that are not exact, with their meanings.
pub(crate) const SIGNS: [(&str, &str); 3] = [
    ("≤", "at most: the price depends on data that was not recorded, so the highest is used"),
    ("≥", "at least: part of the usage has no price or was not recorded"),
    ("≈", "about: both of these apply"),
];

/// Maximum number of kinds of notes that are listed.
const KINDS: usize = 8;

/// Describes how a session ended.
pub(crate) fn how(how: How) -> &'static str {
    match how {
        How::Answered => "with an answer",
        How::Stopped => "stopped by a person",
        How::NoAnswer => "without an answer",
        How::Interrupted => "interrupted during calls",
        How::Limit => "at a limit",
        How::Cut => "cut off by length",
        How::Failed => "by an error",
        How::Empty => "without any text",
        _ => "unknown",
    }
}

/// Formats dollars, with a sign if the amount is not exact.
pub(crate) fn money(spent: &Spent) -> String {
    let lacks = spent.unpriced_tokens > 0 || spent.silent_turns > 0;
    // Zero dollars are shown only if nothing is missing, because a session without a price was not
    // free.
    if spent.usd.0 == 0 {
        return match (spent.turns, lacks) {
            (_, true) if spent.unpriced_tokens > 0 => "no price".to_owned(),
            (_, true) => "unknown".to_owned(),
            _ => "$0.00".to_owned(),
        };
    }
    let sign = match (spent.at_most, lacks) {
        (false, false) => "",
        (true, false) => "≤",
        (false, true) => "≥",
        (true, true) => "≈",
    };
    let usd = spent.usd.to_usd();
    // Below a dollar, two decimals would round most sessions to nothing.
    if usd >= 1.0 {
        let cents = (usd * 100.0).round() as u64;
        format!("{sign}${}.{:02}", thousands(cents / 100), cents % 100)
    } else {
        format!("{sign}${usd:.4}")
    }
}

/// Formats what was spent: `40 turns, 300,000 tokens, $2.10`.
pub(crate) fn spent(spent: &Spent) -> String {
    let turns = count(spent.turns, "turn");
    match (spent.tokens(), spent.usd.0) {
        // Turns without usage are not turns that used nothing.
        (0, 0) if spent.silent_turns > 0 => format!("{turns}, tokens not recorded"),
        (0, 1..) => format!("{turns}, {}", money(spent)),
        (tokens, _) => format!("{turns}, {}, {}", count(tokens, "token"), money(spent)),
    }
}

/// Formats the tokens for a column.
pub(crate) fn cell(spent: &Spent) -> String {
    match spent.tokens() {
        0 if spent.silent_turns > 0 => "unknown".to_owned(),
        tokens => thousands(tokens),
    }
}

/// Formats Unix milliseconds as a day.
pub(crate) fn day(ms: i64) -> String {
    // A time before 1970 is a fault of the recording, and becomes the first day.
    let date = date(u64::try_from(ms).unwrap_or(0));
    date.split(' ').next().unwrap_or(&date).to_owned()
}

/// Answers how many sessions ended wrongly: by their recorded outcome or, without one, without an answer.
pub(crate) fn verdict(report: &Report) -> String {
    let audit = &report.audit;
    let wrong: u64 = audit.ended_wrongly.values().sum();
    let ways = How::ALL.iter().filter_map(|way| Some((*way, *audit.ended_wrongly.get(way)?)));
    let ways: Vec<String> = ways
        .map(|(way, many)| match way {
            How::Answered => format!("{} with an answer that failed", thousands(many)),
            way => format!("{} {}", thousands(many), how(way)),
        })
        .collect();
    let ways = if ways.is_empty() { String::new() } else { format!(": {}", ways.join(", ")) };
    format!("{} of {} ended wrongly{ways}", thousands(wrong), count(audit.sessions, "session"))
}

/// Describes the sessions: number, dates, formats.
pub(crate) fn which(report: &Report) -> String {
    let audit = &report.audit;
    let formats: Vec<String> =
        audit.formats.iter().map(|(name, many)| format!("{name} {}", thousands(*many))).collect();
    let mut out = count(audit.sessions, "session");
    if audit.subagents > 0 {
        let _ = write!(out, " ({} of them of subagents)", thousands(audit.subagents));
    }
    if let (Some(first), Some(last)) = (audit.first_ms, audit.last_ms) {
        let _ = write!(out, ", {} to {}", day(first), day(last));
    }
    format!("{out}: {}", formats.join(", "))
}

/// Formats the totals of all sessions.
pub(crate) fn all(report: &Report) -> String {
    let audit = &report.audit;
    let cached = (audit.spent.cached_tokens * 100).checked_div(audit.spent.input_tokens);
    let cached =
        cached.map_or_else(String::new, |percent| format!(" ({percent} % of the input cached)"));
    let failed = match lack(audit) {
        Lack::All => "failures unknown".to_owned(),
        Lack::None | Lack::Some(_) => {
            format!("{} failed{}", thousands(audit.failures), unknown_in(audit))
        }
    };
    format!(
        "{} · {} · {} ({failed}) · {}{cached} · {}",
        count(audit.requests, "request"),
        count(audit.spent.turns, "turn"),
        count(audit.calls, "tool call"),
        tokens(&audit.spent),
        money(&audit.spent),
    )
}

/// Returns the sessions by agent and model, the most frequent first.
pub(crate) fn agents(report: &Report) -> Vec<(&str, &AgentGroup)> {
    let mut groups: Vec<_> =
        report.audit.agents.iter().map(|(name, group)| (name.as_str(), group)).collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.sessions));
    groups
}

/// Shortens a name to a column of this width.
pub(crate) fn fitted(name: &str, columns: usize) -> String {
    crate::visible::visible(&shorten(name, columns.saturating_sub(1))).replace(['\n', '\t'], " ")
}

/// Summarises the recorded outcomes, if there are any.
pub(crate) fn outcomes(report: &Report) -> Option<String> {
    let audit = &report.audit;
    let known = match audit.judged {
        0 => return None,
        all if all == audit.sessions => count(all, "session"),
        some => format!(
            "the {} with a recorded outcome (of {})",
            count(some, "session"),
            thousands(audit.sessions)
        ),
    };
    Some(format!(
        "Outcomes: {} of {known} succeeded, {} failed. A recorded outcome decides, however the \
         session ended",
        thousands(audit.succeeded),
        thousands(audit.judged - audit.succeeded)
    ))
}

/// Formats the tokens; none at all after a turn means that they were not recorded.
fn tokens(spent: &Spent) -> String {
    match spent.tokens() {
        0 if spent.silent_turns > 0 => "tokens not recorded".to_owned(),
        tokens => count(tokens, "token"),
    }
}

/// The share of sessions whose recording lacks the results of tools.
enum Lack {
    None,
    Some(u64),
    All,
}

fn lack(audit: &Audit) -> Lack {
    match audit.lacking_results {
        0 => Lack::None,
        // If every session lacks results, a count of failures would be 0, which reads as good news.
        all if all >= audit.sessions => Lack::All,
        some => Lack::Some(some),
    }
}

/// Returns `, unknown in 2 sessions`, if some but not all sessions lack results.
fn unknown_in(audit: &Audit) -> String {
    match lack(audit) {
        Lack::Some(some) => format!(", unknown in {}", count(some, "session")),
        Lack::None | Lack::All => String::new(),
    }
}

/// Describes the limits of the analysis for sessions that lack tool results.
pub(crate) fn lacking(report: &Report) -> Option<String> {
    let many = report.audit.lacking_results;
    (many > 0).then(|| {
        format!(
            "Unknown in {}: failures, loops and claims, because the recording has no tool results. \
             Only alternating calls and repeated text are detected there; the default limits on \
             mistakes and on progress are off",
            count(many, "session")
        )
    })
}

/// Summarises the loops.
pub(crate) fn loops(report: &Report) -> String {
    let audit = &report.audit;
    if audit.loops == 0 {
        return match lack(audit) {
            Lack::All => "Loops: unknown".to_owned(),
            Lack::None | Lack::Some(_) => format!("Loops: none{}", unknown_in(audit)),
        };
    }
    let rules: Vec<String> =
        audit.rules.iter().map(|(rule, many)| format!("{rule} {}", thousands(*many))).collect();
    format!(
        "Loops: {} in {}; after them {} ({})",
        thousands(audit.loops),
        count(audit.looped, "session"),
        spent(&audit.behind_loops),
        rules.join(" · ")
    )
}

/// Summarises the signs of unsupported claims.
pub(crate) fn signs(report: &Report) -> String {
    let signs = &report.audit.signs;
    if signs.sessions == 0 {
        return match lack(&report.audit) {
            Lack::All => "Claims that the record does not support: unknown".to_owned(),
            Lack::None | Lack::Some(_) => format!(
                "Claims that the record does not support: no signs{}",
                unknown_in(&report.audit)
            ),
        };
    }
    format!(
        "Claims that the record does not support: signs in {} ({}). A sign is not a verdict: the last \
         test or command failed, but the final text claims success",
        count(signs.sessions, "session"),
        money(&signs.spent),
    )
}

/// Summarises what the default limits would have done.
pub(crate) fn limits(report: &Report) -> String {
    let audit = &report.audit;
    if audit.stopped == 0 {
        return "Default limits: would have ended no request sooner".to_owned();
    }
    let by: Vec<String> = audit
        .stopped_as
        .iter()
        .map(|(name, many)| format!("{name} {}", thousands(*many)))
        .collect();
    let lost = match audit.stopped_answered {
        0 => "none of them reached an answer".to_owned(),
        answered => format!(
            "but {} of them reached an answer, which the stop would have prevented; without those: {}",
            thousands(answered),
            spent(&audit.behind_stops_unanswered)
        ),
    };
    format!(
        "Default limits: would have ended {} sooner ({}) and saved {}; {lost}",
        count(audit.stopped, "request"),
        by.join(" · "),
        spent(&audit.behind_stops),
    )
}

/// Describes the source of the costs.
pub(crate) fn source(report: &Report) -> &'static str {
    if report.audit.cost_recorded == report.audit.sessions {
        "All costs were recorded."
    } else {
        "Recorded costs are used; other costs come from the price list and may differ from the bill."
    }
}

/// Lists the models without a known price.
pub(crate) fn unpriced(report: &Report) -> Option<String> {
    let models = report.audit.models.iter().filter(|(_, spent)| spent.unpriced_tokens > 0);
    let models: Vec<String> = models
        .map(|(name, spent)| format!("{name} ({})", count(spent.unpriced_tokens, "token")))
        .collect();
    (!models.is_empty()).then(|| format!("Without a price: {}", models.join(", ")))
}

/// Lists the problems of reading, one line for each kind, and other notes.
pub(crate) fn reading(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    let twice = report.twice;
    if twice > 0 {
        lines.push(format!(
            "{} with a duplicate id, which may count twice",
            count(twice, "session")
        ));
    }
    if report.too_old > 0 {
        lines.push(format!("{} left out as too old", count(report.too_old, "session")));
    }
    for (kind, problems) in &report.problems {
        lines.push(format!(
            "not read ({}): {}, for example {}",
            kind,
            thousands(problems.count),
            shorten(problems.first.first().map_or("?", String::as_str), 240),
        ));
    }
    if !report.skipped_for.is_empty() {
        lines.push(format!("skipped: {}", kinds(&report.skipped_for)));
    }
    if !report.notes.is_empty() {
        lines.push(format!("noted in sessions: {}; --json names some", kinds(&report.notes)));
    }
    lines
}

/// Lists kinds with their numbers, the most frequent first.
fn kinds(all: &[(String, Examples)]) -> String {
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by_key(|(_, one)| std::cmp::Reverse(one.count));
    let shown = sorted.iter().take(KINDS).map(|(kind, one)| {
        // Kinds of notes may quote the recording.
        format!("{} ({})", shorten(kind, 80), thousands(one.count))
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match sorted.len().saturating_sub(KINDS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Formats the heading of one of the worst sessions: cost in question, models, date, size.
pub(crate) fn head(session: &Session) -> String {
    let question = session.in_question();
    let whole = session.spent;
    let cost = match (question.usd.0, question.tokens()) {
        (0, 0) => count(question.turns, "turn"),
        (0, tokens) => format!("{} ({})", count(tokens, "token"), money(&question)),
        // The same amount twice would look like a mistake.
        _ if question == whole => money(&whole),
        _ => format!("{} of {}", money(&question), money(&whole)),
    };
    // Three, because a session with subagents can have many, and the heading is one line.
    let models: Vec<&str> = session.models.keys().map(String::as_str).take(3).collect();
    let when = session.last_ms.map_or_else(
        || "no date".to_owned(),
        // Cut to the minute.
        |ms| date(u64::try_from(ms).unwrap_or(0)).chars().take(16).collect(),
    );
    format!(
        "{cost} in question · {} · {when} · {}, {}",
        models.join(", "),
        count(whole.turns, "turn"),
        match whole.tokens() {
            0 => "tokens not recorded".to_owned(),
            tokens => count(tokens, "token"),
        }
    )
}

/// Describes how a session ended, with the term of the recorder.
pub(crate) fn ended(session: &Session) -> String {
    let ended = &session.ended;
    let native = ended.native.as_ref().map_or_else(String::new, |native| format!(" (`{native}`)"));
    // A run of Endstop has a termination, whose meaning is more precise.
    let own =
        ended.native.as_ref().and_then(|native| native.parse().ok()).map(crate::advice::meaning);
    let words =
        own.filter(|_| ended.recorded && ended.how != How::Answered).unwrap_or(&ended.words);
    let outcome = match session.success {
        Some(true) => "; recorded as a success",
        Some(false) => "; recorded as a failure",
        None => "",
    };
    format!("ended: {words}{native}{outcome}")
}

/// Describes a sign of an unsupported claim.
pub(crate) fn sign(sign: &Sign) -> String {
    let exit = sign.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    format!(
        "sign: the final text says \"{}\", but the last {} failed, in turn {} with {} after it: `{}`{exit}: {}",
        sign.claim,
        sign.kind,
        sign.turn,
        count(sign.calls_after, "call"),
        sign.command,
        if sign.failure.is_empty() { "(no output)" } else { &sign.failure },
    )
}

/// Describes a loop.
pub(crate) fn looped(one: &Loop) -> String {
    let agent = one.agent.as_ref().map_or_else(String::new, |agent| format!(" of {agent}"));
    let gave = if one.gave.is_empty() { String::new() } else { format!(" → {}", one.gave) };
    format!(
        "loop: from turn {}{agent} on, {}{gave} ({}); after it {}",
        one.turn,
        one.what,
        one.rules.join(", "),
        spent(&one.behind)
    )
}

/// Describes a stop.
pub(crate) fn stop(one: &Stop) -> String {
    let lost = if one.answered { ", but the answer would be lost" } else { "" };
    format!(
        "default limits: {} after turn {} ({}): {} saved{lost}",
        one.termination,
        one.turn,
        one.decided_by,
        spent(&one.behind)
    )
}

/// Returns the next step for a session.
pub(crate) fn advice(session: &Session) -> Option<String> {
    let mut advice = Vec::new();
    if let Some(rule) = session.loops.first().and_then(|one| one.rules.first()) {
        // The name without its thresholds, which `--watch` spells differently.
        let name = rule.split(['(', ' ']).next().unwrap_or("stuck");
        advice.push(format!(
            "`--watch stop:{name}` ends such a loop, and `nudge:{name}` warns the model"
        ));
    }
    // A shortened command would not run.
    if let Some(sign) = session.sign.as_ref().filter(|sign| !sign.command.contains('…')) {
        let command = crate::advice::quoted(&sign.command);
        advice.push(format!("`--verify {command}` checks the claim"));
    }
    if let Some(termination) = session.ended.termination {
        // Only the card of a run knows the name that belongs there.
        advice.push(crate::advice::advice(termination).replace(" NAME", ""));
    }
    (!advice.is_empty()).then(|| format!("next: with `endstop run`, {}", advice.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_shows_how_exact_it_is() {
        let mut spent = Spent { turns: 1, input_tokens: 10, ..Spent::default() };
        assert_eq!(money(&spent), "$0.00");
        spent.unpriced_tokens = 10;
        assert_eq!(money(&spent), "no price");
        spent.usd = endstop_core::NanoUsd::from_usd(1234.567);
        assert_eq!(money(&spent), "≥$1,234.57");
        spent.at_most = true;
        assert_eq!(money(&spent), "≈$1,234.57");
        assert_eq!(super::spent(&spent), "1 turn, 10 tokens, ≈$1,234.57");
        spent.unpriced_tokens = 0;
        spent.usd = endstop_core::NanoUsd::from_usd(0.01234);
        assert_eq!(money(&spent), "≤$0.0123");
        let silent = Spent { turns: 1, silent_turns: 1, ..Spent::default() };
        assert_eq!(money(&silent), "unknown");
        assert_eq!(super::spent(&silent), "1 turn, tokens not recorded");
    }
}
