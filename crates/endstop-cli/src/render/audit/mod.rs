//! The report of `endstop audit`: as text, and as an HTML page with a chart.

mod format;
pub(crate) mod html;
mod svg;
pub(crate) mod text;
