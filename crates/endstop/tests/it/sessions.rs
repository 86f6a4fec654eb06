//! Agents and sessions: concurrent runs that share nothing but their configuration, conversations
//! that are forked, changed and stored, and cancel and terminate at the levels run, session and
//! agent. The cells of the table in `docs/src/lifecycle.md` are tested by the functions that take a
//! [`Level`] and a [`Stop`].

use crate::support::{eventually, marker, over, processes_with};
use endstop::event::AgentEvent;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{Shell, Tool, ToolContext, ToolFuture, ToolOutput};
use endstop::{
    Agent, Lifecycle, Limits, Message, MessageId, Outcome, Part, Role, RunHandle, Session,
    SessionSnapshot, StartError, Termination, ToolCall,
    policy::{StepContext, StepResult, TerminationPolicy, Verdict},
};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

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

use Level::{Run, Session as OfSession};
use Stop::{Cancel, Terminate};

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

/// A server whose answer is the last message of the request, and repeats its text for `slow`.
fn echo_server() -> Server {
    Server::start(|request| {
        let messages = request.body["messages"].as_array().unwrap();
        let last = messages.last().unwrap()["content"].as_str().unwrap();
        let turn = match last {
            "slow" => Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(2)),
            said => Turn::text(format!("{said} after {}", messages.len() - 1)),
        };
        Reply::turn(request, &turn)
    })
    .unwrap()
}

async fn until_text(handle: &mut RunHandle) {
    while !matches!(handle.next().await, Some(AgentEvent::TextDelta { .. })) {}
}

fn said(outcome: &Outcome) -> &str {
    outcome.last_text.as_deref().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_sessions_share_no_conversation() {
    let server = echo_server();
    let agent = over(&server, "openai-chat").build().unwrap();
    let mut chats = JoinSet::new();
    for user in 0..100 {
        let session = agent.session();
        chats.spawn(async move {
            let first = session.run(format!("user {user}")).unwrap().await;
            assert_eq!(said(&first), format!("user {user} after 0"));
            let second = session.run(format!("again {user}")).unwrap().await;
            assert_eq!(said(&second), format!("again {user} after 2"));
            let texts: Vec<String> = session.messages().iter().map(Message::plain_text).collect();
            assert_eq!(texts.len(), 4);
            assert!(texts.iter().all(|text| text.contains(&format!(" {user}"))), "{texts:?}");
        });
    }
    while let Some(chat) = chats.join_next().await {
        chat.unwrap();
    }
    assert_eq!(agent.lifecycle(), Lifecycle::Idle);
}

/// Stops after a number of steps.
#[derive(Clone)]
struct StopsAfter {
    steps: u32,
    seen: u32,
}

impl TerminationPolicy for StopsAfter {
    fn name(&self) -> &'static str {
        "stops_after"
    }
    fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
        self.seen += 1;
        if self.seen < self.steps {
            return Verdict::Continue;
        }
        Verdict::Stop(endstop::policy::Stop::submitted("stops_after", "enough").answer("x"))
    }
    fn reset(&mut self) {
        self.seen = 0;
    }
}

/// A tool that waits until several of its calls, of different runs, are in progress.
struct Meets(tokio::sync::Barrier);

impl Tool for Meets {
    fn name(&self) -> &str {
        "meet"
    }
    fn description(&self) -> &str {
        "Waits for the others."
    }
    fn schema(&self) -> Value {
        json!({"type": "object"})
    }
    fn call(&self, _: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async {
            self.0.wait().await;
            ToolOutput::ok("met")
        })
    }
}

#[tokio::test]
async fn each_run_has_its_own_policy() {
    const RUNS: usize = 8;
    let model = ScriptedModel::new([Turn::call("meet", &json!({}))]).repeat_last();
    // The barrier interleaves the steps of all runs, so that a shared count would end them early.
    let agent = Agent::builder(model)
        .tool(Meets(tokio::sync::Barrier::new(RUNS)))
        .policy(StopsAfter { steps: 3, seen: 2 })
        .build()
        .unwrap();
    let runs: Vec<RunHandle> = (0..RUNS).map(|_| agent.run("go").unwrap()).collect();
    for run in runs {
        let outcome = run.await;
        assert_eq!((outcome.termination, outcome.turns), (Termination::Submitted, 3));
    }
}

#[derive(Debug)]
struct NoCopy;

impl Clone for NoCopy {
    fn clone(&self) -> NoCopy {
        panic!("asked to panic")
    }
}

impl TerminationPolicy for NoCopy {
    fn name(&self) -> &'static str {
        "no_copy"
    }
    fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
        Verdict::Continue
    }
    fn reset(&mut self) {}
}

#[tokio::test]
async fn policy_panic_in_clone_ends_run() {
    let agent = crate::support::agent([Turn::text("x")]).policy(NoCopy).build().unwrap();
    for _ in 0..2 {
        let outcome = agent.run("go").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
        assert!(outcome.error_diagnostic.as_ref().unwrap().contains("asked to panic"));
        assert_eq!(outcome.decided_by.decision.as_str(), "no_copy");
    }
}

#[tokio::test]
async fn second_run_of_session_is_busy() {
    let server = echo_server();
    let agent = over(&server, "openai-chat").build().unwrap();
    let session = agent.session();
    let mut first = session.run("slow").unwrap();
    until_text(&mut first).await;
    let other = session.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { other.run("b").unwrap_err() });
    let refused = tasks.join_next().await.unwrap().unwrap();
    assert_eq!(refused, StartError::Busy);
    assert_eq!(refused.to_string(), "the session is busy: a run is in progress");
    assert_eq!(session.edit(Vec::clear), Err(StartError::Busy));
    assert_eq!(session.rollback(None), Err(StartError::Busy));
    // The other session of the agent is not concerned.
    assert!(agent.run("b").unwrap().await.is_success());
    first.cancel();
    assert_eq!(first.await.termination, Termination::Cancelled);
    assert!(session.run("b").unwrap().await.is_success());
}

#[tokio::test]
async fn run_during_edit_refuses_the_edit() {
    let agent = crate::support::agent([Turn::text("a"), Turn::text("b")]).build().unwrap();
    let session = agent.session();
    session.run("one").unwrap().await;
    let before = session.messages();
    let mut started = None;
    let refused = session.edit(|messages| {
        messages.clear();
        started = Some(session.run("two").unwrap());
    });
    assert_eq!(refused, Err(StartError::Busy));
    started.unwrap().await;
    assert!(session.messages().starts_with(&before));
    assert_eq!(session.messages().len(), 4);
}

#[tokio::test]
async fn fork_and_original_are_independent() {
    let server = echo_server();
    let session = over(&server, "openai-chat").build().unwrap().session();
    session.run("one").unwrap().await;
    let fork = session.fork();
    let (original, forked) =
        tokio::join!(session.run("left").unwrap().outcome(), fork.run("right").unwrap().outcome());
    assert_eq!((said(&original), said(&forked)), ("left after 2", "right after 2"));
    assert_eq!(session.messages()[..2], fork.messages()[..2]);
    assert_ne!(session.messages(), fork.messages());
    // A fork of a terminated session is a session of its own.
    session.terminate();
    assert!(session.fork().run("on").unwrap().await.is_success());
    assert_eq!(session.run("on").unwrap_err(), StartError::Terminated);
}

#[tokio::test]
async fn rollback_returns_to_a_message() {
    let server = echo_server();
    let session = over(&server, "openai-chat").build().unwrap().session();
    session.run("one").unwrap().await;
    let after_one = session.last_message();
    session.run("two").unwrap().await;
    session.rollback(after_one).unwrap();
    assert_eq!(session.last_message(), after_one);
    assert_eq!(said(&session.run("three").unwrap().await), "three after 2");
    let unknown = session.rollback(Some(MessageId(99))).unwrap_err().to_string();
    assert!(unknown.contains("message 99"), "{unknown}");
    session.rollback(None).unwrap();
    assert_eq!(said(&session.run("four").unwrap().await), "four after 0");
    session.terminate();
    assert_eq!(session.rollback(None), Err(StartError::Terminated));
}

#[tokio::test]
async fn rollback_into_open_calls_is_refused() {
    let agent = crate::support::agent([]).build().unwrap();
    let call = ToolCall { id: "c".to_owned(), name: "act".to_owned(), arguments: "{}".to_owned() };
    let result = endstop::ToolResult {
        call_id: "c".to_owned(),
        name: "act".to_owned(),
        status: endstop::ToolStatus::Ok,
        content: "done".to_owned(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    };
    let messages = vec![
        Message::text(MessageId(1), Role::User, "act"),
        Message::new(MessageId(2), Role::Assistant, vec![Part::ToolCall(call)]),
        Message::new(MessageId(3), Role::Tool, vec![Part::ToolResult(result)]),
        Message::text(MessageId(4), Role::Assistant, "done"),
    ];
    let session = agent.session_from(messages.clone()).unwrap();
    let refused = session.rollback(Some(MessageId(2))).unwrap_err().to_string();
    assert!(refused.contains("call_without_result") && refused.contains("`c`"), "{refused}");
    assert_eq!(session.messages(), messages);
    session.rollback(Some(MessageId(3))).unwrap();
    assert_eq!(session.messages(), messages[..3]);
}

#[tokio::test]
async fn stored_session_continues() {
    let server = echo_server();
    let agent = over(&server, "openai-chat").build().unwrap();
    let session = agent.session();
    session.run("one").unwrap().await;
    let stored = serde_json::to_string(&session).unwrap();
    let snapshot: SessionSnapshot = serde_json::from_str(&stored).unwrap();
    assert_eq!(snapshot, session.snapshot());
    let loaded = agent.session_from(snapshot).unwrap();
    assert_eq!(said(&loaded.run("two").unwrap().await), "two after 2");
    assert_eq!(session.messages().len(), 2, "the first session is unchanged");
    let fresh = serde_json::to_string(&agent.session()).unwrap();
    assert_eq!(fresh, r#"{"messages":[]}"#);
    assert!(agent.session_from(serde_json::from_str::<SessionSnapshot>(&fresh).unwrap()).is_ok());
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
                let told = matches!(event, AgentEvent::Stopping { .. });
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

#[tokio::test]
async fn busy_reports_agent_not_each_run() {
    let busy = Arc::<Mutex<Vec<bool>>>::default();
    let heard = Arc::clone(&busy);
    let server = echo_server();
    let agent = over(&server, "openai-chat")
        .on_busy(move |now| heard.lock().unwrap().push(now))
        .build()
        .unwrap();
    let (first, second) = (agent.session(), agent.session());
    let (mut one, mut two) = (first.run("slow").unwrap(), second.run("slow").unwrap());
    until_text(&mut one).await;
    until_text(&mut two).await;
    assert_eq!(*busy.lock().unwrap(), [true]);
    first.cancel();
    one.await;
    assert_eq!(*busy.lock().unwrap(), [true], "the second run is still in progress");
    second.terminate();
    assert_eq!(*busy.lock().unwrap(), [true, false], "at once, not after the run has ended");
    two.await;
    agent.terminate();
    agent.settled().await;
    assert_eq!(*busy.lock().unwrap(), [true, false, false], "the last one is for the terminate");
}

#[tokio::test]
async fn agents_are_shared_between_threads() {
    fn is_shared<T: Clone + Send + Sync + 'static>() {}
    is_shared::<Agent>();
    is_shared::<Session>();
}
