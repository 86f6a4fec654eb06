//! The elements of a list at the top of a JSON text, or under a key of the object at the top, found
//! one after another in a window of the text.
//!
//! ```text
//! let mut split = Split::new(Some("simulations"), true);
//! match split.step(&window, max) { Step::Element(range) => …, Step::More => /* read on */ … }
//! ```
//!
//! The text goes by once; of an element that is longer than is read nothing is kept.

use super::scan::{Scan, is_space};
use std::ops::Range;

/// Where the split has come to.
pub(super) struct Split {
    key: Option<&'static str>,
    /// Whether the members beside the list are wanted.
    beside: bool,
    phase: Phase,
    /// How far into the window it has looked.
    pos: usize,
    /// The end of the last thing that was whole.
    settled: usize,
    /// Whether an element or a member has gone before, so that a comma has to follow.
    later: bool,
    /// Whether the list was there.
    listed: bool,
}

enum Phase {
    /// Before the text.
    Start,
    /// In the object at the top, before a name.
    Names,
    /// After a name.
    Colon(String),
    /// Before a member's value.
    Value(String),
    /// In the list, before an element.
    List,
    /// In an element, or in a member's value.
    Inside(Inside),
    /// After the end.
    End,
}

struct Inside {
    scan: Scan,
    /// Where it begins in the window.
    from: usize,
    /// How much of it was let go.
    gone: u64,
    /// The member's name; `None`: an element.
    name: Option<String>,
    /// Nobody wants it.
    unwanted: bool,
}

/// What was found.
pub(super) enum Step {
    /// The window ends first.
    More,
    /// An element.
    Element(Range<usize>),
    /// A member beside the list.
    Member(String, Range<usize>),
    /// Something longer than is read has gone by.
    TooLong { element: bool, length: u64 },
    /// It is no such text.
    Malformed(String),
}

impl Split {
    pub(super) fn new(key: Option<&'static str>, beside: bool) -> Split {
        Split { key, beside, phase: Phase::Start, pos: 0, settled: 0, later: false, listed: false }
    }

    /// How much of the window is not needed any more.
    pub(super) fn settled(&self) -> usize {
        self.settled
    }

    /// The window has lost this many bytes at its front.
    pub(super) fn forget(&mut self, bytes: usize) {
        self.pos -= bytes;
        self.settled -= bytes;
        if let Phase::Inside(inside) = &mut self.phase {
            inside.from -= bytes;
        }
    }

    /// Whether the text has come to its end.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::End)
    }

    /// Goes on in the window, to the next thing that is whole.
    pub(super) fn step(&mut self, window: &[u8], max: u64) -> Step {
        loop {
            if let Phase::Inside(inside) = &mut self.phase {
                match inside.scan.feed(&window[self.pos..]) {
                    None => {
                        self.pos = window.len();
                        let long = inside.gone + (self.pos - inside.from) as u64 > max;
                        if long || inside.unwanted {
                            inside.gone += (self.pos - inside.from) as u64;
                            inside.from = self.pos;
                            inside.unwanted |= long;
                            self.settled = self.pos;
                        }
                        return Step::More;
                    }
                    Some(end) => {
                        self.pos += end;
                        if let Some(step) = self.ended(max) {
                            return step;
                        }
                        continue;
                    }
                }
            }
            while window.get(self.pos).is_some_and(|b| is_space(*b)) {
                self.pos += 1;
            }
            let Some(&byte) = window.get(self.pos) else {
                self.settled = self.pos;
                return Step::More;
            };
            match std::mem::replace(&mut self.phase, Phase::End) {
                Phase::Start => match (self.key, byte) {
                    (None, b'[') => {
                        self.listed = true;
                        self.enter(Phase::List);
                    }
                    (Some(_), b'{') => self.enter(Phase::Names),
                    (None, _) => return Step::Malformed("no list at the top".to_owned()),
                    (Some(key), _) => {
                        return Step::Malformed(format!("no object with `{key}` at the top"));
                    }
                },
                Phase::Names => match byte {
                    b'}' => {
                        self.pos += 1;
                        if !self.listed {
                            let key = self.key.unwrap_or_default();
                            return Step::Malformed(format!("no list `{key}`"));
                        }
                    }
                    b',' if self.later => {
                        self.pos += 1;
                        self.later = false;
                        self.phase = Phase::Names;
                    }
                    b'"' if !self.later => {
                        let mut scan = Scan::default();
                        let Some(end) = scan.feed(&window[self.pos..]) else {
                            self.phase = Phase::Names;
                            self.settled = self.pos;
                            // A name as long as a record is none.
                            if (window.len() - self.pos) as u64 > max {
                                self.phase = Phase::End;
                                return Step::Malformed("a name that does not end".to_owned());
                            }
                            return Step::More;
                        };
                        let name = &window[self.pos..self.pos + end];
                        match serde_json::from_slice::<String>(name) {
                            Ok(name) => {
                                self.pos += end;
                                self.phase = Phase::Colon(name);
                            }
                            Err(_) => return Step::Malformed("a name is no string".to_owned()),
                        }
                    }
                    _ => return Step::Malformed(unexpected(byte, "a name or `}`")),
                },
                Phase::Colon(name) => {
                    if byte != b':' {
                        return Step::Malformed(unexpected(byte, "`:`"));
                    }
                    self.pos += 1;
                    self.phase = Phase::Value(name);
                }
                Phase::Value(name) => {
                    self.later = true;
                    if byte == b'[' && Some(name.as_str()) == self.key {
                        self.listed = true;
                        self.later = false;
                        self.enter(Phase::List);
                    } else {
                        self.begin(Some(name), !self.beside);
                    }
                }
                Phase::List => match byte {
                    b']' => {
                        self.pos += 1;
                        if self.key.is_some() {
                            self.later = true;
                            self.phase = Phase::Names;
                        }
                    }
                    b',' if self.later => {
                        self.pos += 1;
                        self.later = false;
                        self.phase = Phase::List;
                    }
                    b'}' | b':' | b',' => {
                        return Step::Malformed(unexpected(byte, "an element or `]`"));
                    }
                    _ if self.later => return Step::Malformed(unexpected(byte, "`,` or `]`")),
                    _ => self.begin(None, false),
                },
                Phase::End => {
                    return Step::Malformed("something follows the end of the list".to_owned());
                }
                Phase::Inside(_) => {}
            }
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.pos += 1;
        self.phase = phase;
    }

    fn begin(&mut self, name: Option<String>, unwanted: bool) {
        self.settled = self.pos;
        let scan = Scan::default();
        self.phase = Phase::Inside(Inside { scan, from: self.pos, gone: 0, name, unwanted });
    }

    /// What was being looked at has ended at `pos`.
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
    format!("`{}` where {instead} should be; what follows is not read", byte.escape_ascii())
}
