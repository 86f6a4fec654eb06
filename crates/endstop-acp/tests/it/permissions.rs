//! Questions about tool calls.

use crate::editor::{Editor, Person, termination, with_script};
use agent_client_protocol::v1::schema::{CancelNotification, PermissionOptionKind, StopReason};
use endstop::testkit::Turn;
use endstop::tool::built_in;
use endstop::{AgentBuilder, Permission};
use serde_json::json;

fn shell(builder: AgentBuilder) -> AgentBuilder {
    builder.shared_tool(built_in("shell").unwrap()).permission("shell", Permission::Ask)
}

/// Two calls that leave a mark, and an answer.
fn script(mark: &std::path::Path) -> Vec<Turn> {
    let command = format!("echo x >> '{}'", mark.display());
    let call = || Turn::call("shell", &json!({ "command": command }));
    vec![call(), call(), Turn::text("Done.")]
}

async fn marks_with(person: Person) -> (String, Editor) {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let (editor, served) = with_script(script(&mark), shell, person, async |editor| {
        let answer = editor.prompt("Go.").await;
        assert_eq!(termination(&answer), "stop");
        editor
    })
    .await;
    served.unwrap();
    (std::fs::read_to_string(&mark).unwrap_or_default(), editor)
}

#[tokio::test]
async fn allowed_call_runs_once_each() {
    let (marks, editor) = marks_with(Person::Selects(PermissionOptionKind::AllowOnce)).await;
    assert_eq!(marks, "x\nx\n");
    let asked = editor.seen.asked.lock().unwrap();
    assert_eq!(asked.len(), 2);
    let title = asked[0].tool_call.fields.title.clone().unwrap();
    assert!(title.starts_with("shell: echo x >> "), "{title}");
}

#[tokio::test]
async fn allowed_tool_is_not_asked_again() {
    let (marks, editor) = marks_with(Person::Selects(PermissionOptionKind::AllowAlways)).await;
    assert_eq!(marks, "x\nx\n");
    assert_eq!(editor.seen.asked.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn everything_else_denies() {
    for person in
        [Person::Selects(PermissionOptionKind::RejectOnce), Person::Dismisses, Person::Absent]
    {
        let (marks, editor) = marks_with(person).await;
        assert_eq!(marks, "", "{person:?}");
        assert_eq!(editor.seen.asked.lock().unwrap().len(), 2, "{person:?}");
    }
}

#[tokio::test]
async fn permission_is_not_shared_between_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let script = script(&folder.path().join("mark"));
    let always = Person::Selects(PermissionOptionKind::AllowAlways);
    with_script(script, shell, always, async |editor| {
        editor.prompt("Go.").await.unwrap();
        editor.open().await.prompt("Go.").await.unwrap();
        assert_eq!(editor.seen.asked.lock().unwrap().len(), 2);
    })
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn cancel_withdraws_open_question() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    with_script(script(&mark), shell, Person::Thinks, async |editor| {
        let answer = editor.request("Go.");
        let act = async {
            while editor.seen.asked.lock().unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
            let cancel = CancelNotification::new(editor.session.clone());
            editor.agent.send_notification(cancel).unwrap();
        };
        let (answer, ()) = tokio::join!(answer, act);
        assert_eq!(answer.unwrap().stop_reason, StopReason::Cancelled);
        while *editor.seen.withdrawn.lock().unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .1
    .unwrap();
    assert!(!mark.exists());
}
