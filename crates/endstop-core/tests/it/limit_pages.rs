//! The pages of the book that list the limits, against the tables in the code.

use endstop_core::limits::{Off, TABLE};
use endstop_core::{Limit, LimitValue, Limits, PRE_TURN};
use std::fmt::Write as _;

/// Returns the table of the book, written from the rows.
fn book_table() -> String {
    let mut table =
        "| limit | default | meaning | if it is reached |\n|---|---|---|---|\n".to_owned();
    for row in &TABLE {
        let default = match row.value(&Limits::default()) {
            LimitValue::Switch(on) => on.to_string(),
            LimitValue::Count(count) => count.to_string(),
            LimitValue::Usd(usd) => format!("${usd:.2}"),
            LimitValue::Tokens(counts) => counts.as_str().to_owned(),
            LimitValue::Windows(shares) => shares.to_string(),
            LimitValue::Rates(rates) => rates.to_string(),
            LimitValue::Time(time) if time.as_secs() >= 120 => {
                format!("{} min", time.as_secs_f64() / 60.0)
            }
            LimitValue::Time(time) => format!("{} s", time.as_secs_f64()),
            LimitValue::Off => "off".to_owned(),
        };
        let meaning: Vec<String> = row.paragraphs().filter(|text| !text.is_empty()).collect();
        let off = match row.off {
            Off::Allowed => String::new(),
            Off::Refused(advice) => format!(" (cannot be off; {advice})"),
        };
        let (name, meaning, reached) = (row.name, meaning.join(" "), row.reached);
        let _ = writeln!(table, "| `{name}` | {default} | {meaning} | {reached}{off} |");
    }
    table
}

/// Compares a part of a page of the book with what the tables say. With `ENDSTOP_BLESS` it writes the
/// part.
fn compare_page(page: &str, from: &str, to: &str, part: &str) {
    let path = format!("{}/../../docs/src/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let start = text.find(from).unwrap();
    let end = start + text[start..].find(to).unwrap();
    if std::env::var_os("ENDSTOP_BLESS").is_some() {
        std::fs::write(path, [&text[..start], part, &text[end..]].concat()).unwrap();
        return;
    }
    let written = &text[start..end];
    let differs = written.lines().zip(part.lines()).find(|(written, row)| written != row);
    assert!(written == part, "docs/src/{page} differs: run with ENDSTOP_BLESS=1\n{differs:?}");
}

#[test]
fn book_table_matches_rows() {
    compare_page("limits.md", "| limit |", "\nA limit is reached at", &book_table());
}

#[test]
fn book_order_matches_checks() {
    let names = PRE_TURN.iter().map(|check| format!("`{}`", check.limit));
    let then = ["[compaction](compaction.md), if it is due", "the pre-turn hook"].map(String::from);
    let mut list = "Before the next turn, in this order:\n\n".to_owned();
    for (at, step) in names.chain(then).enumerate() {
        let _ = writeln!(list, "{}. {step}", at + 1);
    }
    compare_page("model.md", "Before the next turn, in", "\nThe first one that applies", &list);
}

#[test]
fn rows_name_the_pre_turn_checks() {
    let mut rows: Vec<Limit> =
        TABLE.iter().filter(|row| row.before_turn).map(|row| row.limit).collect();
    for check in PRE_TURN {
        let row = rows.iter().position(|row| *row == check.limit);
        rows.remove(row.unwrap_or_else(|| panic!("{}: `before_turn` is false", check.limit)));
    }
    assert!(rows.is_empty(), "not checked before a turn: {rows:?}");
}
