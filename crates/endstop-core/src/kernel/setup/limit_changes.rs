//! Changes of limits by name, for a run that is in progress.
//!
//! ```
//! use endstop_core::{LimitChanges, Limits};
//! use serde_json::json;
//! let changes = LimitChanges::new().set("max_turns", json!(80))?.set("timeout", json!("2h"))?;
//! let mut limits = Limits::default();
//! assert_eq!(changes.looser_than(&limits), ["max_turns"]);
//! changes.apply(&mut limits);
//! assert_eq!(limits.max_turns, Some(80));
//! # Ok::<(), endstop_core::LimitError>(())
//! ```

use crate::limits::{LimitError, LimitRow, Limits, TABLE};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// New values for some limits; the others stay. Each value is valid.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct LimitChanges(Map<String, Value>);

impl LimitChanges {
    /// Creates a list without changes.
    #[must_use]
    pub fn new() -> LimitChanges {
        LimitChanges::default()
    }

    /// Adds a new value, with the name and the value as configuration spells them. `null` and
    /// `"off"` disable the limit.
    ///
    /// # Errors
    /// Those of [`Limits::set`].
    pub fn set(mut self, name: &str, value: Value) -> Result<LimitChanges, LimitError> {
        // Any limits will do, because the value is read without regard to the old one.
        Limits::none().set(name, &value)?;
        self.0.insert(name.to_owned(), value);
        Ok(self)
    }

    /// Reads changes from names and values.
    ///
    /// # Errors
    /// Those of [`Limits::set`], for the first value that is not valid.
    pub fn read(values: &Map<String, Value>) -> Result<LimitChanges, LimitError> {
        let mut changes = LimitChanges::new();
        for (name, value) in values {
            changes = changes.set(name, value.clone())?;
        }
        Ok(changes)
    }

    /// Returns the changes that turn these limits into others.
    pub fn between(before: &Limits, after: &Limits) -> LimitChanges {
        let differs = |row: &&LimitRow| row.value(before) != row.value(after);
        let named = |row: &LimitRow| (row.name.to_owned(), row.value(after).spelled());
        LimitChanges(TABLE.iter().filter(differs).map(named).collect())
    }

    /// `true` if no limit changes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the new values by name.
    pub fn values(&self) -> &Map<String, Value> {
        &self.0
    }

    /// Sets the new values.
    pub fn apply(&self, limits: &mut Limits) {
        for (name, value) in &self.0 {
            // Each value was read before, so there is no error to report.
            let _ = limits.set(name, value);
        }
    }

    /// Returns the names of the limits that may permit more than these limits do.
    pub fn looser_than(&self, limits: &Limits) -> Vec<&'static str> {
        let mut changed = limits.clone();
        self.apply(&mut changed);
        let looser = TABLE.iter().filter(|row| row.is_looser(limits, &changed));
        looser.map(|row| row.name).collect()
    }
}

/// Drops values that this version does not understand, for example of a newer one.
impl<'de> Deserialize<'de> for LimitChanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LimitChanges, D::Error> {
        let mut values = Map::<String, Value>::deserialize(deserializer)?;
        values.retain(|name, value| Limits::none().set(name, value).is_ok());
        Ok(LimitChanges(values))
    }
}
