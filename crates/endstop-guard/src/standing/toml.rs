//! TOML as JSON values with the line of each key, so that an error can name both.

use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

/// One entry of a table.
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: usize,
    pub(super) value: Node,
}

/// A value: a table keeps the lines of its entries.
pub(super) enum Node {
    Table(Vec<Entry>),
    Plain(Value),
}

impl Node {
    /// Returns the value without its lines.
    pub(super) fn json(&self) -> Value {
        match self {
            Node::Plain(value) => value.clone(),
            Node::Table(entries) => {
                let members = entries.iter().map(|entry| (entry.key.clone(), entry.value.json()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }
}

/// Parses a document.
///
/// # Errors
/// The text is not TOML. The message has the line and not its text, which may contain a token.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let table = DeTable::parse(text).map_err(|error| {
        let line = line_of(text, error.span().map_or(0, |span| span.start));
        format!("line {line}: not valid TOML: {}", error.message())
    })?;
    entries(text, table.get_ref())
}

fn entries(text: &str, table: &DeTable<'_>) -> Result<Vec<Entry>, String> {
    let mut all = Vec::new();
    for (key, value) in table {
        let line = line_of(text, key.span().start);
        let value = node(text, value.get_ref()).map_err(|problem| match problem {
            Problem::Here(problem) => format!("line {line}: `{}`: {problem}", key.get_ref()),
            Problem::Within(problem) => problem,
        })?;
        all.push(Entry { key: key.get_ref().to_string(), line, value });
    }
    // In the order of the file, so that the first error is the first one that the user sees.
    all.sort_by_key(|entry| entry.line);
    Ok(all)
}

enum Problem {
    Here(String),
    Within(String),
}

fn node(text: &str, value: &DeValue<'_>) -> Result<Node, Problem> {
    Ok(Node::Plain(match value {
        DeValue::Table(table) => {
            return entries(text, table).map(Node::Table).map_err(Problem::Within);
        }
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(switch) => (*switch).into(),
        DeValue::Datetime(time) => time.to_string().into(),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| Problem::Here("the number is too large".to_owned()))?
            .into(),
        // `nan` and `inf` are errors, because they would disable a limit.
        DeValue::Float(number) => number
            .as_str()
            .parse::<f64>()
            .ok()
            .and_then(serde_json::Number::from_f64)
            .ok_or_else(|| Problem::Here("expected a finite number".to_owned()))?
            .into(),
        DeValue::Array(items) => {
            let items = items.iter().map(|item| Ok(node(text, item.get_ref())?.json()));
            Value::Array(items.collect::<Result<_, Problem>>()?)
        }
    }))
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.get(..offset).unwrap_or_default().matches('\n').count()
}
