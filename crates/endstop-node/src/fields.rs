//! Objects of JavaScript, from the lists of fields that all bindings share, and the names of the kernel's
//! enumerations.

use crate::errors::{Result, to_json};
use endstop_core::{Category, Confidence, ErrorClass, NanoUsd, SignalReason, Termination};
use napi_derive::napi;
use serde_json::{Map, Value};
use std::time::Duration;

/// Makes an object with these fields, and its `of`, which copies a value of the kernel.
///
/// `@kind` has the type of each kind in Rust and in TypeScript, `@field` adds a field to both lists, and
/// `@done` writes them. Text that JavaScript parses is JSON here, because `JSON.parse` is faster than
/// building an object in this half.
macro_rules! object {
    (
        $(#[doc = $about:tt])* $name:ident($source:ty) $(, $(#[doc = $extra_doc:tt])* $extra:ident: $extra_type:ident = $make:expr)?;
        $value:ident; $($rows:tt)*
    ) => {
        object! { @row [
            [$(#[doc = $about])* $name($source) $value]
            [$($(#[doc = $extra_doc])* #[napi(readonly)] pub $extra: $extra_type,)?]
            [$($extra: $make($value)?,)?]
        ] $($rows)* }
    };
    (@row $state:tt) => { object! { @done $state } };
    (@row $state:tt $(#[doc = $doc:tt])* ($($kind:tt)+) $field:ident = $get:expr; $($rest:tt)*) => {
        object! { @kind ($($kind)+) $state [$(#[doc = $doc])*] $field [$get] $($rest)* }
    };
    (@kind (flag) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [bool] $($more)* } };
    (@kind (text) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [String] $($more)* } };
    (@kind (small) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [u16] $($more)* } };
    (@kind (count) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [u32] $($more)* } };
    // JavaScript has no other number; counts beyond 2^53 are not tokens of a run.
    (@kind (tokens) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [f64] $($more)* } };
    (@kind (usd) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [f64] $($more)* } };
    (@kind (time $ms:ident) $state:tt $doc:tt $field:ident $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [f64] $state $doc $ms $($more)* }
    };
    (@kind (one Termination) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "Termination")]] [String] $($more)* }
    };
    (@kind (one Category) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "Category")]] [String] $($more)* }
    };
    (@kind (one SignalReason) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "SignalReason")]] [String] $($more)* }
    };
    (@kind (one Confidence) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "Confidence")]] [String] $($more)* }
    };
    (@kind (one ErrorClass) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "ErrorClass")]] [String] $($more)* }
    };
    (@kind (many Termination) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "readonly Termination[]")]] [Vec<String>] $($more)* }
    };
    (@kind (maybe one Termination) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "Termination | null")]] [Option<String>] $($more)* }
    };
    (@kind (object Outcome) $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [OutcomeFields] $($more)* }
    };
    (@kind (object $class:ident) $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [$class] $($more)* }
    };
    (@kind (calls) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "readonly Call[]")]] [Vec<Call>] $($more)* }
    };
    (@kind (shared calls) $($more:tt)*) => { object! { @kind (calls) $($more)* } };
    (@kind (dict) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "Record<string, any>")]] [Option<String>] $($more)* }
    };
    (@kind (maybe value) $($more:tt)*) => {
        object! { @field [#[napi(readonly, ts_type = "any")]] [Option<String>] $($more)* }
    };
    (@kind (only $python:tt) $state:tt $doc:tt $field:ident $get:tt $($rest:tt)*) => {
        object! { @row $state $($rest)* }
    };
    (@kind (maybe time $ms:ident) $state:tt $doc:tt $field:ident $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [Option<f64>] $state $doc $ms $($more)* }
    };
    (@kind (maybe text) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [Option<String>] $($more)* } };
    (@kind (maybe small) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [Option<u16>] $($more)* } };
    (@kind (maybe tokens) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [Option<f64>] $($more)* } };
    (@kind (maybe usd) $($more:tt)*) => { object! { @field [#[napi(readonly)]] [Option<f64>] $($more)* } };
    (@kind (maybe object Outcome) $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [Option<OutcomeFields>] $($more)* }
    };
    (@kind (maybe object $class:ident) $($more:tt)*) => {
        object! { @field [#[napi(readonly)]] [Option<$class>] $($more)* }
    };
    (
        @field [$($attribute:tt)*] [$($kind:tt)*] [$head:tt [$($fields:tt)*] [$($values:tt)*]]
        [$($doc:tt)*] $field:ident [$get:expr] $($rest:tt)*
    ) => {
        object! { @row [
            $head
            [$($fields)* $($doc)* $($attribute)* pub $field: $($kind)*,]
            [$($values)* $field: crate::fields::Field::show($get)?,]
        ] $($rest)* }
    };
    (@done [[$(#[doc = $about:tt])* $name:ident($source:ty) $value:ident] [$($fields:tt)*] [$($values:tt)*]]) => {
        $(#[doc = $about])*
        #[napi(object, use_nullable = true)]
        pub struct $name {
            $($fields)*
        }

        impl $name {
            pub(crate) fn of($value: &$source) -> crate::errors::Result<$name> {
                Ok($name { $($values)* })
            }
        }
    };
}
pub(crate) use object;

/// A value as an object of JavaScript has it.
pub(crate) trait Field<T> {
    /// Returns the member.
    fn show(self) -> Result<T>;
}

/// Implements [`Field`] for types, each with the type of its member and an expression.
macro_rules! shown {
    ($value:ident: $($kind:ty => $member:ty = $show:expr;)*) => {
        $(impl crate::fields::Field<$member> for $kind {
            fn show(self) -> crate::errors::Result<$member> {
                let $value = self;
                Ok($show)
            }
        })*
    };
}

pub(crate) use shown;

shown! { value:
    bool => bool = value;
    u16 => u16 = value;
    u32 => u32 = value;
    u64 => f64 = value as f64;
    &str => String = value.to_owned();
    String => String = value;
    NanoUsd => f64 = value.to_usd();
    Duration => f64 = value.as_nanos() as f64 / 1e6;
    Termination => String = value.as_str().to_owned();
    Category => String = value.as_str().to_owned();
    SignalReason => String = value.as_str().to_owned();
    Confidence => String = value.as_str().to_owned();
    ErrorClass => String = value.as_str().to_owned();
    &[Termination] => Vec<String> = value.iter().map(|one| one.as_str().to_owned()).collect();
    Value => String = to_json(&value)?;
    // Most signals have none, and a null costs JavaScript no parsing.
    &Map<String, Value> => Option<String> = if value.is_empty() { None } else { Some(to_json(value)?) };
}

impl<T, S: Field<T>> Field<Option<T>> for Option<S> {
    fn show(self) -> Result<Option<T>> {
        self.map(S::show).transpose()
    }
}

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
