//! Events: their order, their ids and paths, streams over them, and their written forms.

use crate::support::{agent, eventually, over};
use endstop::agent::AgentTool;
use endstop::event::{AgentEvent, AgentEventKind, CallId, EventWriter, Origin};
use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Server, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Limits, Outcome, Resume, RunHandle, Termination};
use serde_json::{Map, Value, json};
use std::time::Duration;

const FORMATS: [&str; 6] = [
    "openai-chat",
    "openai-responses",
    "anthropic-messages",
    "bedrock-converse",
    "gemini",
    "ollama",
];

async fn look(_: Map<String, Value>, _: ToolContext) -> ToolOutput {
    ToolOutput::ok("It is 42.")
}

pub(crate) async fn all(mut handle: RunHandle) -> (Vec<AgentEvent>, Outcome) {
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    (events, handle.await)
}

/// Returns the kinds of the events, with consecutive equal ones once.
pub(crate) fn kinds(events: &[AgentEvent]) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = events.iter().map(|event| event.kind.name()).collect();
    kinds.dedup();
    kinds
}

pub(crate) fn text_of(events: &[AgentEvent]) -> String {
    let text = events.iter().filter_map(|event| match &event.kind {
        AgentEventKind::TextDelta { text, .. } => Some(text.as_str()),
        _ => None,
    });
    text.collect()
}

#[tokio::test]
async fn events_of_call_are_in_order() {
    for api in FORMATS {
        let server = Server::script([
            Turn::call("look", &json!({"at": "the\n\nsky"})),
            Turn::text("It is 42, I think."),
        ])
        .unwrap();
        let agent = over(&server, api).tool(tool_fn("look", "Looks.", look)).build().unwrap();
        let (events, outcome) = all(agent.run("What is it?").unwrap()).await;
        assert_eq!(outcome.termination, Termination::Stop, "{api}: {outcome:?}");
        let expected = [
            "turn_started",
            "tool_call_started",
            "tool_arguments_delta",
            "usage",
            "turn_finished",
            "tool_started",
            "tool_finished",
            "turn_started",
            "text_delta",
            "usage",
            "turn_finished",
            "finished",
        ];
        assert_eq!(kinds(&events), expected, "{api}");
        let run = outcome.run_id.as_deref().unwrap();
        let ids: Vec<&CallId> = events.iter().filter_map(|event| event.kind.call_id()).collect();
        assert!(ids.len() >= 4 && ids.iter().all(|id| *id == ids[0]), "{api}: {ids:?}");
        let mut arguments = String::new();
        for event in &events {
            assert_eq!((event.run_id(), event.path().len()), (run, 0), "{api}: {event:?}");
            if let AgentEventKind::ToolArgumentsDelta { arguments: more, index: 0, .. } =
                &event.kind
            {
                arguments.push_str(more);
            }
        }
        let arguments: Value = serde_json::from_str(&arguments).unwrap();
        assert_eq!(arguments, json!({"at": "the\n\nsky"}), "{api}");
        let second = events.iter().rposition(|event| event.kind.name() == "turn_started").unwrap();
        let turns = events.iter().enumerate().map(|(at, event)| (at >= second, event.turn()));
        assert!(turns.into_iter().all(|(after, turn)| turn == Some(1 + u32::from(after))), "{api}");
        assert_eq!(text_of(&events), "It is 42, I think.", "{api}");
    }
}

#[tokio::test]
async fn reasoning_is_streamed_as_text() {
    for api in ["openai-chat", "anthropic-messages", "gemini", "ollama"] {
        let turn = Turn::text("42.").reasoning("Let me see: 6 × 7.");
        let server = Server::script([turn]).unwrap();
        let agent = over(&server, api).build().unwrap();
        let (events, outcome) = all(agent.run("What is it?").unwrap()).await;
        let reasoning = events.iter().filter_map(|event| match &event.kind {
            AgentEventKind::ReasoningDelta { text, .. } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(reasoning.collect::<String>(), "Let me see: 6 × 7.", "{api}: {outcome:?}");
    }
}

/// An agent whose tool is an agent, whose tool is an agent.
fn deep(levels: usize) -> endstop::AgentBuilder {
    if levels == 0 {
        return agent([Turn::text("the bottom")]);
    }
    agent([Turn::call("ask", &json!({"task": "go deeper"})), Turn::text(format!("level {levels}"))])
        .tool(AgentTool::new("ask", "Asks.", deep(levels - 1).build().unwrap()))
}

#[tokio::test]
async fn nested_runs_have_a_path() {
    let agent = deep(2).build().unwrap();
    let (events, outcome) = all(agent.run("go").unwrap()).await;
    assert!(outcome.is_success(), "{outcome:?}");
    let of_depth = |depth: usize| -> Vec<AgentEvent> {
        events.iter().filter(|event| event.path().len() == depth).cloned().collect()
    };
    for (depth, text) in [(0, "level 2"), (1, "level 1"), (2, "the bottom")] {
        let events = of_depth(depth);
        let run = events[0].run_id();
        assert!(events.iter().all(|event| event.run_id() == run), "{events:?}");
        assert_eq!(text_of(&events), text);
        let last = if depth == 0 { "finished" } else { "nested_finished" };
        assert_eq!(events.last().unwrap().kind.name(), last);
    }
    assert_eq!(
        kinds(&of_depth(2)),
        ["turn_started", "text_delta", "usage", "turn_finished", "nested_finished"]
    );
    // The path is the ids of the calls, the outermost first.
    let call = |events: &[AgentEvent]| {
        events.iter().find_map(|event| event.kind.call_id()).cloned().unwrap()
    };
    let path = [call(&of_depth(0)), call(&of_depth(1))];
    assert_eq!(of_depth(2)[0].path(), path);
    let ends: Vec<usize> = (0..events.len())
        .filter(|at| matches!(events[*at].kind, AgentEventKind::Finished { .. }))
        .collect();
    assert_eq!(ends, [events.len() - 1]);

    let agent = deep(2).build().unwrap();
    let mut own = agent.run("go").unwrap().own_events();
    while let Some(event) = own.next().await {
        assert_eq!(event.path().len(), 0, "{event:?}");
    }
    let mut text = deep(2).build().unwrap().run("go").unwrap().text();
    let mut said = String::new();
    while let Some(piece) = text.next().await {
        said.push_str(&piece);
    }
    assert_eq!(said, "level 2");
    assert!(text.outcome().await.is_success());
}

#[tokio::test]
async fn slow_reader_misses_only_deltas() {
    let long = "word ".repeat(5_000);
    let agent = agent([Turn::text(long.clone()), Turn::text("short")]).build().unwrap();
    let session = agent.session();
    let handle = session.run("go").unwrap();
    eventually("the run has ended", || handle.try_outcome().is_some()).await;
    let (events, _) = all(handle).await;
    assert_eq!(
        kinds(&events),
        ["turn_started", "text_delta", "usage", "turn_finished", "finished"]
    );
    let shown = text_of(&events);
    assert!(shown.len() < long.len() && long.starts_with(&shown), "{} bytes", shown.len());
    // The text of a stream is whole, because the end of the turn has the rest.
    let agent = crate::support::agent([Turn::text(long.clone())]).build().unwrap();
    let handle = agent.run("go").unwrap();
    eventually("the run has ended", || handle.try_outcome().is_some()).await;
    let mut text = handle.text();
    let mut said = String::new();
    while let Some(piece) = text.next().await {
        said.push_str(&piece);
    }
    assert_eq!(said, long);
}

#[tokio::test]
async fn dropped_stream_cancels_the_run() {
    let drops: [fn(RunHandle); 4] = [
        |handle| drop(handle),
        |handle| drop(handle.text()),
        |handle| drop(handle.own_events()),
        |handle| drop(handle.sse()),
    ];
    for drop in drops {
        let turn = Turn::text("never").after(Duration::from_secs(600));
        let agent = agent([turn]).build().unwrap();
        drop(agent.run("go").unwrap());
        tokio::time::timeout(Duration::from_secs(10), agent.settled()).await.unwrap();
    }
}

#[tokio::test]
async fn dropped_next_loses_no_event() {
    let turn = Turn::text("one two three").pace(Duration::from_millis(5));
    let agent = agent([turn]).build().unwrap();
    let mut handle = agent.run("go").unwrap();
    let mut events = Vec::new();
    loop {
        // The future of `next` is dropped many times before an event arrives.
        tokio::select! {
            biased;
            event = handle.next() => match event {
                Some(event) => events.push(event),
                None => break,
            },
            () = tokio::task::yield_now() => {}
        }
    }
    assert_eq!(text_of(&events), "one two three");
    assert!(handle.next().await.is_none());
}

#[expect(clippy::disallowed_methods, reason = "no run has these tasks")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_sessions_share_no_event() {
    let server = Server::start(|request| {
        let asked = request.body.to_string();
        let n = asked.split("number ").nth(1).unwrap().split('.').next().unwrap().to_owned();
        endstop::testkit::Reply::turn(request, &Turn::text(format!("It is {n} indeed.")))
    })
    .unwrap();
    let agent = over(&server, "openai-chat").build().unwrap();
    let runs = (0..100).map(|n| {
        let handle = agent.session().run(format!("This is number {n}.")).unwrap();
        tokio::spawn(async move { (n, handle.run_id().to_owned(), all(handle).await) })
    });
    let mut ids = std::collections::HashSet::new();
    for run in runs.collect::<Vec<_>>() {
        let (n, id, (events, outcome)) = run.await.unwrap();
        assert_eq!(text_of(&events), format!("It is {n} indeed."));
        assert!(events.iter().all(|event| event.run_id() == id), "{events:?}");
        assert_eq!(outcome.run_id.as_deref(), Some(id.as_str()));
        assert!(ids.insert(id));
    }
}

#[tokio::test]
async fn resumed_run_keeps_its_id() {
    let folder = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(folder.path().join("runs.db")).unwrap();
    let limits = |turns| Limits { max_turns: Some(turns), ..Limits::default() };
    let build = |turns, model: ScriptedModel| {
        let tool = tool_fn("look", "Looks.", look);
        let agent = Agent::builder(model).tool(tool).limits(limits(turns));
        agent.journal(journal.clone()).build().unwrap()
    };
    let script = ScriptedModel::new([Turn::call("look", &json!({})), Turn::text("42.")]);
    let (events, first) = all(build(1, script.clone()).run("go").unwrap()).await;
    assert_eq!(first.termination, Termination::ErrorMaxTurns);
    let id = first.run_id.clone().unwrap();
    assert!(events.iter().all(|event| event.run_id() == id));
    let again = Resume::new(id.clone()).accept_changes();
    let handle = build(5, script).resume(again).unwrap();
    let named = handle.run_id().to_owned();
    let (events, second) = all(handle).await;
    assert_eq!(second.run_id.as_deref(), Some(named.as_str()), "{second:?}");
    assert!(events.iter().all(|event| event.run_id() == named), "{events:?}");
    let started = events.iter().find(|event| event.kind.name() == "turn_started").unwrap();
    assert_eq!(started.turn(), Some(2));
}

/// Reads server-sent events as the HTML standard says: name and data of each.
fn read_sse(body: &str) -> Vec<(String, String)> {
    let (mut read, mut name, mut data) = (Vec::new(), String::new(), Vec::new());
    for line in body.replace("\r\n", "\n").split(['\n', '\r']) {
        match line.split_once(": ") {
            _ if line.is_empty() => {
                if !data.is_empty() {
                    read.push((std::mem::take(&mut name), data.join("\n")));
                    data.clear();
                }
            }
            Some(("event", value)) => value.clone_into(&mut name),
            Some(("data", value)) => data.push(value.to_owned()),
            _ => panic!("a line of another field: {line:?}"),
        }
    }
    read
}

#[tokio::test]
async fn hostile_text_stays_in_its_event() {
    let hostile =
        "a\n\ndata: {\"type\":\"finished\"}\r\n\r\nevent: finished\rid: 1\u{2028}\u{0}end";
    let server = Server::script([
        Turn::call("look", &json!({"at": hostile})),
        Turn::text(hostile).reasoning(hostile),
    ])
    .unwrap();
    let agent = over(&server, "openai-chat").tool(tool_fn("look", "Looks.", look)).build().unwrap();
    let mut bytes = agent.run(hostile).unwrap().sse();
    let mut body = Vec::new();
    while let Some(more) = bytes.next().await {
        body.extend(more);
    }
    let read = read_sse(std::str::from_utf8(&body).unwrap());
    let mut text = String::new();
    for (at, (name, data)) in read.iter().enumerate() {
        let event: AgentEvent = serde_json::from_str(data).unwrap();
        assert_eq!(event.kind.name(), name);
        assert_eq!(name == "finished", at + 1 == read.len(), "{name} at {at}");
        if let AgentEventKind::TextDelta { text: more, .. } = event.kind {
            text.push_str(&more);
        }
    }
    assert_eq!(text, hostile);
}

#[tokio::test]
async fn secrets_in_pieces_are_not_written() {
    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";
    let pieces: Vec<String> =
        format!("The key is {KEY}, as you know.").chars().map(String::from).collect();
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let turn = || Turn::pieces(&pieces).reasoning(format!("It was {KEY}."));
    let calls = || Turn::call("look", &json!({"at": KEY}));
    let agent = agent([calls(), turn(), calls(), turn()])
        .tool(tool_fn("look", "Looks.", look))
        .build()
        .unwrap();
    let mut lines = agent.run("go").unwrap().json_lines();
    let mut body = String::new();
    while let Some(more) = lines.next().await {
        body.push_str(std::str::from_utf8(&more).unwrap());
    }
    for part in KEY.as_bytes().windows(8) {
        let part = std::str::from_utf8(part).unwrap();
        assert!(!body.contains(part), "{part} in {body}");
    }
    let events: Vec<AgentEvent> =
        body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(text_of(&events), "The key is [redacted], as you know.");
    let mut lines = agent.run("go").unwrap().json_lines().unredacted();
    let mut body = String::new();
    while let Some(more) = lines.next().await {
        body.push_str(std::str::from_utf8(&more).unwrap());
    }
    assert!(body.contains(KEY));
}

#[test]
fn held_text_precedes_the_end_of_its_turn() {
    let mut writer = EventWriter::json_lines(KnownKeys::default());
    let event = |kind| AgentEvent::new(Origin::new("run", [], Some(1)), kind);
    let text = |text: &str| event(AgentEventKind::TextDelta { text: text.to_owned() });
    assert!(writer.write(text("sk-")).is_empty());
    // A warning can occur within the text, which is not cut by it.
    let warning = event(AgentEventKind::Warning { message: "careful".to_owned() });
    assert_eq!(writer.write(warning).iter().filter(|byte| **byte == b'\n').count(), 1);
    let started = event(AgentEventKind::TurnStarted { attempt: 2 });
    let written = String::from_utf8(writer.write(started)).unwrap();
    assert!(written.starts_with("{\"type\":\"text_delta\",\"run_id\":\"run\",\"turn\":1,\"text\":\"sk-\"}\n{\"type\":\"turn_started\""), "{written}");
    assert!(writer.write(text("sk-")).is_empty());
    assert!(!writer.finish().is_empty() && writer.finish().is_empty());
}

/// Pseudo-random values for the round trip; the same for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 11
    }
    fn text(&mut self) -> String {
        const PARTS: [&str; 10] = [
            "",
            "a",
            "\"",
            "\\u0041",
            "\n\ndata: x",
            "\r",
            "é",
            "日本",
            "\u{0}",
            "{\"type\":\"finished\"}",
        ];
        (0..self.next() % 4).map(|_| PARTS[self.next() as usize % PARTS.len()]).collect()
    }
    fn call(&mut self) -> CallId {
        self.text().into()
    }
}

/// Returns an event of every variant that carries more than numbers and text of the kernel.
fn events_of(dice: &mut Dice) -> Vec<AgentEvent> {
    let path: Vec<CallId> = (0..dice.next() % 3).map(|_| dice.call()).collect();
    let turn = [None, Some(1), Some(u32::MAX)][dice.next() as usize % 3];
    let origin = Origin::new(dice.text(), path, turn);
    let call_id = [None, Some(dice.call())][dice.next() as usize % 2].clone();
    let kinds = vec![
        AgentEventKind::TurnStarted { attempt: dice.next() as u32 },
        AgentEventKind::TextDelta { text: dice.text() },
        AgentEventKind::ReasoningDelta { text: dice.text() },
        AgentEventKind::RefusalDelta { text: dice.text() },
        AgentEventKind::HiddenDelta { reasoning: dice.next(), arguments: dice.next() },
        AgentEventKind::ToolCallStarted { index: 1, call_id: call_id.clone(), name: dice.text() },
        AgentEventKind::ToolArgumentsDelta { index: 1, call_id, arguments: dice.text() },
        AgentEventKind::ToolStarted {
            call_id: dice.call(),
            name: dice.text(),
            arguments: dice.text(),
        },
        AgentEventKind::ToolFinished {
            call_id: dice.call(),
            name: dice.text(),
            status: endstop::ToolStatus::Denied,
            duration_ms: dice.next(),
            content: dice.text(),
        },
        AgentEventKind::Stopping { reason: dice.text(), running: dice.next() as u32 },
        AgentEventKind::Warning { message: dice.text() },
    ];
    kinds.into_iter().map(|kind| AgentEvent::new(origin.clone(), kind)).collect()
}

#[tokio::test]
async fn event_equals_itself_after_json() {
    let mut dice = Dice(7);
    let mut all_events: Vec<AgentEvent> = (0..300).flat_map(|_| events_of(&mut dice)).collect();
    // The events that only a run makes: a retry, a refusal of a call, a rule, a nested run, the end.
    let script = [
        Turn::error(503, "busy"),
        Turn::call("ask", &json!({"task": "x"})).reasoning("Hm."),
        Turn::text("done").usage(10, 5),
    ];
    let agent = agent(script)
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            crate::support::agent([Turn::text("inner")]).build().unwrap(),
        ))
        .build()
        .unwrap();
    all_events.extend(all(agent.run("go").unwrap()).await.0);
    let kinds: std::collections::HashSet<&str> =
        all_events.iter().map(|event| event.kind.name()).collect();
    for kind in ["attempt_failed", "usage", "turn_finished", "nested_finished", "finished"] {
        assert!(kinds.contains(kind), "{kind}");
    }
    for event in all_events {
        let json = serde_json::to_string(&event).unwrap();
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["type"], event.kind.name());
        assert_eq!(value["run_id"], event.run_id());
        let read: AgentEvent = serde_json::from_str(&json).unwrap();
        match &event.kind {
            // An outcome leaves out its epoch and rounds its duration; see `Outcome`.
            AgentEventKind::Finished { .. } | AgentEventKind::NestedFinished { .. } => {
                assert_eq!(serde_json::to_string(&read).unwrap(), json);
                assert_eq!(event.origin, read.origin);
            }
            _ => assert_eq!(read, event, "{json}"),
        }
    }
}

#[test]
fn event_is_small() {
    // A reader that lags holds up to a thousand deltas, and each event is moved several times.
    assert!(size_of::<AgentEvent>() <= 128, "{}", size_of::<AgentEvent>());
}

#[test]
fn escaped_secrets_are_not_written() {
    const KEY: &str = "sk-proj-4fQ9xTz71LmN0pWv8aBcD";
    const OWN: &str = "wJa1rX/tnFE/I/K7MDE/G+bPxR/iCYEX";
    let escaped: String = KEY.chars().map(|c| format!("\\u{:04x}", c as u32)).collect();
    let half: String = format!("{}\\u{:04x}{}", &KEY[..9], KEY.as_bytes()[9], &KEY[10..]);
    let slashes = OWN.replace('/', "\\/");
    for secret in [escaped, half, slashes, KEY.to_owned(), OWN.to_owned()] {
        for size in [1, 3, 7, 1000] {
            let arguments = format!("{{\"at\":\"{secret}\"}}");
            let origin = Origin::new("run", [], Some(1));
            let mut events = vec![AgentEventKind::TurnStarted { attempt: 1 }];
            for piece in arguments.as_bytes().chunks(size) {
                events.push(AgentEventKind::ToolArgumentsDelta {
                    index: 0,
                    call_id: None,
                    arguments: String::from_utf8(piece.to_vec()).unwrap(),
                });
            }
            events.push(AgentEventKind::ToolStarted {
                call_id: "c".into(),
                name: "look".to_owned(),
                arguments: arguments.clone(),
            });
            let mut writer = EventWriter::json_lines(KnownKeys::new([OWN]));
            let mut body = Vec::new();
            for kind in events {
                body.extend(writer.write(AgentEvent::new(origin.clone(), kind)));
            }
            body.extend(writer.finish());
            let (mut streamed, mut whole) = (String::new(), String::new());
            for line in String::from_utf8(body).unwrap().lines() {
                match serde_json::from_str::<AgentEvent>(line).unwrap().kind {
                    AgentEventKind::ToolArgumentsDelta { arguments, .. } => streamed += &arguments,
                    AgentEventKind::ToolStarted { arguments, .. } => whole = arguments,
                    _ => {}
                }
            }
            for text in [streamed, whole] {
                let read = serde_json::from_str::<Value>(&text)
                    .map_or_else(|_| text.clone(), |value| value["at"].to_string());
                assert!(!read.contains(KEY) && !read.contains(OWN), "{secret} by {size}: {text}");
            }
        }
    }
}
