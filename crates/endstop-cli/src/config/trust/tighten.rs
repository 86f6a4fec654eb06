//! The rules for settings files without consent: each row of the table of settings names its rule. The rules for
//! limits come from the table of limits.

use endstop::compaction::CompactionConfig;
use endstop::core::limits::TABLE;
use endstop::{Limits, Watch, WatchMode};
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of rules that a file may add without consent, because each rule inspects every
/// chunk of a response.
const MOST_WATCHES: usize = 64;

/// `true` if a file removes or weakens a watch: it may add rules, and raise the mode of existing ones.
pub(crate) fn weakens_watches(own: Option<&[Watch]>, value: &Value) -> Result<bool, String> {
    Ok(added_watches(own, value)?.is_none())
}

/// `true` if a file compacts later, or with other strategies.
pub(crate) fn compacts_less(own: &CompactionConfig, value: &Value) -> Result<bool, String> {
    Ok(!compacts_no_less(own, &compaction_over(own, value)?))
}

/// `true` if a file loosens a limit, by the table of limits.
pub(crate) fn loosens_limits(own: &Limits, limit: &str, value: &Value) -> Result<bool, String> {
    let mut theirs = own.clone();
    theirs.set(limit, value).map_err(|error| error.to_string())?;
    Ok(!looser(own, &theirs).is_empty())
}

/// `true` if a file permits more calls of a tool than the user does.
pub(crate) fn loosens_calls(own: &BTreeMap<String, u32>, value: &Value) -> bool {
    let looser = |own: u32, theirs: &Value| theirs.as_u64().is_none_or(|calls| calls > own.into());
    own.iter().any(|(tool, calls)| value.get(tool).is_some_and(|theirs| looser(*calls, theirs)))
}

/// Merges the compaction settings of a file over the known ones: a table changes only the keys that
/// it names.
///
/// # Errors
/// Describes the invalid value.
pub(crate) fn compaction_over(
    own: &CompactionConfig,
    value: &Value,
) -> Result<CompactionConfig, String> {
    // The file's value is parsed alone first, so that an error names what the file wrote and not a
    // merged value.
    let read = |value: &Value| CompactionConfig::read(value).map_err(|error| error.to_string());
    read(value)?;
    let Ok(Value::Object(mut all)) = serde_json::to_value(own) else {
        return read(value);
    };
    match value {
        Value::Object(table) => all.extend(table.clone()),
        strategies => drop(all.insert("strategies".to_owned(), strategies.clone())),
    }
    read(&Value::Object(all))
}

/// Returns the limits that are looser in `theirs` than in `own`. All numbers are ceilings: fewer
/// turns, dollars, tokens, seconds, retries, repairs or parallel calls can only end a run earlier or
/// make it do less.
pub(crate) fn looser(own: &Limits, theirs: &Limits) -> Vec<&'static str> {
    let looser = TABLE.iter().filter(|row| row.is_looser(own, theirs));
    looser.map(|row| row.name).collect()
}

/// `true` if `theirs` shortens a conversation at least as early and keeps at most as much, using
/// only strategies that the user has. An empty list is looser, because the conversation would then
/// grow until the window is full.
pub(crate) fn compacts_no_less(own: &CompactionConfig, theirs: &CompactionConfig) -> bool {
    let known = theirs.strategies.iter().all(|strategy| own.strategies.contains(strategy));
    known
        && (own.strategies.is_empty() || !theirs.strategies.is_empty())
        && theirs.at <= own.at
        && theirs.keep_turns <= own.keep_turns
        // Raising or lowering these two makes some compactions fail that succeeded before.
        && theirs.least_gain.to_bits() == own.least_gain.to_bits()
        && theirs.max_failures == own.max_failures
}

/// Returns the user's watches with those that a file adds. Returns `None` if the file would remove
/// or weaken a watch, or would show text of its own to the model.
///
/// # Errors
/// The file's watches are invalid.
pub(crate) fn added_watches(
    own: Option<&[Watch]>,
    value: &Value,
) -> Result<Option<Vec<Watch>>, String> {
    let theirs = Watch::read(value).map_err(|error| error.to_string())?;
    let mut all = own.map_or_else(Watch::defaults, <[Watch]>::to_vec);
    // `Watch::read` puts the default rules before those that a file names.
    let named = match value {
        Value::Object(table) => table.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    };
    let off = !value.is_object() && !value.is_array();
    let theirs: Vec<Watch> = theirs.iter().skip(theirs.len() - named).cloned().collect();
    if theirs.len() > MOST_WATCHES || (off && !all.is_empty()) {
        return Ok(None);
    }
    let strength = |mode: WatchMode| WatchMode::ALL.iter().position(|known| *known == mode);
    for watch in theirs {
        let weaker = |own: &Watch| {
            own.rule.name() == watch.rule.name() && strength(watch.mode) < strength(own.mode)
        };
        if all.iter().any(weaker)
            || (watch.mode == WatchMode::Nudge && watch.rule.has_chosen_text())
        {
            return Ok(None);
        }
        match all.iter_mut().find(|own| own.rule == watch.rule) {
            Some(own) => own.mode = watch.mode,
            None => all.push(watch),
        }
    }
    Ok(Some(all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_tighten_downward() {
        let own = Limits::default();
        for (name, value, is_looser) in [
            ("max_turns", json!(25), false),
            ("max_turns", json!(24), false),
            ("max_turns", json!(26), true),
            ("max_turns", json!("off"), true),
            ("max_budget_usd", json!(1e9), false),
            ("max_budget_usd", json!("off"), false),
            ("max_tokens", json!(u64::MAX), false),
            ("timeout", json!("365d"), false),
            ("turn_timeout", json!("10m"), false),
            ("turn_timeout_ms", json!(600_001), true),
            ("stall_timeout", json!("off"), true),
            ("stall_timeout", json!("59.9s"), false),
            ("cancel_grace", json!("3s"), true),
            ("max_retries", json!(3), false),
            ("max_retries", json!("off"), false),
            ("retry_for", json!("30s"), false),
            ("retry_for", json!("2m"), true),
            ("retry_for", json!("off"), true),
            ("max_tool_timeout", json!("11m"), true),
            ("max_empty_turns", json!(null), true),
            ("max_structured_output_retries", json!("off"), true),
            ("max_continuations", json!(1), true),
            ("tool_concurrency", json!(5), true),
            ("accept_unknown_finish", json!(true), true),
            ("accept_unknown_finish", json!(false), false),
        ] {
            let mut theirs = own.clone();
            theirs.set(name, &value).unwrap();
            assert_eq!(!looser(&own, &theirs).is_empty(), is_looser, "{name} = {value}");
        }
        let own = Limits { max_budget_usd: Some(0.5), max_tokens: Some(u64::MAX - 1), ..own };
        for (name, value, is_looser) in [
            ("max_budget_usd", json!(0.5), false),
            ("max_budget_usd", json!(0), false),
            ("max_budget_usd", json!(0.51), true),
            ("max_budget_usd", json!("off"), true),
            ("max_tokens", json!(u64::MAX), true),
        ] {
            let mut theirs = own.clone();
            theirs.set(name, &value).unwrap();
            assert_eq!(!looser(&own, &theirs).is_empty(), is_looser, "{name} = {value}");
        }
    }

    #[test]
    fn watches_are_added_not_weakened() {
        let stop = [Watch::parse("stop:stuck").unwrap()];
        for (own, value, taken) in [
            (None, json!({"stuck": "stop"}), Some(1)),
            (None, json!({"repeat_call": "stop"}), Some(2)),
            (None, json!({"stuck": {"mode": "stop"}, "no_new": "nudge"}), Some(2)),
            (None, json!([{"mode": "stop", "rule": {"max_steps": {"steps": 3}}}]), Some(2)),
            (None, json!({}), Some(1)),
            (None, json!("off"), None),
            (None, json!(false), None),
            (None, json!([]), Some(1)),
            (Some(&[][..]), json!("off"), Some(0)),
            (Some(&stop[..]), json!({"stuck": "observe"}), None),
            (Some(&stop[..]), json!({"stuck": {"mode": "warn"}}), None),
            (Some(&stop[..]), json!({"no_new": "warn"}), Some(2)),
            (Some(&stop[..]), json!([{"mode": "observe", "rule": "stuck"}]), None),
            (None, json!([{"mode": "nudge", "rule": {"tool_called": {"name": "rm -rf"}}}]), None),
            (None, json!([{"mode": "stop", "rule": {"tool_called": {"name": "x"}}}]), Some(2)),
            (
                None,
                json!([{"mode": "nudge", "rule": {"any": ["stuck", {"tool_called": {"name": "x"}}]}}]),
                None,
            ),
        ] {
            let all = added_watches(own, &value).unwrap();
            assert_eq!(all.map(|all| all.len()), taken, "{value}");
        }
    }

    #[test]
    fn earlier_compaction_is_tighter() {
        let own = CompactionConfig::default();
        for (value, tighter) in [
            (json!("on"), true),
            (json!("off"), false),
            (json!("drop"), true),
            (json!({"at": 0.1}), true),
            (json!({"at": 0.99}), false),
            (json!({"keep_turns": 1}), true),
            (json!({"keep_turns": 9}), false),
            (json!({"max_failures": 1}), false),
            (json!({"least_gain": 0.9}), false),
        ] {
            let theirs = CompactionConfig::read(&value).unwrap();
            assert_eq!(compacts_no_less(&own, &theirs), tighter, "{value}");
        }
        let off = CompactionConfig::off();
        assert!(!compacts_no_less(&off, &own) && compacts_no_less(&off, &off));
    }
}
