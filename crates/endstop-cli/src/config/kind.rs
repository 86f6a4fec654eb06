//! How the value of a setting is read, merged, stored and shown, and the kinds that several settings have. A kind with
//! a parser of its own is next to its values, for example in `config::http`, or in `config::kinds`.

use crate::config::flag::{Commands, FlagValue};
use clap::Arg;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::marker::PhantomData;

/// Values with the ends of their names: `""` for a setting itself, `.proxy` for a member of a table.
pub(crate) type Members = Vec<(String, Value)>;

/// The problem of a value in a settings file, by what the error names.
#[derive(Debug)]
pub(crate) enum Problem {
    /// The key: `` `model`: … ``.
    Key(String),
    /// The table: `[params]: …`.
    Table(String),
    /// The problem names it.
    Whole(String),
}

impl From<&str> for Problem {
    fn from(problem: &str) -> Problem {
        Problem::Key(problem.to_owned())
    }
}

/// A kind of setting: how its value is read, merged, stored and spelled.
pub(crate) trait Kind {
    type Own;
    type Flag: FlagValue;

    /// Completes the argument of the flag.
    fn arg(arg: Arg, _command: Commands) -> Arg {
        arg
    }

    /// Merges a value of a settings file; of a table, the value of a member. The default is that of a setting without
    /// a key.
    fn take(_: &mut Self::Own, _member: &str, _value: &Value) -> Result<(), Problem> {
        Err("it is set with a flag".into())
    }

    /// Merges the flag. The default is that of a setting without one.
    ///
    /// # Errors
    /// Names the flag and the problem.
    fn above(_: &mut Self::Own, _given: &Self::Flag, _flag: &str) -> Result<(), String> {
        Ok(())
    }

    /// Returns the value as a settings file spells it.
    fn json(own: &Self::Own) -> Value;

    /// Returns the value that a journal stores.
    fn save(own: &Self::Own) -> Value {
        Self::json(own)
    }

    /// Reads the value that a journal stored.
    fn restore(own: &mut Self::Own, stored: &Value) -> Result<(), String>;
}

/// Reads a stored value.
pub(crate) fn restored<T: DeserializeOwned>(own: &mut T, stored: &Value) -> Result<(), String> {
    *own = serde_json::from_value(stored.clone()).map_err(|error| error.to_string())?;
    Ok(())
}

/// The functions of a kind whose value is the same in a settings file and in a journal.
macro_rules! json_value {
    () => {
        fn json(own: &Self::Own) -> Value {
            crate::config::kind::plain(own)
        }

        fn restore(own: &mut Self::Own, stored: &Value) -> Result<(), String> {
            crate::config::kind::restored(own, stored)
        }
    };
}

pub(crate) use json_value;

/// Returns a value as JSON.
pub(crate) fn plain<T: Serialize>(own: &T) -> Value {
    // The values are numbers, strings, lists and tables of strings, which JSON can represent.
    serde_json::to_value(own).unwrap_or_default()
}

/// Returns a value for display as a settings file spells it.
pub(crate) fn as_json<T: Serialize>(own: &T) -> Members {
    one(plain(own))
}

/// Returns a value for display.
pub(crate) fn one(value: Value) -> Members {
    vec![(String::new(), value)]
}

/// A value that a file and a flag spell as one string.
pub(crate) trait Spelled {
    type Value: Clone + Serialize + DeserializeOwned;

    fn arg(arg: Arg) -> Arg {
        arg
    }

    /// Reads the value of a settings file.
    fn in_file(value: &Value) -> Result<Self::Value, Problem>;

    /// Reads the value of the flag.
    ///
    /// # Errors
    /// Names the flag and the problem.
    fn in_flag(text: &str, flag: &str) -> Result<Self::Value, String>;
}

/// A setting with one such value.
pub(crate) struct One<S>(PhantomData<S>);

impl<S: Spelled> Kind for One<S> {
    type Own = Option<S::Value>;
    type Flag = Option<String>;

    fn arg(arg: Arg, _: Commands) -> Arg {
        S::arg(arg)
    }

    fn take(own: &mut Self::Own, _: &str, value: &Value) -> Result<(), Problem> {
        *own = Some(S::in_file(value)?);
        Ok(())
    }

    fn above(own: &mut Self::Own, given: &Option<String>, flag: &str) -> Result<(), String> {
        if let Some(text) = given {
            *own = Some(S::in_flag(text, flag)?);
        }
        Ok(())
    }

    json_value!();
}

/// Any string.
pub(crate) struct Text;

/// Returns the string of a settings file.
pub(crate) fn text(value: &Value) -> Result<String, Problem> {
    value.as_str().map(str::to_owned).ok_or_else(|| "expected a string".into())
}

impl Spelled for Text {
    type Value = String;

    fn in_file(value: &Value) -> Result<String, Problem> {
        text(value)
    }

    fn in_flag(text: &str, _: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// A kind of names.
pub(crate) trait Named {
    /// The expected list, for errors.
    const EXPECTED: &str;
    /// `true` if a settings file may write a list of one name as a string.
    const MAY_BE_ONE: bool = false;

    /// Checks the names, and returns those that hold.
    fn checked(names: Vec<String>) -> Result<Vec<String>, String>;
}

/// A list of such names.
pub(crate) struct List<N>(PhantomData<N>);

impl<N: Named> Kind for List<N> {
    type Own = Vec<String>;
    type Flag = Vec<String>;

    fn take(own: &mut Vec<String>, _: &str, value: &Value) -> Result<(), Problem> {
        let name = |name: &Value| name.as_str().map(str::to_owned);
        let names = match value {
            Value::String(name) if N::MAY_BE_ONE => Some(vec![name.clone()]),
            value => value.as_array().and_then(|names| names.iter().map(name).collect()),
        };
        let names =
            names.ok_or_else(|| Problem::Key(format!("expected a list of {}", N::EXPECTED)))?;
        *own = N::checked(names).map_err(Problem::Key)?;
        Ok(())
    }

    fn above(own: &mut Vec<String>, given: &Vec<String>, flag: &str) -> Result<(), String> {
        if !given.is_empty() {
            let names = N::checked(given.clone());
            *own = names.map_err(|problem| format!("{flag}: {problem}"))?;
        }
        Ok(())
    }

    json_value!();
}

/// Names of any tools.
pub(crate) struct AnyTool;

impl Named for AnyTool {
    const EXPECTED: &str = "tool names";

    fn checked(names: Vec<String>) -> Result<Vec<String>, String> {
        Ok(names)
    }
}

/// A switch, whose flag can only switch it on.
pub(crate) struct Switch;

/// Returns the switch of a settings file.
pub(crate) fn switch(value: &Value) -> Result<bool, Problem> {
    value.as_bool().ok_or_else(|| "expected true or false".into())
}

impl Kind for Switch {
    type Own = bool;
    type Flag = bool;

    fn take(own: &mut bool, _: &str, value: &Value) -> Result<(), Problem> {
        *own = switch(value)?;
        Ok(())
    }

    fn above(own: &mut bool, given: &bool, _: &str) -> Result<(), String> {
        *own |= given;
        Ok(())
    }

    json_value!();
}

/// A number of tokens.
pub(crate) struct Tokens;

impl Kind for Tokens {
    type Own = Option<u64>;
    type Flag = Option<u64>;

    fn take(own: &mut Option<u64>, _: &str, value: &Value) -> Result<(), Problem> {
        let tokens = value.as_u64().filter(|tokens| *tokens > 0);
        *own = Some(tokens.ok_or("expected a whole number of tokens, 1 or more")?);
        Ok(())
    }

    fn above(own: &mut Option<u64>, given: &Option<u64>, _: &str) -> Result<(), String> {
        *own = given.or(*own);
        Ok(())
    }

    json_value!();
}

/// Returns a value, or `null` if it is empty.
pub(crate) fn unless_empty(value: Value) -> Value {
    if is_empty(&value) { Value::Null } else { value }
}

/// `true` if a value is empty: `null`, `[]` or `{}`.
pub(crate) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
