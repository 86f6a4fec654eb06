//! Tests the reader for Copilot CLI.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::read::{Options, ProblemKind};
use endstop_trajectory::{Role, Step, Trajectory};
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_manual_count() {
    let run = runs("copilot/atifmake_copilot-cli.jsonl").remove(0);
    assert_eq!(counts(&run), [3, 2, 2, 2, 0]);
    assert_eq!(run.model.as_deref(), Some("claude-sonnet-4.6"));
    assert_eq!(ending(&run), Some(("final", Some("assistant.turn_end"))));
    let answer = run.ending.as_ref().unwrap().answer.as_deref();
    assert_eq!(answer, Some("Two entries; the README is a project header."));
    let turn = &run.steps[1];
    assert_eq!(turn.text, "Working on it.", "once, though it was streamed before");
    assert_eq!(turn.reasoning.as_deref(), Some("I should run two tools."));
    assert_eq!(turn.usage.as_ref().unwrap().completion_tokens, Some(42));
    let results: Vec<_> =
        turn.results.iter().map(|r| (r.call_id.as_deref().unwrap(), &*r.content)).collect();
    assert_eq!(results, [("call_b", "# Project"), ("call_a", "README.md\nsrc")]);
    assert_eq!(run.notes.len(), 1, "{:?}", run.notes);
}

fn of(events: &[(&str, Value)]) -> Trajectory<'static> {
    let lines: Vec<String> = events
        .iter()
        .map(|(kind, data)| {
            json!({"type": kind, "data": data, "id": "e", "timestamp": "2026-03-01T10:00:00Z"})
                .to_string()
        })
        .collect();
    parsed("events.jsonl", lines.join("\n")).remove(0)
}

fn asked() -> (&'static str, Value) {
    ("user.message", json!({"content": "go"}))
}

fn said(text: &str) -> (&'static str, Value) {
    ("assistant.message", json!({"messageId": "m", "content": text}))
}

fn calls(id: &str) -> (&'static str, Value) {
    let request = json!({"toolCallId": id, "name": "bash", "arguments": {"command": "ls"}});
    ("assistant.message", json!({"messageId": "m", "content": "", "toolRequests": [request]}))
}

#[test]
fn stored_session_has_id_and_version() {
    let start = json!({"sessionId": "s-1", "copilotVersion": "1.0.9", "selectedModel": "gpt-5",
        "producer": "copilot-agent", "version": 1, "startTime": "2026-03-01T10:00:00Z"});
    let shutdown = json!({"shutdownType": "routine", "totalPremiumRequests": 2, "modelMetrics": {
        "gpt-5": {"usage": {"inputTokens": 100, "outputTokens": 20, "cacheReadTokens": 60}}}});
    let told = |shutdown: &Value| {
        let start = ("session.start", start.clone());
        of(&[start, asked(), said("done"), ("session.shutdown", shutdown.clone())])
    };
    let run = told(&shutdown);
    assert_eq!((&*run.run_id, run.agent_version.as_deref()), ("s-1", Some("1.0.9")));
    assert_eq!(run.model.as_deref(), Some("gpt-5"));
    assert_eq!(run.totals.prompt_tokens, Some(100));
    assert_eq!(run.totals.completion_tokens, Some(20));
    assert_eq!(run.totals.cached_tokens, Some(60));
    assert_eq!(run.totals.extra["totalPremiumRequests"], 2);
    assert_eq!(ending(&run), Some(("final", Some("session.shutdown"))));
    let mut of_two = shutdown;
    of_two["modelMetrics"]["haiku"] = json!({"usage": {"inputTokens": 10, "outputTokens": 2}});
    let run = told(&of_two);
    assert_eq!(run.totals.prompt_tokens, None, "tokens of two prices have no sum");
    assert_eq!(run.totals.extra["modelMetrics"]["haiku"]["usage"]["inputTokens"], 10);
}

#[test]
fn endings_have_reason_and_native_name() {
    let error = |kind: &str| ("session.error", json!({"errorType": kind, "message": "no"}));
    let abort = |reason: &str| ("abort", json!({"reason": reason}));
    let idle = ("session.idle", json!({}));
    for (last, want) in [
        (abort("user_initiated"), ("cancelled", "user_initiated")),
        (abort("autopilot_credit_limit"), ("cost_limit", "autopilot_credit_limit")),
        (error("context_limit"), ("context_overflow", "context_limit")),
        (error("rate_limit"), ("provider_error", "rate_limit")),
        (error("of a new kind"), ("unknown", "of a new kind")),
        (("session.idle", json!({"aborted": true})), ("cancelled", "session.idle")),
        (
            ("session.shutdown", json!({"shutdownType": "error", "errorReason": "no"})),
            ("harness_error", "session.shutdown"),
        ),
    ] {
        // Later events do not change an ending: the session becomes idle and is closed.
        for tail in [vec![], vec![idle.clone()]] {
            let mut events = vec![asked(), calls("a"), last.clone()];
            events.extend(tail);
            let run = of(&events);
            assert_eq!(ending(&run), Some((want.0, Some(want.1))));
        }
    }
    let run = of(&[asked(), calls("a"), idle.clone()]);
    assert_eq!(ending(&run), None, "its last turn asks for a tool");
    let run = of(&[asked(), said("done"), idle, asked()]);
    assert_eq!(ending(&run), None, "what was asked next was not answered");
}

#[test]
fn truncated_stream_is_not_an_answer() {
    let piece = |text: &str| ("assistant.message_delta", json!({"deltaContent": text}));
    let run = of(&[asked(), piece("It is"), piece(" the")]);
    assert_eq!(run.steps[1].text, "It is the");
    assert_eq!(run.notes, ["messages with only deltas: 1"]);
    let run = of(&[asked(), piece("It is"), ("assistant.turn_end", json!({"turnId": "1"}))]);
    assert_eq!(ending(&run), None);
    let run = of(&[asked(), piece("do"), said("done"), ("assistant.turn_end", json!({}))]);
    assert_eq!(counts(&run)[1], 1, "the pieces of a message that came");
}

#[test]
fn usage_finds_turn_in_either_order() {
    let message = |call: &str| {
        ("assistant.message", json!({"content": "x", "apiCallId": call, "outputTokens": 5}))
    };
    let usage = |call: &str, input: u64| {
        (
            "assistant.usage",
            json!({"apiCallId": call, "model": "m", "inputTokens": input,
            "outputTokens": 7, "cacheReadTokens": 3, "cost": 1, "finishReason": "stop"}),
        )
    };
    for events in [
        vec![asked(), message("1"), usage("1", 10), message("2"), usage("2", 20)],
        vec![asked(), usage("1", 10), message("1"), usage("2", 20), message("2")],
        vec![asked(), message("1"), message("2"), usage("2", 20), usage("1", 10)],
    ] {
        let run = of(&events);
        let used: Vec<_> = run
            .turns()
            .map(|turn| turn.usage.as_deref().unwrap())
            .map(|usage| (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens))
            .collect();
        assert_eq!(used, [(Some(10), Some(7), Some(3)), (Some(20), Some(7), Some(3))]);
        assert!(run.turns().all(|turn| turn.finish_reason.as_deref() == Some("stop")));
        assert!(run.turns().all(|turn| turn.cost_usd.is_none()), "its cost is not in dollars");
    }
}

#[test]
fn split_response_is_one_turn() {
    let chunk = |text: &str, index: u64| {
        (
            "assistant.message",
            json!({"content": text, "apiCallId": "1", "outputTokens": 5,
            "chunkIndex": index, "chunkCount": 2}),
        )
    };
    let run = of(&[asked(), chunk("a", 0), chunk("b", 1), said("c")]);
    let texts: Vec<_> = run.turns().map(|turn| &*turn.text).collect();
    assert_eq!(texts, ["a\nb", "c"]);
    assert_eq!(run.steps[1].usage.as_ref().unwrap().completion_tokens, Some(5));
}

#[test]
fn event_or_exit_code_marks_failure() {
    let done = |id: &str, success: bool, more: Value| {
        let mut data = json!({"toolCallId": id, "success": success});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("tool.execution_complete", data)
    };
    let run = of(&[
        asked(),
        calls("a"),
        done("a", true, json!({"result": {"content": "no such file\n<exited with exit code 2>"}})),
        calls("b"),
        done("b", false, json!({"error": {"message": "denied", "code": "denied"}})),
        calls("c"),
        done("c", true, json!({"result": {"content": "ok\n<exited with exit code 0>"}})),
    ]);
    let results: Vec<_> = run.turns().map(|turn| &turn.results[0]).collect();
    let told: Vec<_> = results.iter().map(|r| (r.is_error, r.exit_code)).collect();
    assert_eq!(told, [(true, Some(2)), (true, None), (false, Some(0))]);
    assert_eq!(results[1].content, "denied");
}

#[test]
fn subagent_is_a_child_run() {
    let within = |mut event: (&'static str, Value)| {
        event.1["parentToolCallId"] = "task-1".into();
        event
    };
    let started = json!({"toolCallId": "task-1", "agentName": "explore", "agentDisplayName": "E"});
    let run = of(&[
        asked(),
        calls("task-1"),
        ("subagent.started", started),
        within(said("looking")),
        within(calls("b")),
        within((
            "tool.execution_complete",
            json!({"toolCallId": "b", "success": true,
            "result": {"content": "a.rs"}}),
        )),
        (
            "tool.execution_complete",
            json!({"toolCallId": "task-1", "success": true,
            "result": {"content": "found"}}),
        ),
        said("done"),
        ("assistant.turn_end", json!({"turnId": "1"})),
    ]);
    assert_eq!(counts(&run), [3, 2, 1, 1, 0]);
    let child = &run.children[0];
    assert_eq!((&*child.run_id, child.agent.as_deref()), ("task-1", Some("explore")));
    assert_eq!(counts(child), [2, 2, 1, 1, 0]);
    assert_eq!(ending(&run), Some(("final", Some("assistant.turn_end"))));
}

#[test]
fn usage_belongs_to_its_own_message() {
    let message = |call: &str| ("assistant.message", json!({"content": "x", "apiCallId": call}));
    let usage = |call: &str, more: Value| {
        let mut data = json!({"apiCallId": call, "outputTokens": 7});
        data.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        ("assistant.usage", data)
    };
    let input = |tokens: u64| json!({"inputTokens": tokens});
    // The first message has no usage.
    let run = of(&[asked(), message("a"), usage("b", input(20)), message("b")]);
    let used: Vec<_> = run.turns().map(Step::tokens).collect();
    assert_eq!(used, [None, Some(27)]);
    // Generated tokens are recorded twice and counted once.
    let mut said = message("a");
    said.1["outputTokens"] = json!(7);
    let run = of(&[asked(), usage("a", json!({})), said]);
    assert_eq!(run.steps[1].usage.as_ref().unwrap().completion_tokens, Some(7));
    // The usage of a summary belongs to no turn, and usage without a message is not lost.
    let summary = json!({"inputTokens": 1000, "interactionType": "conversation-compaction"});
    let events = [asked(), usage("s", summary), message("a"), usage("z", input(50))];
    let run = of(&events);
    assert_eq!(run.turns().map(Step::tokens).collect::<Vec<_>>(), [None]);
    let beside = json!({"calls": 2, "input_tokens": 1050, "output_tokens": 14});
    assert_eq!(run.totals.extra["beside_turns"], beside);
    assert!(run.notes.contains(&"model calls outside the turns: 2".to_owned()), "{:?}", run.notes);
}

#[test]
fn only_complete_session_totals_are_used() {
    let closed = |tokens: u64| {
        let metrics = json!({"gpt-5": {"usage": {"inputTokens": tokens, "outputTokens": 5}}});
        ("session.shutdown", json!({"shutdownType": "routine", "modelMetrics": metrics}))
    };
    let input = |events: &[(&str, Value)]| of(events).totals.prompt_tokens;
    assert_eq!(input(&[asked(), said("a"), closed(10)]), Some(10));
    let resume = || ("session.resume", json!({"eventCount": 3}));
    assert_eq!(input(&[asked(), said("a"), closed(10), resume(), asked(), said("b")]), None);
    assert_eq!(input(&[asked(), said("a"), closed(10), asked(), said("b"), closed(20)]), None);
    // With a subagent the totals cover both, unless they are recorded separately.
    let within = |mut event: (&'static str, Value)| {
        event.1["parentToolCallId"] = "t".into();
        event
    };
    assert_eq!(input(&[asked(), calls("t"), within(said("b")), closed(10)]), None);
    let mut apart = closed(10);
    let own = json!({"gpt-5": {"usage": {"inputTokens": 4, "outputTokens": 1}}});
    apart.1["agentMetrics"] = json!({"main": {"modelMetrics": own}});
    assert_eq!(input(&[asked(), calls("t"), within(said("b")), apart]), Some(4));
}

#[test]
fn turn_has_model_set_before_it() {
    let change = |model: &str| ("session.model_change", json!({"newModel": model}));
    let run = of(&[change("opus"), asked(), said("a"), change("mini"), asked(), said("b")]);
    let models: Vec<_> = run.turns().map(|turn| turn.model.as_deref().unwrap()).collect();
    assert_eq!(models, ["opus", "mini"]);
}

#[test]
fn subagent_has_name_model_and_ending() {
    let started = json!({"toolCallId": "t", "agentName": "explore", "model": "haiku"});
    let agents = |kind: &str, data: Value| json!({"type": kind, "data": data, "agentId": "a-1", "id": "e", "timestamp": "2026-03-01T10:00:00Z"});
    let mains = |kind: &str, data: Value| json!({"type": kind, "data": data, "id": "e", "timestamp": "2026-03-01T10:00:00Z"});
    let error = json!({"errorType": "rate_limit", "message": "no"});
    let lines = [
        mains("user.message", json!({"content": "go"})),
        agents("subagent.started", started),
        agents("assistant.message", json!({"content": "looking"})),
        // A message of the same subagent, under its other id.
        mains("assistant.message", json!({"content": "more", "parentToolCallId": "t"})),
        agents("session.error", error.clone()),
        agents("session.info", json!({})),
        mains("assistant.message", json!({"content": "done"})),
        mains("assistant.turn_end", json!({"turnId": "1"})),
        // An error of a subagent that never spoke.
        json!({"type": "session.error", "data": error, "agentId": "a-2", "id": "e", "timestamp": "2026-03-01T10:00:00Z"}),
    ];
    let lines = lines.map(|line| line.to_string()).join("\n");
    let run = parsed("events.jsonl", lines).remove(0);
    assert_eq!(ending(&run), Some(("final", Some("assistant.turn_end"))));
    let [child] = run.children.as_slice() else { panic!("{:?}", run.children) };
    assert_eq!((&*child.run_id, child.agent.as_deref()), ("a-1", Some("explore")));
    assert_eq!((child.model.as_deref(), counts(child)[1]), (Some("haiku"), 2));
    assert_eq!(ending(child), Some(("provider_error", Some("rate_limit"))));
}

#[test]
fn reasoning_is_stored_in_any_order() {
    let thought = |text: &str| ("assistant.reasoning", json!({"content": text}));
    let last = |events: &[(&str, Value)]| {
        let run = of(events);
        (run.turns().count(), run.turns().last().unwrap().reasoning.clone())
    };
    let want = |turns: usize| (turns, Some("hm".into()));
    assert_eq!(last(&[asked(), thought("hm"), said("a")]), want(1));
    let end = ("assistant.turn_end", json!({}));
    assert_eq!(last(&[asked(), said("a"), thought("hm"), end]), want(1));
    assert_eq!(last(&[asked(), said("a"), asked(), thought("hm")]), want(2), "its message is lost");
}

#[test]
fn other_events_are_not_a_session() {
    let hook =
        json!({"type": "user.created", "data": {"id": "u"}, "object": "event", "timestamp": 1654});
    let stray = json!({"type": "session.info", "data": {}, "id": "e", "timestamp": "2026-03-01"});
    let chat = json!({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]});
    let lines = |all: &[&Value]| all.iter().map(|one| format!("{one}\n")).collect::<String>();
    let (runs, problems) = read_bytes("a.jsonl", lines(&[&hook, &hook]), &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory));
    let (runs, _) =
        read_bytes("a.jsonl", lines(&[&chat, &stray, &chat, &chat]), &Options::default());
    assert!(runs.len() >= 3 && runs.iter().all(|run| run.origin.format == "openai-messages"));
    let (runs, problems) = read_bytes("a.jsonl", lines(&[&stray]), &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory), "without a step");
}

#[test]
fn many_subagents_take_linear_time() {
    let events: Vec<_> = (0..20_000)
        .flat_map(|nth| {
            let message = json!({"content": "x", "parentToolCallId": format!("t{nth}")});
            let usage = json!({"apiCallId": format!("c{nth}"), "inputTokens": 1});
            [("assistant.message", message), ("assistant.usage", usage)]
        })
        .collect();
    let run = of(&events);
    assert_eq!(run.children.len(), 20_000);
    assert_eq!(run.totals.extra["beside_turns"]["calls"], 20_000);
}

#[test]
fn user_calls_are_not_turns() {
    let call = json!({"toolCallId": "u", "toolName": "bash", "arguments": {"command": "ls"}});
    let run = of(&[
        asked(),
        ("tool.user_requested", call),
        (
            "tool.execution_complete",
            json!({"toolCallId": "u", "success": true, "result": {"content": "a"}}),
        ),
        said("done"),
    ]);
    assert_eq!(counts(&run), [3, 1, 1, 1, 0]);
    assert_eq!(run.steps[1].role, Role::User);
}
