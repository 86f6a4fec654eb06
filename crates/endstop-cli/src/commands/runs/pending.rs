//! `endstop pending` and `endstop answer`: the requests of parked runs, and `endstop cancel` of one.

use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::output;
use crate::park_args::{AnswerArgs, PendingArgs};
use crate::render::date::now_ms;
use crate::render::parked::{decision_words, request_lines, resume_command};
use crate::visible::visible;
use endstop::agent::cancel_parked;
use endstop::journal::DecideError;
use endstop::park::{Answer, AnswerRefused, RequestKind};
use serde_json::json;
use std::path::Path;

pub(crate) fn list(args: &PendingArgs, as_json: bool) -> Result {
    let journal = journal_path::to_read(&JournalPath::of(args.journal.as_deref(), None)?)?;
    let pending = journal.pending().map_err(|error| Failure::usage(error.to_string()))?;
    if as_json {
        for parked in &pending {
            output::json(parked);
        }
        return Ok(0);
    }
    if pending.is_empty() {
        output::note(&format!("no run is parked in {}", journal.path().display()));
    }
    let now = now_ms();
    for parked in &pending {
        let named = args.journal.as_deref();
        let resume = resume_command(&journal, &parked.run_id, named);
        let text = request_lines(parked, &resume, now, named);
        // Redacted again, because the journal of another user may contain secrets.
        output::line(&text);
    }
    Ok(0)
}

pub(crate) fn answer(args: &AnswerArgs, as_json: bool) -> Result {
    let place = JournalPath::of(args.journal.as_deref(), None)?;
    let journal = journal_path::to_change(&place, "answer")?;
    let run = journal.find(&args.run).map_err(|error| Failure::usage(error.to_string()))?;
    let mut answer = match (&args.deny, &args.text) {
        (Some(why), _) => Answer::deny(why),
        (None, Some(text)) => Answer::text(text),
        (None, None) => Answer::approve(),
    };
    if let Some(digest) = &args.digest {
        answer = answer.digest(digest);
    }
    let parked = journal.answer(&run, &answer);
    let parked = parked.map_err(|refused| {
        Failure::usage(format!("{}{}", visible(&refused.to_string()), next_step(&refused, &run)))
    })?;
    let decision = parked.decision.as_ref();
    if as_json {
        let name = decision.map(endstop::park::ParkDecision::name);
        let line = json!({
            "type": "answered", "run_id": run, "decision": name, "digest": parked.request.digest,
        });
        output::json(&line);
        return Ok(0);
    }
    let words = decision.map_or("decided", decision_words);
    let resume = resume_command(&journal, &run, args.journal.as_deref());
    output::line(&format!("{run}: {words}; to continue: {resume}"));
    Ok(0)
}

/// Returns the command that helps after a refused decision, with the separator before it.
fn next_step(refused: &DecideError, run: &str) -> String {
    let DecideError::Refused(refused) = refused else { return String::new() };
    match refused {
        AnswerRefused::NotParked { .. } => format!(
            "; `endstop pending` lists the requests, and `endstop run --resume {run}` resumes a run"
        ),
        AnswerRefused::AlreadyDecided { .. } | AnswerRefused::Expired { .. } => {
            format!(": `endstop run --resume {run}`")
        }
        AnswerRefused::Digest { .. } => "; `endstop pending` shows it".to_owned(),
        AnswerRefused::Kind { kind: RequestKind::Approval, .. } => {
            ": --approve, --deny WHY".to_owned()
        }
        AnswerRefused::Kind { .. } => ": --text ANSWER, --deny WHY".to_owned(),
        _ => String::new(),
    }
}

/// Cancels the parked run with this id, or with the only id that begins so; `None` if there is none.
pub(in crate::commands) fn cancel(name: &str, file: Option<&Path>) -> Result<Option<String>> {
    let place = JournalPath::of(file, None)?;
    if !place.path()?.exists() {
        return Ok(None);
    }
    let wrong = |error: String| Failure::usage(visible(&error));
    let pending = journal_path::to_read(&place)?.pending();
    let mut pending = pending.map_err(|error| wrong(error.to_string()))?;
    if pending.iter().any(|parked| parked.run_id == name) {
        pending.retain(|parked| parked.run_id == name);
    } else {
        pending.retain(|parked| !name.is_empty() && parked.run_id.starts_with(name));
    }
    let [parked] = &pending[..] else { return Ok(None) };
    let journal = journal_path::to_change(&place, "cancel")?;
    cancel_parked(&journal, &parked.run_id).map_err(|error| wrong(error.to_string()))?;
    Ok(Some(parked.run_id.clone()))
}
