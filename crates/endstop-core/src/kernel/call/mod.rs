//! The model call: the boundary before it, its request, its stream, failed attempts and fallbacks, and
//! compaction.

pub(super) mod attempt;
pub(super) mod boundary;
pub(super) mod compaction;
pub(super) mod request;
