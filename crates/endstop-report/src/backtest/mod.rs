//! The report of a backtest: as text, as JSON, as an HTML page with a chart, and the recommended
//! setting as TOML.

mod calibrated;
mod census;
mod curve;
mod findings;
mod format;
mod groups;
mod html;
mod json;
mod report;
mod setting;
mod svg;
mod table;
mod text;

pub use census::Census;
pub use findings::problems;
pub use format::{fitted, usd};
pub use html::page;
pub use json::json;
pub use report::{Curve, Report, Strength};
pub use setting::{NoSettings, settings};
pub use text::lines;
