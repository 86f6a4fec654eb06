//! Deserializes JSON objects directly into the model, member by member, with borrowed strings.
//!
//! ```text
//! impl<'a> Record<'a> for Call<'a> {
//!     fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error> {
//!         match name {
//!             "id" => self.id = map.next_value::<Opt<Text>>()?.0.map(|t| t.0),
//!             _ => keep(&mut self.extra, name, map)?,
//!         }
//!         Ok(())
//!     }
//! }
//! let call = read::<Call>(bytes)?;
//! ```
//!
//! Parsing everything into a [`Value`] would copy each string, and strings are most of a file of
//! runs.

use crate::read::io::truncated::is_half;
use crate::read::problem::Problem;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A type that is a JSON object in a file.
pub(crate) trait Record<'a>: Default {
    /// Handles one member. It must consume the value from `map`, whatever the name.
    fn member<M: MapAccess<'a>>(&mut self, name: &str, map: &mut M) -> Result<(), M::Error>;
}

/// Deserializes a record, or a part of one, from its bytes.
pub(crate) fn read<'a, T: Record<'a>>(bytes: &'a [u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::malformed(format!("not UTF-8 at byte {} of the record", error.valid_up_to()))
    })?;
    // Without another check of its memory: `Chunk` checks each record before its reader runs.
    serde_json::from_str::<Of<T>>(text)
        .map(|of| of.0)
        .map_err(|error| if is_half(bytes) { Problem::half(bytes) } else { Problem::json(&error) })
}

/// A deserializer for a [`Record`].
pub(crate) struct Of<T>(pub(crate) T);

impl<'a, T: Record<'a>> Deserialize<'a> for Of<T> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members<T>(PhantomData<T>);
        impl<'a, T: Record<'a>> Visitor<'a> for Members<T> {
            type Value = Of<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Of<T>, M::Error> {
                let mut record = T::default();
                while let Some(Text(name)) = map.next_key::<Text<'a>>()? {
                    record
                        .member(&name, &mut map)
                        // The name is added to the error, so that the message locates a fault in
                        // nested objects.
                        .map_err(|error| M::Error::custom(format_args!("{name}: {error}")))?;
                }
                Ok(Of(record))
            }
        }
        deserializer.deserialize_map(Members(PhantomData))
    }
}

/// A deserializer for a list of [`Record`]s; `null` is an empty list.
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<'a, T: Record<'a>> Deserialize<'a> for List<T> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        let mut list = Vec::new();
        Each::new(|record| list.push(record)).deserialize(deserializer)?;
        Ok(List(list))
    }
}

/// Passes each [`Record`] of a list to `take` as it is parsed.
pub(crate) fn each<'a, T: Record<'a>, M: MapAccess<'a>>(
    map: &mut M,
    take: impl FnMut(T),
) -> Result<(), M::Error> {
    map.next_value_seed(Each::new(take))
}

struct Each<T, F>(F, PhantomData<T>);

impl<T, F: FnMut(T)> Each<T, F> {
    fn new(take: F) -> Each<T, F> {
        Each(take, PhantomData)
    }
}

impl<'a, T: Record<'a>, F: FnMut(T)> DeserializeSeed<'a> for Each<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a, T: Record<'a>, F: FnMut(T)> Visitor<'a> for Each<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of objects")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(mut self, mut seq: A) -> Result<(), A::Error> {
        while let Some(Of(record)) = seq.next_element::<Of<T>>()? {
            (self.0)(record);
        }
        Ok(())
    }
}

/// A deserializer for a string, borrowed if it contains no escapes.
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'a> Deserialize<'a> for Text<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'a> Visitor<'a> for Borrow {
            type Value = Text<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E>(self, text: String) -> Result<Text<'a>, E> {
                Ok(Text(Cow::Owned(text)))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

/// Reads a string; `None` for `null`.
pub(crate) fn text<'a, M: MapAccess<'a>>(map: &mut M) -> Result<Option<Cow<'a, str>>, M::Error> {
    Ok(map.next_value::<Option<Text<'a>>>()?.map(|text| text.0))
}

/// Reads a string, or a number or boolean as a string, because ids occur in all three forms.
pub(crate) fn name<'a, M: MapAccess<'a>>(map: &mut M) -> Result<Option<Cow<'a, str>>, M::Error> {
    struct Name;
    impl<'a> Visitor<'a> for Name {
        type Value = Option<Cow<'a, str>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string or a number")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Borrowed(text)))
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(text.to_owned())))
        }

        fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(number.to_string())))
        }

        fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(number.to_string())))
        }

        fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(number.to_string())))
        }

        fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
            Ok(Some(Cow::Owned(flag.to_string())))
        }
    }
    struct Seed;
    impl<'a> DeserializeSeed<'a> for Seed {
        type Value = Option<Cow<'a, str>>;

        fn deserialize<D: Deserializer<'a>>(self, from: D) -> Result<Self::Value, D::Error> {
            from.deserialize_any(Name)
        }
    }
    map.next_value_seed(Seed)
}

/// Reads any value as raw JSON.
pub(crate) fn raw<'a, M: MapAccess<'a>>(map: &mut M) -> Result<&'a RawValue, M::Error> {
    map.next_value::<&'a RawValue>()
}

/// Reads an object; `None` for `null`.
pub(crate) fn object<'a, M: MapAccess<'a>>(
    map: &mut M,
) -> Result<Option<Map<String, Value>>, M::Error> {
    map.next_value::<Option<Map<String, Value>>>()
}

/// Stores a member that no field holds.
pub(crate) fn keep<'a, M: MapAccess<'a>>(
    extra: &mut Option<Box<Map<String, Value>>>,
    name: &str,
    map: &mut M,
) -> Result<(), M::Error> {
    let value = map.next_value()?;
    extra.get_or_insert_default().insert(name.to_owned(), value);
    Ok(())
}

/// Stores a member under its name; `null` is treated as absent.
pub(crate) fn keep_other<'a, M: MapAccess<'a>>(
    other: &mut Map<String, Value>,
    name: &str,
    map: &mut M,
) -> Result<(), M::Error> {
    let value: Value = map.next_value()?;
    if !value.is_null() {
        other.insert(name.to_owned(), value);
    }
    Ok(())
}

/// Stores a value under a name that no field holds.
pub(crate) fn keep_value(extra: &mut Option<Box<Map<String, Value>>>, name: &str, value: Value) {
    extra.get_or_insert_default().insert(name.to_owned(), value);
}

/// Reads a count: an integer, also if it is written as `3.0`.
pub(crate) fn count(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        // Below 2^53, because larger integers are not exact in a double.
        (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as u64)
    })
}

/// Moves a member from a map to a field if it has the field's type; otherwise it stays in the map.
pub(crate) fn lift<T>(
    map: &mut Map<String, Value>,
    name: &str,
    kind: impl Fn(&Value) -> Option<T>,
) -> Option<T> {
    let found = kind(map.get(name)?)?;
    // `shift_remove` keeps the order of the other members; `swap_remove` would not.
    map.shift_remove(name);
    Some(found)
}

/// Copies a string value.
pub(crate) fn owned_text(value: &Value) -> Option<Cow<'static, str>> {
    value.as_str().map(|text| Cow::Owned(text.to_owned()))
}

/// Copies a string value, or a number as a string.
pub(crate) fn owned_name(value: &Value) -> Option<Cow<'static, str>> {
    match value {
        Value::String(text) => Some(Cow::Owned(text.clone())),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        _ => None,
    }
}
