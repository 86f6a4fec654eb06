//! What a person sees while a run goes on: the model's text on standard output, calls, cost and
//! limits on standard error; on a terminal the last line moves.

use crate::card::{count, seconds, shorten, thousands, visible};
use crate::visible::Flow;
use endstop::agent::AgentEvent;
use endstop::{Limits, NanoUsd, RunEvent, TurnDelta, Usage, WatchMode};
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, IsTerminal, Write};
use std::time::Instant;

pub(crate) struct Screen {
    limits: Limits,
    began: Instant,
    /// Whether the notes go to a terminal, which then has a line that moves.
    pub(crate) terminal: bool,
    /// Whether the text goes to the terminal, too.
    text_on_terminal: bool,
    color: bool,
    turn: u32,
    /// `None`: no price is known.
    cost: Option<NanoUsd>,
    usage: Usage,
    /// A response was kept, whatever it says of its usage.
    answered: bool,
    /// Characters of this turn's text that were shown.
    shown: usize,
    at_line_start: bool,
    /// About how many columns of the line the text has filled.
    column: usize,
    status: Status,
    flow: Flow,
    /// What happens while a question is open, shown once it is answered.
    held: Option<Vec<AgentEvent>>,
    /// Standard output is closed: nobody reads.
    pub(crate) closed: bool,
    /// The text of turns is not shown.
    pub(crate) answer_only: bool,
    /// The calls of a resumed run that were made before it was resumed: name and arguments.
    earlier: HashMap<String, (String, String)>,
}

/// Where the moving line stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Nowhere,
    /// On the cursor's line.
    Here,
    /// On the line below the text that is being written.
    Below,
}

/// A name as a part of a line: a model may call a tool by any, and by none it begins a line of ours.
fn in_line(name: &str) -> String {
    shorten(&name.replace(['\n', '\r'], " "), 100)
}

impl Screen {
    pub(crate) fn new(limits: Limits) -> Screen {
        // A dumb terminal has neither colours nor a line that moves.
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = io::stderr().is_terminal() && !dumb;
        Screen {
            limits,
            began: Instant::now(),
            terminal,
            text_on_terminal: io::stdout().is_terminal(),
            color: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            turn: 0,
            cost: None,
            usage: Usage::default(),
            answered: false,
            shown: 0,
            at_line_start: true,
            column: 0,
            status: Status::Nowhere,
            flow: Flow::default(),
            held: None,
            closed: false,
            answer_only: false,
            earlier: HashMap::new(),
        }
    }

    /// The run was resumed: the calls that it made before, by their ids, of which a result may be shown
    /// now.
    pub(crate) fn run_resumed(&mut self, calls: HashMap<String, (String, String)>) {
        self.earlier = calls;
    }

    /// Whether the card may be painted.
    pub(crate) fn color(&self) -> bool {
        self.color
    }

    /// Leaves the terminal to a question, until [`resume`](Self::resume).
    pub(crate) fn pause(&mut self) {
        self.end_line();
        self.held = Some(Vec::new());
    }

    /// Shows what has happened meanwhile.
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
        match event {
            AgentEvent::Delta(delta) => {
                if let TurnDelta::Text(text) = &delta.delta {
                    self.text(text);
                }
            }
            AgentEvent::Run(event) => self.run_event(event),
            AgentEvent::Warning(warning) => {
                self.end_line();
                self.note(&format!("⚠ {}", visible(&warning.message)));
            }
            _ => {}
        }
    }

    fn run_event(&mut self, event: &RunEvent) {
        match event {
            RunEvent::TurnStarted { turn, attempt } => {
                if *attempt > 1 && self.shown > 0 {
                    self.end_line();
                    self.note("↻ the turn starts anew; what was shown of it is void");
                }
                self.turn = *turn;
                self.shown = 0;
                self.flow = Flow::default();
            }
            RunEvent::TurnEnded { text, cost, usage, tool_calls, signal, .. } => {
                // A response that was not streamed, or whose deltas were dropped.
                if self.shown == 0 && !text.trim().is_empty() {
                    self.text(text);
                }
                self.end_line();
                self.cost = *cost;
                self.usage.add(usage);
                self.answered = true;
                if *tool_calls == 0 && !self.terminal {
                    self.note(&format!("· {} ({})", self.status_text(), signal.reason));
                }
            }
            RunEvent::AttemptFailed { error, retry_in_ms, .. } => {
                self.end_line();
                let then = match retry_in_ms {
                    Some(wait) => format!("; again in {wait} ms"),
                    None => String::new(),
                };
                self.note(&format!("✗ {}{then}", shorten(&error.to_string(), 300)));
            }
            RunEvent::ToolStarted { call_id, name, arguments } => {
                self.earlier.remove(call_id);
                let arguments = shorten(&arguments.replace('\n', " "), 200);
                self.note(&format!("→ {} {arguments}", in_line(name)));
            }
            RunEvent::ToolEnded { call_id, name, status, content, duration_ms } => {
                if let Some((name, arguments)) = self.earlier.remove(call_id) {
                    let arguments = shorten(&arguments.replace('\n', " "), 200);
                    self.note(&format!("→ {} {arguments} (before the resume)", in_line(&name)));
                }
                let mut lines = content.lines().filter(|line| !line.trim().is_empty());
                let first = lines.next().unwrap_or("");
                // How a command ended stands in its last line: `ok` says only that it ran.
                let ended = lines
                    .next_back()
                    .filter(|line| line.starts_with("[exit status ") && *line != "[exit status 0]");
                self.note(&format!(
                    "← {} {} in {duration_ms} ms: {}{}",
                    in_line(name),
                    status.as_str(),
                    shorten(first, 160),
                    ended.map(|line| format!(" {}", shorten(line, 80))).unwrap_or_default()
                ));
            }
            RunEvent::Told { why, text } => {
                self.note(&format!("! told the model ({why}): {}", shorten(text, 200)));
            }
            RunEvent::Fired(fired) if fired.mode >= WatchMode::Warn => {
                self.end_line();
                self.note(&format!("⚠ {} fired ({})", shorten(&fired.evidence, 200), fired.mode));
            }
            RunEvent::Stopping { reason, running } => {
                self.end_line();
                self.note(&format!(
                    "■ stopping ({reason}): {} still to end",
                    count((*running).into(), "tool")
                ));
            }
            RunEvent::Compacted {
                before, after, tokens_before, tokens_after, strategy, ..
            } => {
                let by = if strategy.is_empty() { String::new() } else { format!(" ({strategy})") };
                self.note(&format!(
                    "· the conversation was shortened: {before} → {after} messages, about {tokens_before} → {tokens_after} tokens{by}"
                ));
            }
            RunEvent::CompactionFailed { why, .. } => {
                self.note(&format!(
                    "· the conversation could not be shortened: {}",
                    shorten(why, 300)
                ));
            }
            _ => {}
        }
        self.draw_status();
    }

    fn text(&mut self, text: &str) {
        self.shown += text.len();
        if self.answer_only {
            return;
        }
        let text =
            if self.text_on_terminal { self.flow.visible(text).into() } else { Cow::from(text) };
        if self.text_on_terminal {
            self.clear_status();
        }
        let mut out = io::stdout().lock();
        self.closed |= out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err();
        self.at_line_start = text.ends_with('\n');
        match text.rsplit_once('\n') {
            Some((_, line)) => self.column = line.chars().count(),
            None => self.column += text.chars().count(),
        }
        if self.text_on_terminal {
            self.draw_status();
        }
    }

    /// Ends the model's line, so that what follows begins one.
    pub(crate) fn end_line(&mut self) {
        self.clear_status();
        if !self.at_line_start {
            let mut out = io::stdout().lock();
            self.closed |= out.write_all(b"\n").and_then(|()| out.flush()).is_err();
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
        let used = if self.answered && self.usage == Usage::default() {
            "unknown".to_owned()
        } else {
            thousands(self.usage.total_tokens())
        };
        // Without a price nothing adds up to a cost, and $0.00 would be a claim.
        let cost = self.cost.filter(|cost| cost.0 > 0 || budget.is_some());
        let cost = cost.map(|cost| of(cost.to_string(), budget));
        [
            Some(format!(
                "turn {}",
                of(self.turn.to_string(), self.limits.max_turns.map(|n| n.to_string()))
            )),
            cost,
            Some(format!("{} tokens", of(used, self.limits.max_tokens.map(thousands)))),
            Some(of(seconds(self.began.elapsed()), self.limits.timeout.map(seconds))),
        ]
        .into_iter()
        .flatten()
        .collect::<Vec<_>>()
        .join(" · ")
    }

    /// Draws the moving line: where the cursor is, or below text that is being written.
    pub(crate) fn draw_status(&mut self) {
        if !self.terminal || self.held.is_some() {
            return;
        }
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let mut line: String = self.status_text().chars().take(width.saturating_sub(1)).collect();
        if self.color {
            line = format!("\x1b[2m{line}\x1b[0m");
        }
        let (drawn, status) = if self.at_line_start || !self.text_on_terminal {
            (format!("\r\x1b[2K{line}"), Status::Here)
        } else if self.column.is_multiple_of(width.max(1)) {
            // The cursor hangs at the line's end, which not every terminal keeps in mind.
            return;
        } else {
            // Down (a vertical tab, which the terminal driver passes on as it is) and up makes room
            // below and keeps the column, at the screen's end too; then the cursor is kept, the line
            // below drawn, and the cursor put back.
            (format!("\x0b\x1b[1A\x1b7\x1b[1B\r\x1b[2K{line}\x1b8"), Status::Below)
        };
        let mut err = io::stderr().lock();
        let _ = err.write_all(drawn.as_bytes()).and_then(|()| err.flush());
        self.status = status;
    }

    pub(crate) fn clear_status(&mut self) {
        let cleared = match std::mem::take(&mut self.status) {
            Status::Nowhere => return,
            Status::Here => "\r\x1b[2K",
            Status::Below => "\x1b7\x1b[1B\r\x1b[2K\x1b8",
        };
        let mut err = io::stderr().lock();
        let _ = err.write_all(cleared.as_bytes()).and_then(|()| err.flush());
    }
}
