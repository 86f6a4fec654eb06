//! The part of a server that decides who may connect: the source of a request.

mod source;

pub use source::{Names, SourceError, check_source};
