//! A simple, quadratic implementation of the rules, which treats each call separately.

use super::Pick;

fn word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the byte of the bracket that closes the call whose argument begins at `from`.
fn closing(text: &str, from: usize) -> Option<usize> {
    let rest: Vec<(usize, char)> = text[from..].char_indices().collect();
    let (mut i, mut depth, mut before) = (0, 1, '(');
    while i < rest.len() {
        let (at, c) = rest[i];
        if (c == '\'' || c == '"') && !word(before) {
            let triple: String = [c, c, c].iter().collect();
            let tail = &text[from + at..];
            let quote = if tail.starts_with(&triple) { triple } else { c.to_string() };
            let mut j = i + quote.len();
            loop {
                if j >= rest.len() {
                    return None;
                }
                if rest[j].1 == '\\' {
                    j += 2;
                } else if text[from + rest[j].0..].starts_with(&quote) {
                    break;
                } else {
                    j += 1;
                }
            }
            i = j + quote.len();
            before = c;
            continue;
        }
        if c == '(' {
            depth += 1;
        } else if c == ')' {
            depth -= 1;
            if depth == 0 {
                return Some(from + at);
            }
        }
        before = c;
        i += 1;
    }
    None
}

/// Returns for each byte if it is Markdown code.
fn code(text: &str) -> Vec<bool> {
    let mut code = vec![false; text.len() + 1];
    let mut paragraph: Vec<(usize, usize)> = Vec::new();
    let mut fence: Option<(char, usize)> = None;
    let mut start = 0;
    let close = |runs: &mut Vec<(usize, usize)>, code: &mut Vec<bool>| {
        let mut i = 0;
        while i < runs.len() {
            let partner = (i + 1..runs.len()).find(|&j| runs[j].1 == runs[i].1);
            if let Some(j) = partner {
                code[runs[i].0..runs[j].0].fill(true);
                i = j;
            }
            i += 1;
        }
        runs.clear();
    };
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let body = line.strip_suffix('\n').unwrap_or(line);
        if let Some((mark, len)) = fence {
            code[start..end].fill(true);
            let marks = body.trim_start_matches([' ', '\t', '>', '\r']);
            let tail = marks.trim_start_matches(mark);
            if marks.len() - tail.len() >= len
                && tail.trim_matches([' ', '\t', '\r']).is_empty()
                && line.ends_with('\n')
            {
                fence = None;
            }
            start = end;
            continue;
        }
        let marks =
            body.trim_start_matches(|c: char| c.is_ascii_digit() || " \t>\r-*+.)".contains(c));
        let mut opened = false;
        for mark in ['`', '~'] {
            let tail = marks.trim_start_matches(mark);
            let len = marks.len() - tail.len();
            if len >= 3 && (mark == '~' || !tail.contains('`')) {
                close(&mut paragraph, &mut code);
                code[start..end].fill(true);
                fence = Some((mark, len));
                opened = true;
            }
        }
        if !opened {
            let mut i = 0;
            while let Some(j) = body[i..].find('`') {
                let tail = body[i + j..].trim_start_matches('`');
                paragraph.push((start + i + j, body.len() - i - j - tail.len()));
                i = body.len() - tail.len();
            }
            if body.trim_matches([' ', '\t', '>', '\r']).is_empty() {
                close(&mut paragraph, &mut code);
            }
        }
        start = end;
    }
    close(&mut paragraph, &mut code);
    code
}

/// Returns the position and the argument of the declaration that counts.
pub(super) fn scan(text: &str, prose: bool, pick: Pick) -> Option<(usize, String)> {
    let code = code(text);
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (open, _) in text.match_indices('(') {
        let name_end = text[..open].trim_end_matches([' ', '\t']).len();
        let at = text[..name_end].trim_end_matches(word).len();
        let name = &text[at..name_end];
        if !["FINAL", "FINAL_VAR", "SUBMIT"].contains(&name) || (prose && code[open]) {
            continue;
        }
        let Some(end) = closing(text, open + 1) else {
            continue;
        };
        let argument = &text[open + 1..end];
        let line = text[..at].rfind(['\n', '\r']).map_or(0, |i| i + 1);
        let begins = text[line..at].chars().all(|c| " \t>-*#".contains(c));
        let rest = text[end + 1..].trim_start_matches([' ', '\t', '.', '!', '*']);
        let placed = begins || rest.is_empty() || rest.starts_with(['\n', '\r']);
        let trimmed = argument.trim();
        let literal = literal(trimmed);
        let declared = match name {
            "FINAL" => match literal {
                Some(inside) => !inside.trim().is_empty(),
                None => placed && !trimmed.is_empty(),
            },
            "FINAL_VAR" => {
                let name = literal.unwrap_or(trimmed).trim();
                !name.is_empty() && name.chars().all(word) && (literal.is_some() || placed)
            }
            _ => has_keyword(argument),
        };
        if declared {
            found.push((at, open, end));
        }
    }
    let chosen = match pick {
        Pick::First => found.into_iter().min_by_key(|f| f.0),
        Pick::Last => found.into_iter().max_by_key(|f| (f.2, std::cmp::Reverse(f.0))),
    };
    chosen.map(|(at, open, end)| (at, text[open + 1..end].to_owned()))
}

fn literal(text: &str) -> Option<&str> {
    let quote = ["'''", "\"\"\"", "'", "\""].into_iter().find(|q| text.starts_with(q))?;
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut i = quote.len();
    while i < chars.len() {
        if chars[i].1 == '\\' {
            i += 2;
        } else if text[chars[i].0..].starts_with(quote) {
            let whole = chars[i].0 + quote.len() == text.len();
            return whole.then(|| &text[quote.len()..chars[i].0]);
        } else {
            i += 1;
        }
    }
    None
}

/// Returns `true` if an identifier and a single `=` follow the bracket of the call, or a comma
/// at the same nesting level.
fn has_keyword(argument: &str) -> bool {
    let chars: Vec<(usize, char)> = argument.char_indices().collect();
    // `true` if the position is outside of strings and at the nesting level of the call.
    let level = |at: usize| {
        // A bracket inserted at such a position closes the call.
        let probe = format!("{})", &argument[..at]);
        closing(&probe, 0) == Some(at)
    };
    for &(at, c) in &chars {
        if c != '=' || argument[at + 1..].starts_with('=') || at + 1 > argument.len() {
            continue;
        }
        let before = argument[..at].trim_end();
        let rest = before.trim_end_matches(word);
        let name = &before[rest.len()..];
        let rest = rest.trim_end();
        if !name.is_empty()
            && !name.starts_with(char::is_numeric)
            && (rest.is_empty() || rest.ends_with(','))
            && level(at)
        {
            return true;
        }
    }
    false
}
