//! The conversation of a session: what a run adds, how it is replaced, and which ones are refused.

use crate::scenarios::{STRICT, Strict};
use endstop::testkit::Turn;
use endstop::{
    Image, Message, MessageId, Part, Role, StartError, Termination, ToolCall, ToolResult,
    ToolStatus, event::AgentEventKind,
};
use std::time::Duration;

#[tokio::test]
async fn refused_input_leaves_the_conversation() {
    for api in STRICT {
        let strict = Strict::answering(api, |number| match number {
            2 => Turn::error(400, r#"{"error": {"message": "this image cannot be read"}}"#),
            _ => Turn::text("well"),
        });
        let agent = strict.agent().build().unwrap().session();
        agent.run("hello").unwrap().await;
        let before = agent.messages();
        let outcome = agent.run("what is in this image?").unwrap().await;
        assert_eq!(outcome.termination, Termination::ErrorProviderRejected, "{api}");
        assert_eq!(outcome.messages.len(), before.len() + 1, "{api}: the outcome shows the input");
        assert_eq!(agent.messages(), before, "{api}: and the loop does not send it again");
        let next = agent.run("never mind").unwrap().await;
        assert_eq!(next.termination, Termination::Stop, "{api}: {next:?}");
        assert_eq!(next.messages.len(), before.len() + 2, "{api}");
        strict.accepted_all();
    }
}

#[tokio::test]
async fn answered_turn_survives_failed_run() {
    // The model answered before the failure, so its text belongs to the conversation.
    let agent = crate::support::agent([Turn::text("half an answer").pace(Duration::from_secs(60))])
        .build()
        .unwrap()
        .session();
    let mut handle = agent.run("go").unwrap();
    while !matches!(handle.next().await.unwrap().kind, AgentEventKind::TextDelta { .. }) {}
    agent.cancel();
    let outcome = handle.await;
    assert_eq!((outcome.turns, outcome.messages.len()), (0, 2), "{outcome:?}");
    assert_eq!(agent.messages(), outcome.messages);
}

fn said(id: u64, role: Role) -> Message {
    Message::text(MessageId(id), role, format!("message {id}"))
}

fn result(call: &str) -> Part {
    Part::ToolResult(ToolResult {
        call_id: call.to_owned(),
        name: "act".to_owned(),
        status: ToolStatus::Ok,
        content: "done".to_owned(),
        attachments: Vec::new(),
        started: true,
        pinned: false,
    })
}

/// Conversations that providers refuse, and the name of the problem.
fn refused() -> Vec<(&'static str, Vec<Message>)> {
    let call = ToolCall { id: "c".to_owned(), name: "act".to_owned(), arguments: "{}".to_owned() };
    let asks = Message::new(MessageId(2), Role::Assistant, vec![Part::ToolCall(call)]);
    let user = || said(1, Role::User);
    vec![
        ("duplicate_id", vec![user(), said(1, Role::Assistant)]),
        ("call_without_result", vec![user(), asks.clone()]),
        ("call_without_result", vec![user(), asks, said(3, Role::User)]),
        (
            "result_without_call",
            vec![user(), Message::new(MessageId(2), Role::Tool, vec![result("c")])],
        ),
        ("role", vec![said(1, Role::Assistant), said(2, Role::User)]),
        ("empty_message", vec![user(), Message::text(MessageId(2), Role::Assistant, " ")]),
    ]
}

#[tokio::test]
async fn session_numbers_new_messages() {
    let agent = crate::support::agent([]).build().unwrap();
    let given = vec![Message::user("I am Ada."), Message::assistant("Hello, Ada.")];
    let session = agent.session_from(given).unwrap();
    let ids = || session.messages().iter().map(|message| message.id.0).collect::<Vec<_>>();
    assert_eq!(ids(), [1, 2]);
    session.edit(|all| all.insert(0, Message::user("Hi."))).unwrap();
    assert_eq!(ids(), [3, 1, 2], "numbers stay, and new ones are unused");
}

#[tokio::test]
async fn invalid_history_is_refused_by_name() {
    for (name, messages) in refused() {
        let agent = crate::support::agent([]).build().unwrap();
        let problem = agent.session_from(messages.clone()).err().unwrap();
        assert!(matches!(&problem, StartError::Conversation(why) if why.name == name), "{problem}");
        let what = problem.to_string();
        // The error names the message by its position.
        let expected = format!("invalid `messages`: {name}: ");
        assert!(what.starts_with(&expected), "{what}");
        assert!(name == "role" || what[expected.len()..].starts_with("message "), "{what}");
        let session = agent.session();
        let edited = session.edit(|all| *all = messages).unwrap_err();
        assert_eq!(edited, problem);
        assert!(session.messages().is_empty());
    }
}

#[tokio::test]
async fn replaced_messages_are_sent_instead() {
    let strict = Strict::answering("openai-chat", |_| Turn::text("well"));
    let agent = strict.agent().build().unwrap().session();
    agent.run("forget this").unwrap().await;
    agent.edit(|all| *all = vec![said(1, Role::User), said(2, Role::Assistant)]).unwrap();
    let outcome = agent.run("go on").unwrap().await;
    let texts: Vec<String> = outcome.messages.iter().map(Message::plain_text).collect();
    assert_eq!(texts, ["message 1", "message 2", "go on", "well"]);
    agent.edit(Vec::clear).unwrap();
    assert_eq!(agent.run("anew").unwrap().await.messages.len(), 2);
    strict.accepted_all();
    // Neither during a run nor after a terminate.
    let handle = agent.run("one").unwrap();
    assert_eq!(agent.edit(Vec::clear), Err(StartError::Busy));
    handle.await;
    agent.terminate();
    assert_eq!(agent.edit(Vec::clear), Err(StartError::Terminated));
}

#[tokio::test]
async fn blank_input_is_refused() {
    let agent = crate::support::agent([Turn::text("a cat")]).build().unwrap().session();
    for parts in [
        vec![Part::Text { text: String::new() }],
        vec![Part::Text { text: " \n".to_owned() }],
        vec![],
        vec![Part::Reasoning { text: "hm".to_owned() }],
    ] {
        let problem = agent.run(parts).unwrap_err();
        assert!(problem.to_string().starts_with("the input is blank"), "{problem}");
    }
    assert!(agent.run("").is_err());
    let problem = agent.run(vec![result("c")]).unwrap_err().to_string();
    assert!(problem.starts_with("invalid input: "), "{problem}");
    assert!(agent.messages().is_empty(), "nothing of the run remains");
    let (media_type, data) = ("image/png".to_owned(), "iVBORw0KGgo=".to_owned());
    let image = Part::Image(Image::Base64 { media_type, data });
    assert!(agent.run(vec![image]).unwrap().await.is_success(), "an image alone is an input");
}
