//! What our default limits would have done to a session, request by request.
//!
//! ```ignore
//! for stop in stops(&run, &requests, &spent, &ended) { println!("{} at turn {}", stop.termination, stop.turn); }
//! ```
//!
//! A stop saves what the request used behind it, and costs its answer, where it came to one.

use super::ending::Ended;
use super::request::Request;
use crate::model::Trajectory;
use crate::replay::{Replayed, Setting, replay};
use crate::spent::Spent;
use endstop_core::Termination;
use serde::Serialize;

/// A request that the default limits would have ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stop {
    /// How it would have ended.
    pub termination: Termination,
    /// On what: `max_turns: 25 of 25 turns`.
    pub decided_by: String,
    /// Behind which turn of the session, from 1.
    pub turn: u64,
    /// Whether the request came to an answer, which the stop would have cost.
    pub answered: bool,
    /// What it used behind that turn.
    pub behind: Spent,
}

/// The requests of a run that end sooner under the default limits; `spent` is what each turn used.
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
                // What the recording lacks, each request of it does.
                tags: run.tags.clone(),
                steps: run.steps[request.steps.clone()].to_vec(),
                ..Trajectory::new(run.run_id.clone())
            };
            replay(&alone, &setting)
        };
        // The default setting has no policy that could be wrong.
        let Ok(Replayed { ended: Some(termination), decided_by, turns, .. }) = replayed else {
            continue;
        };
        if termination.is_success() || turns as usize >= request.turns {
            continue;
        }
        let places = request.places();
        let from = places.start + turns as usize;
        found.push(Stop {
            termination,
            decided_by: decided_by.unwrap_or_default(),
            turn: from as u64,
            // Words are no answer where the session is known to have ended without one.
            answered: request.is_answered(run)
                && !(nth == requests.len() && ended.how.is_without_answer()),
            behind: spent.get(from..places.end).unwrap_or_default().iter().sum(),
        });
    }
    found
}
