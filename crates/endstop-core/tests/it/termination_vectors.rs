//! The vocabulary of endings on the vectors.

use crate::vectors::{assert_differences, cases, id};
use endstop_core::{Category, ErrorClass, Termination};
use serde_json::{Value, json};

/// What ours does where it differs from the original, and why.
const DIFFERS: &[(&str, &str)] = &[
    // A name of another version is a failure that nothing should repeat.
    ("unk-bogus", "fatal"),
    ("unk-error_cancelled", "fatal"),
    ("unk-Stop", "fatal"),
    // Repeating what the provider rejects does not help (DESIGN 2).
    ("http-404", "error_provider_rejected"),
    ("http-400", "error_provider_rejected"),
    ("http-422", "error_provider_rejected"),
];

/// The class of a status on its own; bodies say more, and are read where providers are.
fn class(status: u64) -> ErrorClass {
    match status {
        401 => ErrorClass::Authentication,
        403 => ErrorClass::Permission,
        404 => ErrorClass::NotFound,
        408 => ErrorClass::Timeout,
        413 => ErrorClass::RequestTooLarge,
        429 => ErrorClass::RateLimit,
        400..=499 => ErrorClass::InvalidRequest,
        500..=599 => ErrorClass::ServerError,
        _ => ErrorClass::UnknownError,
    }
}

#[test]
fn vectors() {
    let mut found = Vec::new();
    // Starvation and the comparison of budgets belong to the kernel.
    let (mut run, mut left) = (0, 0);
    for case in cases("terminations.json", 60) {
        let input = &case["input"];
        let expect = &case["expect"];
        let name = input["subtype"].as_str().unwrap_or_default();
        let (ours, expect) = match input["fn"].as_str().unwrap() {
            "category" => (json!({"category": Termination::category_str(name)}), expect.clone()),
            "success" => {
                let termination: Termination = name.parse().unwrap();
                (
                    json!({"success": termination.is_success(), "error": termination.is_error()}),
                    expect.clone(),
                )
            }
            "unknown" => {
                let success = Termination::is_success_str(name);
                let category = Termination::category_str(name);
                (
                    json!({"category": category, "success": success, "error": !success}),
                    expect.clone(),
                )
            }
            "all" => {
                // Ours has theirs, all of them, and more.
                let theirs = expect["subtypes"].as_array().unwrap().iter();
                let unknown: Vec<&Value> = theirs
                    .filter(|t| t.as_str().unwrap().parse::<Termination>().is_err())
                    .collect();
                (json!(unknown), json!([]))
            }
            "doc" => {
                let values =
                    [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal];
                (json!(values), expect["actual_values"].clone())
            }
            "http_status" => {
                let ours = class(input["status"].as_u64().unwrap()).termination();
                let theirs = expect["termination"].as_str().unwrap();
                (json!(ours), json!(theirs.split(' ').next()))
            }
            _ => {
                left += 1;
                continue;
            }
        };
        run += 1;
        if ours != expect {
            found.push((id(&case).to_owned(), format!("{ours} for {expect}")));
        }
    }
    assert_eq!((run, left), (47, 13));
    assert_differences(&found, DIFFERS);
}
