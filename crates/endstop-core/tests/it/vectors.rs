//! Reads the conformance vectors, and compares results with a list of known differences.

use serde_json::Value;

/// Returns the cases of a file. `count` is checked, so that a truncated file cannot pass.
pub(crate) fn cases(file: &str, count: usize) -> Vec<Value> {
    let path = format!("{}/../../testdata/conformance/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let document: Value = serde_json::from_str(&text).unwrap();
    let cases = document["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), count, "{file}");
    cases
}

/// Returns the id of a case.
pub(crate) fn id(case: &Value) -> &str {
    case["id"].as_str().unwrap()
}

/// Returns the number of random cases to run: `ENDSTOP_CASES`, or the default.
pub(crate) fn random_cases(default: u32) -> u32 {
    std::env::var("ENDSTOP_CASES").map_or(default, |n| n.parse().unwrap())
}

/// Panics unless the cases that differ are exactly the expected ones.
pub(crate) fn assert_differences(found: &[(String, String)], expected: &[(&str, &str)]) {
    let names: Vec<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    let wanted: Vec<&str> = expected.iter().map(|(id, _)| *id).collect();
    let unexpected: Vec<_> =
        found.iter().filter(|(id, _)| !wanted.contains(&id.as_str())).collect();
    assert!(unexpected.is_empty(), "unexpected: {unexpected:#?}");
    // An expected difference that no longer exists must leave the list, or it would hide a later
    // one.
    let stale: Vec<_> = wanted.iter().filter(|id| !names.contains(id)).collect();
    assert!(stale.is_empty(), "no longer different: {stale:?}");
}
