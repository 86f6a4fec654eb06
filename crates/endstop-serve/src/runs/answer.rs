//! Answers to requests for approval, of runs that work or are parked.

use super::blocking::blocking;
use super::hub::Runs;
use super::live::Live;
use super::parked::Undecided;
use super::row::RunRow;
use crate::backend::{BackendError, ErrorKind, RunState};
use endstop::Approval;
use endstop::agent::AnswerError;
use endstop::event::RequestId;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest time for which an answer waits for a resumed run to ask again.
const RESUME_TIME: Duration = Duration::from_secs(5);

impl Runs {
    /// Answers a request of a run, whether it works or is parked.
    pub(super) async fn answer_run(
        &self,
        id: &str,
        request: RequestId,
        approval: Approval,
    ) -> Result<(), BackendError> {
        // Bounded, because a run that is about to park may first wait for its other calls.
        let end = Instant::now() + RESUME_TIME;
        loop {
            let (live, row) = self.found(id).await?;
            let Some(live) = live else { return Err(unanswered(AnswerError::Closed(request))) };
            // Taken first, so that an event after the attempt is not missed.
            let mut changes = live.feed.changes();
            if row.state == RunState::Parked {
                let (runs, id, approval) = (self.clone(), id.to_owned(), approval.clone());
                let decided =
                    blocking(move || runs.shared.decide_parked(&id, request, &approval)).await?;
                match decided {
                    Ok(()) => {
                        live.note_answer();
                        return Ok(());
                    }
                    // The run works again, or will in a moment.
                    Err(Undecided::NotParked | Undecided::AsksAgain) => {}
                    Err(refused) => return Err(undecided(refused, request)),
                }
            }
            match answer_live(&live, request, approval.clone()).await {
                Ok(()) => {
                    live.note_answer();
                    return Ok(());
                }
                // The request was taken by a park, which is under way, or complete since the run was
                // looked up.
                Err(_) if live.is_parking() => {}
                Err(failure) => {
                    let now = self.found(id).await?.1.state;
                    if now == RunState::Parked && row.state != now {
                        continue;
                    }
                    return Err(failure);
                }
            }
            if tokio::time::timeout_at(end, changes.changed()).await.is_err() {
                let message = "the run is being parked; repeat the request";
                return Err(BackendError::new(ErrorKind::Parking, message));
            }
        }
    }

    /// Returns a run, and its live part unless it has ended.
    pub(super) async fn found(
        &self,
        id: &str,
    ) -> Result<(Option<Arc<Live>>, RunRow), BackendError> {
        let (runs, id) = (self.clone(), id.to_owned());
        let found = blocking(move || {
            let row = runs.row(&id)?.ok_or_else(BackendError::unknown_run)?;
            Ok((runs.live(&id).filter(|_| row.state != RunState::Ended), row))
        });
        found.await?
    }
}

fn undecided(refused: Undecided, request: RequestId) -> BackendError {
    match refused {
        Undecided::AnotherRequest => unanswered(AnswerError::Unknown(request)),
        // Each variant names the run and what to do.
        Undecided::Refused(error) => BackendError::new(ErrorKind::NotOpen, error.to_string()),
        Undecided::Store(error) => error.into(),
        Undecided::NotParked | Undecided::AsksAgain => unanswered(AnswerError::Closed(request)),
    }
}

/// Answers a request of a live run. A resumed run asks its open questions again; until it does, the
/// answer waits.
async fn answer_live(
    live: &Live,
    request: RequestId,
    approval: Approval,
) -> Result<(), BackendError> {
    // Bounded, because a resumed run may also end without asking again.
    let end = Instant::now() + RESUME_TIME;
    // Taken first, so that an event between a failed attempt and the wait is not missed.
    let mut changes = live.feed.changes();
    loop {
        // Before the attempt, because the question may be asked in between.
        let resuming = live.is_resuming();
        let answered = live.approvals().map(|all| all.answer(request, approval.clone()));
        let failure = match answered {
            Some(Ok(())) => return Ok(()),
            Some(Err(error @ AnswerError::Unknown(_))) => unanswered(error),
            Some(Err(error)) => return Err(unanswered(error)),
            None => {
                let message = "the run has not started yet; repeat the request later";
                BackendError::new(ErrorKind::NotStarted, message)
            }
        };
        if !resuming {
            return Err(failure);
        }
        match tokio::time::timeout_at(end, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(failure),
        }
    }
}

fn unanswered(error: AnswerError) -> BackendError {
    let kind = match error {
        AnswerError::Unknown(_) => ErrorKind::UnknownRequest,
        _ => ErrorKind::NotOpen,
    };
    BackendError::new(kind, error.to_string())
}
