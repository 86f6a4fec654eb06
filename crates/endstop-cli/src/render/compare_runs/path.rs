//! A run with all turns that led to its end: its own, and those of the runs that it branched from.
//!
//! ```text
//! run k3v9   1 2 3 4 5 6
//! branch         └ 4 5      its path: turns 1 to 3 of k3v9, then its own two as 4 and 5
//! ```

use crate::render::explain::timeline::Timeline;
use crate::render::explain::turns::Turn;
use endstop::BranchPoint;
use serde::Serialize;

/// Maximum number of runs that a run is traced back through.
const DEEPEST: usize = 64;

/// A run with all turns that led to its end.
pub(crate) struct Path {
    /// Id of the run, or name of its file.
    pub(crate) name: String,
    pub(crate) timeline: Timeline,
    pub(crate) steps: Vec<Step>,
    /// Number of turns in front of `steps` that are not known.
    unknown: u64,
    /// Number of turns of other runs, known or not.
    pub(crate) before: u64,
    /// Problems that make the comparison incomplete.
    pub(crate) problems: Vec<String>,
}

/// A turn, as it is compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Step {
    pub(crate) text: String,
    pub(crate) calls: Vec<Call>,
}

/// A tool call with its result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) arguments: String,
    pub(crate) status: String,
    pub(crate) result: String,
}

impl Path {
    /// Builds the path of a run. `load` returns the timeline of another run, by its id.
    pub(crate) fn of(
        name: String,
        timeline: Timeline,
        load: &mut dyn FnMut(&str) -> Result<Timeline, String>,
    ) -> Path {
        let mut parts = vec![steps(&timeline, u32::MAX)];
        let mut problems = timeline.problems.clone();
        let (mut from, mut unknown) = (branched_from(&timeline), 0);
        while let Some(point) = from {
            let earlier = match load(&point.run_id) {
                // Hostile journals may have branches that lead back to themselves.
                Ok(earlier) if parts.len() <= DEEPEST => earlier,
                Ok(_) => {
                    problems.push(format!("{name}: it branches from too many runs"));
                    unknown = u64::from(point.turn);
                    break;
                }
                Err(why) => {
                    problems.push(format!(
                        "{name}: the turns before it branched off are not known: {why}"
                    ));
                    unknown = u64::from(point.turn);
                    break;
                }
            };
            parts.push(steps(&earlier, point.turn));
            from = branched_from(&earlier);
        }
        let own = parts[0].len() as u64;
        let steps: Vec<Step> = parts.into_iter().rev().flatten().collect();
        let before = unknown + steps.len() as u64 - own;
        Path { name, timeline, steps, unknown, before, problems }
    }

    /// Returns the turn with this number on the path, from 1, if it is known.
    pub(crate) fn at(&self, turn: u64) -> Option<&Step> {
        let at = turn.checked_sub(self.unknown + 1)?;
        self.steps.get(usize::try_from(at).ok()?)
    }

    /// Returns the number of the first known turn.
    pub(crate) fn first(&self) -> u64 {
        self.unknown + 1
    }

    /// Returns the number of the last turn.
    pub(crate) fn last(&self) -> u64 {
        self.unknown + self.steps.len() as u64
    }

    /// Returns the place at which the run branched off.
    pub(crate) fn branched_from(&self) -> Option<BranchPoint> {
        branched_from(&self.timeline)
    }
}

fn branched_from(timeline: &Timeline) -> Option<BranchPoint> {
    let of_run = timeline.run.as_ref().and_then(|run| run.branched_from.clone());
    of_run.or_else(|| timeline.ending.as_ref().and_then(|ending| ending.branched_from.clone()))
}

/// Returns the first turns of a run that were answered.
fn steps(timeline: &Timeline, most: u32) -> Vec<Step> {
    let turns = timeline.turns();
    turns.iter().filter(|turn| is_answered(turn)).take(most as usize).map(step).collect()
}

/// `true` if a response was received. The last attempt of a run may have been cut.
fn is_answered(turn: &Turn<'_>) -> bool {
    turn.attempts.last().is_some_and(|(_, _, failed)| failed.is_none())
}

fn step(turn: &Turn<'_>) -> Step {
    let calls = turn.tools.iter().map(|tool| Call {
        name: tool.name.to_owned(),
        arguments: tool.arguments.to_owned(),
        status: tool.status.to_owned(),
        result: tool.content.to_owned(),
    });
    Step { text: turn.text.to_owned(), calls: calls.collect() }
}
