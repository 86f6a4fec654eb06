//! Splits a JSON text into the elements of a list, at the top or under a key of the top-level
//! object, while the text streams through a window.
//!
//! ```text
//! let mut split = Split::new(Some("simulations"), true);
//! match split.step(&window, max) { Step::Element(range) => …, Step::More => /* read on */ … }
//! ```
//!
//! The text is scanned once. An element that exceeds the maximum length is discarded as it is read.

use super::repair::repaired;
use endstop_wire::stream::json_end::{JsonEnd, is_space};
use std::ops::Range;

/// The state of the splitter.
pub(crate) struct Split {
    key: Option<&'static str>,
    /// `true` if the caller needs the other members of the object.
    beside: bool,
    phase: Phase,
    /// The offset in the window up to which the text was scanned.
    pos: usize,
    /// The end of the last complete item.
    settled: usize,
    /// `true` if an element or a member came before, so that a comma must follow.
    later: bool,
    /// `true` if the list was found.
    listed: bool,
}

enum Phase {
    /// Before the text.
    Start,
    /// In the object at the top, before a name.
    Names,
    /// After a name.
    Colon(String),
    /// Before the value of a member.
    Value(String),
    /// In the list, before an element.
    List,
    /// Inside an element, or inside the value of a member.
    Inside(Inside),
    /// After the end.
    End,
}

struct Inside {
    scan: JsonEnd,
    /// The offset in the window at which it begins.
    from: usize,
    /// Number of bytes that were already discarded.
    gone: u64,
    /// The name of the member; `None` for an element.
    name: Option<String>,
    /// `true` if the value is skipped.
    unwanted: bool,
}

/// The result of a step.
pub(crate) enum Step {
    /// The window ends before the next item is complete.
    More,
    /// An element.
    Element(Range<usize>),
    /// Another member of the object.
    Member(String, Range<usize>),
    /// An item longer than the maximum was skipped.
    TooLong { element: bool, length: u64 },
    /// The text is malformed.
    Malformed(String),
}

impl Split {
    pub(crate) fn new(key: Option<&'static str>, beside: bool) -> Split {
        Split { key, beside, phase: Phase::Start, pos: 0, settled: 0, later: false, listed: false }
    }

    /// Returns the length of the prefix of the window that is no longer needed.
    pub(crate) fn settled(&self) -> usize {
        self.settled
    }

    /// Adjusts all offsets after this many bytes were removed from the front of the window.
    pub(crate) fn forget(&mut self, bytes: usize) {
        self.pos -= bytes;
        self.settled -= bytes;
        if let Phase::Inside(inside) = &mut self.phase {
            inside.from -= bytes;
        }
    }

    /// Returns `true` if the end of the text was reached.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::End)
    }

    /// Scans the window up to the end of the next complete item.
    pub(crate) fn step(&mut self, window: &[u8], max: u64) -> Step {
        loop {
            let step = if let Phase::Inside(_) = self.phase {
                self.inside(window, max)
            } else {
                self.between(window, max)
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Scans an element or a member's value up to its end. `None` means that the scan continues with
    /// the next item.
    fn inside(&mut self, window: &[u8], max: u64) -> Option<Step> {
        let Phase::Inside(inside) = &mut self.phase else {
            return None;
        };
        if let Some(end) = inside.scan.feed(&window[self.pos..]) {
            self.pos += end;
            return self.ended(max);
        }
        self.pos = window.len();
        let long = inside.gone + (self.pos - inside.from) as u64 > max;
        // Discard what was scanned, so that a skipped value of any length takes no memory.
        if long || inside.unwanted {
            inside.gone += (self.pos - inside.from) as u64;
            inside.from = self.pos;
            inside.unwanted |= long;
            self.settled = self.pos;
        }
        Some(Step::More)
    }

    /// Takes the next byte between two items, or the next name. `None` means that the scan continues.
    fn between(&mut self, window: &[u8], max: u64) -> Option<Step> {
        while window.get(self.pos).is_some_and(|b| is_space(*b)) {
            self.pos += 1;
        }
        let Some(&byte) = window.get(self.pos) else {
            self.settled = self.pos;
            return Some(Step::More);
        };
        // `End` is a placeholder: every phase that continues sets the next one.
        match std::mem::replace(&mut self.phase, Phase::End) {
            Phase::Start => self.at_start(byte),
            Phase::Names if byte == b'"' && !self.later => self.name(window, max),
            Phase::Names => self.after_member(byte),
            Phase::Colon(name) if byte == b':' => {
                self.pos += 1;
                self.phase = Phase::Value(name);
                None
            }
            Phase::Colon(_) => Some(Step::Malformed(unexpected(byte, "`:`"))),
            Phase::Value(name) => {
                self.value(byte, name);
                None
            }
            Phase::List => self.in_list(byte),
            Phase::End => Some(Step::Malformed("something follows the end of the list".to_owned())),
            Phase::Inside(_) => None,
        }
    }

    fn at_start(&mut self, byte: u8) -> Option<Step> {
        match (self.key, byte) {
            (None, b'[') => {
                self.listed = true;
                self.enter(Phase::List);
                None
            }
            (Some(_), b'{') => {
                self.enter(Phase::Names);
                None
            }
            (None, _) => Some(Step::Malformed("expected a list at the top".to_owned())),
            (Some(key), _) => {
                Some(Step::Malformed(format!("expected an object with `{key}` at the top")))
            }
        }
    }

    /// Takes the name of a member.
    fn name(&mut self, window: &[u8], max: u64) -> Option<Step> {
        let mut scan = JsonEnd::default();
        let Some(end) = scan.feed(&window[self.pos..]) else {
            self.settled = self.pos;
            // A name must be bounded like a record, because it is held in memory until it ends.
            if (window.len() - self.pos) as u64 > max {
                return Some(Step::Malformed("unterminated member name".to_owned()));
            }
            self.phase = Phase::Names;
            return Some(Step::More);
        };
        let name = &window[self.pos..self.pos + end];
        let Ok(name) = serde_json::from_slice::<String>(&repaired(name)) else {
            return Some(Step::Malformed("invalid string as member name".to_owned()));
        };
        self.pos += end;
        self.phase = Phase::Colon(name);
        None
    }

    /// Takes the byte after a member, or the end of an empty object.
    fn after_member(&mut self, byte: u8) -> Option<Step> {
        match byte {
            b'}' => {
                self.pos += 1;
                let key = self.key.unwrap_or_default();
                (!self.listed).then(|| Step::Malformed(format!("no list `{key}`")))
            }
            b',' if self.later => {
                self.later = false;
                self.enter(Phase::Names);
                None
            }
            _ => Some(Step::Malformed(unexpected(byte, "a name or `}`"))),
        }
    }

    fn value(&mut self, byte: u8, name: String) {
        self.later = true;
        if byte == b'[' && Some(name.as_str()) == self.key {
            self.listed = true;
            self.later = false;
            self.enter(Phase::List);
        } else {
            self.begin(Some(name), !self.beside);
        }
    }

    fn in_list(&mut self, byte: u8) -> Option<Step> {
        match byte {
            b']' => {
                self.pos += 1;
                // The members after the list are still read: the object must be complete.
                if self.key.is_some() {
                    self.later = true;
                    self.phase = Phase::Names;
                }
            }
            b',' if self.later => {
                self.later = false;
                self.enter(Phase::List);
            }
            b'}' | b':' | b',' => {
                return Some(Step::Malformed(unexpected(byte, "an element or `]`")));
            }
            _ if self.later => return Some(Step::Malformed(unexpected(byte, "`,` or `]`"))),
            _ => self.begin(None, false),
        }
        None
    }

    fn enter(&mut self, phase: Phase) {
        self.pos += 1;
        self.phase = phase;
    }

    fn begin(&mut self, name: Option<String>, unwanted: bool) {
        self.settled = self.pos;
        let scan = JsonEnd::default();
        self.phase = Phase::Inside(Inside { scan, from: self.pos, gone: 0, name, unwanted });
    }

    /// Finishes the current element or member, which ends at `pos`.
    fn ended(&mut self, max: u64) -> Option<Step> {
        let Phase::Inside(inside) = std::mem::replace(&mut self.phase, Phase::List) else {
            return None;
        };
        self.later = true;
        self.settled = self.pos;
        let element = inside.name.is_none();
        if !element {
            self.phase = Phase::Names;
        }
        let length = inside.gone + (self.pos - inside.from) as u64;
        if length > max && (element || self.beside) {
            return Some(Step::TooLong { element, length });
        }
        match inside.name {
            None => Some(Step::Element(inside.from..self.pos)),
            Some(_) if inside.unwanted => None,
            Some(name) => Some(Step::Member(name, inside.from..self.pos)),
        }
    }
}

fn unexpected(byte: u8, instead: &str) -> String {
    format!("found `{}`, expected {instead}; the rest is not read", byte.escape_ascii())
}
