//! Other failures of user code: observers next to a failing one, panics in destructors, streams
//! without a pause, keys in panic messages, and the connections and processes of a run that a panic
//! ends.

use super::goes_on;
use crate::support::{agent, eventually, marker, over, processes_with};
use endstop::agent::AgentTool;
use endstop::budget::SharedBudget;
use endstop::compaction::CompactionRequest;
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::hook::{Approver, CompactionFuture, Compactor, Hook, HookFuture};
use endstop::provider::http::HttpProvider;
use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec,
};
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{Shell, ToolContext, ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, Limits, NanoUsd, Part, Permission, Price, Termination, ToolCall,
    ToolResult,
    compaction::ProactiveCompaction,
    hook::{ConsultPoint, HookDecision, Hooks},
    policy::{StepContext, StepResult, Stop, TerminationPolicy, Verdict},
    provider::TurnDelta,
};
use serde_json::{Map, Value, json};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

type Arguments = Map<String, Value>;
type In = fn(AgentBuilder) -> AgentBuilder;

#[tokio::test]
async fn panicking_observer_does_not_affect_others() {
    let heard = Arc::<Mutex<Vec<AgentEvent>>>::default();
    let seen = Arc::clone(&heard);
    let agent = agent([Turn::text("fine")])
        .on_event(|_| panic!("asked to panic"))
        .on_event(move |event| seen.lock().unwrap().push(event.clone()))
        .build()
        .unwrap();
    let mut handle = agent.run("go").unwrap();
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        events.push(event);
    }
    let outcome = handle.await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(
        matches!(events.last().map(|event| &event.kind), Some(AgentEventKind::Finished { .. })),
        "{events:?}"
    );
    assert_eq!(*heard.lock().unwrap(), events, "also the ending");
}

#[tokio::test]
async fn panic_after_end_changes_nothing() {
    let busy = Arc::<Mutex<Vec<bool>>>::default();
    let heard = Arc::clone(&busy);
    let agent = agent([Turn::text("fine"), Turn::text("fine")])
        .on_event(|event| {
            assert!(!matches!(event.kind, AgentEventKind::Finished { .. }), "asked to panic")
        })
        .on_busy(|_| panic!("asked to panic"))
        .on_busy(move |now| heard.lock().unwrap().push(now))
        .build()
        .unwrap();
    for _ in 0..2 {
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    }
    assert_eq!(*busy.lock().unwrap(), [true, false, true, false]);
}

#[tokio::test]
async fn observers_receive_busy_and_idle_alternately() {
    for terminate in [true, false] {
        let the_loop = Arc::<OnceLock<Agent>>::default();
        let (acts, again) = (Arc::clone(&the_loop), AtomicUsize::new(0));
        let busy = Arc::<Mutex<Vec<bool>>>::default();
        let heard = Arc::clone(&busy);
        let agent = agent([Turn::text("fine"), Turn::text("fine")])
            .on_busy(move |busy| {
                let agent = acts.get().unwrap();
                if terminate && busy {
                    agent.terminate();
                } else if !terminate && !busy && again.fetch_add(1, Ordering::SeqCst) == 0 {
                    agent.run("again").unwrap().detach();
                }
            })
            .on_busy(move |busy| heard.lock().unwrap().push(busy))
            .build()
            .unwrap();
        assert!(the_loop.set(agent.clone()).is_ok());
        let outcome = agent.run("go").unwrap().await;
        agent.settled().await;
        if terminate {
            assert_eq!(outcome.termination, Termination::Terminated);
            assert_eq!(*busy.lock().unwrap(), [true, false]);
        } else {
            assert_eq!(outcome.termination, Termination::Stop);
            assert_eq!(*busy.lock().unwrap(), [true, false, true, false]);
        }
    }
}

/// A model whose stream is made by a function.
#[derive(Clone)]
struct Streams(fn() -> CallStream);

impl Provider for Streams {
    fn name(&self) -> &str {
        "streams"
    }
    fn model(&self) -> &str {
        "streams"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(self.clone())
    }
    fn is_terminal(&self, _: &Response) -> bool {
        true
    }
    fn price(&self) -> Option<Price> {
        let of_both = NanoUsd::from_usd(1_000.0);
        Some(Price { input: of_both, output: of_both, ..Price::default() })
    }
}

impl ModelSession for Streams {
    fn call(&mut self, _: CallSpec<'_>) -> CallStream {
        (self.0)()
    }
}

impl Drop for PanicsAsItGoes {
    fn drop(&mut self) {
        panic!("asked to panic");
    }
}

struct PanicsAsItGoes(usize);

impl futures_core::Stream for PanicsAsItGoes {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        self.0 += 1;
        if self.0 > 1 {
            return Poll::Pending;
        }
        Poll::Ready(Some(CallEvent::Delta(TurnDelta::Text("half an answer".to_owned()))))
    }
}

#[tokio::test]
async fn stream_drop_panic_changes_nothing() {
    for terminate in [false, true] {
        let budget = SharedBudget::new(NanoUsd::from_usd(100.0));
        let session = Agent::builder(Streams(|| Box::pin(PanicsAsItGoes(0))))
            .shared_budget(budget.clone())
            .max_output_tokens(100)
            .build()
            .unwrap()
            .session();
        let mut handle = session.run("go").unwrap();
        while !matches!(
            handle.next().await.map(|event| event.kind),
            Some(AgentEventKind::TextDelta { .. })
        ) {}
        let wanted = if terminate {
            session.terminate();
            Termination::Terminated
        } else {
            session.cancel();
            Termination::Cancelled
        };
        let outcome = handle.await;
        assert_eq!(outcome.termination, wanted, "{outcome:?}");
        assert_eq!(outcome.last_text.as_deref(), Some("half an answer"));
        assert!(outcome.cost > NanoUsd::ZERO);
        let upper = outcome.cost_upper.unwrap();
        assert_eq!((budget.spent(), budget.reserved()), (upper, NanoUsd::ZERO));
        assert_eq!(session.messages(), outcome.messages);
        session.settled().await;
    }
}

struct Restless;

impl futures_core::Stream for Restless {
    type Item = CallEvent;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        Poll::Ready(Some(CallEvent::Delta(TurnDelta::Reasoning(1))))
    }
}

#[tokio::test]
async fn always_ready_stream_starves_nothing() {
    let limits = Limits {
        turn_timeout: Some(Duration::from_millis(50)),
        max_retries: Some(0),
        ..Limits::default()
    };
    let restless = || Agent::builder(Streams(|| Box::pin(Restless)));
    let outcome = restless().limits(limits).build().unwrap().run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert!(outcome.decided_by.evidence.contains("turn_timeout"), "{outcome:?}");
    let agent = restless().build().unwrap();
    let mut handle = agent.run("go").unwrap();
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::HiddenDelta { .. })
    ) {}
    agent.cancel();
    assert_eq!(handle.await.termination, Termination::Cancelled);
}

/// Never answers, and panics when the question is dismissed.
struct PanicsWhenTakenDown(Arc<AtomicUsize>);

impl Approver for PanicsWhenTakenDown {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        struct Down;
        impl Drop for Down {
            fn drop(&mut self) {
                panic!("asked to panic");
            }
        }
        Box::pin(async {
            let _down = Down;
            self.0.fetch_add(1, Ordering::SeqCst);
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn dismissed_question_panic_keeps_tool_grace() {
    let asked = Arc::<AtomicUsize>::default();
    let tidy = tool_fn("tidy", "Tidies up.", |_: Arguments, context: ToolContext| async move {
        context.cancelled().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        ToolOutput::error("tidied up")
    });
    let act = tool_fn("act", "Acts.", |_: Arguments, _| async { "done" });
    let agent = agent([Turn::call("tidy", &json!({})).and_call("act", &json!({}))])
        .tool(tidy.parallel_safe())
        .tool(act.parallel_safe())
        .permission("act", Permission::Ask)
        .approver(PanicsWhenTakenDown(Arc::clone(&asked)))
        .build()
        .unwrap();
    let handle = agent.run("go").unwrap();
    eventually("a person is asked", || asked.load(Ordering::SeqCst) == 1).await;
    agent.cancel();
    let outcome = handle.await;
    assert_eq!((outcome.termination, &outcome.also[..]), (Termination::Cancelled, &[][..]));
    let results: Vec<ToolResult> = outcome
        .messages
        .iter()
        .flat_map(|m| m.parts.clone())
        .filter_map(|part| match part {
            Part::ToolResult(result) => Some(result),
            _ => None,
        })
        .collect();
    assert!(results[0].content.contains("tidied up"), "{results:?}");
    assert!(!results[1].started, "{results:?}");
    tokio::time::resume();
    goes_on("a question", &outcome.messages).await;
}

/// Does not look like a key, so it can be redacted only by a provider that knows it.
const KEY: &str = "correct-horse-4711-battery-0815";

fn says_the_key() -> ! {
    panic!("no access with {KEY}");
}

#[derive(Clone)]
struct Leaky(Hooks);

impl Hook for Leaky {
    fn points(&self) -> Hooks {
        self.0
    }
    fn consult(&self, _: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async { if true { says_the_key() } else { HookDecision::Proceed } })
    }
}

impl Compactor for Leaky {
    fn compact(&self, _: CompactionRequest) -> CompactionFuture<'_> {
        says_the_key()
    }
}

impl TerminationPolicy for Leaky {
    fn name(&self) -> &str {
        "leaky"
    }
    fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
        Verdict::Continue
    }
    fn on_delta(&mut self, _: &str, _: &StepContext) -> Option<Stop> {
        says_the_key()
    }
    fn reset(&mut self) {}
}

#[tokio::test]
async fn panic_message_has_no_provider_key() {
    let server = Server::start(|request| {
        Reply::turn(request, &Turn::text("I look.").and_call("leak", &json!({})))
    })
    .unwrap();
    let options =
        HttpProvider::builder("openai/gpt-4o").api("openai-chat").base_url(server.base_url());
    let provider = options.env(|name| (name == "OPENAI_API_KEY").then(|| KEY.to_owned())).build();
    let provider = provider.unwrap();
    let none = Hooks::default();
    let leaks: [(&str, In); 5] = [
        ("pre_tool", |builder| builder.hook(Leaky(Hooks { pre_tool: true, ..Hooks::default() }))),
        ("leaky", |builder| builder.policy(Leaky(Hooks::default()))),
        ("observer", |builder| builder.on_event(|_| says_the_key())),
        ("leak", |builder| builder),
        ("compaction", |builder| {
            builder
                .compactor(Leaky(Hooks::default()))
                .proactive_compaction(ProactiveCompaction::Ask)
        }),
    ];
    for (name, leak) in leaks {
        let tool = tool_fn("leak", "Leaks.", |_: Arguments, _| async {
            if true { says_the_key() } else { "never" }
        });
        let builder = Agent::builder(provider.clone()).tool(tool).hook(Leaky(none));
        let outcome = leak(builder).build().unwrap().run("go").unwrap().await;
        assert_eq!(outcome.decided_by.decision.as_str(), name, "{outcome:?}");
        assert_eq!(outcome.decided_by.layer.as_str(), "fault", "{outcome:?}");
        let evidence = &outcome.decided_by.evidence;
        assert!(evidence.ends_with("panicked: no access with [redacted]"), "{evidence}");
        let written = serde_json::to_string(&outcome).unwrap() + &format!("{outcome:?}");
        assert!(!written.contains("4711"), "{name}: {written}");
    }
    assert_eq!(server.requests()[0].headers["authorization"], format!("Bearer {KEY}"));
}

#[tokio::test]
async fn panic_mid_stream_closes_connection() {
    let ways: [(&str, In); 2] = [
        ("leaky", |builder| builder.policy(Leaky(Hooks::default()))),
        ("observer", |builder| {
            builder.on_event(|event| {
                assert!(!matches!(event.kind, AgentEventKind::TextDelta { .. }), "no")
            })
        }),
    ];
    for api in ["openai-chat", "anthropic-messages"] {
        for (name, way) in ways {
            let server = Server::start(|request| {
                let words = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2));
                Reply::turn(request, &words)
            })
            .unwrap();
            let agent = way(over(&server, api)).build().unwrap();
            let outcome = agent.run("go").unwrap().await;
            assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
            assert_eq!(outcome.decided_by.decision.as_str(), name);
            assert!(
                outcome.last_text.as_ref().unwrap().starts_with("word"),
                "received text is preserved"
            );
            eventually("the connection is closed", || server.open_connections() == 0).await;
            agent.settled().await;
            goes_on(name, &outcome.messages).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn panicking_tool_kills_other_processes() {
    let mark = marker();
    let command = format!("MARK={mark} sleep 1000 & MARK={mark} sleep 1000");
    let inner = move || {
        Agent::builder(ScriptedModel::new([Turn::call("shell", &json!({"command": command}))]))
            .tool(Shell::default())
    };
    let seen = mark.clone();
    let boom = tool_fn("boom", "Panics.", move |_: Arguments, _| {
        let seen = seen.clone();
        async move {
            eventually("the command runs", || processes_with(&seen) == 2).await;
            if true { panic!("asked to panic") } else { "never" }
        }
    });
    let calls = Turn::call("ask", &json!({"task": "sleep"})).and_call("boom", &json!({}));
    let agent = agent([calls])
        .tool(AgentTool::new("ask", "Asks.", inner().build().unwrap()))
        .tool(boom.parallel_safe())
        .build()
        .unwrap();
    let mut own = agent.run("go").unwrap().own_events();
    let mut ended = 0;
    while let Some(event) = own.next().await {
        ended += usize::from(matches!(event.kind, AgentEventKind::ToolFinished { .. }));
    }
    let outcome = own.into_handle().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution, "{outcome:?}");
    assert_eq!((outcome.decided_by.decision.as_str(), ended), ("boom", 2), "each call is answered");
    agent.settled().await;
    eventually("no process is left", || processes_with(&mark) == 0).await;
    goes_on("boom", &outcome.messages).await;
}
