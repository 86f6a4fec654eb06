//! Limits by name, from the kernel's table.

use crate::errors::{Result, config, from_json, to_json};
use endstop_core::{GuestMode, Limits};
use napi_derive::napi;
use serde_json::{Map, Value};

/// Returns the names of all limits. A duration also has a name with the suffix `_ms`.
#[napi]
pub fn limit_names() -> Vec<String> {
    Limits::NAMES.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the limits that apply if nothing is set, as JSON.
#[napi]
pub fn default_limits() -> Result<String> {
    let limits = Limits::default();
    let values = Limits::NAMES.iter().map(|name| ((*name).to_owned(), limits.get(name)));
    let values: Map<String, Value> =
        values.map(|(name, value)| (name, value.unwrap_or_default())).collect();
    to_json(&values)
}

/// Reads limits by name from JSON. A null switches a limit off. A limit that has no effect on the
/// guest is refused.
pub(crate) fn read_limits(json: &str, guest: GuestMode) -> Result<Limits> {
    let given: Map<String, Value> = from_json(json, "limits")?;
    let mut limits = Limits::default();
    for (name, value) in given {
        // By name through the kernel's table, so that a new limit needs no line here.
        limits.set(&name, &value).map_err(config)?;
    }
    guest.check(&limits).map_err(config)?;
    Ok(limits)
}
