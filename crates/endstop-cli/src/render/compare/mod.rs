//! The report of a comparison: as text, as JSON, and as an HTML page.

mod format;
pub(crate) mod html;
pub(crate) mod json;
mod svg;
pub(crate) mod text;
