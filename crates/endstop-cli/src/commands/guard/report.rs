//! What is said about a guarded program that has ended: its ending, the last line of the events, the card and the status.

use crate::args::GuardArgs;
use crate::failure::Status;
use crate::output;
use crate::render::advice::{Facts, Guarded, in_journal};
use crate::render::amounts::seconds;
use crate::render::card::{Beside, card};
use crate::run::signals::StopSignal;
use endstop::core::{Decision, RuleHit};
use endstop::journal::SqliteJournal;
use endstop::{Limits, Outcome, Termination};
use endstop_guard::process::Supervised;
use endstop_guard::run::{Counts, ProgramEnd, RunHandle};
use serde_json::{Value, json};
use std::sync::Arc;

/// A guarded program that has ended.
pub(super) struct Done {
    pub(super) outcome: Outcome,
    pub(super) program: Supervised,
    pub(super) counts: Counts,
    /// The limits that held at the end.
    pub(super) limits: Limits,
    /// Name of the client, if the program is known.
    pub(super) client: Option<&'static str>,
    /// Rules that fired in other conversations than the first one.
    pub(super) fired_elsewhere: Vec<RuleHit>,
    /// `true` if Endstop or the user ended the run, and not the program.
    pub(super) ended_by_us: bool,
    pub(super) verified: StopSignal,
}

/// Stores the verifier's result, and returns the id of the run with the command that explains it.
pub(super) fn stored(
    args: &GuardArgs,
    journal: &SqliteJournal,
    outcome: &Outcome,
) -> Option<String> {
    let id = outcome.run_id.as_deref()?;
    if let Some(verified) = outcome.verified
        && let Err(error) = journal.verified(id, verified)
    {
        output::note(&format!("endstop: the verifier's result could not be stored: {error}"));
    }
    let id = journal.find(id).ok()?;
    let explain = in_journal(&format!("endstop explain {id}"), args.settings.journal.as_deref());
    Some(format!("{id} ({explain})"))
}

/// Determines the ending of the run, and if it was not the program's own.
pub(super) fn ending(
    handle: &RunHandle,
    program: &Supervised,
    cancelled: bool,
    needs_calls: bool,
) -> (Arc<Outcome>, bool) {
    if let Some(outcome) = handle.outcome() {
        return (outcome, true);
    }
    if program.exit.is_some() {
        return (handle.terminate(), true);
    }
    if cancelled {
        return (handle.cancel(), true);
    }
    let detail = format!("the program ended with {}", program.end.how());
    let ok = program.exit_code() == 0;
    let outcome = handle.program_ended(&ProgramEnd { ok, detail: &detail, needs_calls });
    // A program that made its calls elsewhere, or got none through, has not done its work under its limits.
    let is_unheld = outcome.decided_by.decision == Decision::NoCall
        && outcome.termination == Termination::ErrorNoProgress;
    let counts = handle.counts();
    let all_refused = needs_calls && ok && counts.calls == 0 && counts.rejected > 0;
    (outcome, is_unheld || all_refused)
}

/// The last line of `--json` and `--events`: the outcome, with what the program did.
pub(super) fn last_line(done: &Done) -> Value {
    let Done { outcome, program, counts, .. } = done;
    let mut line = json!({"type": "outcome"});
    if let (Some(line), Ok(Value::Object(fields))) =
        (line.as_object_mut(), serde_json::to_value(outcome))
    {
        line.extend(fields);
        // The outcome does not have titles and the like, which are neither of the first conversation nor turns.
        line.insert("model_calls".to_owned(), json!(counts.calls));
        line.insert(
            "agent".to_owned(),
            json!({
                "ended": program.end.how(), "exit_status": program.exit_code(),
                "stopped": program.stopped, "calls": counts.calls,
                "auxiliary_calls": counts.auxiliary, "threads": counts.threads,
                "other_requests": counts.others,
                "other_requests_ms": u64::try_from(counts.others_time.as_millis()).unwrap_or(u64::MAX),
                "final_texts": counts.finals, "refusals": counts.refusals,
                "fired_elsewhere": done.fired_elsewhere,
            }),
        );
    }
    line
}

pub(super) fn report(
    args: &GuardArgs,
    done: &Done,
    run: Option<String>,
    (json, color): (bool, bool),
) -> Status {
    let Done { outcome, program, counts, .. } = done;
    let own = program.end.how();
    let status = match done.verified {
        StopSignal::Terminate => Status::OfCommand(143),
        StopSignal::Interrupt => Status::OfCommand(130),
        StopSignal::Nothing if outcome.verified == Some(false) => Status::OfCommand(1),
        StopSignal::Nothing if program.exit.is_some() => Status::OfCommand(program.exit_code()),
        StopSignal::Nothing if done.ended_by_us || args.strict => {
            Status::OfCommand(outcome.exit_status())
        }
        StopSignal::Nothing => Status::OfProgram(program.exit_code()),
    };
    if !json {
        let calls = match (counts.finals, counts.refusals) {
            (0, 0) => String::new(),
            (finals, refusals) => {
                format!("; after the end: {finals} answered with the reason, {refusals} refused")
            }
        };
        let others = match counts.others {
            0 => String::new(),
            others => format!(
                "; {others} other requests passed, {}: their cost is not known",
                seconds(counts.others_time)
            ),
        };
        // A run that ended wrongly must not pass because its program takes no notice.
        let kept = match status {
            Status::OfProgram(0) if outcome.termination.is_error() => {
                format!("; 0 is the program's own, --strict gives {}", outcome.exit_status())
            }
            Status::OfProgram(_) | Status::OfCommand(_) => String::new(),
        };
        let program = Guarded { limits: &done.limits, client: done.client, profile: None };
        let beside = Beside {
            agent: Some(format!("{own}{calls}{others}{kept}")),
            fired_elsewhere: done.fired_elsewhere.clone(),
            next: Facts::of(&done.outcome).next_of_guarded(program),
            run,
            unverified: done.verified != StopSignal::Nothing,
            ..Beside::default()
        };
        // The outcome has the calls of the first conversation, the card those of the program.
        let model_calls = u32::try_from(counts.calls).unwrap_or(u32::MAX);
        let shown = Outcome { model_calls, ..outcome.clone() };
        output::painted_note(&format!(
            "\n{}",
            card(&shown, &done.limits, &beside, color, output::terminal_width())
        ));
    }
    status
}
