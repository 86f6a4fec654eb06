//! The report of an audit: as text, as JSON, and as an HTML page with charts.

mod format;
mod html;
mod json;
mod report;
mod svg;
mod text;

pub use html::page;
pub use json::json;
pub use report::{Looked, Report};
pub use text::lines;
