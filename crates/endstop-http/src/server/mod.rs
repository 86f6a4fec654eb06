//! The part of a server that decides who may connect: the source of a request, and the bounds of
//! connections.

mod connections;
mod source;

pub use connections::{Connections, Place};
pub use source::{Names, SourceError, check_source};
