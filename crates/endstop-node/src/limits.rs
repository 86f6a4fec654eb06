//! Limits by name, from the kernel's table.

use crate::errors::{Result, config, from_json, to_json};
use endstop_core::limits::{TABLE, Unit, unknown_key};
use endstop_core::{GuestMode, LimitRow, Limits, TokensCounted};
use endstop_guest::limits::apply;
use napi_derive::napi;
use serde_json::{Map, Value};

/// A limit, as the JavaScript half checks it.
#[napi(object, use_nullable = true)]
pub struct LimitInfo {
    /// Name of the limit. A duration also has a name with the suffix `_ms`.
    pub name: String,
    /// The type of its value.
    #[napi(ts_type = "'count' | 'usd' | 'time' | 'switch' | 'text' | 'choice'")]
    pub kind: String,
    /// The values of a choice.
    pub choices: Vec<String>,
    /// The reason why the limit has no effect on a run of this binding.
    pub obstacle: Option<String>,
}

/// Returns all limits.
#[napi]
pub fn limit_table() -> Vec<LimitInfo> {
    let info = |row: &LimitRow| {
        let (kind, choices) = match row.unit {
            Unit::Turns | Unit::Tokens | Unit::Count => ("count", &[][..]),
            Unit::Usd => ("usd", &[][..]),
            Unit::Time => ("time", &[][..]),
            Unit::Switch => ("switch", &[][..]),
            Unit::Windows | Unit::Rates => ("text", &[][..]),
            Unit::TokensCounted => ("choice", &TokensCounted::ALL[..]),
        };
        LimitInfo {
            name: row.name.to_owned(),
            kind: kind.to_owned(),
            choices: choices.iter().map(|one| one.as_str().to_owned()).collect(),
            obstacle: obstacle(row).map(str::to_owned),
        }
    };
    TABLE.iter().map(info).collect()
}

/// Returns the reason why a limit has no effect on a run of this binding, whatever its options are.
fn obstacle(row: &LimitRow) -> Option<&'static str> {
    GuestMode { inject: true, waits: true, ..GuestMode::default() }.obstacle(row)
}

/// Returns the nearest of the names to one that is unknown, and all of them, as part of a message.
#[napi]
pub fn unknown_name(name: String, choices: Vec<String>) -> String {
    let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
    unknown_key(&name, &choices)
}

/// Returns the limits that apply if nothing is set, as JSON.
#[napi]
pub fn default_limits() -> Result<String> {
    to_json(&endstop_guest::limits::defaults())
}

/// Reads limits by name from JSON. A null switches a limit off. A limit that has no effect on the
/// guest is refused.
pub(crate) fn read_limits(json: &str, guest: GuestMode) -> Result<Limits> {
    let mut limits = Limits::default();
    apply(&mut limits, &read_changes(json)?, guest).map_err(config)?;
    Ok(limits)
}

/// Reads the values of limits by name from JSON.
pub(crate) fn read_changes(json: &str) -> Result<Map<String, Value>> {
    from_json(json, "limits")
}
