//! Cancel and terminate in every phase of a run, and what must not happen after them.

use super::{STRICT, Strict, events, results};
use crate::support::{HANG, agent, eventually, over};
use endstop::agent::AgentTool;
use endstop::compaction::CompactionRequest;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::hook::{Approver, CompactionFuture, Compactor, Hook, HookFuture};
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, Category, Limits, Permission, Termination, ToolCall, ToolStatus,
    compaction::ProactiveCompaction,
    hook::{ConsultPoint, HookDecision, Hooks},
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// Counts how often a point was reached, and then never answers.
#[derive(Clone, Default)]
struct Reached(Arc<AtomicUsize>);

impl Reached {
    fn now(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A hook that hangs at one point.
struct Hangs(Hooks, Reached);

impl Hook for Hangs {
    fn points(&self) -> Hooks {
        self.0
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        self.1.now();
        Box::pin(std::future::pending())
    }
}

impl Approver for Hangs {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        self.1.now();
        Box::pin(std::future::pending())
    }
}

impl Compactor for Hangs {
    fn compact(&self, _: CompactionRequest) -> CompactionFuture<'_> {
        self.1.now();
        Box::pin(std::future::pending())
    }
}

fn wait(reached: &Reached) -> impl endstop::tool::Tool + 'static {
    let reached = reached.clone();
    tool_fn("wait", "Waits.", move |_: Nothing, context: ToolContext| {
        let reached = reached.clone();
        async move {
            reached.now();
            context.cancelled().await;
            ToolOutput::error("stopped")
        }
    })
    .parallel_safe()
}

/// A run that reaches a point and stays there: its name, the loop, and the counter of the point.
fn phases() -> Vec<(&'static str, AgentBuilder, Reached)> {
    let mut all = Vec::new();
    let mut add = |name, make: &dyn Fn(&Reached) -> AgentBuilder| {
        let reached = Reached::default();
        all.push((name, make(&reached), reached));
    };
    let on_delta = |builder: AgentBuilder, reached: &Reached, wanted: fn(&AgentEvent) -> bool| {
        let reached = reached.clone();
        builder.on_event(move |event| {
            if wanted(event) {
                reached.now();
            }
        })
    };
    add("before the first byte", &|reached| {
        let reached = reached.clone();
        agent([Turn::text("never").after(LONG)]).on_event(move |event| {
            if matches!(event.kind, AgentEventKind::TurnStarted { .. }) {
                reached.now();
            }
        })
    });
    add("thinking", &|reached| {
        let turn = Turn::text("never").reasoning("Let me see.").pace(LONG);
        on_delta(agent([turn]), reached, |event| {
            matches!(event.kind, AgentEventKind::ReasoningDelta { .. })
        })
    });
    add("text", &|reached| {
        let turn = Turn::text("half an answer").pace(LONG);
        on_delta(agent([turn]), reached, |event| {
            matches!(event.kind, AgentEventKind::TextDelta { .. })
        })
    });
    add("tool arguments", &|reached| {
        let turn = Turn::call("wait", &json!({})).pace(LONG);
        let builder = agent([turn]).tool(wait(&Reached::default()));
        on_delta(builder, reached, |event| {
            matches!(event.kind, AgentEventKind::ToolCallStarted { .. })
        })
    });
    add("backoff", &|reached| {
        let reached = reached.clone();
        let busy = Turn::error(429, "slow down");
        Agent::builder(ScriptedModel::new([busy]).repeat_last())
            .limits(Limits { max_retries: Some(1_000_000), ..Limits::default() })
            .on_event(move |event| {
                if matches!(event.kind, AgentEventKind::AttemptFailed { .. }) {
                    reached.now();
                }
            })
    });
    add("a tool", &|reached| agent([Turn::call("wait", &json!({}))]).tool(wait(reached)));
    add("between tools at once", &|reached| {
        let call = Turn::call("wait", &json!({})).and_call("quick", &json!({}));
        let quick = tool_fn("quick", "Ends.", |_: Nothing, _| async { "done" }).parallel_safe();
        agent([call]).tool(wait(reached)).tool(quick)
    });
    add("an approval", &|reached| {
        agent([Turn::call("wait", &json!({}))])
            .tool(wait(&Reached::default()))
            .permission("wait", Permission::Ask)
            .approver(Hangs(Hooks::default(), reached.clone()))
    });
    add("a compaction", &|reached| {
        agent([Turn::text("never")])
            .compactor(Hangs(Hooks::default(), reached.clone()))
            .proactive_compaction(ProactiveCompaction::Ask)
    });
    let points: [(&str, Hooks); 5] = [
        ("the hook of the prompt", Hooks { prompt: true, ..Hooks::default() }),
        ("the hook before a turn", Hooks { pre_iteration: true, ..Hooks::default() }),
        ("the hook before a call", Hooks { chat_params: true, ..Hooks::default() }),
        ("the hook before a tool", Hooks { pre_tool: true, ..Hooks::default() }),
        ("the hook at the end", Hooks { stop: true, ..Hooks::default() }),
    ];
    for (name, points) in points {
        add(name, &|reached| {
            let turn = match points.pre_tool {
                true => Turn::call("wait", &json!({})),
                false => Turn::text("an answer"),
            };
            agent([turn]).tool(wait(&Reached::default())).hook(Hangs(points, reached.clone()))
        });
    }
    all
}

#[tokio::test(start_paused = true)]
async fn stop_keeps_its_kind_in_phases() {
    for terminate in [false, true] {
        for (phase, builder, reached) in phases() {
            let agent = builder.build().unwrap().session();
            let handle = agent.run("go").unwrap();
            eventually(phase, || reached.count() > 0).await;
            let began = tokio::time::Instant::now();
            if terminate {
                agent.terminate();
            } else {
                agent.cancel();
            }
            let (events, outcome) = events(handle).await;
            let wanted = if terminate { Termination::Terminated } else { Termination::Cancelled };
            assert_eq!(outcome.termination, wanted, "{phase}: {outcome:?}");
            assert_eq!(outcome.category(), Category::Fatal, "{phase}: nothing retries it");
            let endings =
                events.iter().filter(|e| matches!(e.kind, AgentEventKind::Finished { .. })).count();
            assert_eq!(endings, 1, "{phase}");
            assert!(
                matches!(
                    events.last().map(|event| &event.kind),
                    Some(AgentEventKind::Finished { .. })
                ),
                "{phase}: the last event"
            );
            assert!(began.elapsed() < Duration::from_secs(5), "{phase}: {:?}", began.elapsed());
            assert!(outcome.decided_by.evidence.contains(if terminate {
                "terminated"
            } else {
                "cancelled"
            }));
            assert_eq!(agent.run("again").is_err(), terminate, "{phase}");
        }
    }
}

#[tokio::test]
async fn early_cancel_makes_no_call() {
    let server = Server::start(|request| Reply::turn(request, &Turn::text("hello"))).unwrap();
    let agent = over(&server, "openai-chat").build().unwrap();
    let handle = agent.run("one").unwrap();
    handle.cancel();
    assert_eq!(handle.await.termination, Termination::Cancelled);
    assert_eq!(server.requests().len(), 0);
    // The cancel affected only that run: the next is answered.
    let outcome = agent.run("two").unwrap().await;
    assert_eq!((outcome.termination, server.requests().len()), (Termination::Stop, 1));
}

#[tokio::test]
async fn cancel_ends_run_of_silent_server() {
    for reply in ["silent", "headers without end"] {
        let server = Server::start(move |request| {
            let reply_ = Reply::turn(request, &Turn::text("late"));
            if reply == "silent" { reply_.after(LONG) } else { reply_.endless_head() }
        })
        .unwrap();
        let agent = over(&server, "openai-chat").build().unwrap();
        let handle = agent.run("hi").unwrap();
        assert!(server.until(|server| server.requests().len() == 1).await);
        let began = Instant::now();
        agent.cancel();
        assert_eq!(handle.await.termination, Termination::Cancelled, "{reply}");
        assert!(began.elapsed() < HANG, "{reply}: {:?}", began.elapsed());
        assert!(server.until(|server| server.open_connections() == 0).await, "{reply}");
    }
}

#[tokio::test]
async fn call_streamed_after_cancel_not_run() {
    let ran = Reached::default();
    let counted = ran.clone();
    let turn = Turn::text("first some words, then a call")
        .and_call("act", &json!({}))
        .pace(Duration::from_millis(20));
    let agent = agent([turn])
        .tool(tool_fn("act", "Acts.", move |_: Nothing, _| {
            counted.now();
            async { "done" }
        }))
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    while !matches!(handle.next().await.unwrap().kind, AgentEventKind::TextDelta { .. }) {}
    agent.cancel();
    let outcome = handle.await;
    assert_eq!((outcome.termination, outcome.tool_calls), (Termination::Cancelled, 0));
    agent.settled().await;
    assert_eq!(ran.count(), 0);
}

/// Approves the first call, and has the run cancelled while it is asked about the second.
struct CancelsAtTheSecond(Arc<std::sync::OnceLock<Agent>>, Reached);

impl Hook for CancelsAtTheSecond {
    fn points(&self) -> Hooks {
        Hooks { pre_tool: true, ..Hooks::default() }
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        self.1.now();
        if self.1.count() == 2 {
            self.0.get().unwrap().cancel();
        }
        Box::pin(async { HookDecision::Proceed })
    }
}

#[tokio::test]
async fn cancel_starts_no_waiting_call() {
    let (ran, asked) = (Reached::default(), Reached::default());
    let this = Arc::new(std::sync::OnceLock::new());
    let calls = Turn::call("wait", &json!({})).and_call("wait", &json!({"n": 2}));
    let agent = agent([calls])
        .tool(wait(&ran))
        .hook(CancelsAtTheSecond(Arc::clone(&this), asked.clone()))
        .build()
        .unwrap();
    this.set(agent.clone()).unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    let results = results(&outcome);
    let told: Vec<_> = results.iter().map(|result| (result.status, result.started)).collect();
    // The first call is dispatched, but its body has not started when the second needs approval.
    assert_eq!(told, [(ToolStatus::Aborted, false), (ToolStatus::Aborted, false)]);
    assert_eq!((ran.count(), asked.count()), (0, 2), "what was prepared was not started");
}

#[tokio::test]
async fn started_tool_is_never_reported_unstarted() {
    let started = Reached::default();
    let calls = Turn::call("wait", &json!({})).and_call("later", &json!({}));
    let agent = agent([calls])
        .tool(wait(&started))
        .tool(tool_fn("later", "Runs alone.", |_: Nothing, _| async { "done" }))
        .build()
        .unwrap();
    let handle = agent.run("go").unwrap();
    eventually("the tool runs", || started.count() == 1).await;
    agent.cancel();
    let results = results(&handle.await);
    assert!(results[0].started && results[0].content.contains("may have done part of its work"));
    assert!(!results[1].started && results[1].content.starts_with("not run: "), "{results:?}");
}

#[tokio::test]
async fn outcome_is_never_overwritten() {
    // The answer arrives right after the cancel, and a tool is still running after the end.
    let ended = Reached::default();
    let late = ended.clone();
    let agent = agent([Turn::call("linger", &json!({})), Turn::text("a late success")])
        .tool(tool_fn("linger", "Ignores that it must stop.", move |_: Nothing, _| {
            let late = late.clone();
            async move {
                tokio::task::spawn_blocking(move || {
                    std::thread::sleep(Duration::from_millis(700));
                    late.now();
                })
                .await
                .unwrap();
                "success"
            }
        }))
        .limits(Limits { cancel_grace: Duration::from_millis(50), ..Limits::default() })
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::ToolStarted { .. })
    ) {}
    agent.terminate();
    let mut endings = Vec::new();
    while let Some(event) = handle.next().await {
        if let AgentEventKind::Finished { outcome, .. } = event.kind {
            endings.push(outcome.termination);
        }
    }
    let written = handle.try_outcome().unwrap();
    eventually("what lingered has ended", || ended.count() == 1).await;
    agent.cancel();
    agent.terminate();
    assert_eq!(endings, [Termination::Terminated]);
    assert_eq!(handle.try_outcome().unwrap(), written, "what comes late changes nothing");
}

#[tokio::test]
async fn run_ends_after_its_inner_runs() {
    let inner_ended = Reached::default();
    let ended = inner_ended.clone();
    let agent = agent([Turn::call("ask", &json!({"task": "it"})), Turn::text("done")])
        .tool(AgentTool::new(
            "ask",
            "Asks.",
            {
                let ended = ended.clone();
                agent([Turn::text("so").after(Duration::from_millis(50))]).on_event(move |event| {
                    if matches!(event.kind, AgentEventKind::Finished { .. }) {
                        ended.now();
                    }
                })
            }
            .build()
            .unwrap(),
        ))
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    while let Some(event) = handle.next().await {
        if matches!(event.kind, AgentEventKind::Finished { .. }) {
            assert_eq!(inner_ended.count(), 1, "nothing is left running after the end");
        }
    }
    agent.settled().await;
}

#[tokio::test]
async fn interrupted_conversation_can_continue() {
    for api in STRICT {
        let strict = Strict::answering(api, |number| match number {
            1 => Turn::text("a long answer ".repeat(1_000)).pace(Duration::from_millis(30)),
            _ => Turn::text("continuing"),
        });
        let agent = strict.agent().build().unwrap().session();
        let mut handle = agent.run("first").unwrap();
        while !matches!(handle.next().await.unwrap().kind, AgentEventKind::TextDelta { .. }) {}
        agent.cancel();
        let outcome = handle.await;
        assert_eq!(outcome.termination, Termination::Cancelled);
        assert!(outcome.last_text.is_some(), "streamed text is preserved");
        // If the model has not answered, the conversation is as it was before the run.
        let handle = agent.run("second").unwrap();
        handle.cancel();
        assert_eq!(handle.await.termination, Termination::Cancelled);
        assert_eq!(agent.run("third").unwrap().await.termination, Termination::Stop);
        strict.accepted_all();
    }
}
