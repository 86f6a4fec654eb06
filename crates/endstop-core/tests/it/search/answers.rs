//! Answers to the effects of the kernel: streamed pieces, results, and late ones.

use super::configs::{Failure, Piece, Reply, Report, Said};
use super::world::{Open, World};
use endstop_core::*;
use serde_json::json;

impl World<'_> {
    /// Returns the next delta of the open call.
    pub(super) fn piece(&mut self, which: u8) -> Result<EventKind, String> {
        let call = self.open.iter_mut().find_map(|open| match open {
            Open::Call { id, text, pieces, .. } => Some((*id, text, pieces)),
            _ => None,
        });
        let (call, text, pieces) = call.ok_or("a delta without a call")?;
        *pieces += 1;
        let delta = match self.config.pieces[which as usize] {
            Piece::Text(more) => {
                text.push_str(more);
                TurnDelta::Text(more.to_owned())
            }
            Piece::Hidden(chars) => TurnDelta::Reasoning(chars),
        };
        Ok(EventKind::Delta { call, delta })
    }

    /// Returns the chosen variant of the answer.
    pub(super) fn answer(&mut self, open: &Open, with: u8) -> EventKind {
        let with = usize::from(with);
        match open {
            Open::Call { id, cap, prompt, text, .. } => match self.config.replies.get(with) {
                Some(reply) => EventKind::TurnEnded {
                    call: *id,
                    turn: Box::new(turn(reply, text, *cap, *prompt)),
                },
                None => {
                    let failure = &self.config.failures[with - self.config.replies.len()];
                    failed(*id, failure, *prompt)
                }
            },
            Open::Tool { id, .. } => {
                let report = match self.config.reports[with] {
                    Report::Says(status, text) => ToolReport::new(status, text),
                    Report::Halts => ToolReport {
                        halt: Some("the tool says halt".to_owned()),
                        ..ToolReport::new(ToolStatus::Ok, "same")
                    },
                };
                EventKind::ToolEnded { tool: *id, report }
            }
            Open::Consult { id, point } => {
                let answer = match self.config.answers[with] {
                    Said::Proceed => HookDecision::Proceed,
                    Said::With => HookDecision::ProceedWith("by the way".to_owned()),
                    Said::Cap => HookDecision::OutputCap(700),
                    Said::Deny => HookDecision::Deny("not so".to_owned()),
                    Said::Halt => HookDecision::Halt("halt".to_owned()),
                    Said::Change => changed(point, "{\"n\":9}"),
                    Said::Break => changed(point, "{broken"),
                };
                EventKind::Answered { id: *id, answer }
            }
            Open::Compact { id, short } => {
                let result = match with {
                    0 => Compaction::NotNeeded,
                    1 => Compaction::done("in short", short.clone()),
                    _ => Compaction::Failed("could not".to_owned()),
                };
                EventKind::Compacted { id: *id, result }
            }
            Open::Validate { id } => {
                let result = if with == 0 { Ok(json!({"k": 1})) } else { Err("wrong".to_owned()) };
                EventKind::Validated { id: *id, result }
            }
            Open::Verify { id } => EventKind::Verified {
                id: *id,
                passed: with == 0,
                output: if with == 0 { "ok" } else { "2 tests failed" }.to_owned(),
            },
            Open::Reserve { id, usd, tokens } => {
                let left = self.tool_budget;
                let granted = match with {
                    0 => [usd[0].min(left[0]), tokens[0].min(left[1])],
                    1 => [usd[1].min(left[0]), tokens[1].min(left[1])],
                    _ => [0, 0],
                };
                self.offered = (with == 0).then_some((left[0], left[1]));
                if granted[0] >= usd[1] && granted[1] >= tokens[1] {
                    self.tool_budget = [left[0] - granted[0], left[1] - granted[1]];
                    self.held.push((*id, granted));
                } else {
                    self.held.push((*id, [0, 0]));
                }
                let (granted, granted_tokens) = (NanoUsd(granted[0]), Some(granted[1]));
                EventKind::Reserved { id: *id, granted, granted_tokens, refused_by: None }
            }
        }
    }

    /// Returns an answer to an effect that is no longer open: the variant with the largest effect.
    pub(super) fn late(&self, closed: &Open) -> EventKind {
        match closed {
            Open::Call { id, .. } => EventKind::TurnEnded {
                call: *id,
                turn: Box::new(turn(&self.config.replies[0], "late ", None, 1)),
            },
            Open::Tool { id, .. } => {
                let report = ToolReport {
                    halt: Some("late".to_owned()),
                    ..ToolReport::new(ToolStatus::Ok, "late")
                };
                EventKind::ToolEnded { tool: *id, report }
            }
            Open::Consult { id, .. } => {
                EventKind::Answered { id: *id, answer: HookDecision::Halt("late".to_owned()) }
            }
            Open::Compact { id, .. } => {
                EventKind::Compacted { id: *id, result: Compaction::Failed("late".to_owned()) }
            }
            Open::Validate { id } => EventKind::Validated { id: *id, result: Ok(json!("late")) },
            Open::Verify { id } => {
                EventKind::Verified { id: *id, passed: true, output: "late".to_owned() }
            }
            Open::Reserve { id, usd, tokens } => {
                let (granted, granted_tokens) = (NanoUsd(usd[0]), Some(tokens[0]));
                EventKind::Reserved { id: *id, granted, granted_tokens, refused_by: None }
            }
        }
    }
}

/// Returns the answer that changes what the point is about.
fn changed(point: &ConsultPoint, arguments: &str) -> HookDecision {
    match point {
        ConsultPoint::PreTool { call } | ConsultPoint::Approval { call } => {
            HookDecision::ChangeCall(ToolCall { arguments: arguments.to_owned(), ..call.clone() })
        }
        _ => HookDecision::ChangeResult(ChangedResult::error("changed")),
    }
}

fn turn(reply: &Reply, streamed: &str, cap: Option<u64>, prompt: u64) -> ModelTurn {
    let mut parts = Vec::new();
    let text = format!("{streamed}{}", reply.text);
    if !text.is_empty() {
        parts.push(Part::Text { text });
    }
    for (id, name, arguments) in reply.calls {
        parts.push(Part::ToolCall(ToolCall {
            id: (*id).to_owned(),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        }));
    }
    let signal = TerminationSignal::new(reply.reason, Confidence::High)
        .from_field("f", reply.reason.as_str());
    let mut turn = ModelTurn::new(parts, signal);
    if reply.counted {
        // A correct provider: no more prompt tokens than bytes, and no more output than the cap.
        turn.usage.input_tokens = Some(prompt);
        turn.usage.output_tokens = Some(if reply.at_cap { cap.unwrap_or(1000) } else { 5 });
    }
    turn
}

fn failed(call: EffectId, failure: &Failure, prompt: u64) -> EventKind {
    let mut error = ModelError::new(failure.class, "scripted");
    error.retry_after_ms = failure.retry_after_ms;
    let half = || {
        let signal = TerminationSignal::new(SignalReason::InProgress, Confidence::High);
        let mut turn =
            ModelTurn::new(vec![Part::Text { text: "half an answer".to_owned() }], signal);
        turn.usage.input_tokens = Some(prompt);
        Box::new(turn)
    };
    EventKind::TurnFailed { call, error, partial: failure.partial.then(half) }
}
