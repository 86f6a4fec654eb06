//! The JSON forms of an outcome's fields: durations in milliseconds, and the category next to the
//! termination. Errors name the field.

use serde::de::{DeserializeSeed, Error as _, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};
use std::fmt;

/// The keys `termination` and `category`. The category is computed, so it is not read back.
pub(super) mod with_category {
    use super::NameFields;
    use crate::termination::{Category, Termination};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct Written {
        termination: Termination,
        category: Category,
    }

    #[derive(Deserialize)]
    struct Read {
        termination: Termination,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        termination: &Termination,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let termination = *termination;
        Written { termination, category: termination.category() }.serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Termination, D::Error> {
        Read::deserialize(NameFields(deserializer)).map(|read| read.termination)
    }
}

/// A duration as milliseconds with three decimals.
pub(crate) mod milliseconds {
    use serde::de::{Error as _, Unexpected};
    use serde::{Deserialize, Deserializer, Serialize as _, Serializer};
    use std::time::Duration;

    pub(crate) fn serialize<S: Serializer>(
        time: &Duration,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        (time.as_micros() as f64 / 1e3).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Duration, D::Error> {
        let ms = f64::deserialize(deserializer)?;
        // The division has rounded, so whole microseconds are restored by rounding, too.
        let micros = (ms * 1e3).round();
        if !(0.0..=u64::MAX as f64).contains(&micros) {
            return Err(D::Error::invalid_value(
                Unexpected::Float(ms),
                &"a non-negative number of milliseconds",
            ));
        }
        Ok(Duration::from_micros(micros as u64))
    }
}

/// A duration as whole milliseconds, or `null`.
pub(super) mod optional_milliseconds {
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};
    use std::time::Duration;

    #[expect(clippy::ref_option, reason = "the signature that serde asks for")]
    pub(crate) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        time.map(|time| time.as_millis() as u64).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_millis))
    }
}

/// Reads an object from this deserializer. An error in a field starts with the field's name.
pub(crate) struct NameFields<D>(pub(crate) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for NameFields<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(OfObject(visitor))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct OfObject<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for OfObject<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(NamedFields { fields, name: String::new() })
    }
}

struct NamedFields<A> {
    fields: A,
    name: String,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for NamedFields<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let Some(name) = self.fields.next_key()? else { return Ok(None) };
        self.name = name;
        seed.deserialize(self.name.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        let named = |error| A::Error::custom(format_args!("`{}`: {error}", self.name));
        self.fields.next_value_seed(seed).map_err(named)
    }
}
