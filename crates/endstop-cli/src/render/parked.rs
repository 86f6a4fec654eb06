//! The request of a parked run, for people.
//!
//! ```text
//! 4k2v9x0abc  approval of `shell`, asked 3 min ago
//!   arguments  {"command":"rm -rf build"}
//!   digest     3f2a91bc…
//!   approve    endstop answer 4k2v9x0abc --approve --digest 3f2a91bc
//! ```

use super::advice::{Again, in_journal};
use super::amounts::seconds;
use crate::visible::{shorten, visible};
use endstop::journal::SqliteJournal;
use endstop::park::{ParkDecision, ParkRequest, ParkedRun, RequestKind};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// Digits of the digest in a printed command.
const DIGITS: usize = 12;

/// Returns the rows of a request. Its text comes from the model, so it is escaped; it is shown in
/// full, because a person decides by it.
pub(crate) fn request_lines(
    parked: &ParkedRun,
    resume: &str,
    now_ms: u64,
    journal: Option<&Path>,
) -> String {
    let ParkedRun { run_id, task, request, decision, expired, .. } = parked;
    let mut text = title(run_id, request);
    let mut row = |name: &str, value: &str| {
        let _ = write!(text, "\n  {name:<10} {}", visible(value).replace(['\n', '\r'], "⏎"));
    };
    if !task.is_empty() {
        row("task", &shorten(task, 200));
    }
    row(subject_name(request.kind), &request.subject);
    if let Some(reason) = &request.reason {
        row("reason", reason);
    }
    row("digest", &request.digest);
    row("asked", &format!("{} ago", took(now_ms.saturating_sub(request.asked_ms))));
    match (decision, expired) {
        (Some(decision), _) => row("decided", decision_words(decision)),
        (None, true) => row("expired", "no decision came in time: it counts as denied by timeout"),
        (None, false) => {
            let left = request.expires_ms.map(|at| at.saturating_sub(now_ms));
            row("expires", &left.map_or("never".to_owned(), |left| format!("in {}", took(left))));
            for (name, command) in commands(run_id, request) {
                row(name, &in_journal(&command, journal));
            }
        }
    }
    row("continue", resume);
    text
}

/// Returns the command that continues a parked run. `named` is the path that commands need to find
/// the journal, if it is not the default.
pub(crate) fn resume_command(journal: &SqliteJournal, run: &str, named: Option<&Path>) -> String {
    let again = journal.load(run).ok();
    let again = again.and_then(|recorded| Again::of_interrupted(&recorded, run, named));
    again.map_or_else(
        || in_journal(&format!("endstop run --resume {run}"), named),
        |again| again.command(),
    )
}

fn title(run_id: &str, request: &ParkRequest) -> String {
    let what = match (&request.tool, request.kind) {
        (Some(tool), kind) => {
            let tool = shorten(&tool.replace(['\n', '\r'], " "), 100);
            format!("{} of `{tool}`", kind.as_str())
        }
        (None, kind) => kind.as_str().to_owned(),
    };
    format!("{}  {what}", shorten(run_id, 60))
}

fn subject_name(kind: RequestKind) -> &'static str {
    if kind == RequestKind::Approval { "arguments" } else { "text" }
}

/// Returns the commands that decide a request.
fn commands(run_id: &str, request: &ParkRequest) -> Vec<(&'static str, String)> {
    let digest: String = request.digest.chars().take(DIGITS).collect();
    let with = |what: &str| format!("endstop answer {run_id} {what} --digest {digest}");
    match request.kind {
        RequestKind::Approval => {
            vec![("approve", with("--approve")), ("deny", with("--deny WHY"))]
        }
        _ => vec![("answer", with("--text ANSWER")), ("deny", with("--deny WHY"))],
    }
}

/// Describes a decision.
pub(crate) fn decision_words(decision: &ParkDecision) -> &'static str {
    match decision {
        ParkDecision::Approve => "approved",
        ParkDecision::ApproveChanged(_) => "approved with other arguments",
        ParkDecision::Deny(_) => "denied",
        ParkDecision::Text(_) => "answered",
        ParkDecision::Expired => "denied by timeout",
    }
}

fn took(ms: u64) -> String {
    seconds(Duration::from_secs(ms / 1000))
}
