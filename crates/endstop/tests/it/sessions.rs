//! Agents and sessions: concurrent runs that share nothing but their configuration, conversations
//! that are forked, changed and stored.

use crate::support::{agent, over};
use endstop::event::AgentEventKind;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn};
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop::{
    Agent, Attachment, Image, Lifecycle, Message, MessageId, Outcome, Part, Role, RunHandle,
    Session, SessionSnapshot, StartError, Termination, ToolCall,
    policy::{StepContext, StepResult, TerminationPolicy, Verdict},
};
use serde_json::{Map, Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;

/// A server whose answer is the last message of the request, and repeats its text for `slow`.
pub(crate) fn echo_server() -> Server {
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

pub(crate) async fn until_text(handle: &mut RunHandle) {
    while !matches!(
        handle.next().await.map(|event| event.kind),
        Some(AgentEventKind::TextDelta { .. })
    ) {}
}

pub(crate) fn said(outcome: &Outcome) -> &str {
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

#[tokio::test]
async fn stored_ids_cannot_overflow() {
    let agent = agent([Turn::text("yes")]).build().unwrap();
    for id in [u64::MAX, u64::MAX - 1, (1 << 53) + 1] {
        let stored = json!({"messages": [
            {"id": id, "role": "user", "parts": [{"type": "text", "text": "one"}]},
            {"id": 0, "role": "assistant", "parts": [{"type": "text", "text": "two"}]},
            {"id": 0, "role": "user", "parts": [{"type": "text", "text": "three"}]},
        ]});
        let stored: SessionSnapshot = serde_json::from_value(stored).unwrap();
        let problem = agent.session_from(stored).unwrap_err().to_string();
        assert!(problem.contains("is above"), "{problem}");
    }
    let largest = Message::text(MessageId(1 << 53), Role::User, "one");
    let session = agent.session_from(vec![largest, Message::assistant("two")]);
    // Another message is numbered above it, which is refused; nothing panics or repeats an id.
    assert!(session.unwrap_err().to_string().contains("is above"));
}

#[tokio::test]
async fn damaged_media_in_conversation_is_refused() {
    let agent = agent([Turn::text("yes")]).build().unwrap();
    let image = |data: &str| Image::Base64 { media_type: "image/png".into(), data: data.into() };
    let calls = ToolCall { id: "a".into(), name: "look".into(), arguments: "{}".into() };
    for data in ["R0lGODlhgALgAQ==", "no base64!", "", "iVBORw0KGgo"] {
        let result = json!({"type": "tool_result", "call_id": "a", "name": "look", "status": "ok",
            "content": "", "started": true, "attachments": [Attachment::from(image(data))]});
        let as_input =
            vec![Message::new(MessageId::NEW, Role::User, vec![Part::Image(image(data))])];
        let as_result = vec![
            Message::user("go"),
            Message::new(MessageId::NEW, Role::Assistant, vec![Part::ToolCall(calls.clone())]),
            Message::new(MessageId::NEW, Role::Tool, vec![serde_json::from_value(result).unwrap()]),
        ];
        for (messages, at) in [(as_input, 0), (as_result, 2)] {
            let refused = agent.session_from(messages.clone()).unwrap_err();
            assert!(matches!(refused, StartError::DamagedMedia { message, .. } if message == at));
            let session = agent.session();
            session.edit(|all| all.extend(messages)).unwrap_err();
            assert!(session.messages().is_empty());
        }
    }
}
