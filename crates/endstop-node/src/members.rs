//! The names of the kernel's enumerations, from which `ts/vocabulary.ts` is written.

use endstop_core::{Category, Confidence, ErrorClass, SignalReason, Termination, ToolStatus};
use napi_derive::napi;

/// The values of an enumeration as the kernel spells them.
#[napi(object)]
pub struct Members {
    /// Name of the enumeration.
    pub name: String,
    /// The values, in the order of the kernel.
    pub values: Vec<String>,
}

/// Returns the values of all enumerations. A test compares `ts/vocabulary.ts` with them.
#[napi]
pub fn members() -> Vec<Members> {
    let categories = [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal];
    let confidences = [Confidence::Low, Confidence::Medium, Confidence::High];
    let statuses = [
        ToolStatus::Ok,
        ToolStatus::Error,
        ToolStatus::Denied,
        ToolStatus::Timeout,
        ToolStatus::Aborted,
        ToolStatus::Skipped,
    ];
    let of = |name: &str, values: Vec<&str>| Members {
        name: name.to_owned(),
        values: values.into_iter().map(str::to_owned).collect(),
    };
    vec![
        of("Termination", Termination::all().iter().map(|one| one.as_str()).collect()),
        of("Category", categories.iter().map(|one| one.as_str()).collect()),
        of("SignalReason", SignalReason::ALL.iter().map(|one| one.as_str()).collect()),
        of("Confidence", confidences.iter().map(|one| one.as_str()).collect()),
        of("ErrorClass", ErrorClass::ALL.iter().map(|one| one.as_str()).collect()),
        of("ToolStatus", statuses.iter().map(|one| one.as_str()).collect()),
    ]
}
