//! The rules of guest runs one by one: provisional endings, calls of the client, ceilings, and the
//! end of the loop.

mod ceilings;
mod nested;

use crate::world::all_of;
use endstop_core::guest::{Admission, GuestReply, GuestStart, Spending};
use endstop_core::*;
use std::sync::Arc;
use std::time::Duration;

/// A client that is driven by hand.
struct Client {
    guest: Guest,
    now: Duration,
    call: EffectId,
}

fn limits() -> Limits {
    Limits { max_unproductive_turns: Some(3), ..Limits::default() }
}

fn spec(limits: Limits, mode: GuestMode) -> RunSpec {
    let question = Message::text(MessageId(1), Role::User, "What is the capital of France?");
    RunSpec { limits, guest: Some(mode), ..RunSpec::new(vec![question]) }
}

fn observer(limits: Limits) -> Client {
    Client::of(spec(limits, GuestMode::default()), None)
}

impl Client {
    fn of(spec: RunSpec, price: Option<Price>) -> Client {
        let start = GuestStart { seed: 7, price, record: true, ..GuestStart::default() };
        let guest = Guest::new(spec, start);
        Client { guest, now: Duration::ZERO, call: EffectId::default() }
    }

    /// Asks for a call with this many bytes of prompt, which must be admitted.
    fn ask(&mut self, bytes: u64) -> &mut Client {
        self.ask_with(GuestCall { prompt_bytes: bytes, ..GuestCall::default() })
    }

    fn ask_with(&mut self, call: GuestCall) -> &mut Client {
        self.now += Duration::from_millis(10);
        match self.guest.ask(self.now, call) {
            Admission::Go { call, .. } => self.call = call,
            refused => panic!("not admitted: {refused:?}"),
        }
        self
    }

    fn refused(&mut self, call: GuestCall) -> Arc<Outcome> {
        match self.guest.ask(self.now, call) {
            Admission::Stop(outcome) => outcome,
            admitted => panic!("admitted: {admitted:?}"),
        }
    }

    fn turn(&mut self, turn: ModelTurn) -> GuestReply {
        self.now += Duration::from_millis(10);
        self.guest.turn(self.now, self.call, turn)
    }

    fn result(&mut self, id: &str, content: &str) -> GuestReply {
        self.guest.result(self.now, id, ToolReport::new(ToolStatus::Ok, content))
    }

    fn provisional(&self) -> Option<Termination> {
        Some(self.guest.run()?.provisional()?.0)
    }

    fn close(&mut self, ok: bool) -> Arc<Outcome> {
        self.guest.close(self.now, ok, if ok { "" } else { "exit status 1" })
    }
}

fn text(text: &str, reason: SignalReason) -> ModelTurn {
    let signal =
        TerminationSignal::new(reason, Confidence::High).from_field("finish", reason.as_str());
    let mut turn = ModelTurn::new(vec![Part::Text { text: text.to_owned() }], signal);
    turn.usage = Usage { input_tokens: Some(10), output_tokens: Some(5), ..Usage::default() };
    turn
}

fn answer(said: &str) -> ModelTurn {
    text(said, SignalReason::NaturalCompletion)
}

fn call(id: &str, name: &str, arguments: &str) -> Part {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_owned());
    Part::ToolCall(ToolCall { id, name, arguments })
}

fn calls(ids: &[&str]) -> ModelTurn {
    let parts = ids.iter().map(|id| call(id, "anything", "{}")).collect();
    ModelTurn { parts, ..text("", SignalReason::ToolUse) }
}

fn result_of(id: &str, content: &str) -> Message {
    let result = ToolResult {
        call_id: id.to_owned(),
        name: "anything".to_owned(),
        status: ToolStatus::Ok,
        content: content.to_owned(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    };
    Message::new(MessageId(0), Role::Tool, vec![Part::ToolResult(result)])
}

fn results(outcome: &Outcome) -> Vec<(ToolStatus, &str)> {
    let all = outcome.messages.iter().flat_map(|message| message.tool_results());
    all.map(|result| (result.status, result.content.as_str())).collect()
}

#[test]
fn answer_is_provisional_until_closed() {
    let mut client = observer(limits());
    assert_eq!(client.ask(100).turn(answer("I have started two agents.")), GuestReply::Continue);
    assert_eq!(client.provisional(), Some(Termination::Stop));
    // A background agent reports, and the loop calls the model once more.
    client.ask(200);
    assert_eq!(client.provisional(), None);
    client.turn(answer("Paris."));
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!((outcome.turns, outcome.last_text.as_deref()), (2, Some("Paris.")));
}

#[test]
fn loop_that_fails_is_not_success() {
    let mut client = observer(limits());
    client.ask(100).turn(answer("Paris."));
    let outcome = client.close(false);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.decided_by.decision, Decision::Closed);
    assert!(outcome.decided_by.evidence.contains("exit status 1"), "{}", outcome.decided_by);
    assert_eq!(outcome.last_text.as_deref(), Some("Paris."), "the answer is kept");
}

#[test]
fn defective_responses_are_never_success() {
    let lost = ModelTurn { call_missing: true, ..answer("Let me look.") };
    let cut = ModelTurn { finish_missing: true, ..answer("The answer is probab") };
    let broken = ModelTurn { unparseable: Some("bad".to_owned()), ..answer("") };
    for (turn, ending) in [
        (text("Par", SignalReason::TokenLimitReached), Termination::ErrorOutputTruncated),
        (text("", SignalReason::TokenLimitReached), Termination::ErrorThinkingStarved),
        (text("No.", SignalReason::ContentFiltered), Termination::ErrorContentFiltered),
        (text("Paris.", SignalReason::Unknown), Termination::ErrorDuringExecution),
        (text("Hm.", SignalReason::Paused), Termination::ErrorDuringExecution),
        (text("", SignalReason::ErrorTermination), Termination::ErrorDuringExecution),
        (answer(" "), Termination::ErrorNoProgress),
        (answer("<think>I should look at the fi"), Termination::ErrorSchemaValidation),
        (broken, Termination::ErrorSchemaValidation),
        (lost, Termination::ErrorSchemaValidation),
        (cut, Termination::ErrorDuringExecution),
    ] {
        for inject in [false, true] {
            let mut client =
                Client::of(spec(limits(), GuestMode { inject, ..GuestMode::default() }), None);
            assert_eq!(client.ask(100).turn(turn.clone()), GuestReply::Continue, "{turn:?}");
            let told = client
                .guest
                .effects()
                .iter()
                .any(|effect| matches!(effect, Effect::Emit(RunEvent::MessageInjected { .. })));
            assert!(inject || !told, "nothing is sent to the model");
            assert_eq!(client.provisional(), Some(ending), "{turn:?}");
            assert_eq!(client.close(true).termination, ending, "{turn:?}");
        }
    }
}

#[test]
fn failed_attempt_waits_for_the_client() {
    let mut client = observer(limits());
    client.ask(100);
    let error = ModelError::new(ErrorClass::Overloaded, "try later");
    let partial = Some(Box::new(text("Par", SignalReason::InProgress)));
    let reply = client.guest.failed(client.now, client.call, error, partial);
    assert_eq!(reply, GuestReply::Continue);
    assert_eq!(client.provisional(), Some(Termination::ErrorDuringExecution));
    let again = GuestCall { prompt_bytes: 100, attempt_of_previous: true, ..GuestCall::default() };
    client.ask_with(again).turn(answer("Paris."));
    let outcome = client.close(true);
    assert_eq!((outcome.turns, outcome.model_calls), (1, 2));
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(outcome.messages.len(), 2, "the text of the failed attempt is not sent back");
}

/// Fails calls, `every` apart, until the run ends; returns their number.
fn fail_until_the_end(
    client: &mut Client,
    every: Duration,
    error: impl Fn(u32) -> ModelError,
) -> u32 {
    for number in 1..=100 {
        client.ask(100);
        let reply = client.guest.failed(client.now, client.call, error(number), None);
        if matches!(reply, GuestReply::Stop(_)) {
            return number;
        }
        client.now += every;
    }
    panic!("100 failed calls did not end the run");
}

#[test]
fn failed_calls_in_a_row_end_the_run() {
    for class in ErrorClass::ALL {
        let most = match class {
            ErrorClass::Authentication | ErrorClass::Permission | ErrorClass::QuotaExhausted => 2,
            ErrorClass::IncompleteStream => 6,
            _ => 20,
        };
        let mut client = observer(limits());
        // A turn begins the count again.
        for _ in 1..most {
            client.ask(100);
            let error = ModelError::new(class, "no");
            assert_eq!(
                client.guest.failed(client.now, client.call, error, None),
                GuestReply::Continue
            );
        }
        client.ask(100);
        client.turn(answer("one"));
        let made = fail_until_the_end(&mut client, Duration::from_secs(1), |_| {
            ModelError::new(class, "no")
        });
        assert_eq!(made, most, "{class}");
        let outcome = client.close(true);
        assert_eq!((outcome.termination, outcome.turns), (class.termination(), 1), "{class}");
        assert_eq!(outcome.decided_by.decision, Decision::CallFailed(class));
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.starts_with(&format!("{most} calls in a row failed: ")), "{evidence}");
    }
}

#[test]
fn endless_reasoning_ends_the_run() {
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    // By a tick, or without one at the next piece.
    for ticks in [true, false] {
        let mut client = observer(Limits { thinking_timeout: Some(minutes(10)), ..Limits::none() });
        client.ask_with(GuestCall { streaming: true, ..GuestCall::default() });
        let start = client.now;
        let think = |client: &mut Client| {
            let delta = TurnDelta::Reasoning(9);
            client.guest.delta(client.now, client.call, delta)
        };
        for minute in 0..10 {
            client.now = start + minutes(minute);
            assert_eq!(think(&mut client), GuestReply::Continue, "minute {minute}");
        }
        client.now = start + minutes(10);
        let due = client.guest.wake_at();
        assert_eq!(due, Some(client.now));
        let reply = if ticks { client.guest.tick(client.now) } else { think(&mut client) };
        let GuestReply::Stop(outcome) = reply else { panic!("the run continues: {reply:?}") };
        assert_eq!(outcome.termination, Termination::ErrorThinkingStarved);
        assert_eq!(outcome.decided_by.decision, Decision::Limit(limits::Limit::ThinkingTimeout));
    }
    // Visible output begins the time again, and a whole response has none.
    let mut client = observer(Limits::default());
    client.ask_with(GuestCall { streaming: true, ..GuestCall::default() });
    for minute in 0..40 {
        client.now += minutes(minute % 3);
        let delta =
            if minute % 8 == 7 { TurnDelta::ToolArguments(1) } else { TurnDelta::Reasoning(1) };
        assert_eq!(client.guest.delta(client.now, client.call, delta), GuestReply::Continue);
    }
}

#[test]
fn refusals_in_a_row_end_the_run() {
    let refused = || text("no", SignalReason::ContentFiltered);
    // With the same request or another one.
    for same in [false, true] {
        let mut client = observer(limits());
        client.ask(100);
        client.turn(refused());
        client.ask_with(GuestCall { attempt_of_previous: same, ..GuestCall::default() });
        let reply = client.guest.turn(client.now, client.call, refused());
        let GuestReply::Stop(outcome) = reply else { panic!("it continues: {reply:?}") };
        assert_eq!(outcome.termination, Termination::ErrorContentFiltered);
        assert_eq!(outcome.decided_by.decision, Decision::ContentFiltered);
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.starts_with("2 responses in a row were refused: "), "{evidence}");
    }
    // A person who asks for something else begins the count again, and so does another response.
    let mut client = observer(limits());
    for _ in 0..4 {
        client.ask_with(GuestCall { attended: true, ..GuestCall::default() });
        client.turn(refused());
    }
    client.ask(100);
    client.turn(answer("yes"));
    client.ask(100);
    client.turn(refused());
    assert!(client.guest.run().is_some());
}

#[test]
fn classes_of_failed_calls_share_their_count() {
    // Two in turn do not begin the count again, and a refused key counts as such after another failure.
    let mut client = observer(limits());
    let made = fail_until_the_end(&mut client, Duration::from_secs(1), |number| {
        let class =
            if number % 2 == 0 { ErrorClass::ServerError } else { ErrorClass::IncompleteStream };
        ModelError::new(class, "no")
    });
    assert_eq!(made, 20);
    let mut client = observer(limits());
    let made = fail_until_the_end(&mut client, Duration::from_secs(1), |number| {
        let class = if number == 1 { ErrorClass::Overloaded } else { ErrorClass::Authentication };
        ModelError::new(class, "no")
    });
    assert_eq!(made, 3);
}

#[test]
fn failed_calls_end_the_run_after_ten_minutes_of_them() {
    let overloaded = |_| ModelError::new(ErrorClass::Overloaded, "no");
    let mut client = observer(limits());
    assert_eq!(fail_until_the_end(&mut client, Duration::from_secs(60), overloaded), 11);
    // A person who comes back later does not repeat the earlier call.
    let mut client = observer(limits());
    assert_eq!(fail_until_the_end(&mut client, Duration::from_secs(3600), overloaded), 20);
    // A client that waits as long as the provider asks.
    let mut client = observer(limits());
    let made = fail_until_the_end(&mut client, Duration::from_secs(100), |_| ModelError {
        retry_after_ms: Some(100_000),
        ..ModelError::new(ErrorClass::RateLimit, "no")
    });
    assert_eq!(made, 20);
}

#[test]
fn turns_in_flight_elsewhere_count_for_admission() {
    let limits = Limits { max_turns: Some(3), ..limits() };
    let call = |turns_in_flight| GuestCall { turns_in_flight, ..GuestCall::default() };
    let mut client = observer(limits.clone());
    client.ask_with(call(2)).turn(answer("one"));
    // They were refused meanwhile, so that they were no turns.
    client.ask_with(call(0)).turn(answer("two"));
    let outcome = client.refused(call(1));
    assert_eq!((outcome.termination, outcome.turns), (Termination::ErrorMaxTurns, 2));
    assert_eq!(outcome.decided_by.evidence, "3 of 3 turns");
    assert_eq!(observer(limits).refused(call(u32::MAX)).termination, Termination::ErrorMaxTurns);
}

#[test]
fn equal_request_replaces_the_turn_twice() {
    let again = || GuestCall { attempt_of_previous: true, ..GuestCall::default() };
    let mut client = observer(limits());
    client.ask(100).turn(answer("one"));
    for (said, turns) in [("two", 1), ("three", 1), ("four", 2), ("five", 2), ("six", 2)] {
        client.ask_with(again()).turn(answer(said));
        assert_eq!(client.guest.run().unwrap().turns(), turns, "{said}");
    }
    client.ask_with(again()).turn(answer("seven"));
    let outcome = client.close(true);
    // A client that repeats itself for ever reaches `max_turns`.
    assert_eq!((outcome.turns, outcome.model_calls), (3, 7));
    let said: Vec<String> = outcome.messages.iter().map(Message::plain_text).skip(1).collect();
    assert_eq!(said, ["three", "six", "seven"]);
}

#[test]
fn repeated_request_after_tools_is_a_turn() {
    let mut client = observer(limits());
    for turn in 1..=3 {
        let attempt_of_previous = turn > 1;
        client.ask_with(GuestCall { attempt_of_previous, ..GuestCall::default() });
        client.turn(calls(&["a"]));
        client.result("a", &format!("{turn}"));
    }
    assert_eq!(client.close(true).turns, 3);
}

#[test]
fn any_tool_is_released_at_once() {
    let mut client = observer(limits());
    let mut turn = calls(&["a", "b"]);
    turn.parts.push(call("c", "finish", r#"{"deliverable":"mine"}"#));
    turn.parts.push(call("d", "write", "{broken"));
    let GuestReply::Tools(released) = client.ask(100).turn(turn) else { panic!("no calls") };
    let ids: Vec<&str> = released.iter().map(|call| call.id.as_str()).collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
    for id in ["d", "b", "a", "c"] {
        client.result(id, "done");
    }
    assert_eq!(client.provisional(), None);
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "no answer");
    assert!(outcome.decided_by.evidence.contains("before the model gave an answer"));
    assert_eq!((outcome.tool_calls, outcome.deliverable.as_ref()), (4, None));
}

#[test]
fn cut_calls_are_not_released() {
    let mut client = observer(Limits { max_consecutive_mistakes: Some(2), ..limits() });
    let cut = || {
        let parts = vec![call("a", "shell", r#"{"command":"rm -r build"}"#)];
        ModelTurn { parts, ..text("", SignalReason::TokenLimitReached) }
    };
    assert_eq!(client.ask(100).turn(cut()), GuestReply::Continue);
    assert_eq!(client.guest.run().unwrap().open_tool("a"), None);
    // The client runs the call all the same, and reports it with its next request.
    let input = vec![result_of("a", "removed")];
    client.ask_with(GuestCall { input, prompt_bytes: 200, ..GuestCall::default() });
    client.turn(cut());
    let outcome = client.refused(GuestCall::default());
    assert_eq!(outcome.termination, Termination::ErrorConsecutiveMistakes);
    let results = results(&outcome);
    assert_eq!(results[0], (ToolStatus::Ok, "removed"));
    assert!(results[1].1.contains("may have run"), "{results:?}");
}

#[test]
fn open_calls_are_answered_by_the_next_call() {
    let mut client = observer(limits());
    client.ask(100).turn(calls(&["a", "b", "c"]));
    client.result("b", "by the framework");
    let input = vec![result_of("a", "by the request"), result_of("x", "an orphan")];
    client.ask_with(GuestCall { input, prompt_bytes: 300, ..GuestCall::default() });
    client.turn(answer("Paris."));
    let outcome = client.close(true);
    let results = results(&outcome);
    assert_eq!(results[0], (ToolStatus::Ok, "by the request"));
    assert_eq!(results[1], (ToolStatus::Ok, "by the framework"));
    assert_eq!(results[2].0, ToolStatus::Aborted);
    assert!(results[2].1.contains("may have run"));
    assert_eq!(results.len(), 3);
    assert_eq!(history::problem(&outcome.messages), None);
}

#[test]
fn close_names_what_was_open() {
    let mut client = observer(limits());
    client.ask(100).turn(calls(&["a", "b"]));
    client.result("a", "done");
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("open tool calls (anything)"));
    let mut client = observer(limits());
    client.ask(100);
    client.guest.delta(client.now, client.call, TurnDelta::Text("Par".to_owned()));
    let outcome = client.close(true);
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("in the middle of its response"));
    assert_eq!(outcome.last_text.as_deref(), Some("Par"));
}

#[test]
fn repeated_calls_end_without_progress() {
    let mut client = observer(limits());
    for bytes in 1..=4 {
        client.ask(100 * bytes).turn(calls(&["a"]));
        client.result("a", "the same");
    }
    let outcome = client.refused(GuestCall::default());
    assert_eq!(outcome.termination, Termination::ErrorNoProgress);
    assert!(outcome.no_progress_snapshot.is_some());
    // Results that are not known prove no repetition.
    let mut client = observer(limits());
    for bytes in 1..=9 {
        client.ask(100 * bytes).turn(calls(&["a"]));
    }
}

#[test]
fn second_call_abandons_the_first() {
    let mut client = observer(limits());
    client.ask(400);
    let first = client.call;
    client.guest.delta(client.now, first, TurnDelta::Text("Par".to_owned()));
    client.ask(800);
    let aborted = |effect: &Effect| *effect == Effect::AbortModel { id: first };
    assert!(client.guest.effects().iter().any(aborted));
    // A late delta of the first call is not part of the second.
    client.guest.delta(client.now, first, TurnDelta::Text("late".to_owned()));
    client.turn(answer("Paris."));
    let outcome = client.close(true);
    assert_eq!((outcome.turns, outcome.model_calls), (1, 2));
    assert!(outcome.usage.estimated, "the first call is booked by an estimate");
    assert_eq!(outcome.last_text.as_deref(), Some("Paris."));
}

#[test]
fn deadline_keeps_a_finished_answer() {
    let timed = || Limits { timeout: Some(Duration::from_secs(1)), ..limits() };
    let mut client = observer(timed());
    client.ask(100).turn(answer("Paris."));
    assert_eq!(client.guest.wake_at(), Some(Duration::from_secs(1)));
    let GuestReply::Stop(outcome) = client.guest.tick(Duration::from_secs(1)) else {
        panic!("the deadline ends the run")
    };
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(outcome.also, [Termination::ErrorTimeout]);
    // A loop that continues had no answer.
    let mut client = observer(timed());
    client.ask(100).turn(answer("Paris."));
    client.now = Duration::from_secs(2);
    let outcome = client.refused(GuestCall::default());
    assert_eq!(outcome.termination, Termination::ErrorTimeout);
    // A deadline that passed without a tick.
    let mut client = observer(timed());
    client.ask(100);
    client.now = Duration::from_secs(2);
    assert_eq!(client.close(true).termination, Termination::ErrorTimeout);
}

#[test]
fn caller_ends_the_run_at_once() {
    let mut client = observer(limits());
    client.ask(100).turn(calls(&["a"]));
    let GuestReply::Stop(outcome) = client.guest.cancel(client.now) else { panic!("cancelled") };
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(!client.guest.effects().iter().any(|e| matches!(e, Effect::AbortTools { .. })));
    assert_eq!(client.close(true), outcome);
    // A guest that stops tools itself has the grace period.
    let mode = GuestMode { clocks: true, ..GuestMode::default() };
    let mut client = Client::of(spec(limits(), mode), None);
    client.ask(100).turn(calls(&["a"]));
    assert_eq!(client.guest.cancel(client.now), GuestReply::Continue);
    assert!(client.guest.effects().iter().any(|e| matches!(e, Effect::AbortTools { .. })));
    let GuestReply::Stop(outcome) = client.result("a", "done") else { panic!("nothing runs") };
    assert_eq!(outcome.termination, Termination::Cancelled);
}

#[test]
fn fault_of_the_driver_keeps_an_answer() {
    let mut client = observer(limits());
    client.ask(100);
    let outcome = client.guest.fault(client.now, "mine", "ValueError: x");
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.error_diagnostic.as_deref(), Some("ValueError: x"));
    let mut client = observer(limits());
    client.ask(100).turn(answer("Paris."));
    let outcome = client.guest.fault(client.now, "mine", "ValueError: x");
    assert_eq!(outcome.termination, Termination::Stop);
    assert_eq!(outcome.also, [Termination::ErrorDuringExecution]);
}

#[test]
fn outranked_rule_decides_if_the_guest_continues() {
    // The rule objects to the calls, and the text of the same run is an answer.
    let watch = Watch { rule: detector::Rule::SameText { times: 2 }, mode: WatchMode::Stop };
    let spec = RunSpec { watches: vec![watch], ..spec(limits(), GuestMode::default()) };
    let mut client = Client::of(spec, None);
    client.ask(100).turn(answer("Paris."));
    client.ask(200);
    let stopped = match client.turn(answer("Paris.")) {
        GuestReply::Stop(outcome) => outcome,
        _ => client.refused(GuestCall::default()),
    };
    assert!(!stopped.is_success() && stopped.fired.len() == 1, "{}", stopped.decided_by);
    assert_eq!(stopped.decided_by.layer, Layer::Policy);
}

#[test]
fn kernel_retries_if_the_guest_can() {
    let mode = GuestMode { retry: true, ..GuestMode::default() };
    let mut client = Client::of(spec(limits(), mode), None);
    client.ask(100);
    let error = ModelError::new(ErrorClass::Overloaded, "try later");
    assert_eq!(client.guest.failed(client.now, client.call, error, None), GuestReply::Continue);
    let wake = client.guest.wake_at().expect("the retry is scheduled");
    let GuestReply::Again(Admission::Go { call, attempt: 2, .. }) = client.guest.tick(wake) else {
        panic!("the second attempt")
    };
    (client.call, client.now) = (call, wake);
    client.turn(answer("Paris."));
    assert_eq!(client.close(true).termination, Termination::Stop);
}

#[test]
fn debug_shows_no_content() {
    let mut client = observer(limits());
    let input = vec![Message::user("the key is sk-secret")];
    client.ask_with(GuestCall { input, ..GuestCall::default() });
    client.guest.delta(client.now, client.call, TurnDelta::Text("sk-secret".to_owned()));
    assert_eq!(format!("{:?}", client.guest), r#"Guest { phase: "calling", turns: 0, .. }"#);
    client.close(false);
    let shown = r#"Guest { termination: "error_during_execution", turns: 0, .. }"#;
    assert_eq!(format!("{:?}", client.guest), shown);
}

#[test]
fn guest_moves_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Guest>();
    assert!(size_of::<Run>() == size_of::<usize>(), "one pointer");
}

#[test]
fn events_of_guests_keep_their_form() {
    let call = GuestCall { prompt_bytes: 7, streaming: true, ..GuestCall::default() };
    let asked = Event::new(Duration::ZERO, EventKind::Asked { call: Box::new(call) });
    let text = r#"{"at":{"secs":0,"nanos":0},"event":"asked","call":{"input":[],"prompt_bytes":7,"streaming":true}}"#;
    assert_eq!(serde_json::to_string(&asked).unwrap(), text);
    assert_eq!(serde_json::from_str::<Event>(text).unwrap(), asked);
    let text = r#"{"at":{"secs":1,"nanos":0},"event":"closed","ok":true,"detail":""}"#;
    let closed = EventKind::Closed { ok: true, detail: String::new(), ended_as: None };
    let closed = Event::new(Duration::from_secs(1), closed);
    assert_eq!(serde_json::to_string(&closed).unwrap(), text);
    assert_eq!(serde_json::from_str::<Event>(text).unwrap(), closed);
    // No turns and no guest are not written.
    let old =
        r#"{"at":{"secs":0,"nanos":0},"event":"spent","usage":{},"cost":5,"cost_unknown":false}"#;
    let event: Event = serde_json::from_str(old).unwrap();
    assert!(matches!(event.kind, EventKind::Spent(Spending { turns: 0, .. })));
    assert!(!serde_json::to_string(&event).unwrap().contains("turns"));
    let own = serde_json::to_string(&RunSpec::default()).unwrap();
    assert!(!own.contains("guest"));
    assert_eq!(serde_json::from_str::<RunSpec>(&own).unwrap().guest, None);
}

#[test]
fn limits_without_effect_are_refused() {
    use limits::{InGuest, LimitRow, TABLE};
    let all = GuestMode {
        inject: true,
        retry: true,
        clocks: true,
        capped: true,
        waits: true,
        ..GuestMode::default()
    };
    let set = |row: &LimitRow| {
        let mut limits = Limits::none();
        let value = match row.unit {
            limits::Unit::Switch => serde_json::json!(true),
            limits::Unit::Time => serde_json::json!("7s"),
            limits::Unit::Rates => serde_json::json!("$7/h"),
            _ => serde_json::json!(7),
        };
        limits.set(row.name, &value).is_ok().then_some(limits)
    };
    for row in &TABLE {
        // A row that takes words has the same effect on every guest.
        let Some(limits) = set(row) else {
            assert_eq!(row.in_guest, InGuest::Always, "{}", row.name);
            continue;
        };
        let refused = |mode: GuestMode| mode.check(&limits).err().map(|error| error.key);
        let never = (row.in_guest == InGuest::Never).then(|| row.name.to_owned());
        assert_eq!(refused(all), never, "a guest with all capabilities");
        let observer = (row.in_guest != InGuest::Always).then(|| row.name.to_owned());
        assert_eq!(refused(GuestMode::default()), observer, "a guest that observes");
    }
    assert_eq!(GuestMode::default().check(&Limits::default()), Ok(()));
    assert_eq!(GuestMode::default().check(&Limits::none()), Ok(()));
}
