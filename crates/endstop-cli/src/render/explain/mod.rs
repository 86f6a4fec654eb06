//! The timeline of a run: as text, and as an HTML page with a chart.

mod format;
pub(crate) mod html;
mod open_call;
mod repeats;
mod svg;
pub(crate) mod text;
pub(crate) mod timeline;
pub(crate) mod turns;
