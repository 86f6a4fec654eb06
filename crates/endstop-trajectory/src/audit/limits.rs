//! Evaluates what Endstop's default limits would have done to a session, for each request.
//!
//! ```text
//! for stop in stops(&run, &requests, &spent, &ended) { println!("{} at turn {}", stop.termination, stop.turn); }
//! ```
//!
//! A stop saves the usage after it, and loses the request's answer, if there was one.

use super::ending::Ended;
use super::request::Request;
use crate::model::Trajectory;
use crate::pricing::Spent;
use crate::replay::{Replayed, Setting, replay};
use endstop_core::Termination;
use serde::{Deserialize, Serialize};

/// A request that the default limits would have ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The ending that the request would have had.
    pub termination: Termination,
    /// The limit and its values: `max_turns: 25 of 25 turns`.
    pub decided_by: String,
    /// The turn of the session after which it would have stopped, from 1.
    pub turn: u64,
    /// `true` if the request was answered; the stop would have lost that answer.
    pub answered: bool,
    /// The usage after that turn.
    pub behind: Spent,
}

/// Returns the requests that would end earlier under the default limits. `spent` is the usage of
/// each turn.
pub(super) fn stops(
    run: &Trajectory<'_>,
    requests: &[Request],
    spent: &[Spent],
    ended: &Ended,
) -> Vec<Stop> {
    let setting = Setting::default();
    let mut found = Vec::new();
    for (nth, request) in (1..).zip(requests) {
        let replayed = if requests.len() == 1 {
            replay(run, &setting)
        } else {
            let alone = Trajectory {
                model: run.model.clone(),
                // If the recording lacks results, so does each of its requests.
                tags: run.tags.clone(),
                steps: run.steps[request.steps.clone()].to_vec(),
                ..Trajectory::new(run.run_id.clone())
            };
            replay(&alone, &setting)
        };
        // The default setting has no policy, so building it cannot fail.
        let Ok(Replayed { ended: Some(termination), decided_by, turns, .. }) = replayed else {
            continue;
        };
        // A stop at the last turn saves nothing.
        if termination.is_success() || turns as usize >= request.turns {
            continue;
        }
        let places = request.places();
        let from = places.start + turns as usize;
        found.push(Stop {
            termination,
            decided_by: decided_by.unwrap_or_default(),
            turn: from as u64,
            // Text is not an answer if the session is known to have ended without one.
            answered: request.is_answered(run)
                && !(nth == requests.len() && ended.how.is_without_answer()),
            behind: spent.get(from..places.end).unwrap_or_default().iter().sum(),
        });
    }
    found
}
