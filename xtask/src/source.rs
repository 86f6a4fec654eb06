//! Reads a Rust source file as a module: what it defines, what it imports, and what it calls. It reads
//! tokens, because the grammar is not needed for that.
//!
//! ```text
//! let module = parse("kernel/spec.rs".to_owned(), &text);
//! module.uses   // a local name and the path that it stands for
//! ```

use std::collections::BTreeSet;

/// A module: its file, its items and what it imports.
#[derive(Default)]
pub(crate) struct Module {
    /// The file, relative to `src`.
    pub(crate) file: String,
    /// The names that it defines itself.
    pub(crate) items: BTreeSet<String>,
    /// A local name and the path that it stands for.
    pub(crate) uses: Vec<(String, Vec<String>)>,
    /// Modules of which all public names are imported.
    pub(crate) globs: Vec<Vec<String>>,
    /// Paths in the code.
    pub(crate) paths: Vec<Vec<String>>,
    /// The methods of its `impl` blocks: the type and the method.
    pub(crate) methods: BTreeSet<(String, String)>,
    /// Names in `.name(` and in paths.
    pub(crate) called: BTreeSet<String>,
}

/// Reads a file's items, imports and paths by its tokens.
pub(crate) fn parse(file: String, text: &str) -> Module {
    let tokens = tokens(&without_tests(text));
    let mut module = Module { file, ..Module::default() };
    let mut at = 0;
    let mut depth = 0_usize;
    // The type of the inherent `impl` block that is being read.
    let mut kind: Option<String> = None;
    while at < tokens.len() {
        // A field is not a call, unlike `.name(` and `.name::<T>(`.
        let is_field = || !tokens.get(at + 2).is_some_and(|next| next == "(" || next == "::");
        let called = tokens[at] == "::" || (tokens[at] == "." && !is_field());
        if called && tokens.get(at + 1).is_some_and(|name| is_word(name)) {
            module.called.insert(tokens[at + 1].clone());
        }
        match tokens[at].as_str() {
            "impl" if depth == 0 => kind = inherent_type(&tokens[at + 1..]),
            "fn" if depth == 1 => {
                if let (Some(kind), Some(name)) = (&kind, tokens.get(at + 1)) {
                    module.methods.insert((kind.clone(), name.clone()));
                }
            }
            "{" => depth += 1,
            "}" => depth = depth.saturating_sub(1),
            "use" => {
                at = read_use(&tokens, at + 1, &[], &mut module);
                continue;
            }
            "struct" | "enum" | "trait" | "type" | "const" | "static" | "fn" | "union"
                if depth == 0 =>
            {
                let mut name = at + 1;
                while tokens
                    .get(name)
                    .is_some_and(|t| ["mut", "fn", "unsafe"].contains(&t.as_str()))
                {
                    name += 1;
                }
                module.items.extend(tokens.get(name).cloned());
            }
            "macro_rules" => module.items.extend(tokens.get(at + 2).cloned()),
            // `pub(in crate::agent)` names who may import, and imports nothing.
            "in" if at >= 2 && tokens[at - 1] == "(" && tokens[at - 2] == "pub" => {
                while tokens.get(at + 1).is_some_and(|token| token != ")") {
                    at += 1;
                }
            }
            "crate" | "super" | "self" if tokens.get(at + 1).is_some_and(|t| t == "::") => {
                let mut path = vec![tokens[at].clone()];
                while tokens.get(at + 1).is_some_and(|t| t == "::")
                    && tokens.get(at + 2).is_some_and(|t| is_word(t))
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                module.called.extend(path.last().cloned());
                module.paths.push(path);
            }
            word if is_word(word) && tokens.get(at + 1).is_some_and(|t| t == "::") => {
                // `ledger::Ceiling` with `mod ledger;` in this file, or with `use …::ledger`.
                let mut path = vec![tokens[at].clone()];
                while tokens.get(at + 1).is_some_and(|t| t == "::")
                    && tokens.get(at + 2).is_some_and(|t| is_word(t))
                {
                    path.push(tokens[at + 2].clone());
                    at += 2;
                }
                module.called.extend(path.last().cloned());
                module.paths.push(path);
            }
            _ => {}
        }
        at += 1;
    }
    module
}

/// The type of an `impl` block, from the tokens after `impl`; `None` if it implements a trait.
fn inherent_type(tokens: &[String]) -> Option<String> {
    let mut generics = 0_usize;
    let mut name = None;
    for token in tokens {
        match token.as_str() {
            "<" => generics += 1,
            ">" => generics = generics.saturating_sub(1),
            "for" => return None,
            "{" | "where" => return name,
            word if generics == 0 && is_word(word) => name = Some(word.to_owned()),
            _ => {}
        }
    }
    name
}

/// Reads the tree of a `use` from `at` on; returns the place after it.
fn read_use(tokens: &[String], mut at: usize, prefix: &[String], module: &mut Module) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match token.as_str() {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = read_use(tokens, at, &path, module);
                    if tokens.get(at).is_some_and(|token| token == ",") {
                        at += 1;
                    }
                }
                return at + 1;
            }
            "*" => {
                module.globs.push(path);
                return at + 1;
            }
            "as" => {
                if let Some(local) = tokens.get(at + 1) {
                    module.uses.push((local.clone(), path));
                }
                return at + 2;
            }
            word if is_word(word) => {
                // `self` inside of braces is the module itself.
                if word != "self" || path.is_empty() {
                    path.push(word.to_owned());
                }
                at += 1;
                let ends = tokens.get(at).is_none_or(|t| ![":", "::", "as"].contains(&t.as_str()));
                if ends {
                    if let Some(local) = path.last().cloned() {
                        module.uses.push((local, path));
                    }
                    return at;
                }
            }
            _ => return at + 1,
        }
    }
    at
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

/// Cuts the test modules out of a source.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            let indent = line.len() - line.trim_start().len();
            // The item ends at a closing brace of the same indent, or at once.
            for line in lines.by_ref() {
                let own = line.len() - line.trim_start().len();
                let closes = own == indent && line.trim_start().starts_with('}');
                if closes || own == indent && line.trim_end().ends_with(';') {
                    break;
                }
            }
            continue;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Splits a source into words and signs, without comments and literals.
fn tokens(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        let next = chars.get(at + 1).copied().unwrap_or(' ');
        if c == '/' && next == '/' {
            while at < chars.len() && chars[at] != '\n' {
                at += 1;
            }
        } else if c == '/' && next == '*' {
            while at < chars.len() && !(chars[at] == '*' && chars.get(at + 1) == Some(&'/')) {
                at += 1;
            }
            at += 2;
        } else if c == 'r' && (next == '"' || next == '#') && raw_string(&chars, at).is_some() {
            at = raw_string(&chars, at).unwrap_or(at + 1);
        } else if c == '"' {
            at += 1;
            while at < chars.len() && chars[at] != '"' {
                at += if chars[at] == '\\' { 2 } else { 1 };
            }
            at += 1;
        } else if c == '\'' {
            // A lifetime has no closing quote after one character.
            let ends = if next == '\\' {
                chars[at..].iter().skip(3).position(|c| *c == '\'').map(|n| n + 3)
            } else {
                (chars.get(at + 2) == Some(&'\'')).then_some(2)
            };
            at += ends.map_or(1, |ends| ends + 1);
        } else if c == '_' || c.is_alphabetic() {
            let end = chars[at..].iter().position(|c| *c != '_' && !c.is_alphanumeric());
            let end = end.map_or(chars.len(), |end| at + end);
            tokens.push(chars[at..end].iter().collect());
            at = end;
        } else if c == ':' && next == ':' {
            tokens.push("::".to_owned());
            at += 2;
        } else {
            if !c.is_whitespace() {
                tokens.push(c.to_string());
            }
            at += 1;
        }
    }
    tokens
}

/// The place after a raw string that begins here.
fn raw_string(chars: &[char], at: usize) -> Option<usize> {
    let hashes = chars[at + 1..].iter().take_while(|c| **c == '#').count();
    let open = at + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let close = |from: usize| {
        chars[from] == '"'
            && chars[from + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    let end = (open + 1..chars.len()).find(|from| close(*from))?;
    Some(end + 1 + hashes)
}
