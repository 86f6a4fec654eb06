//! Checks that JSON can express the numbers of a value.
//!
//! ```text
//! finite::check(&value)?; // an error for NaN and infinity, which serde_json writes as `null`
//! ```

use serde::ser::{self, Serialize};
use std::fmt;

/// Returns an error if a number in the value is NaN or infinite.
pub(super) fn check<T: Serialize + ?Sized>(value: &T) -> Result<(), NotFinite> {
    value.serialize(Check)
}

/// The reason why JSON cannot express a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotFinite(String);

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFinite {}

impl ser::Error for NotFinite {
    fn custom<T: fmt::Display>(message: T) -> NotFinite {
        NotFinite(message.to_string())
    }
}

fn number(value: f64) -> Result<(), NotFinite> {
    if value.is_finite() {
        return Ok(());
    }
    Err(NotFinite(format!(
        "the number {value} cannot be written as JSON: return a finite number, or none"
    )))
}

/// A serializer that writes nothing.
struct Check;

macro_rules! nothing {
    ($($method:ident($($arg:ty),*);)*) => {
        $(fn $method(self, $(_: $arg),*) -> Result<(), NotFinite> { Ok(()) })*
    };
}

impl ser::Serializer for Check {
    type Ok = ();
    type Error = NotFinite;
    type SerializeSeq = Check;
    type SerializeTuple = Check;
    type SerializeTupleStruct = Check;
    type SerializeTupleVariant = Check;
    type SerializeMap = Check;
    type SerializeStruct = Check;
    type SerializeStructVariant = Check;

    nothing! {
        serialize_bool(bool); serialize_i8(i8); serialize_i16(i16); serialize_i32(i32);
        serialize_i64(i64); serialize_i128(i128); serialize_u8(u8); serialize_u16(u16);
        serialize_u32(u32); serialize_u64(u64); serialize_u128(u128); serialize_char(char);
        serialize_str(&str); serialize_bytes(&[u8]); serialize_none(); serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }
    fn serialize_f32(self, value: f32) -> Result<(), NotFinite> {
        number(value.into())
    }
    fn serialize_f64(self, value: f64) -> Result<(), NotFinite> {
        number(value)
    }
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NotFinite> {
        value.serialize(self)
    }
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotFinite> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotFinite> {
        value.serialize(self)
    }
    fn serialize_seq(self, _: Option<usize>) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_tuple(self, _: usize) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_map(self, _: Option<usize>) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Check, NotFinite> {
        Ok(self)
    }
    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Check, NotFinite> {
        Ok(self)
    }
}

macro_rules! elements {
    ($($name:ident { $($method:ident($($arg:ty),*);)* })*) => {$(
        impl ser::$name for Check {
            type Ok = ();
            type Error = NotFinite;
            $(fn $method<T: Serialize + ?Sized>(&mut self, $(_: $arg,)* value: &T) -> Result<(), NotFinite> {
                value.serialize(Check)
            })*
            fn end(self) -> Result<(), NotFinite> {
                Ok(())
            }
        }
    )*};
}

elements! {
    SerializeSeq { serialize_element(); }
    SerializeTuple { serialize_element(); }
    SerializeTupleStruct { serialize_field(); }
    SerializeTupleVariant { serialize_field(); }
    SerializeMap { serialize_key(); serialize_value(); }
    SerializeStruct { serialize_field(&'static str); }
    SerializeStructVariant { serialize_field(&'static str); }
}
