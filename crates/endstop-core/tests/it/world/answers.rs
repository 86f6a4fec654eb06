//! Random answers of a world: models, tools, hooks, people and budgets, and events that answer nothing.

use super::setup::Setup;
use super::{WALL_MS, Waiting, World};
use crate::changes::SECRET;
use crate::laws::shortened;
use endstop_core::*;
use serde_json::{Map, json};
use std::time::Duration;

/// Errors after which a run calls its next fallback.
const FALLS_BACK: [ErrorClass; 4] =
    [ErrorClass::Overloaded, ErrorClass::RateLimit, ErrorClass::ServerError, ErrorClass::NotFound];

impl World {
    /// Returns an event that answers nothing: late, repeated, never requested, or only informative.
    pub(super) fn noise(&mut self) -> EventKind {
        let id = if self.old.is_empty() || self.rng.chance(30) {
            EffectId(self.rng.below(200) + 1_000_000)
        } else {
            let at = self.rng.below(self.old.len() as u64) as usize;
            self.old[at].id()
        };
        match self.rng.below(16) {
            14 | 15 => self.windows(),
            13 => self.parks(id),
            0 => EventKind::Start { seed: 1, price: None, wall_ms: None },
            1 => EventKind::Delta { call: id, delta: TurnDelta::Text("late [submit]".to_owned()) },
            2 => EventKind::TurnEnded {
                call: id,
                turn: Box::new(ModelTurn::new(
                    vec![Part::Text { text: "late".to_owned() }],
                    TerminationSignal::new(SignalReason::NaturalCompletion, Confidence::High),
                )),
            },
            3 => EventKind::TurnFailed {
                call: id,
                error: ModelError::new(ErrorClass::ServerError, "late"),
                partial: None,
            },
            4 => EventKind::ToolEnded { tool: id, report: ToolReport::new(ToolStatus::Ok, "late") },
            5 => EventKind::Answered { id, answer: HookDecision::Halt("late".to_owned()) },
            6 => EventKind::Compacted { id, result: Compaction::Failed("late".to_owned()) },
            7 => EventKind::Validated { id, result: Err("late".to_owned()) },
            8 => EventKind::Reserved {
                id,
                granted: NanoUsd(1),
                granted_tokens: None,
                refused_by: None,
            },
            9 => EventKind::Tick,
            11 => {
                let time = Duration::from_millis(self.rng.below(400));
                self.now += time;
                EventKind::Suspended { time }
            }
            10 => EventKind::Verified { id, passed: true, output: "late".to_owned() },
            _ => {
                let mut metrics = Map::new();
                metrics.insert("last_reward".to_owned(), json!(0.1));
                EventKind::Observe { variables: Map::new(), metrics }
            }
        }
    }

    /// Returns a report of windows, some of which cannot be right.
    pub(super) fn windows(&mut self) -> EventKind {
        let now = (WALL_MS + self.now.as_millis() as u64) / 1000;
        let windows = (0..1 + self.rng.below(2)).filter_map(|_| {
            let minutes = [300, 10_080, 5][self.rng.below(3) as usize];
            let resets_at = match self.rng.below(8) {
                0 => None,
                1 => Some(self.rng.below(u64::MAX)),
                2 => Some(now.saturating_sub(self.rng.below(600))),
                _ => Some(now + 1 + self.rng.below(4)),
            };
            Window::new("plan", minutes, self.rng.below(1200) as f64 / 1000.0, resets_at)
        });
        EventKind::Windows { windows: windows.collect() }
    }

    /// Returns the park of a question, or a decision about it.
    pub(super) fn parks(&mut self, id: EffectId) -> EventKind {
        let digest = "d1".to_owned();
        if self.rng.chance(50) {
            let decision = match self.rng.below(4) {
                0 => ParkDecision::Approve,
                1 => ParkDecision::ApproveChanged("{}".to_owned()),
                2 => ParkDecision::Deny("not so".to_owned()),
                _ => ParkDecision::Expired,
            };
            return EventKind::Decided { id, decision, digest, wall_ms: 2 };
        }
        let request = ParkRequest {
            id,
            kind: RequestKind::Approval,
            tool: Some("write".to_owned()),
            call_id: None,
            subject: "{}".to_owned(),
            digest,
            reason: None,
            asked_ms: 1,
            expires_ms: None,
        };
        EventKind::Parked { request: Box::new(request) }
    }

    /// Returns other limits of one kind, higher or lower, or off.
    pub(super) fn changed_limits(&mut self, setup: &Setup) -> EventKind {
        let (name, value) = match self.rng.below(5) {
            0 => ("max_turns", json!(self.rng.below(30))),
            1 => {
                let ms = self.now.as_millis() as u64 / 2 + self.rng.below(2_000);
                ("timeout_ms", json!(ms))
            }
            2 => ("max_tokens", json!(self.rng.below(90_000))),
            3 if setup.price.is_some() => {
                ("max_budget_usd", json!(self.rng.below(4_000) as f64 / 1e3))
            }
            _ => ("thinking_timeout_ms", json!(self.rng.below(100))),
        };
        let value = if self.rng.chance(15) { json!("off") } else { value };
        let limits = LimitChanges::new().set(name, value).unwrap_or_default();
        EventKind::LimitsChanged { limits }
    }

    fn text(&mut self) -> String {
        self.reasons += 1;
        match self.rng.below(200) {
            0 => "done [submit] now".to_owned(),
            1 => "done [stuck]".to_owned(),
            2 => "done [mistaken]".to_owned(),
            3 => "done [halt]".to_owned(),
            4 => "oh [panic]".to_owned(),
            5..=12 => "well [tell]".to_owned(),
            13 => "<think>I could [submit]</think>".to_owned(),
            14 => "<think>I never".to_owned(),
            15 => format!("<think>so</think>answer {}", self.reasons),
            16 => "I look\n</think>\n".to_owned(),
            17 => "<tool_call>{\"name\": \"read\", \"arguments\": {}}</tool_call>".to_owned(),
            18..=80 => String::new(),
            81..=110 => "again".to_owned(),
            _ => format!("thought {}", self.reasons),
        }
    }

    pub(super) fn delta(&mut self) -> TurnDelta {
        match self.rng.below(12) {
            0 => TurnDelta::Text(String::new()),
            1..=3 => TurnDelta::Reasoning(self.rng.below(20)),
            4 => TurnDelta::ToolArguments(self.rng.below(20)),
            5 if self.rng.chance(20) => self.piece("[sub"),
            5 if self.rng.chance(30) => self.piece("<think>"),
            5 if self.rng.chance(50) => self.piece("</think>"),
            6 => self.piece("mit]"),
            _ => self.piece("word "),
        }
    }

    fn piece(&mut self, piece: &str) -> TurnDelta {
        self.partial.push_str(piece);
        TurnDelta::Text(piece.to_owned())
    }

    pub(super) fn answer(&mut self, waiting: Waiting, setup: &Setup) -> EventKind {
        match waiting {
            Waiting::Call { id, cap, prompt } => self.model(id, cap, prompt, setup),
            Waiting::Tool(tool) => {
                let mut report = match self.rng.below(14) {
                    0..=1 => ToolReport::new(ToolStatus::Error, "no"),
                    2 => {
                        let mut report = ToolReport::new(ToolStatus::Ok, "never forget this");
                        report.pinned = true;
                        report
                    }
                    3 if self.rng.chance(15) => ToolReport::new(ToolStatus::Ok, "[submit]"),
                    4..=8 => ToolReport::new(ToolStatus::Ok, format!("r{}", self.rng.next())),
                    _ => ToolReport::new(ToolStatus::Ok, "same"),
                };
                if setup.hooks.post_tool && self.rng.chance(50) {
                    report.content = SECRET.to_owned();
                }
                if self.rng.below(400) == 0 {
                    report.halt = Some("the tool says halt".to_owned());
                }
                EventKind::ToolEnded { tool, report }
            }
            Waiting::Consult(id, point) => {
                let secret = matches!(
                    &point,
                    ConsultPoint::PostTool { result, .. } if result.content.contains(SECRET)
                );
                let answer = match (self.rng.below(16), point) {
                    (0, ConsultPoint::Stop { .. } | ConsultPoint::Approval { .. }) => {
                        HookDecision::Halt("halt".to_owned())
                    }
                    (0, _) if self.rng.chance(8) => HookDecision::Halt("halt".to_owned()),
                    (
                        1..=4,
                        ConsultPoint::Stop { .. }
                        | ConsultPoint::PreTool { .. }
                        | ConsultPoint::Approval { .. },
                    ) => HookDecision::Deny("not so".to_owned()),
                    (5, _) => HookDecision::ProceedWith("by the way".to_owned()),
                    (6, _) => HookDecision::OutputCap(1 + self.rng.below(2000)),
                    (12..=14, point) => self.changed(point),
                    _ => HookDecision::Proceed,
                };
                // The hook removes the secret, whatever else it does.
                let answer = match (answer, secret) {
                    (answer @ (HookDecision::Halt(_) | HookDecision::Deny(_)), _)
                    | (answer, false) => answer,
                    (_, true) => HookDecision::ChangeResult(ChangedResult::ok("clean")),
                };
                EventKind::Answered { id, answer }
            }
            Waiting::Compact(id, messages, task) => {
                let result = match self.rng.below(12) {
                    0 => Compaction::Failed("could not".to_owned()),
                    1..=3 => Compaction::done("tells the truth", shortened(messages, task)),
                    4 if self.rng.chance(50) => {
                        Compaction::done("lies", self.spoiled(messages, task))
                    }
                    _ => Compaction::NotNeeded,
                };
                EventKind::Compacted { id, result }
            }
            Waiting::Validate(id) => {
                let result =
                    if self.rng.chance(40) { Err("wrong".to_owned()) } else { Ok(json!({"k": 1})) };
                EventKind::Validated { id, result }
            }
            Waiting::Verify(id) => {
                let passed = self.rng.chance(40);
                EventKind::Verified { id, passed, output: "3 tests failed".to_owned() }
            }
            Waiting::Reserve(id, [want, least], [want_tokens, least_tokens]) => {
                let left = self.shared_left;
                let granted = (want.0.min(left.0), want_tokens.min(left.1));
                if granted.0 >= least.0 && granted.1 >= least_tokens {
                    self.shared_left = (left.0 - granted.0, left.1 - granted.1);
                    self.held.insert(id, granted);
                    self.offered = Some(left);
                }
                let (usd, tokens) = granted;
                EventKind::Reserved {
                    id,
                    granted: NanoUsd(usd),
                    granted_tokens: Some(tokens),
                    refused_by: None,
                }
            }
        }
    }

    /// Returns an answer that changes a call or a result, rarely one that is not valid.
    fn changed(&mut self, point: ConsultPoint) -> HookDecision {
        let answer = match point {
            ConsultPoint::PreTool { call } | ConsultPoint::Approval { call } => {
                let mut call = ToolCall { arguments: json!({"n": 7}).to_string(), ..call };
                match self.rng.below(60) {
                    0 => call.name = "write".to_owned(),
                    1 => call.id = "other".to_owned(),
                    2..=8 => call.arguments = "{broken".to_owned(),
                    9..=30 => call.arguments = json!({"n": self.rng.below(9000)}).to_string(),
                    _ => {}
                }
                HookDecision::ChangeCall(call)
            }
            ConsultPoint::PostTool { .. } if self.rng.chance(30) => {
                HookDecision::ChangeResult(ChangedResult::error("failed after all"))
            }
            ConsultPoint::PostTool { .. } => HookDecision::ChangeResult(ChangedResult::ok("same")),
            _ if self.rng.chance(5) => {
                HookDecision::ChangeResult(ChangedResult::ok("not a result"))
            }
            _ => HookDecision::Proceed,
        };
        if self.rng.chance(20) {
            return HookDecision::WithNote {
                note: "by the way".to_owned(),
                answer: Box::new(answer),
            };
        }
        answer
    }

    /// Returns a compaction result that grows, changes nothing, or breaks the conversation.
    fn spoiled(&mut self, mut messages: Vec<Message>, task: Option<MessageId>) -> Vec<Message> {
        let at = self.rng.below(messages.len() as u64) as usize;
        match self.rng.below(8) {
            0 => {}
            1 => messages.clear(),
            2 => messages.push(Message::text(MessageId(900), Role::User, "and much more of it")),
            3 => drop(messages.remove(at)),
            4 => messages.truncate(at),
            5 => messages[at].role = Role::User,
            6 => messages.retain(|message| task != Some(message.id)),
            _ => messages = vec![Message::text(MessageId(901), Role::User, "summary")],
        }
        messages
    }

    fn model(&mut self, call: EffectId, cap: Option<u64>, prompt: u64, setup: &Setup) -> EventKind {
        let classes = ErrorClass::ALL;
        // So that the fallbacks of a run are called.
        let fails = setup.falls_back && self.rng.chance(20);
        if fails || self.rng.chance(6) {
            let class = *self.rng.pick(if fails { &FALLS_BACK } else { &classes });
            let mut error = ModelError::new(class, "scripted");
            if self.rng.chance(20) {
                error.retry_after_ms = Some(*self.rng.pick(&[10, 1000, 120_000]));
            }
            return EventKind::TurnFailed { call, error, partial: None };
        }
        let streamed = std::mem::take(&mut self.partial);
        // Reasoning uses up the whole cap.
        let starves = streamed.is_empty() && self.rng.below(36) == 0;
        let text = match streamed {
            _ if starves => String::new(),
            streamed if streamed.is_empty() => self.text(),
            streamed => streamed,
        };
        let mut parts = Vec::new();
        if self.rng.chance(15) {
            let json = json!({"type": "thinking", "signature": "x"}).to_string();
            parts.push(Part::Opaque { api: "anthropic-messages".to_owned(), json });
        }
        let calls = if starves { 99 } else { self.rng.below(100) };
        let mut wants_tools = false;
        if !text.is_empty() {
            parts.push(Part::Text { text: text.clone() });
        }
        if calls < 90 {
            wants_tools = true;
            for n in 0..=self.rng.below(3) {
                let name = *self.rng.pick(&[
                    "read", "read", "read", "read", "write", "write", "wait", "code", "code",
                    "nope",
                ]);
                let name = if self.rng.below(150) == 0 { "finish" } else { name };
                let arguments = match self.rng.below(20) {
                    0 => "{broken".to_owned(),
                    1 if name == "finish" => json!({"infeasible": "cannot"}).to_string(),
                    2..=6 if name == "finish" => json!({"infeasible": true}).to_string(),
                    _ if name == "finish" => {
                        json!({"deliverable": "d", "summary": "s"}).to_string()
                    }
                    2..=8 => json!({"n": 1}).to_string(),
                    _ => json!({"n": self.rng.next() % 1000}).to_string(),
                };
                // Sometimes the same id twice in one response.
                let id = if self.rng.chance(3) { "c0".to_owned() } else { format!("c{n}") };
                parts.push(Part::ToolCall(ToolCall { id, name: name.to_owned(), arguments }));
            }
        }
        let reason = match self.rng.below(300) {
            0..=3 => SignalReason::TokenLimitReached,
            4 => SignalReason::ContentFiltered,
            5..=6 => SignalReason::Unknown,
            7..=20 => SignalReason::Paused,
            21 => SignalReason::ErrorTermination,
            22 => SignalReason::InProgress,
            23 => SignalReason::StopSequence,
            _ if wants_tools => SignalReason::ToolUse,
            _ => SignalReason::NaturalCompletion,
        };
        let signal =
            TerminationSignal::new(reason, Confidence::High).from_field("f", reason.as_str());
        let starving = starves || (!wants_tools && text.is_empty() && self.rng.chance(40));
        let mut turn = ModelTurn::new(parts, signal);
        // A correct provider: no more prompt tokens than bytes, and no more output than the cap.
        let most = cap.unwrap_or(2_000);
        let output = if starving { most } else { 1 + self.rng.below(most.min(900)) };
        // One token per message, so that a counted message counts the same in the next prompt.
        turn.usage.input_tokens = Some(prompt);
        turn.usage.output_tokens = Some(output);
        if self.rng.chance(5) {
            turn.usage = Usage::default();
        }
        if self.rng.chance(1) && self.rng.chance(50) {
            turn.unparseable = Some("broken".to_owned());
        }
        EventKind::TurnEnded { call, turn: Box::new(turn) }
    }
}
