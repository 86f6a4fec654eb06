//! Stops: a cancel, a closed session, a closed input, and the caller's token.

use crate::editor::{Editor, Person, termination, with_script};
use agent_client_protocol::v1::schema::{CancelNotification, CloseSessionRequest, StopReason};
use endstop::testkit::Turn;
use endstop::tool::built_in;
use endstop::{AgentBuilder, Permission};
use serde_json::json;
use std::path::{Path, PathBuf};

fn shell(builder: AgentBuilder) -> AgentBuilder {
    builder.shared_tool(built_in("shell").unwrap()).permission("shell", Permission::Allow)
}

/// A tool that runs for a minute and notes its process id, and an answer.
fn script(pid: &Path) -> Vec<Turn> {
    let command = format!("echo $$ > '{}'; sleep 60", pid.display());
    vec![Turn::call("shell", &json!({ "command": command })), Turn::text("Done.")]
}

/// Waits until the tool runs.
async fn running(pid: &Path) {
    while !std::fs::read_to_string(pid).is_ok_and(|text| text.ends_with('\n')) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn is_alive(pid: &Path) -> bool {
    let pid = std::fs::read_to_string(pid).unwrap();
    // A zombie has no command line.
    std::fs::read(format!("/proc/{}/cmdline", pid.trim())).is_ok_and(|line| !line.is_empty())
}

/// Starts the tool, stops it with `stop`, and returns the stop reason, if there was an answer.
async fn stopped_by(
    stop: impl AsyncFnOnce(&Editor),
) -> (Option<String>, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let (answer, served) = with_script(script(&pid), shell, Person::Absent, async |editor| {
        let answer = editor.request("Go.");
        let act = async {
            running(&pid).await;
            stop(&editor).await;
        };
        let (answer, ()) = tokio::join!(answer, act);
        answer.is_ok().then(|| {
            assert_eq!(answer.as_ref().unwrap().stop_reason, StopReason::Cancelled);
            termination(&answer)
        })
    })
    .await;
    served.unwrap();
    (answer, pid, folder)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn cancel_ends_run_and_tool() {
    let (answer, pid, _folder) = stopped_by(async |editor| {
        let cancel = CancelNotification::new(editor.session.clone());
        editor.agent.send_notification(cancel).unwrap();
    })
    .await;
    assert_eq!(answer.as_deref(), Some("cancelled"));
    assert!(!is_alive(&pid));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn closed_session_ends_its_run() {
    let (answer, pid, _folder) = stopped_by(async |editor| {
        let close = CloseSessionRequest::new(editor.session.clone());
        editor.agent.send_request(close).block_task().await.unwrap();
        let error = editor.prompt("More.").await.unwrap_err();
        assert!(error.data.unwrap().to_string().contains("unknown sessionId"));
    })
    .await;
    assert_eq!(answer.as_deref(), Some("cancelled"));
    assert!(!is_alive(&pid));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn token_ends_runs_with_answers() {
    let (answer, pid, _folder) = stopped_by(async |editor| editor.stop.cancel()).await;
    assert_eq!(answer.as_deref(), Some("cancelled"));
    assert!(!is_alive(&pid));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn closed_input_ends_tools() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let served = with_script(script(&pid), shell, Person::Absent, async |editor| {
        // Not dropped, because that would cancel the request before the editor goes away.
        std::mem::forget(editor.request("Go."));
        running(&pid).await;
    })
    .await;
    assert!(!is_alive(&pid));
    served.1.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn cancelled_session_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    with_script(script(&pid), shell, Person::Absent, async |editor| {
        let answer = editor.request("Go.");
        let act = async {
            running(&pid).await;
            let cancel = CancelNotification::new(editor.session.clone());
            editor.agent.send_notification(cancel).unwrap();
        };
        let (answer, ()) = tokio::join!(answer, act);
        assert_eq!(answer.unwrap().stop_reason, StopReason::Cancelled);
        assert_eq!(editor.prompt("Go on.").await.unwrap().stop_reason, StopReason::EndTurn);
        assert!(editor.seen.text().ends_with("Done."));
    })
    .await
    .1
    .unwrap();
}

#[tokio::test]
async fn cancel_without_run_changes_nothing() {
    with_script(
        vec![Turn::text("Done.")],
        |b| b,
        Person::Absent,
        async |editor| {
            for session in [editor.session.clone(), "no-such-session".into()] {
                editor.agent.send_notification(CancelNotification::new(session)).unwrap();
            }
            assert_eq!(editor.prompt("Go.").await.unwrap().stop_reason, StopReason::EndTurn);
        },
    )
    .await
    .1
    .unwrap();
}
