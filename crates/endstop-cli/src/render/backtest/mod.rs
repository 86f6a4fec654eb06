//! The report of `endstop backtest`: as text, as JSON, as an HTML page with a chart, and the
//! recommended setting as TOML.

mod calibrated;
pub(crate) mod findings;
pub(crate) mod format;
mod groups;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod setting;
mod svg;
mod table;
pub(crate) mod text;
