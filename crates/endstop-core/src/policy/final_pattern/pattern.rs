//! Translates a pattern of Python's `re` (3.11, text patterns) to an expression that runs in linear
//! time.
//!
//! The semantics are Python's: its character classes for `\s`, `\w` and `\d`, `.` excludes only the
//! newline, `$` also matches before one trailing newline, and its rules for ignoring case (`ı` and
//! `İ` equal `i`). Constructs that cannot run in linear time (look-around, back-references, atomic
//! groups, conditionals) are errors. There are two differences: `\b` counts combining marks as
//! letters, and a `$` that is not at the end of the pattern consumes the newline.

use regex_syntax::hir::{
    Capture, Class, ClassUnicode, ClassUnicodeRange, Dot, Hir, HirKind, Look, Repetition,
};

/// A parsed pattern.
pub(super) struct Parsed {
    pub(super) hir: Hir,
    pub(super) groups: u32,
}

/// Maximum nesting of a pattern, because the parser is recursive.
const MAX_DEPTH: u32 = 200;

const WORD: &str = r"[\p{L}\p{N}_]";
const DIGIT: &str = r"\p{Nd}";
// Python's white space, which has the separators 0x1c to 0x1f; those of Unicode's class are fewer.
const SPACE: &str = r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]";

/// Parses a pattern.
pub(super) fn parse(pattern: &str, ignore_case: bool) -> Result<Parsed, String> {
    let mut parser =
        Parser { chars: pattern.chars().collect(), at: 0, groups: 0, names: Vec::new() };
    let mut flags = Flags { ignore_case, ..Flags::default() };
    parser.global_flags(&mut flags)?;
    let hir = parser.alternation(flags, 0)?;
    if parser.peek().is_some() {
        return Err("unbalanced parenthesis".to_owned());
    }
    Ok(Parsed { hir, groups: parser.groups })
}

/// Returns the characters of a class in the syntax of `regex-syntax`.
pub(super) fn class(syntax: &str) -> Result<ClassUnicode, String> {
    let hir = regex_syntax::parse(syntax).map_err(|e| e.to_string())?;
    match hir.into_kind() {
        HirKind::Class(Class::Unicode(class)) => Ok(class),
        _ => Err(format!("`{syntax}` is not a class")),
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    ignore_case: bool,
    multi_line: bool,
    dot_all: bool,
    verbose: bool,
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    groups: u32,
    names: Vec<String>,
}

/// The meaning of an escape.
enum Escape {
    Char(char),
    Class(ClassUnicode),
    Look(Look),
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let n = text.chars().count();
        let found = self.chars.get(self.at..self.at + n);
        let found = found.is_some_and(|f| f.iter().copied().eq(text.chars()));
        if found {
            self.at += n;
        }
        found
    }

    /// Parses `(?i)` and other flags at the start of the pattern.
    fn global_flags(&mut self, flags: &mut Flags) -> Result<(), String> {
        loop {
            let start = self.at;
            if !self.eat("(?") {
                return Ok(());
            }
            let mut any = false;
            while let Some(c) = self.peek().filter(char::is_ascii_alphabetic) {
                // `(?P<name>…)` is a group and not a flag.
                if c == 'P' {
                    break;
                }
                set_flag(flags, c, true)?;
                any = true;
                self.at += 1;
            }
            if !any || !self.eat(")") {
                self.at = start;
                return Ok(());
            }
        }
    }

    fn alternation(&mut self, flags: Flags, depth: u32) -> Result<Hir, String> {
        if depth > MAX_DEPTH {
            return Err(format!("nested deeper than {MAX_DEPTH} levels"));
        }
        let mut branches = vec![self.concat(flags, depth)?];
        while self.eat("|") {
            branches.push(self.concat(flags, depth)?);
        }
        Ok(Hir::alternation(branches))
    }

    fn concat(&mut self, flags: Flags, depth: u32) -> Result<Hir, String> {
        let mut items = Vec::new();
        while let Some(c) = self.peek().filter(|&c| c != '|' && c != ')') {
            self.at += 1;
            if flags.verbose && self.skip_verbose(c) {
                continue;
            }
            let (item, repeatable) = match c {
                '.' if flags.dot_all => (Hir::dot(Dot::AnyChar), true),
                '.' => (Hir::dot(Dot::AnyCharExceptLF), true),
                '^' if flags.multi_line => (Hir::look(Look::StartLF), false),
                '^' => (Hir::look(Look::Start), false),
                '$' if flags.multi_line => (Hir::look(Look::EndLF), false),
                '$' => (
                    Hir::alternation(vec![
                        Hir::look(Look::End),
                        Hir::concat(vec![Hir::literal(*b"\n"), Hir::look(Look::End)]),
                    ]),
                    false,
                ),
                '(' => match self.group(flags, depth)? {
                    Some(group) => (group, true),
                    None => continue,
                },
                '[' => (self.set(flags)?, true),
                '\\' => match self.escape(false)? {
                    Escape::Char(c) => (literal(c, flags), true),
                    Escape::Class(class) => (Hir::class(Class::Unicode(class)), true),
                    Escape::Look(look) => (Hir::look(look), false),
                },
                '*' | '+' | '?' => return Err(format!("nothing to repeat before `{c}`")),
                '{' => {
                    self.at -= 1;
                    if self.counts()?.is_some() {
                        return Err("nothing to repeat before `{`".to_owned());
                    }
                    self.at += 1;
                    (literal('{', flags), true)
                }
                c => (literal(c, flags), true),
            };
            items.push(self.repeated(item, repeatable, flags)?);
        }
        Ok(Hir::concat(items))
    }

    /// Skips white space and comments of a verbose pattern.
    fn skip_verbose(&mut self, c: char) -> bool {
        if c == '#' {
            while self.next().is_some_and(|c| c != '\n') {}
        }
        c == '#' || matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
    }

    /// Applies the quantifier that follows an item.
    fn repeated(&mut self, item: Hir, repeatable: bool, flags: Flags) -> Result<Hir, String> {
        while flags.verbose && self.peek().is_some_and(|c| c.is_whitespace() || c == '#') {
            let c = self.next().unwrap_or_default();
            self.skip_verbose(c);
        }
        let Some((min, max)) = self.counts()? else {
            return Ok(item);
        };
        if !repeatable {
            return Err("nothing to repeat: an anchor".to_owned());
        }
        if self.eat("+") {
            return Err("possessive quantifiers do not run in linear time here".to_owned());
        }
        let greedy = !self.eat("?");
        // Python rejects `a**`, although the syntax of `regex-syntax` accepts it.
        if self.counts()?.is_some() {
            return Err("multiple repeat".to_owned());
        }
        Ok(Hir::repetition(Repetition { min, max, greedy, sub: Box::new(item) }))
    }

    /// Parses the bounds of a quantifier, if one is next.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let bounds = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => return self.braces(),
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(bounds))
    }

    fn braces(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let start = self.at;
        self.at += 1;
        if self.peek() != Some('}') {
            let low = self.digits();
            let high = if self.eat(",") { self.digits() } else { low.clone() };
            if self.eat("}") {
                let number = |digits: &str| {
                    digits
                        .parse::<u32>()
                        .map_err(|_| "the repetition number is too large".to_owned())
                };
                let min = if low.is_empty() { 0 } else { number(&low)? };
                let max = if high.is_empty() { None } else { Some(number(&high)?) };
                if max.is_some_and(|max| max < min) {
                    return Err("min repeat greater than max repeat".to_owned());
                }
                return Ok(Some((min, max)));
            }
        }
        // Braces that are not a quantifier are literal text, as in Python.
        self.at = start;
        Ok(None)
    }

    fn digits(&mut self) -> String {
        let mut digits = String::new();
        while let Some(c) = self.peek().filter(char::is_ascii_digit) {
            digits.push(c);
            self.at += 1;
        }
        digits
    }

    /// Parses a group after its bracket; `None` for a comment.
    fn group(&mut self, flags: Flags, depth: u32) -> Result<Option<Hir>, String> {
        let linear = |what: &str| Err(format!("{what} cannot run in linear time"));
        if !self.eat("?") {
            return self.captured(None, flags, depth).map(Some);
        }
        if self.eat("#") {
            while let Some(c) = self.next() {
                if c == ')' {
                    return Ok(None);
                }
            }
            return Err("missing ), unterminated comment".to_owned());
        }
        if self.eat("P<") {
            let mut name = String::new();
            loop {
                match self.next() {
                    Some('>') => break,
                    Some(c) if c == '_' || c.is_alphanumeric() => name.push(c),
                    _ => return Err("bad character in group name".to_owned()),
                }
            }
            if name.is_empty() || name.starts_with(char::is_numeric) || self.names.contains(&name) {
                return Err(format!("bad or repeated group name `{name}`"));
            }
            self.names.push(name.clone());
            return self.captured(Some(name), flags, depth).map(Some);
        }
        if self.eat("P=") || self.eat("(") {
            return linear("a back-reference or a conditional");
        }
        if self.eat("=") || self.eat("!") || self.eat("<=") || self.eat("<!") {
            return linear("look-around");
        }
        if self.eat(">") {
            return linear("an atomic group");
        }
        let mut inner = flags;
        let mut on = true;
        loop {
            match self.next() {
                Some(':') => break,
                Some('-') if on => on = false,
                Some(c) if c.is_ascii_alphabetic() => set_flag(&mut inner, c, on)?,
                Some(')') => {
                    return Err("global flags must be at the start of the pattern".to_owned());
                }
                _ => return Err("unknown extension after (?".to_owned()),
            }
        }
        let hir = self.alternation(inner, depth + 1)?;
        self.close()?;
        Ok(Some(hir))
    }

    fn captured(&mut self, name: Option<String>, flags: Flags, depth: u32) -> Result<Hir, String> {
        self.groups += 1;
        let index = self.groups;
        let sub = self.alternation(flags, depth + 1)?;
        self.close()?;
        Ok(Hir::capture(Capture {
            index,
            name: name.map(String::into_boxed_str),
            sub: Box::new(sub),
        }))
    }

    fn close(&mut self) -> Result<(), String> {
        if self.eat(")") { Ok(()) } else { Err("missing ), unterminated subpattern".to_owned()) }
    }

    /// Parses a set after its bracket.
    fn set(&mut self, flags: Flags) -> Result<Hir, String> {
        let negated = self.eat("^");
        let mut chars = ClassUnicode::empty();
        let mut classes = ClassUnicode::empty();
        let mut first = true;
        loop {
            let c = self.next().ok_or("unterminated character set")?;
            // A bracket directly after `[` or `[^` is a member, as in `[]a]`.
            if c == ']' && !first {
                break;
            }
            first = false;
            let low = match self.member(c)? {
                Ok(low) => low,
                Err(class) => {
                    classes.union(&class);
                    continue;
                }
            };
            let range =
                // A hyphen before the closing bracket is a member, as in `[a-]`.
                self.peek() == Some('-') && self.chars.get(self.at + 1).is_some_and(|&c| c != ']');
            let mut high = low;
            if range {
                self.at += 1;
                let c = self.next().ok_or("unterminated character set")?;
                high = self.member(c)?.map_err(|_| "bad character range")?;
                if high < low {
                    return Err("bad character range".to_owned());
                }
            }
            chars.push(ClassUnicodeRange::new(low, high));
        }
        // Before the classes are added, because Python folds only the characters of a set.
        if flags.ignore_case {
            fold(&mut chars);
        }
        chars.union(&classes);
        if negated {
            chars.negate();
        }
        Ok(Hir::class(Class::Unicode(chars)))
    }

    /// Parses a member of a set: a character, or a class.
    fn member(&mut self, c: char) -> Result<Result<char, ClassUnicode>, String> {
        if c != '\\' {
            return Ok(Ok(c));
        }
        match self.escape(true)? {
            Escape::Char(c) => Ok(Ok(c)),
            Escape::Class(class) => Ok(Err(class)),
            Escape::Look(_) => Err("bad escape in a character set".to_owned()),
        }
    }

    /// Parses an escape after its backslash.
    fn escape(&mut self, in_set: bool) -> Result<Escape, String> {
        let c = self.next().ok_or("bad escape: the pattern ends")?;
        let negated = |syntax: &str| {
            class(syntax).map(|mut class| {
                class.negate();
                Escape::Class(class)
            })
        };
        Ok(match c {
            'd' => Escape::Class(class(DIGIT)?),
            's' => Escape::Class(class(SPACE)?),
            'w' => Escape::Class(class(WORD)?),
            'D' => return negated(DIGIT),
            'S' => return negated(SPACE),
            'W' => return negated(WORD),
            // A backspace, because a set has no word boundary.
            'b' if in_set => Escape::Char('\x08'),
            'b' => Escape::Look(Look::WordUnicode),
            'B' if !in_set => Escape::Look(Look::WordUnicodeNegate),
            'A' if !in_set => Escape::Look(Look::Start),
            'Z' if !in_set => Escape::Look(Look::End),
            'a' => Escape::Char('\x07'),
            'f' => Escape::Char('\x0c'),
            'n' => Escape::Char('\n'),
            'r' => Escape::Char('\r'),
            't' => Escape::Char('\t'),
            'v' => Escape::Char('\x0b'),
            'x' => self.hex(2)?,
            'u' => self.hex(4)?,
            'U' => self.hex(8)?,
            '0'..='9' => return self.octal(c, in_set),
            c if c.is_ascii_alphabetic() => return Err(format!("bad escape \\{c}")),
            c => Escape::Char(c),
        })
    }

    fn hex(&mut self, digits: usize) -> Result<Escape, String> {
        let mut n = 0;
        for _ in 0..digits {
            let digit = self.next().and_then(|c| c.to_digit(16));
            n = n * 16 + digit.ok_or("incomplete escape")?;
        }
        char::from_u32(n).map(Escape::Char).ok_or_else(|| format!("U+{n:04X} is not a character"))
    }

    /// Parses `\0`, `\012` or `\101` as a character; any other number is a back-reference.
    fn octal(&mut self, first: char, in_set: bool) -> Result<Escape, String> {
        let is_octal = |c: Option<&char>| c.is_some_and(|c| ('0'..='7').contains(c));
        let two_more = is_octal(self.chars.get(self.at)) && is_octal(self.chars.get(self.at + 1));
        // In Python a number is octal if it begins with 0, has three octal digits, or is in a set.
        if first != '0' && !(is_octal(Some(&first)) && (two_more || in_set)) {
            return Err("a back-reference cannot run in linear time".to_owned());
        }
        let mut n = first.to_digit(8).unwrap_or(0);
        for _ in 0..2 {
            if let Some(digit) = self.peek().and_then(|c| c.to_digit(8)) {
                n = n * 8 + digit;
                self.at += 1;
            }
        }
        if n > 0o377 {
            return Err("octal escape outside of 0-0o377".to_owned());
        }
        Ok(Escape::Char(char::from_u32(n).unwrap_or_default()))
    }
}

fn set_flag(flags: &mut Flags, c: char, on: bool) -> Result<(), String> {
    match c {
        'i' => flags.ignore_case = on,
        'm' => flags.multi_line = on,
        's' => flags.dot_all = on,
        'x' => flags.verbose = on,
        'u' if on => {}
        c => return Err(format!("the flag `{c}` is not supported")),
    }
    Ok(())
}

fn literal(c: char, flags: Flags) -> Hir {
    if flags.ignore_case {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(c, c)]);
        fold(&mut class);
        return Hir::class(Class::Unicode(class));
    }
    let mut buffer = [0; 4];
    Hir::literal(c.encode_utf8(&mut buffer).as_bytes())
}

/// Adds the characters that are equal if case is ignored, by Python's rules.
fn fold(class: &mut ClassUnicode) {
    const I: [char; 4] = ['I', 'i', '\u{130}', '\u{131}'];
    // Unicode's simple folding keeps the four letters apart that Python treats as equal.
    class.case_fold_simple();
    let is_i = |r: &ClassUnicodeRange| I.iter().any(|&c| r.start() <= c && c <= r.end());
    if class.ranges().iter().any(is_i) {
        for c in I {
            class.push(ClassUnicodeRange::new(c, c));
        }
    }
}
