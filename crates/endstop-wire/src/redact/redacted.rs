//! Types for text that is written: [`Redacted`] is what a sink takes, and [`Sealed`] is a value that
//! reaches a sink without its secrets only.
//!
//! ```
//! use endstop_wire::redact::{KnownKeys, Redacted, Sealed};
//! fn log(line: &Redacted) -> usize { line.len() }
//! let keys = KnownKeys::new(["sk-proj-4fQ9xTz71LmN0pWv"]);
//! let line = keys.redact("bad key: sk-proj-4fQ9xTz71LmN0pWv");
//! assert_eq!((&*line, log(&line)), ("bad key: [redacted]", 19));
//! let answer = Sealed::new(vec!["It is sk-proj-4fQ9xTz71LmN0pWv."], keys);
//! assert_eq!(&*answer.to_json(&KnownKeys::default()).unwrap(), r#"["It is [redacted]."]"#);
//! ```

use super::known::KnownKeys;
use super::names::REDACTED;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt;
use std::ops::Deref;

/// Text without secrets. A function that writes to a file, a stream or a log takes this type, so that
/// text which was not searched cannot be written by mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redacted(String);

impl Redacted {
    /// Takes text that must be written unchanged, such as the answer of a run for its user. Each use
    /// needs a reason, which a comment gives.
    pub fn exempt(text: impl Into<String>) -> Redacted {
        Redacted(text.into())
    }

    /// Returns the text.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for Redacted {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Redacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl KnownKeys {
    /// Returns text without secrets. The text must not be JSON: see
    /// [`redact_json`](KnownKeys::redact_json).
    pub fn redact(&self, text: &str) -> Redacted {
        Redacted(self.out_of_text(text).into_owned())
    }

    /// Returns a value as one line of JSON without secrets.
    ///
    /// # Errors
    /// The value is not valid JSON, for example because a map has keys that are not strings.
    pub fn redact_json(
        &self,
        value: &(impl Serialize + ?Sized),
    ) -> Result<Redacted, serde_json::Error> {
        Ok(Redacted(self.out_of_json_text(serde_json::to_string(value)?)))
    }

    /// Returns a copy of a value without secrets, or `None` if it has none.
    ///
    /// A string that the type requires, such as the name of an ending, stays even if it equals a
    /// secret, because the copy would not be of its type without it.
    ///
    /// # Errors
    /// The value does not survive a conversion to JSON and back.
    pub fn redact_value<T: Serialize + DeserializeOwned>(
        &self,
        value: &T,
    ) -> Result<Option<T>, serde_json::Error> {
        let text = serde_json::to_string(value)?;
        let Some((clean, _)) = self.out_of_json(&text) else { return Ok(None) };
        if let Ok(clean) = T::deserialize(&clean) {
            return Ok(Some(clean));
        }
        let original: Value = serde_json::from_str(&text)?;
        let mut changed = Vec::new();
        differences(&original, &clean, &mut String::new(), &mut changed);
        let mut whole = original.clone();
        for at in changed {
            let (Some(place), Some(new)) = (whole.pointer_mut(&at), clean.pointer(&at)) else {
                continue;
            };
            let old = std::mem::replace(place, new.clone());
            if T::deserialize(&whole).is_err() {
                if let Some(place) = whole.pointer_mut(&at) {
                    *place = old;
                }
            }
        }
        T::deserialize(&whole).map(Some)
    }
}

/// Collects the JSON pointers of the strings that differ.
fn differences(one: &Value, other: &Value, at: &mut String, found: &mut Vec<String>) {
    let len = at.len();
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            for (nth, (one, other)) in one.iter().zip(other).enumerate() {
                at.extend(["/", &nth.to_string()]);
                differences(one, other, at, found);
                at.truncate(len);
            }
        }
        (Value::Object(one), Value::Object(other)) => {
            for (name, one) in one {
                // A member whose name was a secret has no counterpart, and stays.
                let Some(other) = other.get(name) else { continue };
                at.extend(["/", &name.replace('~', "~0").replace('/', "~1")]);
                differences(one, other, at, found);
                at.truncate(len);
            }
        }
        (one, other) if one != other => found.push(at.clone()),
        _ => {}
    }
}

/// A value that may quote secrets, with those that are known of it. It is written as JSON without
/// them, and `Debug` shows nothing of it.
#[derive(Clone)]
pub struct Sealed<T> {
    value: T,
    keys: KnownKeys,
}

impl<T> Sealed<T> {
    /// Joins a value with its secrets.
    pub fn new(value: T, keys: KnownKeys) -> Sealed<T> {
        Sealed { value, keys }
    }

    /// Returns the value with its secrets, for decisions. It must not be written.
    pub fn unredacted(&self) -> &T {
        &self.value
    }
}

impl<T: Serialize> Sealed<T> {
    /// Returns the value as JSON without its secrets and without those of `more`.
    ///
    /// # Errors
    /// See [`KnownKeys::redact_json`].
    pub fn to_json(&self, more: &KnownKeys) -> Result<Redacted, serde_json::Error> {
        self.keys.and(more).redact_json(&self.value)
    }

    /// Like [`to_json`](Sealed::to_json), but returns a value, to which members can be added.
    ///
    /// # Errors
    /// See [`KnownKeys::redact_json`].
    pub fn to_value(&self) -> Result<Value, serde_json::Error> {
        let mut value = serde_json::to_value(&self.value)?;
        self.keys.cut(&mut value);
        Ok(value)
    }
}

impl<T> fmt::Debug for Sealed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl<T: PartialEq> PartialEq for Sealed<T> {
    fn eq(&self, other: &Sealed<T>) -> bool {
        self.value == other.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    const KEY: &str = "custom-4fQ9xTz71LmN0pWv";

    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    enum Ending {
        #[serde(rename = "error_max_structured_output_retries")]
        Retries,
    }

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Report {
        ending: Ending,
        said: Vec<String>,
    }

    fn report(said: &str) -> Report {
        Report { ending: Ending::Retries, said: vec![said.to_owned()] }
    }

    #[test]
    fn sealed_value_is_written_without_secrets() {
        let sealed = Sealed::new(report(&format!("bad key {KEY}")), KnownKeys::new([KEY]));
        let other = KnownKeys::new(["other-7LmN0pWv4fQ9xTz71"]);
        let text = sealed.to_json(&other).unwrap();
        assert!(text.contains("bad key [redacted]") && !format!("{sealed:?}").contains("key"));
        assert_eq!(sealed.to_value().unwrap()["said"][0], "bad key [redacted]");
        let both = Sealed::new(report("other-7LmN0pWv4fQ9xTz71"), KnownKeys::new([KEY]));
        assert!(both.to_json(&other).unwrap().contains("[\"[redacted]\"]"));
    }

    #[test]
    fn value_without_secret_is_not_copied() {
        assert_eq!(KnownKeys::new([KEY]).redact_value(&report("fine")).unwrap(), None);
    }

    /// A client chooses its key, so that the key may be a name which the type requires.
    #[test]
    fn required_name_stays_and_text_does_not() {
        let keys = KnownKeys::new(["error_max_structured_output_retries", KEY]);
        let clean = keys.redact_value(&report(&format!("bad {KEY}"))).unwrap().unwrap();
        assert_eq!(clean, report("bad [redacted]"));
        let said = "it was error_max_structured_output_retries";
        let clean = keys.redact_value(&report(said)).unwrap().unwrap();
        assert_eq!(clean, report("it was [redacted]"));
    }
}
