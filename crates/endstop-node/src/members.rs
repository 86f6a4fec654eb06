//! The names of the kernel's enumerations, from which `ts/vocabulary.ts` is written.

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
    let of = |(name, values): (&str, Vec<&str>)| Members {
        name: name.to_owned(),
        values: values.into_iter().map(str::to_owned).collect(),
    };
    endstop_guest::choice::members().into_iter().map(of).collect()
}
