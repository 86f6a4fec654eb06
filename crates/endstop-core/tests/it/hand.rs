//! A run driven by hand, and what the model says to it.

use endstop_core::*;
use serde_json::json;
use std::time::Duration;

/// The wall clock at the start of a run, in Unix milliseconds.
pub const WALL_MS: u64 = 1_764_000_000_000;

/// A run driven by hand: it answers no effect by itself.
pub struct Hand {
    run: Option<Run>,
    now: Duration,
    pub effects: Vec<Effect>,
    pub outcome: Option<Outcome>,
}

impl Hand {
    pub fn start(spec: RunSpec, price: Option<Price>) -> Hand {
        let mut hand = Hand {
            run: Some(Run::new(spec)),
            now: Duration::ZERO,
            effects: Vec::new(),
            outcome: None,
        };
        hand.feed(EventKind::Start { seed: 7, price, wall_ms: Some(WALL_MS) });
        hand
    }

    pub fn feed(&mut self, kind: EventKind) -> &mut Hand {
        let run = self.run.take().expect("the run has ended");
        self.effects.clear();
        match run.handle(Event::new(self.now, kind), &mut self.effects) {
            Step::Continue(run) => self.run = Some(run),
            Step::Ended(outcome) => self.outcome = Some(*outcome),
        }
        self
    }

    pub fn at(&mut self, ms: u64) -> &mut Hand {
        self.now = Duration::from_millis(ms);
        self
    }

    pub fn run(&self) -> &Run {
        self.run.as_ref().expect("the run has ended")
    }

    pub fn call(&self) -> EffectId {
        self.effects
            .iter()
            .find_map(|e| if let Effect::CallModel { id, .. } = e { Some(*id) } else { None })
            .unwrap_or_else(|| panic!("no call among {:?}", self.effects))
    }

    pub fn cap(&self) -> Option<u64> {
        self.effects
            .iter()
            .find_map(|e| {
                if let Effect::CallModel { output_cap, .. } = e { Some(*output_cap) } else { None }
            })
            .expect("no call")
    }

    pub fn started(&self) -> Vec<(EffectId, String)> {
        self.effects
            .iter()
            .filter_map(|e| if let Effect::StartTools { calls } = e { Some(calls) } else { None })
            .flatten()
            .map(|start| (start.id, start.call.id.clone()))
            .collect()
    }

    pub fn consulted(&self) -> EffectId {
        self.effects
            .iter()
            .find_map(|e| if let Effect::Consult { id, .. } = e { Some(*id) } else { None })
            .unwrap_or_else(|| panic!("nothing asked among {:?}", self.effects))
    }

    pub fn answer(&mut self, turn: ModelTurn) -> &mut Hand {
        let call = self.call();
        self.feed(EventKind::TurnEnded { call, turn: Box::new(turn) })
    }

    pub fn fail(&mut self, class: ErrorClass) -> &mut Hand {
        let call = self.call();
        self.feed(EventKind::TurnFailed { call, error: ModelError::new(class, "x"), partial: None })
    }

    pub fn tools_end(&mut self, status: ToolStatus, content: &str) -> &mut Hand {
        for (tool, _) in self.started() {
            let report = ToolReport::new(status, content);
            self.feed(EventKind::ToolEnded { tool, report });
        }
        self
    }

    pub fn outcome(&self) -> &Outcome {
        self.outcome.as_ref().unwrap_or_else(|| {
            panic!(
                "the run did not end: phase {}, effects {:?}",
                self.run().phase().as_str(),
                self.effects
            )
        })
    }

    pub fn ended(&self) -> Termination {
        self.outcome().termination
    }
}

pub fn spec() -> RunSpec {
    RunSpec {
        tools: ["read", "write"]
            .map(|name| ToolPolicy {
                name: name.to_owned(),
                parallel_safe: name == "read",
                ..ToolPolicy::default()
            })
            .to_vec()
            .into(),
        reserve: false,
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "do it")])
    }
}

pub fn said(text: &str, reason: SignalReason) -> ModelTurn {
    let signal =
        TerminationSignal::new(reason, Confidence::High).from_field("finish", reason.as_str());
    let parts = if text.is_empty() { vec![] } else { vec![Part::Text { text: text.into() }] };
    ModelTurn::new(parts, signal)
}

pub fn stop(text: &str) -> ModelTurn {
    said(text, SignalReason::NaturalCompletion)
}

pub fn calls(names: &[&str]) -> ModelTurn {
    let mut turn = said("", SignalReason::ToolUse);
    for (n, name) in names.iter().enumerate() {
        turn.parts.push(Part::ToolCall(ToolCall {
            id: format!("c{n}"),
            name: (*name).to_owned(),
            arguments: json!({"n": n}).to_string(),
        }));
    }
    turn
}

pub fn results(outcome: &Outcome) -> Vec<(String, ToolStatus, bool)> {
    outcome
        .messages
        .iter()
        .flat_map(|m| &m.parts)
        .filter_map(|part| match part {
            Part::ToolResult(r) => Some((r.call_id.clone(), r.status, r.started)),
            _ => None,
        })
        .collect()
}
