//! Parses the argument of a call: literals, names, keyword arguments.
//!
//! ```text
//! '42'                 a literal: 42
//! f(x) + g(y)          bare text
//! answer="x", n=[1]    keywords: {"answer": "x", "n": [1]}
//! ```

use super::brackets::Mode;
use crate::visible::is_blank;
use serde_json::{Map, Number, Value};

/// Classifies an argument of `FINAL`: bare (`Some(true)`), a literal (`Some(false)`), or blank
/// (`None`). The work is bounded by the length of a literal at the start.
pub(super) fn is_bare(argument: &str) -> Option<bool> {
    let trimmed = argument.trim_start();
    if trimmed.is_empty() {
        return None;
    }
    match raw_literal(trimmed) {
        Some(raw) => (!is_blank(raw)).then_some(false),
        None => Some(true),
    }
}

/// Classifies an argument of `FINAL_VAR`: a bare name (`Some(true)`), a quoted name
/// (`Some(false)`), or not a name (`None`).
pub(super) fn is_bare_name(argument: &str) -> Option<bool> {
    let trimmed = argument.trim_start();
    let (name, bare) = raw_literal(trimmed).map_or((trimmed, true), |raw| (raw, false));
    is_name(name.trim()).then_some(bare)
}

/// Returns the answer of `FINAL(argument)`: a literal's content, or the bare text; trimmed.
pub(super) fn content(argument: &str) -> String {
    match raw_literal(argument.trim_start()) {
        Some(raw) => unescape(raw).trim().to_owned(),
        None => argument.trim().to_owned(),
    }
}

/// Returns the name in `FINAL_VAR(argument)`.
pub(super) fn name(argument: &str) -> &str {
    raw_literal(argument.trim_start()).unwrap_or(argument).trim()
}

/// `true` if a word may name a keyword argument.
pub(super) fn is_keyword(word: &str) -> bool {
    is_name(word) && !word.starts_with(|c: char| c.is_numeric())
}

fn is_name(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| c == '_' || c.is_alphanumeric())
}

/// Returns the inside of a text that is one string literal; blanks may follow it.
fn raw_literal(text: &str) -> Option<&str> {
    let (raw, rest) = leading_literal(text)?;
    rest.trim_start().is_empty().then_some(raw)
}

/// Returns the inside of the string literal at the start of the text, and the rest of the text.
fn leading_literal(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut mode = Mode::Code;
    let mut triple = false;
    for (i, c) in text.char_indices() {
        let (next, code) = mode.step(c, false);
        match next {
            Mode::Triple(..) => triple = true,
            // Two quotes followed by something else are an empty string, not a triple quote.
            _ if code && i > 0 => return Some(("", text.get(2..)?)),
            Mode::Code => {
                let n = if triple { 3 } else { 1 };
                return Some((text.get(n..=i)?.get(..i + 1 - 2 * n)?, text.get(i + 1..)?));
            }
            _ => {}
        }
        mode = next;
    }
    (mode == Mode::Twice(quote)).then_some(("", ""))
}

/// Decodes `\\`, `\'` and `\"`. Any other backslash is preserved.
fn unescape(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut chars = raw.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\\' {
            if let Some(next) = chars.next_if(|n| matches!(n, '\\' | '\'' | '"')) {
                out.push(next);
                continue;
            }
        }
        out.push(c);
    }
    out
}

/// Returns the keyword arguments, in order. If a key occurs twice, its last value is used;
/// positional arguments are ignored.
pub(super) fn keywords(argument: &str) -> Map<String, Value> {
    let fields = fields(&split(argument, true));
    if fields.is_empty() {
        // For example `[1, a=2]`: the scanner counted the keyword although it is inside a bracket
        // of another kind, so the split ignores such brackets too.
        return self::fields(&split(argument, false));
    }
    fields
}

fn fields(parts: &[&str]) -> Map<String, Value> {
    let mut out = Map::new();
    for part in parts {
        if let Some((key, text)) = part.split_once('=') {
            let key = key.trim();
            if is_keyword(key) && !text.starts_with('=') {
                out.insert(key.to_owned(), value(text.trim()));
            }
        }
    }
    out
}

/// Splits at the commas outside strings and brackets (of all kinds, or only round ones).
fn split(argument: &str, all_kinds: bool) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut mode, mut after_word, mut depth, mut from) = (Mode::Code, false, 0i64, 0);
    for (i, c) in argument.char_indices() {
        let (next, code) = mode.step(c, after_word);
        if code {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                '[' | '{' if all_kinds => depth += 1,
                ']' | '}' if all_kinds => depth -= 1,
                ',' if depth == 0 => {
                    parts.extend(argument.get(from..i));
                    from = i + 1;
                }
                _ => {}
            }
        }
        mode = next;
        after_word = c == '_' || c.is_alphanumeric();
    }
    parts.extend(argument.get(from..));
    parts
}

/// Parses a keyword's value: a literal's content, a number, a truth value, null, a list or a
/// mapping (in the syntax of JSON or Python). Any other value is the unchanged text.
fn value(text: &str) -> Value {
    if let Some(raw) = raw_literal(text) {
        return Value::String(unescape(raw));
    }
    // JSON first; the parser of Python values covers `True`, `None` and single quotes.
    match serde_json::from_str(text) {
        Ok(value) => value,
        Err(_) => Literal::parse(text).unwrap_or_else(|| Value::String(text.to_owned())),
    }
}

/// A parser of Python's syntax for values.
struct Literal<'a> {
    rest: &'a str,
}

/// Maximum nesting of a parsed value; a deeper value stays text, because the parser is recursive.
const MAX_DEPTH: u32 = 64;

impl<'a> Literal<'a> {
    fn parse(text: &'a str) -> Option<Value> {
        let mut literal = Literal { rest: text };
        let value = literal.value(0)?;
        literal.rest.trim_start().is_empty().then_some(value)
    }

    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        if let Some(rest) = self.rest.strip_prefix(c) {
            self.rest = rest;
            true
        } else {
            false
        }
    }

    fn value(&mut self, depth: u32) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.rest = self.rest.trim_start();
        if let Some((raw, rest)) = leading_literal(self.rest) {
            self.rest = rest;
            return Some(Value::String(unescape(raw)));
        }
        // A tuple has no counterpart in JSON, so it becomes a list.
        for (open, close) in [('[', ']'), ('(', ')')] {
            if self.eat(open) {
                let mut items = Vec::new();
                while !self.eat(close) {
                    items.push(self.value(depth + 1)?);
                    if !self.eat(',') {
                        return self.eat(close).then_some(Value::Array(items));
                    }
                }
                return Some(Value::Array(items));
            }
        }
        if self.eat('{') {
            let mut map = Map::new();
            while !self.eat('}') {
                let key = match self.value(depth + 1)? {
                    Value::String(key) => key,
                    // Keys of a JSON object are strings, those of a Python dictionary need not be.
                    key @ (Value::Number(_) | Value::Bool(_) | Value::Null) => key.to_string(),
                    _ => return None,
                };
                if !self.eat(':') {
                    return None;
                }
                let value = self.value(depth + 1)?;
                map.insert(key, value);
                if !self.eat(',') {
                    return self.eat('}').then_some(Value::Object(map));
                }
            }
            return Some(Value::Object(map));
        }
        self.atom()
    }

    fn atom(&mut self) -> Option<Value> {
        let end = self
            .rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | ':' | ']' | '}' | ')'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word {
            "True" | "true" => return Some(Value::Bool(true)),
            "False" | "false" => return Some(Value::Bool(false)),
            "None" | "null" => return Some(Value::Null),
            _ => {}
        }
        number(word)
    }
}

/// Parses a number in Python's syntax: `+3`, `1_000`, `.5`, `1e3`.
fn number(word: &str) -> Option<Value> {
    let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let mut plain = String::with_capacity(word.len());
    let mut chars = word.chars().peekable();
    let mut before = None;
    while let Some(c) = chars.next() {
        match c {
            // Python permits an underscore only between two digits.
            '_' if digit(before) && digit(chars.peek().copied()) => {}
            '0'..='9' | '+' | '-' | '.' | 'e' | 'E' => plain.push(c),
            _ => return None,
        }
        before = Some(c);
    }
    if !plain.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if let Ok(n) = plain.parse::<i64>() {
        return Some(Value::Number(n.into()));
    }
    Number::from_f64(plain.parse().ok()?).map(Value::Number)
}
