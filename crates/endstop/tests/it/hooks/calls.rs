//! Changed calls, changed results, requests and events.

use super::{Asks, Model, Ran, act, acts, asks, post_tool, pre_tool, results, sets};
use crate::support::eventually;
use endstop::core::Replay;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::hook::{ChangedResult, ConsultPoint, HookDecision, Hooks};
use endstop::hook::{Hook, HookFuture, ModelRequest};
use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Agent, Limits, ModelParams, Role, Termination, ToolCall, ToolStatus};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const SECRET: &str = "sk-do-not-read-this";

#[tokio::test]
async fn events_and_journal_show_both_calls() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path().join("journal.db")).unwrap();
    let ran = Ran::default();
    let agent = acts(&ran)
        .hook(sets(&json!({"n": 2})))
        .hook(Asks(post_tool(), |_| HookDecision::ChangeResult(ChangedResult::error("no"))))
        .journal(journal.clone())
        .build()
        .unwrap();
    let mut run = agent.run("go").unwrap();
    let (mut told, mut ended) = (Vec::new(), None);
    while let Some(event) = run.next().await {
        match event.kind {
            AgentEventKind::ToolCallChanged { before, after, by, .. } => {
                told.push(format!("{by}: {before} became {after}"));
            }
            AgentEventKind::ToolStarted { arguments, .. } => {
                told.push(format!("started {arguments}"));
            }
            AgentEventKind::ToolResultChanged { status, .. } => {
                told.push(format!("changed {}", status.as_str()));
            }
            AgentEventKind::ToolFinished { content, status, .. } => {
                told.push(format!("ended {} {content}", status.as_str()));
            }
            AgentEventKind::Finished { outcome, .. } => ended = Some(outcome),
            _ => {}
        }
    }
    let expected = [
        r#"pre_tool: {"n":1} became {"n":2}"#,
        r#"started {"n":2}"#,
        "changed ok",
        "ended error no",
    ];
    assert_eq!(told, expected);
    assert_eq!(*ran.lock().unwrap(), [json!({"n": 2})]);
    let outcome = ended.unwrap();
    // The conversation has the model's own call.
    let calls: Vec<&ToolCall> = outcome.messages.iter().flat_map(|m| m.tool_calls()).collect();
    assert_eq!(calls[0].arguments, r#"{"n":1}"#);

    let recorded = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    let text = serde_json::to_string(&recorded.events).unwrap();
    for part in [r#"{\"n\":1}"#, r#"{\"n\":2}"#, "change_call", "change_result", r#""done""#] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mut replay = Replay::new(recorded.header.spec.clone_with(None));
    for event in recorded.events {
        replay.feed(event);
    }
    let replayed = replay.into_outcome().unwrap();
    assert_eq!(serde_json::to_value(&*replayed).unwrap(), serde_json::to_value(&*outcome).unwrap());
}

#[tokio::test]
async fn next_hook_sees_changes() {
    let ran = Ran::default();
    let adds = || {
        Asks(Hooks { post_tool: true, ..pre_tool() }, |point| match point {
            ConsultPoint::PreTool { call } => {
                let n = call.parsed_arguments().unwrap()["n"].as_u64().unwrap() * 10;
                let arguments = json!({"n": n}).to_string();
                let changed = HookDecision::ChangeCall(ToolCall { arguments, ..call });
                HookDecision::WithNote { note: "times ten".to_owned(), answer: Box::new(changed) }
            }
            ConsultPoint::PostTool { result, .. } => {
                HookDecision::ChangeResult(ChangedResult::ok(format!("{} twice", result.content)))
            }
            _ => HookDecision::Proceed,
        })
    };
    let outcome = acts(&ran).hook(adds()).hook(adds()).build().unwrap().run("go").unwrap().await;
    assert_eq!(*ran.lock().unwrap(), [json!({"n": 100})]);
    assert_eq!(results(&outcome)[0].content, "done twice twice");
    let notes = outcome.messages.iter().filter(|m| m.plain_text() == "times ten\ntimes ten");
    assert_eq!(notes.count(), 1, "{outcome:?}");
}

#[tokio::test]
async fn other_name_or_id_ends_run() {
    let changes: [fn(ToolCall) -> ToolCall; 2] = [
        |call| ToolCall { name: "other".to_owned(), ..call },
        |call| ToolCall { id: "other".to_owned(), ..call },
    ];
    for change in changes {
        let ran = Ran::default();
        let other = tool_fn("other", "Another.", |_: Value, _| async { ToolOutput::ok("other") });
        let hook = Asks(pre_tool(), move |point| match point {
            ConsultPoint::PreTool { call } => HookDecision::ChangeCall(change(call)),
            _ => HookDecision::Proceed,
        });
        let agent = acts(&ran).tool(other).hook(hook).build().unwrap();
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
        assert_eq!(outcome.decided_by.decision.as_str(), "pre_tool");
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.contains("only its arguments may change"), "{evidence}");
        assert!(!results(&outcome)[0].started, "{outcome:?}");
        assert!(ran.lock().unwrap().is_empty());
    }
}

#[tokio::test]
async fn changed_arguments_must_parse() {
    let ran = Ran::default();
    let hook = Asks(pre_tool(), |point| match point {
        ConsultPoint::PreTool { call } => {
            HookDecision::ChangeCall(ToolCall { arguments: "{broken".to_owned(), ..call })
        }
        _ => HookDecision::Proceed,
    });
    let outcome = acts(&ran).hook(hook).build().unwrap().run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let result = results(&outcome)[0];
    assert_eq!((result.status, result.started), (ToolStatus::Error, false));
    assert!(result.content.contains("not valid JSON"), "{}", result.content);
    assert!(ran.lock().unwrap().is_empty());
}

#[tokio::test]
async fn approver_sees_changed_call() {
    let (ran, seen) = (Ran::default(), Arc::new(Mutex::new(Vec::new())));
    let approver = {
        let seen = Arc::clone(&seen);
        Asks(pre_tool(), move |point| {
            if let ConsultPoint::Approval { call } = point {
                seen.lock().unwrap().push(call.arguments);
            }
            HookDecision::Proceed
        })
    };
    let agent = asks(&ran).hook(sets(&json!({"n": 2}))).approver(approver).build().unwrap();
    agent.run("go").unwrap().await;
    assert_eq!(*seen.lock().unwrap(), [r#"{"n":2}"#]);
    assert_eq!(*ran.lock().unwrap(), [json!({"n": 2})]);
}

/// A model that calls `act` with new arguments in each turn.
fn varies() -> ScriptedModel {
    ScriptedModel::new((0..12).map(|n| Turn::call("act", &json!({"n": n}))))
}

#[tokio::test]
async fn progress_is_judged_on_what_ran() {
    let ran = Ran::default();
    let agent = |hook| Agent::builder(varies()).tool(act(&ran)).hook(hook).build().unwrap();
    let outcome = agent(sets(&json!({"n": 0}))).run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorNoProgress, "{outcome:?}");
    assert!(outcome.turns < 6, "{outcome:?}");
}

#[tokio::test]
async fn progress_is_judged_on_changed_results() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counts = tool_fn("act", "Counts.", move |_: Value, _| {
        let n = calls.fetch_add(1, Ordering::SeqCst);
        async move { ToolOutput::ok(format!("{n}")) }
    });
    let model = ScriptedModel::new((0..12).map(|_| Turn::call("act", &json!({}))));
    let same = Asks(post_tool(), |_| HookDecision::ChangeResult(ChangedResult::ok("same")));
    let agent = Agent::builder(model).tool(counts).hook(same).build().unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorNoProgress, "{outcome:?}");
}

#[tokio::test]
async fn changed_result_is_bounded() {
    let hook =
        Asks(post_tool(), |_| HookDecision::ChangeResult(ChangedResult::ok("é".repeat(1 << 20))));
    let outcome = acts(&Ran::default()).hook(hook).build().unwrap().run("go").unwrap().await;
    let content = &results(&outcome)[0].content;
    assert!(content.len() < 66_000 && content.ends_with("cut after 65536 bytes …]"));
}

/// A hook that waits forever at `post_tool`.
struct Waits(Arc<AtomicBool>);

impl Hook for Waits {
    fn points(&self) -> Hooks {
        post_tool()
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        self.0.store(true, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn result_without_review_is_withheld() {
    for terminate in [false, true] {
        let waits = Arc::new(AtomicBool::new(false));
        let reads =
            tool_fn("act", "Reads a secret.", |_: Value, _| async { ToolOutput::ok(SECRET) });
        let agent = Agent::builder(Model::new())
            .tool(reads)
            .hook(Waits(Arc::clone(&waits)))
            .build()
            .unwrap();
        let run = agent.run("go").unwrap();
        eventually("the hook is asked", || waits.load(Ordering::SeqCst)).await;
        if terminate {
            run.terminate()
        } else {
            run.cancel()
        }
        let outcome = run.await;
        let result = results(&outcome)[0];
        assert_eq!((result.status, result.started), (ToolStatus::Aborted, true));
        assert!(result.content.contains("had ended (ok)"), "{}", result.content);
        let messages = serde_json::to_string(&outcome.messages).unwrap();
        assert!(!messages.contains(SECRET), "{messages}");
    }
}

/// A hook that records the requests, and refuses the second.
#[derive(Default)]
struct Requests {
    seen: Mutex<Vec<(u32, usize, String)>>,
    refuses: bool,
}

impl Hook for Requests {
    fn points(&self) -> Hooks {
        Hooks { pre_call: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        unreachable!("`pre_call` is asked instead")
    }
    fn pre_call<'a>(&'a self, request: ModelRequest<'a>) -> HookFuture<'a> {
        assert_eq!(request.messages[0].role, Role::User);
        let ModelRequest { turn, messages, system, tools, params, .. } = request;
        let tools: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let shown = format!("{system:?} {tools:?} {:?}", params.temperature);
        self.seen.lock().unwrap().push((turn, messages.len(), shown));
        let refuses = self.refuses && turn == 2;
        Box::pin(async move {
            if refuses {
                HookDecision::Deny("not this one".to_owned())
            } else {
                HookDecision::Proceed
            }
        })
    }
}

#[tokio::test]
async fn request_is_seen_once_and_refused() {
    for refuses in [false, true] {
        let turns = [
            Turn::call("act", &json!({"n": 1})),
            Turn::error(500, "again").header("retry-after-ms", "1"),
            Turn::text("fine"),
        ];
        let model = ScriptedModel::new(turns);
        let left = model.clone();
        let hook = Arc::new(Requests { refuses, ..Requests::default() });
        let agent = Agent::builder(model)
            .system("Be brief.")
            .tool(act(&Ran::default()))
            .params(ModelParams { temperature: Some(0.5), ..ModelParams::default() })
            .limits(Limits { max_retries: Some(2), ..Limits::default() })
            .hook(Shared(Arc::clone(&hook)))
            .build()
            .unwrap();
        let outcome = agent.run("go").unwrap().await;
        let request = r#"Some("Be brief.") ["act", "finish"] Some(0.5)"#.to_owned();
        // The retry of the second request does not ask again.
        let expected = [(1, 1, request.clone()), (2, 3, request)];
        assert_eq!(*hook.seen.lock().unwrap(), expected);
        if refuses {
            assert_eq!(outcome.termination, Termination::ErrorHalted, "{outcome:?}");
            assert_eq!(outcome.decided_by.decision.as_str(), "pre_call");
            assert_eq!(left.turns_left(), 2, "the request was sent");
        } else {
            assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        }
    }
}

/// A hook that the test keeps.
struct Shared<H>(Arc<H>);

impl<H: Hook> Hook for Shared<H> {
    fn points(&self) -> Hooks {
        self.0.points()
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        self.0.consult(point)
    }
    fn pre_call<'a>(&'a self, request: ModelRequest<'a>) -> HookFuture<'a> {
        self.0.pre_call(request)
    }
    fn on_event(&self, event: &AgentEvent) {
        self.0.on_event(event);
    }
}

/// A hook that records the events.
#[derive(Default)]
struct Hears(bool, Mutex<Vec<Value>>);

impl Hook for Hears {
    fn points(&self) -> Hooks {
        Hooks { on_event: self.0, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        unreachable!("no other point is declared")
    }
    fn on_event(&self, event: &AgentEvent) {
        self.1.lock().unwrap().push(serde_json::to_value(event).unwrap());
    }
}

#[tokio::test]
async fn hook_hears_what_observer_hears() {
    for declared in [true, false] {
        let heard = Arc::<Mutex<Vec<Value>>>::default();
        let hook = Arc::new(Hears(declared, Mutex::default()));
        let agent = {
            let heard = Arc::clone(&heard);
            acts(&Ran::default())
                .on_event(move |event| {
                    heard.lock().unwrap().push(serde_json::to_value(event).unwrap());
                })
                .hook(Shared(Arc::clone(&hook)))
                .build()
                .unwrap()
        };
        agent.run("go").unwrap().await;
        let (heard, told) = (heard.lock().unwrap().clone(), hook.1.lock().unwrap().clone());
        if declared {
            assert!(heard.len() > 8 && heard.iter().any(|event| event["type"] == "text_delta"));
            assert_eq!(told, heard);
        } else {
            assert!(told.is_empty(), "{told:?}");
        }
    }
}

#[tokio::test]
async fn cap_and_note_of_several_hooks_both_count() {
    let model = Model::new();
    let caps = model.caps.clone();
    let at = Hooks { chat_params: true, ..Hooks::default() };
    let outcome = Agent::builder(model)
        .tool(act(&Ran::default()))
        .hook(Asks(at, |_| HookDecision::OutputCap(77)))
        .hook(Asks(at, |_| HookDecision::ProceedWith("be brief".to_owned())))
        .build()
        .unwrap()
        .run("go")
        .unwrap()
        .await;
    assert_eq!(*caps.lock().unwrap(), [Some(77), Some(77)]);
    let notes = outcome.messages.iter().filter(|message| message.plain_text() == "be brief");
    assert_eq!(notes.count(), 2, "{outcome:?}");
}
