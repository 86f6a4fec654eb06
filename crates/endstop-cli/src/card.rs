//! The ending, as a card: what, why, who decided on which evidence, what was spent of what was
//! allowed, and what to do next.
//!
//! ```text
//! ── stopped: error_max_turns (capacity) ───────────────────────────
//!   why      the turn cap was reached
//!   decided  limit `max_turns`: 25 of 25 turns
//!   spent    25/25 turns · 25 model calls · 30 tool calls · 41,230 tokens · $0.12 · 48.1 s
//!   next     raise --max-turns, or ask for less
//! ```

use endstop::{Category, Limits, Outcome, Termination};
use std::fmt::Write as _;
use std::time::Duration;

/// A run that is in the journal.
pub(crate) struct Kept {
    /// Its id.
    pub(crate) run: String,
    /// Whether `--resume` can go on with it.
    pub(crate) goes_on: bool,
}

/// The card of an outcome. `kept`: it is in the journal; `color` paints its head.
pub(crate) fn card(outcome: &Outcome, limits: &Limits, kept: Option<&Kept>, color: bool) -> String {
    let termination = outcome.termination;
    let head = format!("stopped: {termination} ({})", termination.category());
    let rule = "─".repeat(66usize.saturating_sub(head.chars().count() + 4));
    let painted = match (color, termination.category()) {
        (false, _) => head,
        (true, Category::Success) => format!("\x1b[1;32m{head}\x1b[0m"),
        (true, Category::Fatal) => format!("\x1b[1;31m{head}\x1b[0m"),
        (true, _) => format!("\x1b[1;33m{head}\x1b[0m"),
    };
    let mut out = format!("── {painted} {rule}\n");
    let mut row = |name: &str, text: &str| {
        for (n, line) in text.lines().enumerate() {
            let name = if n == 0 { name } else { "" };
            let _ = writeln!(out, "  {name:<9}{line}");
        }
    };
    row("why", &shorten(&meaning(outcome), 400));
    let by = &outcome.decided_by;
    row("decided", &shorten(&format!("{} `{}`: {}", by.layer, by.name, by.evidence), 400));
    if let Some(answer) = outcome.deliverable.as_ref() {
        let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
        row("answer", &shorten(&text, 400));
    }
    if let Some(summary) = &outcome.summary {
        row("summary", &shorten(summary, 400));
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
        row("also", &format!("{} (true at the same time, not what decided)", also.join(", ")));
    }
    for fired in &outcome.fired {
        let what = format!("in turn {} ({}): {}", fired.turn, fired.mode, fired.evidence);
        row("watch", &shorten(&what, 200));
    }
    row("spent", &spent(outcome, limits));
    match outcome.verified {
        Some(true) => row("verified", "yes"),
        Some(false) => row("verified", "NO: the verifier says that the work is not right"),
        None => {}
    }
    let goes_on = kept.filter(|kept| kept.goes_on).map(|kept| kept.run.as_str());
    row("next", &next(outcome, goes_on));
    if let Some(Kept { run, .. }) = kept {
        row("run", &format!("{run} (endstop explain {run})"));
    }
    out.pop();
    out
}

/// What was spent of what was allowed.
pub(crate) fn spent(outcome: &Outcome, limits: &Limits) -> String {
    let of = |used: String, allowed: Option<String>| match allowed {
        Some(allowed) => format!("{used}/{allowed}"),
        None => used,
    };
    let usage = &outcome.usage;
    let estimated = if usage.estimated { "~" } else { "" };
    let cost = if outcome.cost_unknown && outcome.cost.0 == 0 {
        "cost unknown (no price)".to_owned()
    } else {
        of(
            format!("{estimated}{}", outcome.cost),
            limits.max_budget_usd.map(|max| endstop::NanoUsd::from_usd(max).to_string()),
        )
    };
    [
        format!("{} turns", of(outcome.turns.to_string(), limits.max_turns.map(|n| n.to_string()))),
        count(outcome.model_calls.into(), "model call"),
        count(outcome.tool_calls.into(), "tool call"),
        format!(
            "{} tokens",
            of(
                format!("{estimated}{}", thousands(usage.total_tokens())),
                limits.max_tokens.map(thousands)
            )
        ),
        cost,
        of(seconds(outcome.duration), limits.timeout.map(seconds)),
    ]
    .join(" · ")
}

fn meaning(outcome: &Outcome) -> String {
    let text = match outcome.termination {
        Termination::Stop => "the model answered, asked for no tool, and its answer is whole",
        Termination::Submitted => "the answer was declared",
        Termination::ErrorMaxTurns => "the turn cap was reached",
        Termination::ErrorMaxBudgetUsd => {
            "the cost ceiling was reached, or the next call could pass it"
        }
        Termination::ErrorMaxTokens => {
            "the token ceiling was reached, or the next call could pass it"
        }
        Termination::ErrorTimeout => "the run's time was up",
        Termination::ErrorMaxStructuredOutputRetries => "the answer never satisfied the schema",
        Termination::ErrorConsecutiveMistakes => "too many failures in a row",
        Termination::ErrorPromptTooLong => "the prompt does not fit the model's context window",
        Termination::ErrorNoProgress => "the run was stuck: it repeated itself",
        Termination::ErrorThinkingStarved => {
            "the output budget went into reasoning; nothing visible came"
        }
        Termination::ErrorOutputTruncated => {
            "the answer was cut by the token limit; it is not whole"
        }
        Termination::ErrorDuringExecution if outcome.decided_by.name == "unknown_finish" => {
            "nobody knows whether the answer is whole"
        }
        Termination::ErrorDuringExecution => "a failure; running again may help",
        Termination::ErrorSchemaValidation => "the output could not be parsed",
        Termination::ErrorContentFiltered => "the model refused, or a filter cut it",
        Termination::ErrorProviderRejected => {
            "the provider refuses the request; repeating will not help"
        }
        Termination::GaveUp => "the model says that the task cannot be done",
        Termination::ErrorHalted => "a hook or a tool said halt",
        Termination::ErrorCompactionFailed => "the conversation could not be shortened",
        Termination::ErrorProviderAuth => "the key is missing, wrong, or may not do this",
        Termination::Cancelled => "it was cancelled",
        Termination::Terminated => "it was terminated",
        _ => "",
    };
    text.to_owned()
}

/// What to do about an ending.
fn next(outcome: &Outcome, kept: Option<&str>) -> String {
    let limit = outcome.decided_by.name.as_str();
    let raise = || match (limit, kept) {
        ("shared_budget", _) => "raise the shared budget, or run fewer at once".to_owned(),
        (limit, None) => format!("raise --{}, or ask for less", limit.replace('_', "-")),
        (limit, Some(run)) => {
            format!("go on with more: endstop run --resume {run} --{} …", limit.replace('_', "-"))
        }
    };
    match outcome.termination {
        Termination::Stop | Termination::Submitted if outcome.verified == Some(false) => {
            "look at the verifier's output above; run again with what it says".to_owned()
        }
        Termination::Stop | Termination::Submitted => "nothing: the work is done".to_owned(),
        Termination::ErrorMaxTurns
        | Termination::ErrorMaxBudgetUsd
        | Termination::ErrorMaxTokens
        | Termination::ErrorTimeout
        | Termination::ErrorMaxStructuredOutputRetries => raise(),
        Termination::ErrorConsecutiveMistakes => {
            "read the tool errors above; the tools or their permissions may be wrong".to_owned()
        }
        Termination::ErrorPromptTooLong => {
            "shorten the task, or use a model with a larger context window".to_owned()
        }
        Termination::ErrorNoProgress => {
            "say what is in the way in the task, or give a tool that can do it".to_owned()
        }
        Termination::ErrorThinkingStarved | Termination::ErrorOutputTruncated => {
            "raise --max-output-tokens, or allow --max-continuations 1".to_owned()
        }
        Termination::ErrorDuringExecution => match outcome.retry_after {
            Some(wait) => {
                format!("wait {} and run again (the provider asks for it)", seconds(wait))
            }
            None => match limit {
                "unknown_finish" => {
                    "where this server means a whole answer by it, --accept-unknown-finish"
                }
                "timeout" => {
                    "run again; if it repeats, raise --stall-timeout or --turn-timeout, or look at the provider's status"
                }
                _ => match kept {
                    Some(run) => return format!("go on with it: endstop run --resume {run}; if it repeats, check the address and the provider's status"),
                    None => "run again; if it repeats, check the address and the provider's status",
                },
            }
            .to_owned(),
        },
        Termination::ErrorSchemaValidation => {
            "run again, allow repairs (--max-structured-output-retries), or loosen the schema"
                .to_owned()
        }
        Termination::ErrorContentFiltered => {
            "change the task: the same words are refused again".to_owned()
        }
        Termination::ErrorProviderRejected => {
            "mend the request, the model's name, or the account: see why above".to_owned()
        }
        Termination::GaveUp => "read the model's reason above".to_owned(),
        Termination::ErrorHalted => "see what halted it, above".to_owned(),
        Termination::ErrorCompactionFailed => "run again with a shorter conversation".to_owned(),
        Termination::ErrorProviderAuth => {
            let name = outcome.provider.as_deref().unwrap_or("NAME");
            format!("check the key: `endstop providers {name}` says which variable")
        }
        Termination::Cancelled | Termination::Terminated => match kept {
            Some(run) => format!("nothing is left running; to go on: endstop run --resume {run}"),
            None => "nothing is left running; run again when you like".to_owned(),
        },
        _ => String::new(),
    }
}

/// `1 tool call`, `2 tool calls`.
pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{} {what}{}", thousands(n), if n == 1 { "" } else { "s" })
}

/// `41,230`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `48.1 s`, `3 min 20 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let secs = time.as_secs();
    if secs >= 120 {
        format!("{} min {} s", secs / 60, secs % 60)
    } else if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// At most `most` characters, on lines that are not blank, without what a terminal would obey.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    let kept: String = text.chars().take(most).collect();
    let cut = if kept.len() < text.len() { "…" } else { "" };
    let lines: Vec<&str> = kept.lines().filter(|line| !line.trim().is_empty()).collect();
    visible(&format!("{}{cut}", lines.join("\n")))
}

/// The text with a picture in the place of each control character but the end of a line and the
/// tab: what a tool or a model says is shown, and does not move the cursor.
pub(crate) fn visible(text: &str) -> String {
    text.replace("\r\n", "\n")
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c,
            '\u{7f}' => '␡',
            '\0'..'\u{20}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or('\u{fffd}'),
            c if c.is_control() => '\u{fffd}',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::shorten;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(shorten("\x1b[2Jgone\r\nand\x07\u{9b}1m", 99), "␛[2Jgone\nand␇\u{fffd}1m");
        assert_eq!(shorten("a\tb\n\nc", 3), "a\tb…");
    }
}
