//! The content of a message or a result: a string, or a list of parts, some of which are text.
//!
//! ```json
//! [{"type": "text", "text": "What is this?"},
//!  {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]
//! ```
//!
//! The text of several parts is joined with line breaks. The parts are stored as well, unless they
//! are a single text.

use super::record::Text;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;

/// The content as it is in the file.
#[derive(Default)]
pub(crate) enum Content<'a> {
    /// `null` or absent.
    #[default]
    Nothing,
    Text(Cow<'a, str>),
    Parts(Vec<Value>),
    /// Any other value.
    Other(Value),
}

impl<'a> Content<'a> {
    /// Returns the text, and the parts if they contain more than the text.
    pub(crate) fn split(self) -> (Cow<'a, str>, Option<Value>) {
        match self {
            Content::Nothing => (Cow::Borrowed(""), None),
            Content::Text(text) => (text, None),
            // The JSON itself is used as the text, so that no content is lost.
            Content::Other(value) => (value.to_string().into(), Some(value)),
            Content::Parts(parts) => {
                let text = joined(&parts);
                let plain = are_plain(&parts);
                (text.into(), (!plain).then_some(Value::Array(parts)))
            }
        }
    }
}

/// Returns `true` if the parts are a single text.
pub(crate) fn are_plain(parts: &[Value]) -> bool {
    let [Value::Object(part)] = parts else { return false };
    part.len() == 2
        && part.get("type").and_then(Value::as_str) == Some("text")
        && part.get("text").is_some_and(Value::is_string)
}

/// Joins the texts of the parts with line breaks.
pub(crate) fn joined(parts: &[Value]) -> String {
    let mut texts = parts.iter().filter_map(|part| match part {
        Value::String(text) => Some(text.as_str()),
        Value::Object(part) => {
            let kind = part.get("type").and_then(Value::as_str);
            // OpenAI's two APIs have their own type names for text.
            let text = matches!(kind, None | Some("text" | "input_text" | "output_text"));
            part.get("text").and_then(Value::as_str).filter(|_| text)
        }
        _ => None,
    });
    let mut all = texts.next().unwrap_or_default().to_owned();
    for text in texts {
        all.push('\n');
        all.push_str(text);
    }
    all
}

/// Returns `true` if ATIF can represent these parts.
pub(crate) fn are_atif(parts: &[Value]) -> bool {
    parts.iter().all(|part| {
        // The exact number of members is checked, because ATIF's schema allows no additional ones.
        let Some(part) = part.as_object() else { return false };
        let source = part.get("source").and_then(Value::as_object);
        match part.get("type").and_then(Value::as_str) {
            Some("text") => part.len() == 2 && part.get("text").is_some_and(Value::is_string),
            Some("image") => {
                const IMAGES: &[&str] = &["image/jpeg", "image/png", "image/gif", "image/webp"];
                part.len() == 2 && source.is_some_and(|source| is_source(source, IMAGES, 2))
            }
            Some("audio") => {
                const SOUNDS: &[&str] = &[
                    "audio/wav",
                    "audio/mpeg",
                    "audio/mp4",
                    "audio/aac",
                    "audio/ogg",
                    "audio/flac",
                    "audio/webm",
                    "audio/aiff",
                ];
                // The duration is optional in ATIF.
                let seconds = source.and_then(|source| source.get("duration_sec"));
                let timed = seconds.is_none_or(|s| s.as_f64().is_some_and(|s| s >= 0.0));
                let members = 2 + usize::from(seconds.is_some());
                part.len() == 2
                    && timed
                    && source.is_some_and(|source| is_source(source, SOUNDS, members))
            }
            _ => false,
        }
    })
}

fn is_source(source: &Map<String, Value>, kinds: &[&str], members: usize) -> bool {
    source.len() == members
        && source.get("path").is_some_and(Value::is_string)
        && source
            .get("media_type")
            .and_then(Value::as_str)
            .is_some_and(|kind| kinds.contains(&kind))
}

impl<'a> Deserialize<'a> for Content<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'a> Visitor<'a> for Any {
            type Value = Content<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of parts")
            }

            fn visit_unit<E>(self) -> Result<Content<'a>, E> {
                Ok(Content::Nothing)
            }

            fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Content<'a>, E> {
                Ok(Content::Text(Cow::Owned(text.to_owned())))
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Content<'a>, E> {
                Ok(Content::Other(flag.into()))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Content<'a>, E> {
                Ok(Content::Other(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Content<'a>, E> {
                Ok(Content::Other(number.into()))
            }

            fn visit_f64<E>(self, number: f64) -> Result<Content<'a>, E> {
                Ok(Content::Other(number.into()))
            }

            fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Content<'a>, A::Error> {
                let mut parts = Vec::new();
                while let Some(part) = seq.next_element()? {
                    parts.push(part);
                }
                Ok(Content::Parts(parts))
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Content<'a>, M::Error> {
                let mut object = Map::new();
                while let Some(Text(name)) = map.next_key::<Text<'a>>()? {
                    object.insert(name.into_owned(), map.next_value()?);
                }
                Ok(Content::Other(Value::Object(object)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
