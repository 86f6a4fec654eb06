//! Groups of runs: the same dataset, model and kind of task.
//!
//! ```
//! use endstop_trajectory::{Trajectory, backtest::GroupBy};
//! let mut run = Trajectory::new("run-1");
//! run.task_id = Some("game24/17".into());
//! assert_eq!(GroupBy::Task.kind(&run).as_deref(), Some("game24"));
//! assert_eq!(GroupBy::parse("agent"), GroupBy::Agent);
//! ```

use crate::model::Trajectory;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// The runs of one dataset, model and kind of task.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Group {
    /// The dataset.
    pub dataset: String,
    /// The model, if it is recorded.
    pub model: Option<String>,
    /// The kind of task, if it is recorded.
    pub kind: Option<String>,
}

/// The field of a run that names its kind of task.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// As `Task`, but only in datasets with at most [`GroupBy::MOST_KINDS`] kinds: many recordings have a
    /// different name before each task's slash.
    #[default]
    Auto,
    /// None: the dataset is the kind.
    Dataset,
    /// The task's id up to the last slash: `game24` of `game24/17`.
    Task,
    /// The agent.
    Agent,
    /// A label of the run, or a member that its format does not define.
    Field(String),
}

impl GroupBy {
    /// Maximum number of kinds of a dataset for `Auto`.
    pub const MOST_KINDS: usize = 20;

    /// Reads the name of a field: `dataset`, `task`, `agent`, or a label.
    pub fn parse(text: &str) -> GroupBy {
        match text {
            "auto" => GroupBy::Auto,
            "dataset" => GroupBy::Dataset,
            "task" => GroupBy::Task,
            "agent" => GroupBy::Agent,
            field => GroupBy::Field(field.to_owned()),
        }
    }

    /// Returns the kind of a run.
    pub fn kind<'r>(&self, run: &'r Trajectory<'_>) -> Option<Cow<'r, str>> {
        match self {
            GroupBy::Auto | GroupBy::Task => {
                let (kind, _) = run.task_id.as_deref()?.rsplit_once('/')?;
                Some(Cow::Borrowed(kind))
            }
            GroupBy::Dataset => None,
            GroupBy::Agent => run.agent.as_deref().map(Cow::Borrowed),
            GroupBy::Field(field) => {
                match run.labels.get(field).or_else(|| run.extra.get(field))? {
                    Value::String(text) => Some(Cow::Borrowed(text)),
                    Value::Number(number) => Some(Cow::Owned(number.to_string())),
                    Value::Bool(value) => Some(Cow::Owned(value.to_string())),
                    _ => None,
                }
            }
        }
    }
}

impl fmt::Display for Group {
    /// Formats `sql · gpt-4 · dev`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dataset)?;
        for part in [&self.model, &self.kind].into_iter().flatten() {
            write!(f, " · {part}")?;
        }
        Ok(())
    }
}
