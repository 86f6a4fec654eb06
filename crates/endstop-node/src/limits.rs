//! Limits by name, from the kernel's table.

use crate::errors::{Result, config, from_json, to_json};
use endstop_core::{GuestMode, Limits};
use endstop_guest::limits::apply;
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
