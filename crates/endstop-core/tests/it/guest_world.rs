//! A random client around a guest's run: it asks, streams, answers, fails, retries and closes in any
//! order, with wrong ids and late responses. One seed determines everything.
//!
//! `play(seed)` plays one run, checks the laws on the way, and keeps the provider's own bill.

mod checks;

use self::checks::closes_rightly;
use crate::laws::{check_history, check_outcome};
use crate::world::{Marks, Rng};
use endstop_core::guest::{Admission, GuestReply, GuestStart, Recorded, Spending};
use endstop_core::*;
use serde_json::{Map, json};
use std::sync::Arc;
use std::time::Duration;

/// The specification of a world, and the prices that its calls may have.
pub fn spec(rng: &mut Rng) -> (RunSpec, Option<Price>) {
    let mode = GuestMode {
        inject: rng.chance(30),
        retry: rng.chance(30),
        clocks: rng.chance(30),
        capped: rng.chance(50),
        ..GuestMode::default()
    };
    let price = rng.chance(70).then(|| Price {
        input: NanoUsd(rng.below(5_000_000_000)),
        output: NanoUsd(rng.below(20_000_000_000)),
        ..Price::default()
    });
    let limits = Limits {
        max_turns: [None, Some(0), Some(3), Some(12), Some(30)][rng.below(5) as usize],
        max_budget_usd: rng.chance(50).then(|| rng.below(1000) as f64 / 1000.0),
        max_tokens: rng.chance(30).then(|| rng.below(90_000)),
        timeout: rng.chance(25).then(|| Duration::from_millis(rng.below(6000))),
        max_consecutive_mistakes: rng.chance(60).then_some(3),
        max_unproductive_turns: rng.chance(60).then_some(3),
        max_continuations: rng.below(2) as u32,
        max_retries: Some(rng.below(3) as u32),
        accept_unknown_finish: rng.chance(20),
        ..Limits::default()
    };
    let watch = Watch { rule: detector::Rule::RepeatCall { times: 4 }, mode: WatchMode::Stop };
    let messages = match rng.chance(50) {
        true => vec![Message::text(MessageId(1), Role::User, "do it")],
        false => Vec::new(),
    };
    let spec = RunSpec {
        limits,
        policy: rng.chance(40).then(|| Box::new(Marks::of_guest()) as Box<dyn TerminationPolicy>),
        watches: if rng.chance(30) { vec![watch] } else { Vec::new() },
        tools: vec![ToolPolicy {
            name: "read".to_owned(),
            repeatable: true,
            permission: Permission::Ask,
            timeout: Some(Duration::from_millis(40)),
            ..ToolPolicy::default()
        }]
        .into(),
        // Ignored in guest mode.
        hooks: Hooks { stop: rng.chance(50), pre_call: rng.chance(50), ..Hooks::default() },
        output_schema: rng.chance(30),
        compaction: CompactionSpec {
            proactive: ProactiveCompaction::Ask,
            reactive: true,
            ..CompactionSpec::default()
        },
        shared_budget: rng.chance(20),
        guest: Some(mode),
        ..RunSpec::new(messages)
    };
    (spec, price)
}

/// A call in flight at the provider.
struct Flight {
    id: EffectId,
    prompt: u64,
    cap: Option<u64>,
    price: Option<Price>,
    /// Visible output so far, in bytes.
    streamed: u64,
    text: String,
    /// Money left below the cost ceiling when the call was admitted.
    left: Option<NanoUsd>,
}

pub struct Played {
    pub outcome: Arc<Outcome>,
    pub records: Vec<Recorded>,
}

struct Client {
    rng: Rng,
    mode: GuestMode,
    limits: Limits,
    price: Option<Price>,
    /// The price of the call that was asked for last.
    asked: Option<Price>,
    /// Tokens per byte of a prompt, in percent.
    density: u64,
    at: Duration,
    bytes: u64,
    flight: Option<Flight>,
    old: Vec<EffectId>,
    open: Vec<String>,
    reserving: Option<(EffectId, NanoUsd, u64)>,
    /// The provider's bill for calls that have ended.
    billed: NanoUsd,
    /// The part of it that it has reported before the last call was admitted.
    reported: NanoUsd,
    last_reported: NanoUsd,
    nested: NanoUsd,
    nested_turns: u32,
    asks: u32,
    fresh: u32,
    unknown_price: bool,
}

/// Plays one run; `Err` names the violated law.
pub fn play(seed: u64) -> Result<Played, String> {
    let mut rng = Rng(seed);
    let (spec, price) = spec(&mut rng);
    let mode = spec.guest.unwrap_or_default();
    let start = GuestStart { seed, price, wall_ms: None, record: true };
    let mut client = Client {
        mode,
        limits: spec.limits.clone(),
        price,
        asked: price,
        density: 10 + rng.below(91),
        at: Duration::ZERO,
        bytes: 200,
        flight: None,
        old: Vec::new(),
        open: Vec::new(),
        reserving: None,
        billed: NanoUsd::ZERO,
        reported: NanoUsd::ZERO,
        last_reported: NanoUsd::ZERO,
        nested: NanoUsd::ZERO,
        nested_turns: 0,
        asks: 0,
        fresh: 0,
        unknown_price: price.is_none(),
        rng,
    };
    let mut guest = Guest::new(spec, start);
    let steps = 5 + client.rng.below(120);
    let mut records = Vec::new();
    for _ in 0..steps {
        client.step(&mut guest)?;
        if client.rng.chance(10) {
            records.extend(guest.take_events());
        }
        if guest.outcome().is_some() {
            break;
        }
    }
    let ending = guest.run().map(|run| {
        let phase = run.phase();
        (phase, run.provisional().map(|(termination, _)| termination))
    });
    let was = guest.outcome().cloned();
    let ok = client.rng.chance(70);
    let outcome = guest.close(client.at, ok, "the script is over");
    records.extend(guest.take_events());
    if let Some((phase, provisional)) = ending {
        closes_rightly(phase, provisional, ok, &outcome)?;
    }
    if was.is_some_and(|was| was != outcome) {
        return Err("a second ending".to_owned());
    }
    client.after_end(&mut guest, &outcome)?;
    client.check_end(&outcome, &records)?;
    Ok(Played { outcome, records })
}

impl Client {
    fn step(&mut self, guest: &mut Guest) -> Result<(), String> {
        self.at += Duration::from_millis(self.rng.below(60));
        let flying = self.flight.as_ref().map(|flight| flight.id);
        match self.rng.below(100) {
            0 => self.heard(guest.cancel(self.at), guest, false),
            1 => {
                guest.terminate(self.at);
                Ok(())
            }
            2 => {
                let ok = self.rng.chance(50);
                guest.close(self.at, ok, "early");
                Ok(())
            }
            3..=6 => {
                let usage = Usage { input_tokens: Some(10), ..Usage::default() };
                let cost = NanoUsd(self.rng.below(1000));
                let turns = self.rng.below(2) as u32;
                self.nested += cost;
                self.nested_turns += turns;
                let spending = Spending { usage, cost, turns, ..Spending::default() };
                self.heard(guest.spent(self.at, spending), guest, false)
            }
            7..=12 => {
                if let Some(wake) = guest.wake_at()
                    && self.rng.chance(60)
                {
                    self.at = self.at.max(wake);
                }
                self.heard(guest.tick(self.at), guest, true)
            }
            13 => {
                let metrics = Map::from_iter([("last_reward".to_owned(), json!(0.2))]);
                self.heard(guest.observe(self.at, Map::new(), metrics), guest, false)
            }
            // Late, or never requested.
            14..=18 => {
                let old = self.old.last().copied().unwrap_or(EffectId(9_000));
                let turn = self.response(None, 3);
                let reply = match self.rng.below(3) {
                    0 => guest.delta(self.at, old, TurnDelta::Text("late [submit]".to_owned())),
                    1 => guest.turn(self.at, old, turn.0),
                    _ => guest.result(self.at, "never", ToolReport::new(ToolStatus::Ok, "x")),
                };
                self.heard(reply, guest, false)
            }
            19..=24 => self.ask(guest),
            _ if self.reserving.is_some() => self.reserve(guest),
            25..=60 if flying.is_some() => self.delta(guest),
            _ if flying.is_some() => self.end_call(guest),
            25..=80 if !self.open.is_empty() => {
                let at = self.rng.below(self.open.len() as u64) as usize;
                let id = self.open.swap_remove(at);
                let status = *self.rng.pick(&[ToolStatus::Ok, ToolStatus::Ok, ToolStatus::Error]);
                let content = ["same", "same", "other", "[submit]"][self.rng.below(4) as usize];
                let mut report = ToolReport::new(status, content);
                if self.rng.below(60) == 0 {
                    report.halt = Some("the tool says halt".to_owned());
                }
                self.heard(guest.result(self.at, &id, report), guest, false)
            }
            _ => self.ask(guest),
        }
    }

    fn ask(&mut self, guest: &mut Guest) -> Result<(), String> {
        // The call in flight is abandoned; the provider bills what it had generated by then.
        self.settle_flight();
        let again = self.asks > 0 && self.rng.chance(25);
        let mut input = Vec::new();
        if !again {
            self.bytes = if self.rng.chance(5) { 300 } else { self.bytes + self.rng.below(900) };
            for id in self.open.drain(..) {
                if self.rng.chance(70) {
                    input.push(result_message(&id, "by the next request"));
                }
            }
            if self.asks == 0 || self.rng.chance(30) {
                input.push(Message::user("and this"));
            }
            if self.rng.chance(10) {
                // A hostile history.
                let call = ToolCall { id: "x".into(), name: "x".into(), arguments: "{".into() };
                input.push(Message::new(MessageId(1), Role::Assistant, vec![Part::ToolCall(call)]));
                input.push(result_message("x", "an orphan"));
                input.push(Message::user("  "));
            }
        }
        self.asks += 1;
        let own = self.rng.chance(10).then(|| Price::usd_per_million_tokens(1.0, 2.0));
        let call = GuestCall {
            input,
            prompt_bytes: self.bytes,
            output_cap: self.rng.chance(60).then(|| 1 + self.rng.below(4000)),
            thinking_budget: if self.rng.chance(10) { 300 } else { 0 },
            model: self.rng.chance(5).then(|| format!("m{}", self.rng.below(2))),
            price: own,
            streaming: self.rng.chance(80),
            attended: self.rng.chance(10),
            attempt_of_previous: again,
            turns_in_flight: 0,
        };
        self.unknown_price |= own.is_none() && self.price.is_none();
        let cap = call.output_cap;
        self.asked = own.or(self.price);
        let admission = guest.ask(self.at, call);
        self.effects_allowed(guest, true, cap)?;
        self.admitted(admission, guest, self.asked)
    }

    fn reserve(&mut self, guest: &mut Guest) -> Result<(), String> {
        let Some((id, want, want_tokens)) = self.reserving.take() else { return Ok(()) };
        let share = self.rng.below(130).min(100);
        let granted = NanoUsd(want.0 / 100 * share);
        let admission = guest.reserved(self.at, id, granted, Some(want_tokens / 100 * share), None);
        let price = self.asked;
        self.admitted(admission, guest, price)
    }

    fn admitted(
        &mut self,
        admission: Admission,
        guest: &Guest,
        price: Option<Price>,
    ) -> Result<(), String> {
        match admission {
            Admission::Go { call, attempt, output_cap, .. } => {
                let Some(run) = guest.run() else { return Err("admitted after the end".into()) };
                if run.provisional().is_some() {
                    return Err("a provisional ending survived a call".to_owned());
                }
                let max = self.limits.max_budget_usd.map(NanoUsd::from_usd);
                if max.is_some_and(|max| run.committed() >= max) {
                    return Err(format!("admitted with {} of {max:?}", run.committed()));
                }
                let tokens = run.committed_tokens();
                if self.limits.max_tokens.is_some_and(|max| tokens >= max) {
                    return Err(format!("admitted with {tokens} tokens"));
                }
                // A nested run may report its turns after the call was admitted.
                let own = run.turns().saturating_sub(self.nested_turns);
                if self.limits.max_turns.is_some_and(|max| own >= max) {
                    return Err(format!("admitted after {} turns", run.turns()));
                }
                self.fresh += u32::from(attempt == 1);
                let prompt = (self.bytes * self.density).div_ceil(100);
                let left = max.map(|max| max.saturating_sub(run.committed()));
                let left = left.filter(|_| price.is_some());
                self.old.extend(self.flight.take().map(|flight| flight.id));
                self.flight = Some(Flight {
                    id: call,
                    prompt,
                    cap: output_cap,
                    price,
                    streamed: 0,
                    text: String::new(),
                    left,
                });
            }
            Admission::Reserve { id, want, want_tokens, .. } => {
                self.reserving = Some((id, want, want_tokens));
            }
            Admission::Stop(_) => {}
        }
        Ok(())
    }

    fn delta(&mut self, guest: &mut Guest) -> Result<(), String> {
        let Some(flight) = &mut self.flight else { return Ok(()) };
        let room = flight.cap.map_or(u64::MAX, |cap| (cap * 4).saturating_sub(flight.streamed));
        let long = "word ".repeat(1 + self.rng.below(200) as usize);
        let delta = match self.rng.below(12) {
            0 => TurnDelta::Text(String::new()),
            1 => TurnDelta::Reasoning(self.rng.below(400).min(room)),
            2 => TurnDelta::ToolArguments(self.rng.below(400).min(room)),
            3 if self.rng.chance(10) && room > 9 => TurnDelta::Text("[submit]".to_owned()),
            _ => TurnDelta::Text(long.chars().take(room as usize).collect()),
        };
        flight.streamed += match delta.closed() {
            closed::TurnDelta::Text(text) => {
                flight.text.push_str(text);
                text.len() as u64
            }
            closed::TurnDelta::Reasoning(chars) | closed::TurnDelta::ToolArguments(chars) => chars,
        };
        let (id, streamed, left) = (flight.id, flight.streamed, flight.left);
        let price = flight.price;
        let reply = guest.delta(self.at, id, delta);
        let goes_on = !matches!(reply, GuestReply::Stop(_));
        if let (true, Some(left), Some(price)) = (goes_on, left, price)
            && price.worst(0, streamed / 4) > left
        {
            return Err(format!("the stream used up more than {left} and was not aborted"));
        }
        self.heard(reply, guest, false)
    }

    /// Ends the call in flight with a response or a failure.
    fn end_call(&mut self, guest: &mut Guest) -> Result<(), String> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let id = flight.id;
        self.old.push(id);
        if self.rng.chance(12) {
            let class = *self.rng.pick(&ErrorClass::ALL);
            // A request that was refused is not billed.
            let cut = matches!(class, ErrorClass::Timeout | ErrorClass::IncompleteStream);
            if cut || flight.streamed > 0 {
                self.bill(&flight, None);
            }
            let reply = guest.failed(self.at, id, ModelError::new(class, "scripted"), None);
            return self.heard(reply, guest, true);
        }
        let (turn, output) = self.response(flight.cap, flight.prompt);
        let output = output.max(flight.streamed.div_ceil(4));
        let mut turn = turn;
        // A complete response contains what was streamed of it.
        if !flight.text.is_empty() {
            turn.parts[0] = Part::Text { text: flight.text.clone() };
        }
        if turn.usage.output_tokens.is_some() {
            turn.usage.output_tokens = Some(output);
        }
        // A provider that reports no usage is assumed to bill what it showed.
        let shown: u64 = turn.parts.iter().map(Part::byte_len).sum();
        let hides = turn.usage.output_tokens.is_none() && shown > 0;
        let billed = if hides { output.min(shown.max(flight.streamed)) } else { output };
        let before = self.billed;
        self.bill(&flight, Some(billed));
        if !hides && turn.usage.input_tokens.is_some() {
            self.last_reported = self.billed.saturating_sub(before);
            self.reported += self.last_reported;
        }
        self.open.clear();
        let reply = guest.turn(self.at, id, turn.clone());
        if let GuestReply::Tools(calls) = &reply {
            let cut = [SignalReason::TokenLimitReached, SignalReason::ContentFiltered];
            if cut.contains(&turn.signal.reason) {
                return Err("calls of a cut response were released".to_owned());
            }
            self.open = calls.iter().map(|call| call.id.clone()).collect();
        }
        self.heard(reply, guest, true)
    }

    fn response(&mut self, cap: Option<u64>, prompt: u64) -> (ModelTurn, u64) {
        let mut parts = Vec::new();
        let text = match self.rng.below(30) {
            0 => "done [submit]".to_owned(),
            1 => "done [stuck]".to_owned(),
            2 => "oh [panic]".to_owned(),
            3 => "well [tell]".to_owned(),
            4..=8 => String::new(),
            _ => format!("thought {}", self.rng.below(50)),
        };
        parts.push(Part::Text { text });
        let calls = self.rng.chance(70);
        if calls {
            for n in 0..=self.rng.below(3) {
                let name = *self.rng.pick(&["read", "finish", "anything"]);
                let arguments = ["{}", r#"{"a":1}"#, "{broken"][self.rng.below(3) as usize];
                let id = format!("c{}-{n}", self.asks);
                let (name, arguments) = (name.to_owned(), arguments.to_owned());
                parts.push(Part::ToolCall(ToolCall { id, name, arguments }));
            }
        }
        let reason = match self.rng.below(40) {
            0..=2 => SignalReason::TokenLimitReached,
            3 => SignalReason::ContentFiltered,
            4 => SignalReason::Unknown,
            5 => SignalReason::Paused,
            6 => SignalReason::ErrorTermination,
            _ if calls => SignalReason::ToolUse,
            _ => SignalReason::NaturalCompletion,
        };
        let signal =
            TerminationSignal::new(reason, Confidence::High).from_field("f", reason.as_str());
        let mut turn = ModelTurn::new(parts, signal);
        let output = 1 + self.rng.below(cap.unwrap_or(2_000).min(900));
        turn.usage.input_tokens = Some(prompt);
        turn.usage.output_tokens = Some(output);
        if self.rng.chance(5) {
            turn.usage = Usage::default();
        }
        turn.call_missing = !calls && self.rng.chance(5);
        turn.finish_missing = !calls && self.rng.chance(5);
        (turn, output)
    }

    /// Adds a call to the provider's own bill. Without `output` the call was cut somewhere.
    fn bill(&mut self, flight: &Flight, output: Option<u64>) {
        let least = flight.streamed.div_ceil(4);
        let output = output.unwrap_or_else(|| {
            let most = flight.cap.unwrap_or(least + 500).max(least);
            least + self.rng.below(most - least + 1)
        });
        let cost = flight.price.map(|price| price.worst(flight.prompt, output));
        self.billed += cost.unwrap_or_default();
    }

    fn settle_flight(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.bill(&flight, None);
            self.old.push(flight.id);
        }
    }

    /// Takes a reply. `may_call`: the kernel itself may request a call now, if the guest can retry.
    fn heard(&mut self, reply: GuestReply, guest: &Guest, may_call: bool) -> Result<(), String> {
        self.effects_allowed(guest, may_call && self.mode.retry, None)?;
        match reply {
            GuestReply::Again(admission) => {
                let price = self.asked;
                self.settle_flight();
                self.admitted(admission, guest, price)
            }
            GuestReply::Continue | GuestReply::Tools(_) | GuestReply::Stop(_) => Ok(()),
        }
    }
}

fn result_message(id: &str, content: &str) -> Message {
    let result = ToolResult {
        call_id: id.to_owned(),
        name: "read".to_owned(),
        status: ToolStatus::Ok,
        content: content.to_owned(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    };
    Message::new(MessageId(7), Role::Tool, vec![Part::ToolResult(result)])
}
