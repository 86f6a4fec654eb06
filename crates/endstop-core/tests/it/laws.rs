//! The laws of the kernel, checked by the random worlds and by the exhaustive search.
//!
//! ```text
//! laws::only_stops(&effects)?;     // after a cancel
//! laws::check_outcome(&outcome)?;  // at the end
//! ```

use crate::fallback_laws::without_opaque;
use endstop_core::*;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// While a run is being stopped, the kernel only stops work, reports and waits; it starts nothing.
pub fn only_stops(effects: &[Effect]) -> Result<(), String> {
    let begins = effects.iter().find(|effect| {
        !matches!(
            effect,
            Effect::AbortModel { .. }
                | Effect::AbortTools { .. }
                | Effect::Abandon { .. }
                | Effect::Settle { .. }
                | Effect::WakeAt { .. }
                | Effect::Emit(_)
        )
    });
    match begins {
        Some(begins) => Err(format!("after a cancel the kernel asked for {begins:?}")),
        None => Ok(()),
    }
}

/// An answer that waits for the stop hook was declared: only the caller or a veto can lead to
/// another ending than a success, unless the answer needs a verdict.
pub fn check_declared(
    phase: &str,
    event: &EventKind,
    outcome: &Outcome,
    needs_verdict: bool,
) -> Result<(), String> {
    let withdrawn = matches!(
        event,
        EventKind::Cancel
            | EventKind::Terminate
            | EventKind::Answered { answer: HookDecision::Deny(_), .. }
    );
    if phase == "consulting_stop" && !withdrawn && !needs_verdict && !outcome.is_success() {
        return Err(format!("{event:?} turned a declared answer into {}", outcome.termination));
    }
    Ok(())
}

/// The time at which a run stops working.
pub fn working_time(limits: &Limits) -> Option<Duration> {
    let timeout = limits.timeout?;
    let kept = if limits.wrap_up { timeout / 10 } else { Duration::ZERO };
    Some(timeout - kept.min(Duration::from_secs(60)))
}

/// A hand-over belongs to a run that a ceiling ended, and is never its answer.
pub fn check_hand_over(limits: &Limits, outcome: &Outcome) -> Result<(), String> {
    let Some(text) = &outcome.hand_over else { return Ok(()) };
    let ceiling = [
        Termination::ErrorMaxTurns,
        Termination::ErrorMaxToolCalls,
        Termination::ErrorMaxBudgetUsd,
        Termination::ErrorMaxTokens,
        Termination::ErrorTimeout,
    ];
    let ended = ceiling.contains(&outcome.termination)
        || outcome.termination == Termination::Terminated
            && outcome.also.iter().any(|also| ceiling.contains(also));
    if !limits.wrap_up || !ended || text.trim().is_empty() {
        return Err(format!("a hand-over of {}: {text:?}", outcome.termination));
    }
    Ok(())
}

/// Lets the run begin with a turn of another run.
pub fn begin_as_branch(spec: &mut RunSpec) {
    let call =
        ToolCall { id: "b1".to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() };
    let result = ToolResult {
        call_id: "b1".to_owned(),
        name: "read".to_owned(),
        content: "read by the other run".to_owned(),
        status: ToolStatus::Ok,
        attachments: Vec::new(),
        started: true,
        pinned: false,
    };
    spec.messages.push(Message::new(MessageId(2), Role::Assistant, vec![Part::ToolCall(call)]));
    spec.messages.push(Message::new(MessageId(3), Role::Tool, vec![Part::ToolResult(result)]));
    spec.task_message = Some(MessageId(1));
    let point = BranchPoint { run_id: "k3v9".to_owned(), turn: 1, ..BranchPoint::default() };
    spec.branched_from = Some(BranchPoint { cost: NanoUsd(7), tokens: 9, ..point }.into());
}

/// A branch names its origin, and pays nothing for it; no call of the other run is answered again.
pub fn check_branch(from: Option<&BranchPoint>, outcome: &Outcome) -> Result<(), String> {
    if outcome.branched_from.as_ref() != from {
        return Err(format!("{from:?} became {:?}", outcome.branched_from));
    }
    let of_other = |result: &&ToolResult| result.call_id == "b1";
    let results: Vec<_> = outcome.messages.iter().flat_map(Message::tool_results).collect();
    let again = results.iter().copied().filter(of_other).count();
    if again > 1 || results.iter().any(|one| of_other(one) && one.status != ToolStatus::Ok) {
        return Err(format!("{again} results of the call of the other run: {results:?}"));
    }
    Ok(())
}

/// With verification rounds, a success is an accepted answer, and a run that had all its rounds is
/// not verified. Without, the verdict never changes the ending.
pub fn check_verified(verifier: bool, limits: &Limits, outcome: &Outcome) -> Result<(), String> {
    let Outcome { verified, verify_rounds: rounds, .. } = outcome;
    let wrong = |what: &str| {
        Err(format!("{what}: {} with {verified:?} and {rounds:?}", outcome.termination))
    };
    if *verified != rounds.last().map(|round| round.passed) {
        return wrong("the result is not that of the last round");
    }
    let most = limits.verify_rounds.filter(|_| verifier);
    let not_verified = outcome.termination == Termination::ErrorNotVerified;
    let Some(most) = most else {
        // The verdict ends the run, whatever it is.
        let only_at_end = rounds.is_empty() || verifier && rounds.len() == 1;
        let ends = rounds.is_empty() || outcome.is_success();
        return if only_at_end && ends && !not_verified { Ok(()) } else { wrong("no rounds") };
    };
    if outcome.is_success() && *verified != Some(true) {
        return wrong("a success that was not accepted");
    }
    let accepted = rounds.iter().filter(|round| round.passed).count();
    if accepted > 0 && !outcome.is_success() || accepted > 1 {
        return wrong("an accepted answer that is not the ending");
    }
    let all_used = rounds.len() == most as usize && accepted == 0;
    if rounds.len() > most as usize || not_verified && !all_used {
        return wrong("a wrong number of rounds");
    }
    Ok(())
}

/// The sum of spent, possibly billed and reserved amounts stays below the ceilings, except for what
/// a provider bills beyond its quote.
pub fn check_ceilings(
    limits: &Limits,
    committed: NanoUsd,
    reserved: NanoUsd,
    tokens: u64,
    overrun: NanoUsd,
) -> Result<(), String> {
    if let Some(max) = limits.max_budget_usd {
        let max = NanoUsd::from_usd(max);
        if committed + reserved > max + overrun {
            return Err(format!("spent {committed} and reserved {reserved} of {max}"));
        }
    }
    if let Some(max) = limits.max_tokens
        && tokens > max
    {
        return Err(format!("{tokens} of {max} tokens used"));
    }
    Ok(())
}

/// The same for a run that has ended.
pub fn check_spent(limits: &Limits, outcome: &Outcome) -> Result<(), String> {
    let upper = outcome.cost_upper.unwrap_or(outcome.cost);
    let tokens = outcome.tokens_upper.unwrap_or(outcome.usage.total_tokens());
    if upper < outcome.cost || tokens < outcome.usage.total_tokens() {
        return Err(format!("{:?} is not an upper bound of {}", outcome.cost_upper, outcome.cost));
    }
    if !outcome.cost_unknown && outcome.cost_upper != Some(outcome.cost) {
        return Err(format!(
            "the known cost is {}, but its bound is {:?}",
            outcome.cost, outcome.cost_upper
        ));
    }
    let counted = match limits.max_tokens_counts {
        TokensCounted::All => tokens,
        counts => counts.of(&outcome.usage),
    };
    check_ceilings(limits, upper, NanoUsd::ZERO, counted, outcome.overrun)
}

/// A ceiling lowers a cap only if the call would not fit with the caller's cap, and then to the
/// largest cap that fits. `shared`: the rest of the shared budget when it was asked, in
/// nano-dollars and tokens.
pub fn quotes_exactly(
    limits: &Limits,
    price: Option<Price>,
    run: &Run,
    shared: Option<(u64, u64)>,
) -> Result<(), String> {
    let Some(quote) = run.call_quote() else { return Ok(()) };
    let CallQuote { own_cap, output_cap, lowered_by, prompt_bound, worst } = quote;
    let wrong =
        |what: &str| Err(format!("{what}: {quote:?}, {shared:?} left in the shared budget"));
    let (Some(own), Some(cap)) = (own_cap, output_cap) else {
        return if lowered_by.is_none() { Ok(()) } else { wrong("lowered, but without a cap") };
    };
    if cap > own || (cap < own) != lowered_by.is_some() {
        return wrong("the cap is not the caller's, but no ceiling lowered it");
    }
    let usd = limits.max_budget_usd.map(NanoUsd::from_usd);
    let usd = usd.map(|max| max.saturating_sub(run.committed()));
    let tokens = limits.max_tokens.map(|max| max.saturating_sub(run.committed_tokens()));
    let fits = |cap: u64| {
        let cost = price.filter(|_| worst.is_some()).map(|price| price.worst(prompt_bound, cap));
        let least_usd = usd.into_iter().chain(shared.map(|(usd, _)| NanoUsd(usd))).min();
        // A shared budget counts all tokens.
        let of_prompt = match limits.max_tokens_counts {
            TokensCounted::Output => 0,
            TokensCounted::All | TokensCounted::Uncached => prompt_bound,
        };
        cost.zip(least_usd).is_none_or(|(cost, left)| cost <= left)
            && tokens.is_none_or(|left| of_prompt.saturating_add(cap) <= left)
            && shared.is_none_or(|(_, left)| prompt_bound.saturating_add(cap) <= left)
    };
    if !fits(cap) {
        return wrong("the call does not fit");
    }
    // A call also leaves room for a hand-over.
    if lowered_by.is_some() && !limits.wrap_up && fits(cap + 1) {
        return wrong("the cap was lowered below what fits");
    }
    Ok(())
}

/// Compactions are rare: at most two per turn, and no proactive one after three consecutive
/// failures.
#[derive(Default)]
pub struct CompactionLaw {
    this_turn: u32,
    failed_in_a_row: u32,
    last: Option<EffectId>,
}

impl CompactionLaw {
    pub fn asked(&mut self, id: EffectId, forced: bool) -> Result<(), String> {
        // A compaction that was running when its process died is requested again.
        if self.last.replace(id) == Some(id) {
            return Ok(());
        }
        self.this_turn += 1;
        if self.this_turn > 2 {
            return Err("a third compaction in one turn".to_owned());
        }
        if !forced && self.failed_in_a_row >= CompactionSpec::default().max_failures {
            return Err(format!("compacted after {} failures in a row", self.failed_in_a_row));
        }
        Ok(())
    }

    pub fn heard(&mut self, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Emit(RunEvent::TurnFinished { .. }) => self.this_turn = 0,
                Effect::Emit(RunEvent::Compacted { .. }) => self.failed_in_a_row = 0,
                Effect::Emit(RunEvent::CompactionFailed { .. }) => self.failed_in_a_row += 1,
                _ => {}
            }
        }
    }
}

/// The text of a user's message to a live run in the random worlds.
pub const SAID: &str = "look at b";

/// A replaced conversation is at least a tenth shorter and contains what must be kept; otherwise
/// the conversation only grew at its end.
pub fn check_compaction(
    compacted: bool,
    switched: bool,
    (epoch, before): (u64, &[Message]),
    (next_epoch, after): (u64, &[Message]),
) -> Result<(), String> {
    if epoch == next_epoch {
        return match after.starts_with(before) {
            true => Ok(()),
            false => Err("the conversation changed within its epoch".to_owned()),
        };
    }
    // A switch to another model removes what only the earlier one can read, and nothing else.
    let removed = switched.then(|| without_opaque(before));
    if removed.is_some_and(|before| after.starts_with(&before)) {
        return check_history(after);
    }
    if !compacted && switched {
        return Err("the switch to another model changed more than opaque parts".to_owned());
    }
    if !compacted {
        return Err("a new epoch without a compaction".to_owned());
    }
    let bytes = |messages: &[Message]| messages.iter().map(Message::byte_len).sum::<u64>() as f64;
    // The same event can also lead to a message about the limits, or let a message of the user or the
    // result of a background call in that had to wait, at the end.
    let own = |message: &Message| {
        let text = message.plain_text();
        text.starts_with("This run ends now")
            || text.starts_with("Left in this run")
            || text == SAID
            || text.starts_with("Background call h")
    };
    let kept = after.iter().rposition(|message| !own(message)).map_or(0, |last| last + 1);
    let kept = bytes(&after[..kept]);
    if kept > bytes(before) * 0.9 {
        return Err(format!("{} bytes became {kept}", bytes(before)));
    }
    check_history(after)?;
    let lost = before.iter().find(|message| message.pinned && !after.contains(message));
    if lost.is_some() {
        return Err(format!("a pinned message is gone: {lost:?}"));
    }
    let pins = |messages: &[Message]| {
        let results = messages.iter().flat_map(Message::tool_results);
        results.filter(|result| result.pinned).count()
    };
    if pins(before) != pins(after) {
        return Err("a pinned result is gone".to_owned());
    }
    Ok(())
}

/// The result of a correct compactor: the task, pinned messages, and the open turn.
pub fn shortened(messages: Vec<Message>, task: Option<MessageId>) -> Vec<Message> {
    let open = history::open_from(&messages);
    let pinned =
        |message: &Message| message.pinned || message.tool_results().any(|result| result.pinned);
    let keeps: Vec<bool> = messages
        .iter()
        .enumerate()
        .map(|(at, message)| {
            let answers = messages.get(at + 1).filter(|_| message.tool_calls().next().is_some());
            at >= open || task == Some(message.id) || pinned(message) || answers.is_some_and(pinned)
        })
        .collect();
    messages
        .into_iter()
        .zip(keeps)
        .filter(|(_, keeps)| *keeps)
        .map(|(message, _)| message)
        .collect()
}

/// Every outcome has a valid conversation and a deciding component, and does not contradict itself. A
/// success has what it owes; `schema` is `true` if that includes a validated value.
pub fn check_outcome(outcome: &Outcome, schema: bool) -> Result<(), String> {
    let answer = outcome.answer();
    if outcome.is_success() {
        if schema && outcome.structured.is_none() {
            return Err(format!("{} without a validated value", outcome.termination));
        }
        if outcome.termination == Termination::Submitted && outcome.deliverable.is_none() {
            return Err("submitted without a deliverable".to_owned());
        }
        if answer.is_none_or(|answer| is_blank(visible_text(&answer))) {
            return Err(format!("{} with a blank answer", outcome.termination));
        }
    } else if answer.is_some() {
        return Err(format!("{} with an answer", outcome.termination));
    }
    check_history(&outcome.messages)?;
    for part in outcome.messages.iter().flat_map(|message| &message.parts) {
        if let Part::ToolResult(result) = part
            && (result.content.matches("not run:").count() > 1
                || result.content.contains("aborted: not run"))
        {
            return Err(format!("a call is answered with two reasons: {}", result.content));
        }
    }
    if outcome.also.contains(&outcome.termination) {
        return Err("`also` contains the termination itself".to_owned());
    }
    let evidence = !outcome.decided_by.decision.as_str().is_empty();
    if !evidence {
        return Err(format!("no layer decided {}", outcome.termination));
    }
    if outcome.termination == Termination::Stop && outcome.signal.is_none() {
        return Err("a stop without a signal".to_owned());
    }
    if outcome.termination == Termination::Stop {
        let reason = outcome.signal.as_ref().map(|signal| signal.reason);
        let never = [
            SignalReason::TokenLimitReached,
            SignalReason::ContentFiltered,
            SignalReason::ErrorTermination,
            SignalReason::InProgress,
            SignalReason::Paused,
        ];
        if reason.is_some_and(|reason| never.contains(&reason)) {
            return Err(format!("{reason:?} ended as stop"));
        }
    }
    let halted = outcome.termination == Termination::ErrorHalted;
    if halted && outcome.halted_reason.is_none() {
        return Err("halted without a reason".to_owned());
    }
    Ok(())
}

/// The rule of both providers: every call is answered in the next message, once, and by nothing
/// else.
pub fn check_history(messages: &[Message]) -> Result<(), String> {
    let mut ids = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        if !ids.insert(message.id) {
            return Err(format!("message id {:?} twice", message.id));
        }
        let says = message.parts.iter().any(|part| match part {
            Part::Text { text } => !text.trim().is_empty(),
            Part::Reasoning { .. } => false,
            _ => true,
        });
        if !says {
            return Err(format!("message {at} is empty"));
        }
        let calls: Vec<&str> = message.tool_calls().map(|call| call.id.as_str()).collect();
        let unique: HashSet<&&str> = calls.iter().collect();
        if unique.len() != calls.len() {
            return Err(format!("message {at} has a call id twice"));
        }
        let results: Vec<&str> = message
            .parts
            .iter()
            .filter_map(|part| match part {
                Part::ToolResult(result) => Some(result.call_id.as_str()),
                _ => None,
            })
            .collect();
        if !calls.is_empty() && message.role != Role::Assistant {
            return Err(format!("message {at} has calls, but its role is {:?}", message.role));
        }
        if !results.is_empty() && message.role != Role::Tool {
            return Err(format!("message {at} has results, but its role is {:?}", message.role));
        }
        if !calls.is_empty() {
            let next = messages.get(at + 1);
            let answers: Vec<&str> = next
                .filter(|next| next.role == Role::Tool)
                .map(|next| {
                    next.parts
                        .iter()
                        .filter_map(|part| match part {
                            Part::ToolResult(result) => Some(result.call_id.as_str()),
                            _ => None,
                        })
                        .collect()
                })
                .unwrap_or_default();
            if answers != calls {
                return Err(format!("message {at} asks for {calls:?}, answered are {answers:?}"));
            }
        }
        if message.role == Role::Tool
            && (at == 0 || messages[at - 1].tool_calls().count() != results.len())
        {
            return Err(format!("message {at} answers what was not asked"));
        }
    }
    if messages.first().is_none_or(|first| first.role != Role::User) {
        return Err("the history does not begin with the user".to_owned());
    }
    Ok(())
}

/// Without a reset in sight no call is made: the law of `max_window`.
#[derive(Debug, Default)]
pub struct WindowLaw {
    wall_ms: u64,
    /// The last report of each window that is used up, by its length: its reset in Unix milliseconds.
    closed: BTreeMap<u32, u64>,
}

impl WindowLaw {
    pub fn new(wall_ms: u64, events: &[Event]) -> WindowLaw {
        // A resumed run has another wall clock, which these worlds do not set.
        let resumed = events.iter().any(|event| matches!(event.kind, EventKind::Resumed(_)));
        WindowLaw { wall_ms: if resumed { 0 } else { wall_ms }, ..WindowLaw::default() }
    }

    /// Hears an event at this time of the run, and its effects.
    pub fn heard(
        &mut self,
        limits: &Limits,
        event: &EventKind,
        effects: &[Effect],
        now: Duration,
    ) -> Result<(), String> {
        let Some(shares) = limits.max_window.filter(|_| self.wall_ms > 0) else { return Ok(()) };
        let now = self.wall_ms + now.as_millis() as u64;
        if let EventKind::Windows { windows } = event {
            for window in windows {
                let used_up =
                    shares.of(window.minutes).is_some_and(|most| window.used >= most.into());
                let length = u64::from(window.minutes) * 60_000;
                match window.resets_at.and_then(|at| at.checked_mul(1000)) {
                    Some(at) if used_up && at > now && at <= now + length => {
                        let until = self.closed.entry(window.minutes).or_default();
                        *until = at.max(*until);
                    }
                    // What cannot be right opens or closes windows as the kernel decides.
                    _ => drop(self.closed.remove(&window.minutes)),
                }
            }
        }
        // A reservation is for a call that was decided before the report.
        let decided = matches!(event, EventKind::Reserved { .. });
        let calls = effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. }));
        match self.closed.iter().find(|(_, until)| now < **until) {
            Some((minutes, until)) if calls && !decided => Err(format!(
                "a call at {now}, but the window of {minutes} min is closed until {until}"
            )),
            _ => Ok(()),
        }
    }
}

/// No call is made while the spending of the last minute or hour has reached a rate: the law of `max_rate`.
#[derive(Debug, Default)]
pub struct RateLaw {
    /// The spending of the run at each time at which it changed: nano-dollars and tokens.
    spent: Vec<(Duration, u64, u64)>,
    resumed: bool,
}

impl RateLaw {
    pub fn new(events: &[Event], deaths: &[usize]) -> RateLaw {
        // The time at which a call was lost is not in the events that follow.
        RateLaw { resumed: !events.is_empty() || !deaths.is_empty(), ..RateLaw::default() }
    }

    /// Hears an event, its effects, and what the run has spent after it.
    pub fn heard(
        &mut self,
        limits: &Limits,
        event: &EventKind,
        effects: &[Effect],
        run: &Run,
    ) -> Result<(), String> {
        self.resumed |= matches!(event, EventKind::Resumed(_));
        let now = run.elapsed();
        let (usd, tokens) = (run.spent().0, run.usage().total_tokens());
        let rates = limits.max_rate.filter(|_| !self.resumed);
        if rates.is_none() {
            // A rate counts from the time at which it is set.
            self.spent.clear();
        }
        if self.spent.last().is_none_or(|last| (last.1, last.2) != (usd, tokens)) {
            self.spent.push((now, usd, tokens));
        }
        let Some(rates) = rates else { return Ok(()) };
        // A reservation is for a call that was decided before, and the others count other tokens.
        let decided = matches!(event, EventKind::Reserved { .. });
        let calls = effects.iter().any(|effect| matches!(effect, Effect::CallModel { .. }));
        if !calls || decided || limits.max_tokens_counts != TokensCounted::All {
            return Ok(());
        }
        let since = |length: u64| {
            let from = now.checked_sub(Duration::from_secs(length));
            let before = self.spent.iter().rfind(|one| from.is_some_and(|from| one.0 <= from));
            let before = before.or(self.spent.first()).copied();
            let (_, usd_before, tokens_before) = before.unwrap_or_default();
            [usd - usd_before, tokens - tokens_before]
        };
        let (minute, hour) = (since(60), since(3600));
        for (text, spent) in
            [("$/m", minute[0]), ("$/h", hour[0]), (" tokens/m", minute[1]), (" tokens/h", hour[1])]
        {
            let unit = if text.starts_with('$') { "$1" } else { "1" };
            let spelled = rates.to_string();
            let most = spelled.split(',').find_map(|rate| {
                let amount = rate.strip_suffix(text.trim_start_matches('$'))?;
                match (amount.strip_prefix('$'), unit) {
                    (Some(usd), "$1") => usd.parse().ok().map(|usd| NanoUsd::from_usd(usd).0),
                    (None, "1") => amount.parse().ok(),
                    _ => None,
                }
            });
            if most.is_some_and(|most: u64| spent >= most) {
                return Err(format!("a call at {now:?} with {spent} of {spelled} spent"));
            }
        }
        Ok(())
    }
}

/// No more tool calls start than the limits permit, in all and of each tool.
#[derive(Debug, Default)]
pub struct StartedLaw {
    all: u32,
    of: BTreeMap<String, u32>,
    /// A resumed run repeats calls, which do not count again.
    resumed: bool,
}

impl StartedLaw {
    pub fn new(events: &[Event]) -> StartedLaw {
        StartedLaw { resumed: !events.is_empty(), ..StartedLaw::default() }
    }

    pub fn heard(
        &mut self,
        limits: &Limits,
        tools: &[ToolPolicy],
        event: &EventKind,
        effects: &[Effect],
    ) -> Result<(), String> {
        self.resumed |= matches!(event, EventKind::Resumed(_));
        let starts = effects.iter().filter_map(|effect| match effect {
            Effect::StartTools { calls } => Some(calls),
            _ => None,
        });
        for start in starts.flatten() {
            let name = &start.call.name;
            self.all += 1;
            let own = self.of.entry(name.clone()).or_default();
            *own += 1;
            let most = tools.iter().find(|tool| tool.name == *name).and_then(|tool| tool.max_calls);
            let over = limits.max_tool_calls.is_some_and(|most| self.all > most)
                || most.is_some_and(|most| *own > most);
            if over && !self.resumed {
                return Err(format!("call {} was started, and {own} of `{name}`", self.all));
            }
        }
        Ok(())
    }
}
