//! Prompts: what the editor sees, and the stop reason of each ending.

use crate::editor::{Person, termination, with_script};
use agent_client_protocol::v1::schema::{SessionUpdate, StopReason, ToolCallStatus};
use endstop::testkit::Turn;
use endstop::tool::built_in;
use endstop::{Limits, Permission};
use serde_json::json;

#[tokio::test]
async fn answer_is_streamed_once() {
    let turn = Turn::pieces(&["It ", "is ", "42."]).usage(10, 3);
    let ((), served) = with_script(
        vec![turn],
        |b| b,
        Person::Absent,
        async |editor| {
            let answer = editor.prompt("What is it?").await.unwrap();
            assert_eq!(answer.stop_reason, StopReason::EndTurn);
            let facts = &answer.meta.unwrap()["endstop"];
            assert_eq!((&facts["termination"], &facts["turns"]), (&json!("stop"), &json!(1)));
            assert_eq!(editor.seen.text(), "It is 42.");
        },
    )
    .await;
    served.unwrap();
}

#[tokio::test]
async fn whole_response_is_shown() {
    let script = vec![Turn::text("It is 42.")];
    with_script(
        script,
        |b| b.streaming(false),
        Person::Absent,
        async |editor| {
            editor.prompt("What is it?").await.unwrap();
            assert_eq!(editor.seen.text(), "It is 42.");
        },
    )
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn declared_answer_is_shown() {
    let script = vec![Turn::call("finish", &json!({"status": "done", "deliverable": "It is 42."}))];
    with_script(
        script,
        |b| b.finish_tool(true),
        Person::Absent,
        async |editor| {
            let answer = editor.prompt("What is it?").await;
            assert_eq!(termination(&answer), "submitted");
            assert_eq!(answer.unwrap().stop_reason, StopReason::EndTurn);
            assert!(editor.seen.text().contains("It is 42."), "{}", editor.seen.json());
        },
    )
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn endings_have_their_stop_reasons() {
    let look = || Turn::call("shell", &json!({"command": "true"}));
    let shell = |b: endstop::AgentBuilder| {
        b.shared_tool(built_in("shell").unwrap()).permission("shell", Permission::Allow)
    };
    let limited = Limits { max_turns: Some(1), ..Limits::default() };
    let cases: Vec<(Vec<Turn>, Limits, &str, Option<StopReason>)> = vec![
        (vec![look(), look()], limited, "error_max_turns", Some(StopReason::MaxTurnRequests)),
        (
            vec![Turn::text("Half an ans").finish("length")],
            Limits::default(),
            "error_output_truncated",
            Some(StopReason::MaxTokens),
        ),
        (
            vec![Turn::text("").finish("content_filter")],
            Limits::default(),
            "error_content_filtered",
            Some(StopReason::Refusal),
        ),
        (vec![Turn::error(401, "no key")], Limits::default(), "error_provider_auth", None),
        (vec![Turn::error(400, "no")], Limits::default(), "error_provider_rejected", None),
    ];
    for (script, limits, ending, reason) in cases {
        let build = move |b: endstop::AgentBuilder| shell(b).limits(limits.clone());
        with_script(script, build, Person::Absent, async |editor| {
            let answer = editor.prompt("Go.").await;
            assert_eq!(termination(&answer), ending);
            let said = editor.seen.text();
            match (answer, reason) {
                (Ok(answer), Some(reason)) => {
                    assert_eq!(answer.stop_reason, reason);
                    // The stop reason is one word for many endings, so the text names this one.
                    assert!(said.contains(ending), "{said}");
                }
                (Err(error), None) => assert!(error.message.starts_with(ending), "{error:?}"),
                (answer, _) => panic!("{ending}: {answer:?}"),
            }
        })
        .await
        .1
        .unwrap();
    }
}

#[tokio::test]
async fn tool_calls_are_followed() {
    let script = vec![
        Turn::call("shell", &json!({"command": "echo one"})),
        Turn::call("read_file", &json!({"path": "no-such-file"})),
        Turn::text("Done."),
    ];
    let shell = |b: endstop::AgentBuilder| {
        b.shared_tool(built_in("shell").unwrap())
            .shared_tool(built_in("read_file").unwrap())
            .permission("shell", Permission::Allow)
    };
    with_script(script, shell, Person::Absent, async |editor| {
        editor.prompt("Go.").await.unwrap();
        let updates = editor.seen.updates.lock().unwrap().clone();
        let announced = updates.iter().filter(|u| matches!(u, SessionUpdate::ToolCall(_))).count();
        assert_eq!(announced, 2);
        let statuses: Vec<ToolCallStatus> = updates
            .iter()
            .filter_map(|update| match update {
                SessionUpdate::ToolCallUpdate(update) => update.fields.status,
                _ => None,
            })
            .collect();
        use ToolCallStatus::{Completed, Failed, InProgress};
        assert_eq!(statuses, [InProgress, Completed, InProgress, Failed]);
        assert!(editor.seen.json().contains("shell: echo one"));
    })
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn sessions_are_conversations_of_their_own() {
    let script = vec![Turn::text("One."), Turn::text("Two.")];
    with_script(
        script,
        |b| b,
        Person::Absent,
        async |editor| {
            let other = editor.open().await;
            editor.prompt("a").await.unwrap();
            other.prompt("b").await.unwrap();
            // Both are at the beginning of their script.
            assert_eq!(editor.seen.text(), "One.One.");
            editor.prompt("c").await.unwrap();
            assert!(editor.seen.text().ends_with("Two."));
        },
    )
    .await
    .1
    .unwrap();
}
