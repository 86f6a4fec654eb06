//! The result of a comparison.
//!
//! ```text
//! for measure in &comparison.measures { println!("{}: {:?}", measure.name, measure.difference); }
//! ```

use crate::statistics::Difference;
use serde::Serialize;

/// Maximum number of tasks that are compared. A task takes about 400 bytes; and with so many, the interval of a
/// share is narrower than one point.
pub(super) const MOST_TASKS: usize = 1 << 15;

/// The result of a comparison of A and B.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The name of the first side.
    pub a: String,
    /// The name of the second side.
    pub b: String,
    /// The unit within which the two are compared.
    pub pairing: Pairing,
    /// Number of runs of each side.
    pub runs: [u64; 2],
    /// Number of tasks of each side.
    pub tasks: [u64; 2],
    /// Number of tasks that both sides have.
    pub common_tasks: u64,
    /// Number of runs beyond the tasks that are compared: of very many tasks a random part is
    /// compared.
    pub left_out: u64,
    /// Number of runs of each side without a recorded outcome; they do not count for success.
    pub without_outcome: [u64; 2],
    /// Success, steps, tokens and dollars.
    pub measures: Vec<Measure>,
    /// The share of each ending.
    pub endings: Vec<Measure>,
    /// The number of runs or tasks that differ in success or in their stop.
    pub differing: u64,
    /// The first of these by name.
    pub examples: Vec<Differing>,
}

/// The unit within which two sides are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Pairing {
    /// Each run with itself.
    Run,
    /// The runs of a task with those of the same task.
    Task,
    /// The sides have no common task.
    None,
}

/// A mean of both sides, and their difference.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measure {
    /// The name.
    pub name: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The mean of A over what is compared; `None` if it is not recorded.
    pub a: Option<f64>,
    /// The mean of B.
    pub b: Option<f64>,
    /// The difference; `None` if one of the means is missing.
    pub difference: Option<Difference>,
}

/// The unit of a measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A share of runs, from 0 to 1.
    Share,
    /// Steps of a run.
    Steps,
    /// Tokens of a run.
    Tokens,
    /// US dollars of a run.
    Usd,
}

/// A run or a task in which A and B differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Differing {
    /// The dataset, if runs are compared.
    pub dataset: Option<String>,
    /// The id of the run or of the task.
    pub id: String,
    /// The effect of A, or its runs.
    pub a: String,
    /// The effect of B, or its runs.
    pub b: String,
}

/// Maximum number of examples.
pub(super) const EXAMPLES: usize = 1000;

/// Adds an example and keeps the first ones by name, so that the choice does not depend on the order.
pub(super) fn keep_first(examples: &mut std::collections::BTreeSet<Differing>, one: Differing) {
    if examples.len() >= EXAMPLES && examples.last().is_some_and(|last| one > *last) {
        return;
    }
    examples.insert(one);
    if examples.len() > EXAMPLES {
        examples.pop_last();
    }
}
