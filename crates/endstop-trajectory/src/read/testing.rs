//! Reads bytes in a format that is not detected first. For this crate's tests, which pass damaged
//! files to each reader.

use super::format::{Head, Place, Shape, Sink};
use super::formats::all;
use super::io::repair::repaired;
use endstop_core::bounded_json;

/// Returns the first format that recognises the bytes.
pub fn recognised(name: &str, bytes: &[u8]) -> Option<&'static str> {
    let bytes = &*repaired(bytes);
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    // The first line is a record in most formats; otherwise the whole file is one document.
    let first = bounded_json::from_slice(line).or_else(|_| bounded_json::from_slice(bytes)).ok();
    let head = Head::new(name, bytes, first.as_ref());
    all().find(|format| (format.recognises)(&head)).map(|format| format.name)
}

/// Returns `true` if this build has the reader of a format.
pub fn is_built(format: &str) -> bool {
    all().any(|known| known.name == format && known.shape.is_some())
}

/// Reads a file in a named format of whole files; returns `false` if no format has that name.
pub fn read(format: &str, file: &str, bytes: &[u8], each: &mut Sink<'_>) -> bool {
    let place = Place { file, beside: &|_| None, file_of: &|_| None };
    for known in all().filter(|known| known.name == format) {
        if let Some(Shape::Whole(read) | Shape::Session(read) | Shape::Archive(read)) = known.shape
        {
            read(&repaired(bytes), &place, each);
            return true;
        }
    }
    false
}
