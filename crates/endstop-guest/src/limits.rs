//! Limits by name, as a program writes them.
//!
//! ```
//! use endstop_core::{GuestMode, Limits};
//! use endstop_guest::limits::apply;
//! use serde_json::{Map, json};
//! let given = |name: &str, value| Map::from_iter([(name.to_owned(), value)]);
//! let mut limits = Limits::default();
//! apply(&mut limits, &given("timeout", json!("90s")), GuestMode::default()).unwrap();
//! for value in [json!(90), json!("90")] {
//!     let problem = apply(&mut limits, &given("timeout", value), GuestMode::default());
//!     assert!(problem.unwrap_err().to_string().contains("write \"90s\""));
//! }
//! ```

use endstop_core::limits::{InGuest, TABLE, Unit, unknown_key};
use endstop_core::{GuestMode, LimitError, LimitRow, Limits};
use serde_json::{Map, Value};

/// Names of the limits that have an effect on a guest with these capabilities.
pub fn names(guest: GuestMode) -> impl Iterator<Item = &'static str> {
    TABLE.iter().filter(move |row| guest.obstacle(row).is_none()).map(|row| row.name)
}

/// Returns the row of a limit by its name. A time also has a name with the suffix `_ms`.
pub(crate) fn row_of(name: &str) -> Option<&'static LimitRow> {
    let in_ms = name.strip_suffix("_ms");
    TABLE.iter().find(|row| row.name == name || row.unit == Unit::Time && in_ms == Some(row.name))
}

/// Changes limits by name. A time needs a unit in its value (`"30s"`) or in its name (`timeout_ms`),
/// because programs measure some times in seconds and others in milliseconds.
///
/// # Errors
/// Names the limit that is unknown, invalid, given twice, or without effect on the guest.
pub fn apply(
    limits: &mut Limits,
    changes: &Map<String, Value>,
    guest: GuestMode,
) -> Result<(), LimitError> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in changes {
        let wrong = |problem: String| LimitError { key: name.clone(), problem };
        let Some(row) = row_of(name) else {
            return Err(wrong(unknown_key(name, &names(guest).collect::<Vec<_>>())));
        };
        if seen.contains(&row.name) {
            return Err(wrong(format!("`{}` is given twice", row.name)));
        }
        seen.push(row.name);
        if row.unit == Unit::Time && row.name == name && is_number(value) {
            let number =
                value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned());
            return Err(wrong(format!(
                "{value} has no unit; write \"{number}s\", or {name}_ms in milliseconds"
            )));
        }
        limits.set(name, value)?;
    }
    guest.check(limits).map_err(|mut wrong| {
        let needs = row_of(&wrong.key).map(|row| row.in_guest);
        if needs == Some(InGuest::Waiting) {
            wrong.problem.push_str("; set `waits` for a loop that waits before each of them");
        }
        wrong
    })
}

/// `true` for a number, also as text.
fn is_number(value: &Value) -> bool {
    value.is_number() || value.as_str().is_some_and(|text| text.trim().parse::<f64>().is_ok())
}

/// Returns the default limits, spelled as [`apply`] reads them.
pub fn defaults() -> Map<String, Value> {
    let limits = Limits::default();
    let value = |row: &LimitRow| (row.name.to_owned(), row.value(&limits).spelled());
    TABLE.iter().map(value).collect()
}
