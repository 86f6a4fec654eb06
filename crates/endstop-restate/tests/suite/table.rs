//! The table of the scenarios: a row for each, and a column for each driver.

use crate::run::{Boxed, On};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A scenario.
#[derive(Clone)]
pub struct Row {
    pub number: u32,
    /// The behaviour of a correct system.
    pub must: &'static str,
    /// Plays the scenario, and panics if an expectation does not hold.
    pub play: fn(On) -> Boxed<'static, ()>,
}

/// Creates a row.
pub fn row(number: u32, must: &'static str, play: fn(On) -> Boxed<'static, ()>) -> Row {
    Row { number, must, play }
}

/// Returns the table in Markdown. Equal cells of a row are written once.
pub fn text(rows: &[Row], columns: &[(&str, &BTreeMap<u32, String>)]) -> String {
    let mut text = String::from("| | the system | endings; model calls, tool bodies |");
    for (name, _) in columns {
        let _ = write!(text, " {name} |");
    }
    text.push_str("\n|---|---|---|");
    text.push_str(&"---|".repeat(columns.len()));
    text.push('\n');
    for row in rows {
        let Some(first) = columns[0].1.get(&row.number) else { continue };
        let _ = write!(text, "| C{} | {} | {first} |", row.number, row.must);
        for (_, cells) in columns {
            let cell = match cells.get(&row.number) {
                Some(cell) if cell == first => "holds",
                Some(cell) => cell,
                None => "missing",
            };
            let _ = write!(text, " {cell} |");
        }
        text.push('\n');
    }
    text
}
