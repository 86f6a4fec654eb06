//! The spans of runs: each opens and closes once however the run ends, has the right parent, and
//! has the attributes of the conventions but no content of the conversation.
//!
//! A program of its own: `tracing` can miss a subscriber that is installed while a test without one
//! opens the first span of its place.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    dead_code,
    reason = "tests"
)]

#[path = "../it/support.rs"]
mod support;

use crate::support::{agent, eventually};
use endstop::agent::{Agent, AgentTool};
use endstop::journal::SqliteJournal;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{Limits, Termination};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A span as a subscriber received it.
#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    closed: u32,
}

impl Visit for Seen {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}

/// A subscriber layer that records all spans in the order of opening.
#[derive(Clone, Default)]
struct Spans(Arc<Mutex<Vec<(u64, Seen)>>>);

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attrs: &Attributes<'_>, id: &Id, ctx: Context<'_, S>) {
        let parent = ctx.span(id).unwrap().parent().map(|parent| parent.id().into_u64());
        let mut seen = Seen { name: attrs.metadata().name(), parent, ..Seen::default() };
        attrs.record(&mut seen);
        self.0.lock().unwrap().push((id.into_u64(), seen));
    }
    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        self.with(id, |seen| values.record(seen));
    }
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.with(&id, |seen| seen.closed += 1);
    }
}

/// Makes a run, so that the places of all spans are registered before a test installs a subscriber.
fn register_spans() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let look = tool_fn("look", "Looks.", |_: Value, _| async { "here" });
        let turns = [Turn::call("look", &json!({})), Turn::text("Found.")];
        let agent = agent(turns).tool(look).build().unwrap();
        runtime.block_on(async { agent.run("Look.").unwrap().await })
    };
    assert!(std::thread::spawn(run).join().unwrap().is_success());
}

impl Spans {
    /// Installs a subscriber for this thread.
    fn listen() -> (Spans, DefaultGuard) {
        static KNOWN: Once = Once::new();
        KNOWN.call_once(register_spans);
        let spans = Spans::default();
        let subscriber = tracing_subscriber::registry().with(spans.clone());
        (spans, tracing::subscriber::set_default(subscriber))
    }

    /// Changes the last span with this id, because ids are reused once a span is closed.
    fn with(&self, id: &Id, what: impl FnOnce(&mut Seen)) {
        let mut spans = self.0.lock().unwrap();
        let found = spans.iter_mut().rev().find(|(known, _)| *known == id.into_u64());
        what(&mut found.unwrap().1);
    }

    /// Returns all spans but the caller's.
    fn all(&self) -> Vec<Seen> {
        let spans = self.0.lock().unwrap();
        spans.iter().map(|(_, seen)| seen.clone()).filter(|s| s.name != "caller").collect()
    }

    fn of(&self, name: &str) -> Vec<Seen> {
        self.all().into_iter().filter(|seen| seen.name == name).collect()
    }

    /// Returns the only span of a name.
    fn one(&self, name: &str) -> Seen {
        let [seen] = self.of(name).try_into().unwrap();
        seen
    }

    /// Returns the path of each span from its root, for example `invoke_agent/chat`.
    fn tree(&self) -> Vec<String> {
        let spans = self.0.lock().unwrap();
        let mut lines = Vec::new();
        for (at, (_, seen)) in spans.iter().enumerate() {
            let (mut line, mut parent, mut before) = (seen.name.to_owned(), seen.parent, at);
            while let Some(id) = parent {
                let place = spans[..before].iter().rposition(|(known, _)| *known == id).unwrap();
                let above = &spans[place].1;
                line = format!("{}/{line}", above.name);
                (parent, before) = (above.parent, place);
            }
            lines.push(line);
        }
        lines
    }
}

impl Seen {
    #[track_caller]
    fn is(&self, fields: &[(&str, &str)]) {
        for (name, value) in fields {
            assert_eq!(self.fields.get(name).map(String::as_str), Some(*value), "{name}: {self:?}");
        }
    }
    #[track_caller]
    fn lacks(&self, fields: &[&str]) {
        for name in fields {
            assert!(!self.fields.contains_key(name), "{name}: {self:?}");
        }
    }
}

#[tokio::test]
async fn nested_run_is_child_of_tool() {
    let (spans, _listening) = Spans::listen();
    let caller = tracing::info_span!("caller");
    let boss =
        agent([Turn::call("ask", &json!({"task": "What is it?"})), Turn::text("Forty-two.")])
            .tool(AgentTool::new(
                "ask",
                "Asks.",
                {
                    let script = [
                        Turn::call("look", &json!({"where": "here"})),
                        Turn::text("Found: forty-two."),
                    ];
                    Agent::builder(ScriptedModel::new(script)).tool(tool_fn(
                        "look",
                        "Looks.",
                        |_: Value, _| async { "a secret place" },
                    ))
                }
                .build()
                .unwrap(),
            ))
            .build()
            .unwrap();
    let outcome = caller.in_scope(|| boss.run("Ask around.").unwrap()).await;
    assert!(outcome.is_success(), "{outcome:?}");
    let run = "caller/invoke_agent";
    let inner = format!("{run}/execute_tool/invoke_agent");
    assert_eq!(
        spans.tree(),
        [
            "caller".to_owned(),
            run.to_owned(),
            format!("{run}/chat"),
            format!("{run}/execute_tool"),
            inner.clone(),
            format!("{inner}/chat"),
            format!("{inner}/execute_tool"),
            format!("{inner}/chat"),
            format!("{run}/chat"),
        ]
    );
    let all = spans.all();
    assert!(all.iter().all(|seen| seen.closed == 1), "{all:?}");
    all[0].is(&[
        ("gen_ai.operation.name", "invoke_agent"),
        ("endstop.termination", "stop"),
        ("endstop.category", "success"),
        ("endstop.turns", "2"),
        ("endstop.tool_calls", "1"),
        ("otel.kind", "internal"),
    ]);
    all[0].lacks(&["error.type", "otel.status_code"]);
    all[2].is(&[
        ("otel.name", "execute_tool ask"),
        ("gen_ai.tool.name", "ask"),
        ("endstop.tool_status", "ok"),
    ]);
    let mut said = String::new();
    write!(said, "{all:?}").unwrap();
    for content in ["Ask around", "What is it", "orty-two", "here", "Looks", "a secret place"] {
        assert!(!said.contains(content), "{content:?} in {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn stalled_call_and_tool_record_timeout() {
    // A stream that stalls and is retried, and a tool that takes too long.
    let (spans, _listening) = Spans::listen();
    let script = [
        Turn::text("too slow").after(Duration::from_secs(20)),
        Turn::call("sleep", &json!({})),
        Turn::text("Done."),
    ];
    let limits = Limits {
        first_content_timeout: Some(Duration::from_millis(50)),
        tool_timeout: Some(Duration::from_millis(50)),
        cancel_grace: Duration::from_millis(50),
        ..Limits::default()
    };
    let agent = agent(script)
        .limits(limits)
        .tool(tool_fn("sleep", "Sleeps.", |_: Value, _| async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            "awake"
        }))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let calls = spans.of("chat");
    assert_eq!(calls.len(), 3);
    calls[0].is(&[
        ("error.type", "timeout"),
        ("otel.status_code", "ERROR"),
        ("endstop.attempt", "1"),
    ]);
    calls[0].lacks(&["endstop.aborted", "endstop.signal"]);
    calls[1].is(&[("endstop.turn", "1"), ("endstop.attempt", "2"), ("endstop.signal", "tool_use")]);
    calls[2].is(&[("endstop.turn", "2"), ("endstop.attempt", "1")]);
    spans.one("execute_tool").is(&[("endstop.tool_status", "timeout"), ("error.type", "timeout")]);
    assert!(spans.all().iter().all(|seen| seen.closed == 1));
}

#[tokio::test]
async fn stopped_run_closes_spans_once() {
    type Stop = fn(&Agent);
    let stops: [(Stop, Termination); 2] =
        [(Agent::cancel, Termination::Cancelled), (Agent::terminate, Termination::Terminated)];
    for (stop, termination) in stops {
        for in_tool in [false, true] {
            let (spans, _listening) = Spans::listen();
            let first = match in_tool {
                true => Turn::call("wait", &json!({})),
                false => Turn::text("slowly").after(Duration::from_secs(20)),
            };
            let agent = agent([first])
                .tool(tool_fn("wait", "Waits.", |_: Value, _| std::future::pending::<ToolOutput>()))
                .build()
                .unwrap();
            let handle = agent.run("go").unwrap();
            let under_way = if in_tool { "execute_tool" } else { "chat" };
            eventually("it is under way", || spans.of(under_way).len() == 1).await;
            stop(&agent);
            let outcome = handle.await;
            assert_eq!(outcome.termination, termination, "{outcome:?}");
            agent.settled().await;
            let all = spans.all();
            assert!(all.iter().all(|seen| seen.closed == 1), "{all:?}");
            let ending = termination.as_str();
            spans.one("invoke_agent").is(&[
                ("endstop.termination", ending),
                ("error.type", ending),
                ("otel.status_code", "ERROR"),
                ("endstop.category", "fatal"),
            ]);
            if in_tool {
                spans.one("execute_tool").is(&[("endstop.tool_status", "aborted")]);
            } else {
                spans.one("chat").is(&[("endstop.aborted", "true")]);
                spans.one("chat").lacks(&["error.type"]);
            }
        }
    }
}

#[test]
fn runtime_shutdown_closes_spans() {
    for under_way in ["chat", "execute_tool"] {
        let (spans, _listening) = Spans::listen();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let first = match under_way {
            "chat" => Turn::text("slowly").after(Duration::from_secs(20)),
            _ => Turn::call("wait", &json!({})),
        };
        let wait = |_: Value, _| std::future::pending::<ToolOutput>();
        let agent = agent([first]).tool(tool_fn("wait", "Waits.", wait)).build().unwrap();
        let handle = runtime.block_on(async {
            let handle = agent.run("go").unwrap();
            eventually("it is under way", || spans.of(under_way).len() == 1).await;
            handle
        });
        drop(runtime);
        let outcome = handle.try_outcome().unwrap();
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        let all = spans.all();
        assert!(all.iter().all(|seen| seen.closed == 1), "{all:?}");
        spans.one("invoke_agent").is(&[("endstop.decided_by", "fault:driver")]);
        let stopped = match under_way {
            "chat" => ("endstop.aborted", "true"),
            _ => ("endstop.tool_status", "aborted"),
        };
        spans.one(under_way).is(&[stopped]);
    }
}

#[tokio::test]
async fn panic_is_recorded_on_its_span() {
    let (spans, _listening) = Spans::listen();
    let agent = agent([Turn::call("fall", &json!({}))])
        .tool(tool_fn("fall", "Falls.", |_: Value, _| async {
            if true {
                panic!("this text must not be in a span");
            }
            ""
        }))
        .build()
        .unwrap();
    let outcome = agent.run("go").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    spans.one("execute_tool").is(&[("error.type", "panic"), ("otel.status_code", "ERROR")]);
    spans.one("invoke_agent").is(&[("error.type", "error_during_execution")]);
    let all = spans.all();
    assert!(all.iter().all(|seen| seen.closed == 1), "{all:?}");
    assert!(!format!("{all:?}").contains("must not be in a span"));
}

#[tokio::test]
async fn resumed_run_has_its_own_span() {
    let dir = tempfile::tempdir().unwrap();
    let journal = SqliteJournal::open(dir.path().join("journal.db")).unwrap();
    let with = |max_turns, script: Vec<Turn>| {
        agent(script)
            .limits(Limits { max_turns: Some(max_turns), ..Limits::default() })
            .tool(tool_fn("look", "Looks.", |_: Value, _| async { "seen" }))
            .journal(journal.clone())
            .build()
            .unwrap()
    };
    let (spans, _listening) = Spans::listen();
    let first = with(1, vec![Turn::call("look", &json!({}))]).run("go").unwrap().await;
    let id = first.run_id.unwrap();
    let caller = tracing::info_span!("caller");
    let again = with(2, vec![Turn::text("Done.")]);
    let outcome = caller.in_scope(|| again.resume(&id).unwrap()).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let [one, two] = spans.of("invoke_agent").try_into().unwrap();
    one.is(&[("endstop.run_id", &id), ("endstop.termination", "error_max_turns")]);
    one.is(&[("endstop.decided_by", "limit:max_turns"), ("endstop.category", "capacity")]);
    two.is(&[("endstop.run_id", &outcome.run_id.unwrap()), ("endstop.termination", "stop")]);
    let under_caller = spans.tree().into_iter().filter(|line| line.starts_with("caller/"));
    assert_eq!(
        under_caller.collect::<Vec<_>>(),
        ["caller/invoke_agent", "caller/invoke_agent/chat"]
    );
    spans.of("chat")[1].is(&[("endstop.turn", "2")]);
    assert!(spans.all().iter().all(|seen| seen.closed == 1));
}
