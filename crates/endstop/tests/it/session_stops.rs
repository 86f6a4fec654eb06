//! Cancel and terminate at the levels run, session and agent. The cells of the table in
//! `docs/src/lifecycle.md` are tested by the functions that take a [`Level`] and a [`Stop`].

use crate::sessions::{echo_server, said, until_text};
use crate::support::{eventually, marker, over, processes_with};
use Level::{Run, Session as OfSession};
use Stop::{Cancel, Terminate};
use endstop::event::AgentEventKind;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::{Shell, Tool, ToolContext, ToolFuture, ToolOutput};
use endstop::{Agent, Lifecycle, Limits, RunHandle, Session, StartError, Termination};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    Run,
    Session,
    Agent,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stop {
    Cancel,
    Terminate,
}

const CELLS: [(Level, Stop); 6] = [
    (Run, Cancel),
    (Run, Terminate),
    (OfSession, Cancel),
    (OfSession, Terminate),
    (Level::Agent, Cancel),
    (Level::Agent, Terminate),
];

impl Stop {
    fn ending(self) -> Termination {
        match self {
            Cancel => Termination::Cancelled,
            Terminate => Termination::Terminated,
        }
    }
}

fn stop(cell: (Level, Stop), agent: &Agent, session: &Session, run: &RunHandle) {
    match cell {
        (Run, Cancel) => run.cancel(),
        (Run, Terminate) => run.terminate(),
        (OfSession, Cancel) => session.cancel(),
        (OfSession, Terminate) => session.terminate(),
        (Level::Agent, Cancel) => agent.cancel(),
        (Level::Agent, Terminate) => agent.terminate(),
    }
}

#[tokio::test]
async fn stop_reaches_exactly_its_level() {
    for cell in CELLS {
        let server = echo_server();
        let agent = over(&server, "openai-chat").build().unwrap();
        let (session, other) = (agent.session(), agent.session());
        let (mut run, mut bystander) = (session.run("slow").unwrap(), other.run("slow").unwrap());
        until_text(&mut run).await;
        until_text(&mut bystander).await;
        assert_eq!(server.open_connections(), 2);
        // Twice, because a stop is idempotent.
        stop(cell, &agent, &session, &run);
        stop(cell, &agent, &session, &run);
        let reaches_all = cell.0 == Level::Agent;
        let outcome = run.await;
        assert_eq!(outcome.termination, cell.1.ending(), "{cell:?}");
        assert!(said(&outcome).starts_with("word"), "{cell:?}: the partial text remains");
        // The stream is closed, and only the stopped one.
        let left = usize::from(!reaches_all);
        eventually("the connection is closed", || server.open_connections() == left).await;
        if reaches_all {
            assert_eq!(bystander.await.termination, cell.1.ending(), "{cell:?}");
        } else {
            assert!(bystander.try_outcome().is_none(), "{cell:?}: the other run continues");
            until_text(&mut bystander).await;
            assert_eq!(other.lifecycle(), Lifecycle::Running);
            drop(bystander);
        }
        other.settled().await;
        session.settled().await;
        // What can run afterwards.
        let again = |refused: bool, started: Result<RunHandle, StartError>| match started {
            Ok(run) => {
                assert!(!refused, "{cell:?}");
                run.detach();
            }
            Err(problem) => {
                assert!(refused, "{cell:?}: {problem}");
                assert_eq!(problem.to_string(), "AgentLoop has been terminated");
            }
        };
        let ended = |level| cell == (level, Terminate);
        let agent_ended = ended(Level::Agent);
        assert_eq!(session.lifecycle() == Lifecycle::Terminated, agent_ended || ended(OfSession));
        assert_eq!(other.lifecycle() == Lifecycle::Terminated, agent_ended);
        assert_eq!(agent.lifecycle() == Lifecycle::Terminated, agent_ended);
        again(agent_ended || ended(OfSession), session.run("on"));
        again(agent_ended, other.run("on"));
        again(agent_ended, agent.run("on"));
        again(agent_ended, agent.session().run("on"));
        agent.settled().await;
    }
}

#[tokio::test]
async fn idle_cancel_does_nothing_anywhere() {
    let busy = Arc::<Mutex<Vec<bool>>>::default();
    let heard = Arc::clone(&busy);
    let agent = crate::support::agent([Turn::text("a"), Turn::text("b")])
        .on_busy(move |now| heard.lock().unwrap().push(now))
        .build()
        .unwrap();
    let session = agent.session();
    agent.cancel();
    session.cancel();
    assert!(busy.lock().unwrap().is_empty());
    let run = session.run("one").unwrap();
    eventually("it has ended", || run.try_outcome().is_some()).await;
    run.cancel();
    run.terminate();
    session.cancel();
    agent.cancel();
    assert_eq!(run.await.termination, Termination::Stop);
    assert!(session.run("two").unwrap().await.is_success(), "a late stop ends no later run");
    assert_eq!(*busy.lock().unwrap(), [true, false, true, false]);
}

#[tokio::test]
async fn stronger_stop_wins_at_every_level() {
    // A terminate strengthens a cancel, and a cancel does not weaken a terminate.
    for first in CELLS {
        for second in CELLS {
            let model = ScriptedModel::new([
                Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2))
            ]);
            let agent = Agent::builder(model).build().unwrap();
            let session = agent.session();
            let mut run = session.run("go").unwrap();
            until_text(&mut run).await;
            stop(first, &agent, &session, &run);
            stop(second, &agent, &session, &run);
            let outcome = run.await.termination;
            let either = |what| first.1 == what || second.1 == what;
            let expected = if either(Terminate) { Terminate } else { Cancel };
            assert_eq!(outcome, expected.ending(), "{first:?}, {second:?}");
        }
    }
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_stop_kills_tool_processes() {
    for cell in CELLS {
        let mark = marker();
        let command = format!("MARK={mark} sleep 1000 & MARK={mark} sleep 1000");
        let limits = Limits { cancel_grace: Duration::from_millis(100), ..Limits::default() };
        let agent = crate::support::agent([Turn::call("shell", &json!({"command": command}))])
            .tool(Shell::default())
            .limits(limits)
            .build()
            .unwrap();
        let session = agent.session();
        let run = session.run("go").unwrap();
        eventually("both sleeps run", || processes_with(&mark) >= 2).await;
        stop(cell, &agent, &session, &run);
        assert_eq!(run.await.termination, cell.1.ending(), "{cell:?}");
        session.settled().await;
        eventually("no process is left", || processes_with(&mark) == 0).await;
    }
}

/// A tool that fails the test if its body starts after the stop of its run has returned.
#[derive(Clone, Default)]
struct NotAfter {
    returned: Arc<AtomicBool>,
    late: Arc<AtomicUsize>,
    started: Arc<AtomicUsize>,
}

impl Tool for NotAfter {
    fn name(&self) -> &str {
        "work"
    }
    fn description(&self) -> &str {
        "Works."
    }
    fn schema(&self) -> Value {
        json!({"type": "object"})
    }
    fn parallel_safe(&self) -> bool {
        true
    }
    fn exempt_from_no_progress(&self) -> bool {
        true
    }
    fn call(&self, _: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async {
            if self.returned.load(Ordering::SeqCst) {
                self.late.fetch_add(1, Ordering::SeqCst);
            }
            self.started.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            ToolOutput::ok("done")
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_tool_starts_after_any_stop() {
    for cell in CELLS {
        let mut bodies = 0;
        for _ in 0..40 {
            let tool = NotAfter::default();
            let turn = Turn::call("work", &json!({}));
            let turn = (0..7).fold(turn, |turn, _| turn.and_call("work", &json!({})));
            let limits = Limits { max_turns: None, ..Limits::default() };
            let agent = Agent::builder(ScriptedModel::new([turn]).repeat_last())
                .tool(tool.clone())
                .limits(limits)
                .watches([])
                .build()
                .unwrap();
            let session = agent.session();
            let run = session.run("go").unwrap();
            // A stop of the agent must hold for all of its runs.
            let others: Vec<RunHandle> = match cell.0 {
                Level::Agent => (0..3).map(|_| agent.run("go").unwrap()).collect(),
                _ => Vec::new(),
            };
            eventually("tools run", || tool.started.load(Ordering::SeqCst) > 20).await;
            stop(cell, &agent, &session, &run);
            tool.returned.store(true, Ordering::SeqCst);
            assert_eq!(run.await.termination, cell.1.ending(), "{cell:?}");
            for other in others {
                assert_eq!(other.await.termination, cell.1.ending(), "{cell:?}");
            }
            agent.settled().await;
            assert_eq!(tool.late.load(Ordering::SeqCst), 0, "{cell:?}");
            bodies += tool.started.load(Ordering::SeqCst);
        }
        assert!(bodies > 0);
    }
}

#[tokio::test]
async fn no_event_follows_any_terminate() {
    for level in [Run, OfSession, Level::Agent] {
        let returned = Arc::<AtomicBool>::default();
        let late = Arc::<AtomicUsize>::default();
        let (is_late, counts) = (Arc::clone(&returned), Arc::clone(&late));
        let server = echo_server();
        let agent = over(&server, "openai-chat")
            .on_event(move |_| {
                if is_late.load(Ordering::SeqCst) {
                    counts.fetch_add(1, Ordering::SeqCst);
                }
            })
            .build()
            .unwrap();
        let session = agent.session();
        let mut run = session.run("slow").unwrap();
        until_text(&mut run).await;
        stop((level, Terminate), &agent, &session, &run);
        returned.store(true, Ordering::SeqCst);
        // The handle still receives the outcome.
        assert_eq!(run.await.termination, Termination::Terminated);
        session.settled().await;
        assert_eq!(late.load(Ordering::SeqCst), 0, "{level:?}");
    }
}

#[tokio::test]
async fn every_stop_survives_panicking_observers() {
    for cell in CELLS {
        let model =
            ScriptedModel::new([Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2))]);
        let agent = Agent::builder(model)
            .on_busy(|_| panic!("asked to panic"))
            .on_event(|event| {
                let told = matches!(event.kind, AgentEventKind::Stopping { .. });
                assert!(!told, "asked to panic");
            })
            .build()
            .unwrap();
        let session = agent.session();
        let mut run = session.run("go").unwrap();
        until_text(&mut run).await;
        stop(cell, &agent, &session, &run);
        let outcome = run.await;
        assert_eq!(outcome.termination, cell.1.ending(), "{cell:?}: {:?}", outcome.decided_by);
    }
}
