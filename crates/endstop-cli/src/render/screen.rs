//! The live view of a run: the model's text on standard output; calls, cost and limits on standard
//! error. On a terminal, the last line is a status line that is redrawn.

use super::parked::decision_words;
use crate::output;
use crate::render::amounts::{count, seconds, thousands};
use crate::visible::Flow;
use crate::visible::{shorten, visible};
use endstop::core::{ModelSwitch, NanoUsd, Usage, WatchMode};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::{LimitChanges, Limits};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// The live view of a run.
pub(crate) struct Screen {
    limits: Limits,
    began: Instant,
    /// `true` if standard error is a terminal, which then has a status line.
    pub(crate) terminal: bool,
    /// `true` if standard output is a terminal, too.
    text_on_terminal: bool,
    color: bool,
    turn: u32,
    /// The cost so far; `None` if no price is known.
    cost: Option<NanoUsd>,
    usage: Usage,
    /// The usage of the turn that ends next, and the cost with it.
    of_turn: (Box<Usage>, Option<NanoUsd>),
    /// `true` once a response was accepted, even if it reported no usage.
    answered: bool,
    /// Bytes of this turn's text that were shown.
    shown: usize,
    at_line_start: bool,
    /// Approximate number of columns of the current line that the text fills.
    column: usize,
    status: Status,
    flow: Flow,
    /// Events that arrive while a question is open; shown after the answer.
    held: Option<Vec<AgentEvent>>,
    /// `true` if the text of turns is not shown.
    pub(crate) answer_only: bool,
    /// Calls that a resumed run made before it was resumed: name and arguments by id.
    earlier: HashMap<String, (String, String)>,
}

/// The position of the status line.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Nowhere,
    /// On the cursor's line.
    Here,
    /// On the line below the text that is being written.
    Below,
}

/// Prepares a name for use inside a line. The model chooses tool names freely, and a line break in
/// a name could imitate a line of this program.
fn in_line(name: &str) -> String {
    shorten(&name.replace(['\n', '\r'], " "), 100)
}

impl Screen {
    pub(crate) fn new(limits: Limits) -> Screen {
        // A dumb terminal supports neither colours nor a line that is redrawn.
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stderr().is_terminal() && !dumb;
        Screen {
            limits,
            began: Instant::now(),
            terminal,
            text_on_terminal: io::stdout().is_terminal(),
            color: output::shows_colours(&io::stderr()),
            turn: 0,
            cost: None,
            usage: Usage::default(),
            of_turn: Default::default(),
            answered: false,
            shown: 0,
            at_line_start: true,
            column: 0,
            status: Status::Nowhere,
            flow: Flow::default(),
            held: None,
            answer_only: false,
            earlier: HashMap::new(),
        }
    }

    /// Sets the calls that the run made before it was resumed, by id, because their results may
    /// only arrive now.
    pub(crate) fn run_resumed(&mut self, calls: HashMap<String, (String, String)>) {
        self.earlier = calls;
    }

    /// `true` if the card may use colours.
    pub(crate) fn color(&self) -> bool {
        self.color
    }

    /// Stops drawing while a question is open, until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self) {
        self.end_line();
        self.held = Some(Vec::new());
    }

    /// Shows the events that arrived since [`pause`](Self::pause).
    pub(crate) fn resume(&mut self) {
        for event in self.held.take().into_iter().flatten() {
            self.show(&event);
        }
    }

    pub(crate) fn show(&mut self, event: &AgentEvent) {
        if let Some(held) = &mut self.held {
            held.push(event.clone());
            return;
        }
        match &event.kind {
            AgentEventKind::TextDelta { text, .. } => self.text(text),
            AgentEventKind::Warning { message, .. } => {
                self.end_line();
                self.note(&format!("⚠ {}", visible(message)));
            }
            AgentEventKind::Usage { usage, cost, .. } => {
                // Shown when the turn is finished, after its text.
                self.of_turn = (usage.clone(), *cost);
            }
            AgentEventKind::Finished { .. } => {}
            kind if kind.is_delta() => {}
            _ => self.run_event(event),
        }
    }

    fn run_event(&mut self, event: &AgentEvent) {
        match &event.kind {
            AgentEventKind::TurnStarted { attempt } => {
                if *attempt > 1 && self.shown > 0 {
                    self.end_line();
                    self.note("↻ the turn is restarted; discard its text above");
                }
                self.turn = event.turn().unwrap_or_default();
                self.shown = 0;
                self.flow = Flow::default();
            }
            AgentEventKind::TurnFinished { .. } => self.turn_ended(event),
            AgentEventKind::AttemptFailed { error, retry_in_ms, .. } => {
                self.end_line();
                let then = match retry_in_ms {
                    Some(wait) => format!("; retrying in {wait} ms"),
                    None => String::new(),
                };
                self.note(&format!("✗ {}{then}", shorten(&error.to_string(), 300)));
            }
            AgentEventKind::ToolStarted { .. } | AgentEventKind::ToolFinished { .. } => {
                self.tool_event(event);
            }
            AgentEventKind::MessageInjected { why, text, .. } => {
                self.note(&format!("! message to the model ({why}): {}", shorten(text, 200)));
            }
            // A rule in the mode `observe` is not shown: its hits are only in the outcome.
            AgentEventKind::RuleHit { hit: fired, .. } if fired.mode >= WatchMode::Warn => {
                self.end_line();
                self.note(&format!("⚠ {} ({})", shorten(&fired.evidence, 200), fired.mode));
            }
            AgentEventKind::Verified { round, rounds, passed, output, .. } => {
                self.end_line();
                self.note(&verdict(*round, *rounds, *passed, output));
            }
            // The limits of a nested run are not shown.
            AgentEventKind::LimitsChanged { limits, .. } if event.path().is_empty() => {
                limits.apply(&mut self.limits);
                self.end_line();
                self.note(&format!("! limits changed: {}", changed(limits)));
            }
            AgentEventKind::ModelSwitched { switch, .. } => {
                self.end_line();
                self.note(&switched(switch));
            }
            AgentEventKind::Paused { wait_ms, evidence, .. } => {
                self.end_line();
                let wait = seconds(Duration::from_millis(*wait_ms));
                self.note(&format!("· pauses for {wait}: {evidence}"));
            }
            AgentEventKind::Suspended { duration_ms, .. } => {
                self.end_line();
                let time = seconds(Duration::from_millis(*duration_ms));
                self.note(&format!(
                    "· the process was suspended for {time}, which counts against `timeout` only"
                ));
            }
            AgentEventKind::Decided { decision, .. } => {
                self.note(&format!("? the request was {}", decision_words(decision)));
            }
            AgentEventKind::Stopping { reason, running, .. } => {
                self.end_line();
                self.note(&format!(
                    "■ stopping ({reason}): {} still to end",
                    count((*running).into(), "tool")
                ));
            }
            AgentEventKind::Compacted {
                before,
                after,
                tokens_before,
                tokens_after,
                strategy,
                ..
            } => {
                let by = if strategy.is_empty() { String::new() } else { format!(" ({strategy})") };
                self.note(&format!(
                    "· the conversation was shortened: {before} → {after} messages, about {tokens_before} → {tokens_after} tokens{by}"
                ));
            }
            AgentEventKind::CompactionFailed { why, .. } => {
                self.note(&format!(
                    "· the conversation could not be shortened: {}",
                    shorten(why, 300)
                ));
            }
            _ => {}
        }
        self.draw_status();
    }

    fn turn_ended(&mut self, event: &AgentEvent) {
        let AgentEventKind::TurnFinished { text, tool_calls, signal } = &event.kind else { return };
        // A response that was not streamed, or whose deltas were dropped, is shown here.
        if self.shown == 0 && !text.trim().is_empty() {
            self.text(text);
        }
        self.end_line();
        // The event has the total cost, but only this turn's usage.
        let (usage, cost) = std::mem::take(&mut self.of_turn);
        self.cost = cost;
        self.usage.add(&usage);
        self.answered = true;
        // With tool calls the next lines show the progress; on a terminal the status line does.
        if *tool_calls == 0 && !self.terminal {
            self.note(&format!("· {} ({})", self.status_text(), signal.reason));
        }
    }

    fn tool_event(&mut self, event: &AgentEvent) {
        let call = |name: &str, arguments: &str| {
            format!("→ {} {}", in_line(name), shorten(&arguments.replace('\n', " "), 200))
        };
        match &event.kind {
            AgentEventKind::ToolStarted { call_id, name, arguments, .. } => {
                // A call that starts again is shown with its own line, so the earlier one is not
                // needed.
                self.earlier.remove(&**call_id);
                self.note(&call(name, arguments));
            }
            AgentEventKind::ToolFinished {
                call_id, name, status, content, duration_ms, ..
            } => {
                if let Some((name, arguments)) = self.earlier.remove(&**call_id) {
                    self.note(&format!("{} (before the resume)", call(&name, &arguments)));
                }
                let mut lines = content.lines().filter(|line| !line.trim().is_empty());
                let first = lines.next().unwrap_or("");
                let mut rest: Vec<&str> = lines.collect();
                // The status `ok` only means that the command ran; its exit status is in the last
                // line.
                let status_line = rest.pop_if(|line| line.starts_with("[exit status "));
                let ended = status_line.filter(|line| *line != "[exit status 0]");
                let more = match rest.len() as u64 {
                    0 => String::new(),
                    lines => format!(" (+{})", count(lines, "line")),
                };
                self.note(&format!(
                    "← {} {} in {duration_ms} ms: {}{more}{}",
                    in_line(name),
                    status.as_str(),
                    shorten(first, 160),
                    ended.map(|line| format!(" {}", shorten(line, 80))).unwrap_or_default()
                ));
            }
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        self.shown += text.len();
        if self.answer_only {
            return;
        }
        let text =
            if self.text_on_terminal { self.flow.visible(text).into() } else { Cow::from(text) };
        if self.text_on_terminal {
            // Text in a pipe does not touch the status line.
            self.clear_status();
        }
        output::answer(&text);
        self.at_line_start = text.ends_with('\n');
        match text.rsplit_once('\n') {
            Some((_, line)) => self.column = line.chars().count(),
            None => self.column += text.chars().count(),
        }
        if self.text_on_terminal {
            self.draw_status();
        }
    }

    /// Ends the line of the model's text, so that the next output starts on a new line.
    pub(crate) fn end_line(&mut self) {
        self.clear_status();
        if !self.at_line_start {
            output::answer("\n");
            self.at_line_start = true;
            self.column = 0;
        }
    }

    fn note(&mut self, text: &str) {
        self.end_line();
        if self.color {
            crate::output::painted_note(&format!("\x1b[2m{}\x1b[0m", visible(text)));
        } else {
            crate::output::note(text);
        }
    }

    fn status_text(&self) -> String {
        let of = |used: String, most: Option<String>| match most {
            Some(most) => format!("{used}/{most}"),
            None => used,
        };
        let budget = self.limits.max_budget_usd.map(|usd| NanoUsd::from_usd(usd).to_string());
        let counts = self.limits.tokens_counted();
        let used = if self.answered && self.usage == Usage::default() {
            "unknown".to_owned()
        } else {
            thousands(counts.of(&self.usage))
        };
        // Without a price no cost is known, and $0.00 would be a false claim.
        let cost = self.cost.filter(|cost| cost.0 > 0 || budget.is_some());
        let cost = cost.map(|cost| of(cost.to_string(), budget));
        [
            Some(format!(
                "turn {}",
                of(self.turn.to_string(), self.limits.max_turns.map(|n| n.to_string()))
            )),
            cost,
            Some(format!(
                "{} {}tokens",
                of(used, self.limits.max_tokens.map(thousands)),
                counts.qualifier()
            )),
            Some(of(seconds(self.began.elapsed()), self.limits.timeout.map(seconds))),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" · ")
    }

    /// Draws the status line at the cursor, or below text that is being streamed.
    pub(crate) fn draw_status(&mut self) {
        if !self.terminal || self.held.is_some() {
            return;
        }
        // One column is left free, because a full line makes some terminals wrap and scroll.
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let mut line: String = self.status_text().chars().take(width.saturating_sub(1)).collect();
        if self.color {
            line = format!("\x1b[2m{line}\x1b[0m");
        }
        let (drawn, status) = if self.at_line_start || !self.text_on_terminal {
            (format!("\r\x1b[2K{line}"), Status::Here)
        } else if self.column.is_multiple_of(width.max(1)) {
            // The cursor waits at the end of a full line, a state that not every terminal saves and
            // restores.
            return;
        } else {
            // Moving down (a vertical tab, which the terminal driver does not translate) and up
            // makes room for a line below and keeps the column, even on the last row of the screen.
            // Then the cursor is saved, the line below is drawn, and the cursor is restored.
            (format!("\x0b\x1b[1A\x1b7\x1b[1B\r\x1b[2K{line}\x1b8"), Status::Below)
        };
        output::shown(&drawn);
        self.status = status;
    }

    pub(crate) fn clear_status(&mut self) {
        let cleared = match std::mem::take(&mut self.status) {
            Status::Nowhere => return,
            Status::Here => "\r\x1b[2K",
            Status::Below => "\x1b7\x1b[1B\r\x1b[2K\x1b8",
        };
        output::shown(cleared);
    }
}

/// Describes a verdict of the verifier, with the end of the output of a rejection.
fn verdict(round: u32, rounds: Option<u32>, passed: bool, output: &str) -> String {
    let of = rounds.map_or(String::new(), |most| format!(" (round {round} of {most})"));
    if passed {
        return format!("✓ verified{of}");
    }
    let last = output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    format!("✗ rejected by the verifier{of}: {}", shorten(last, 200))
}

/// Formats new values of limits.
fn changed(limits: &LimitChanges) -> String {
    let value = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let named = limits.values().iter().map(|(name, new)| format!("{name} = {}", value(new)));
    named.collect::<Vec<_>>().join(", ")
}

/// Describes the switch to another model.
fn switched(switch: &ModelSwitch) -> String {
    let names = [switch.provider.as_deref(), switch.model.as_deref()];
    let name = names.into_iter().flatten().collect::<Vec<_>>().join("/");
    match switch.because {
        Some(class) => format!("→ continues with {name}, because of {}", class.as_str()),
        None => format!("→ continues with {name}"),
    }
}
