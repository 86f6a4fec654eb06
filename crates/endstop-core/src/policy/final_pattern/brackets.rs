//! Matches brackets: tracks the bracket and string state of every candidate call, at a cost per
//! character that does not grow with the number of candidates.
//!
//! Each candidate starts in code after its own bracket, so that the same text may be a string for
//! one candidate and code for another. Candidates in the same mode read all later text in the same
//! way, so they stay in one group. There are at most as many groups as modes. A group stores its
//! candidates by depth, so that a bracket is one addition. When two groups reach the same mode, the
//! younger is merged into the older. The cost of a merge is bounded by the younger group's depth,
//! which cannot exceed the number of characters that it has read. Total work is linear in the text.
//!
//! ```text
//! FINAL(oops 'FINAL('x')    the first call is inside a string where the second one is in code
//! ```

/// The state in which a candidate reads the next character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Outside strings.
    Code,
    /// After one quote: a string, an empty string, or the first third of a triple quote.
    Once(char),
    /// After two quotes: an empty string, or two thirds of a triple quote.
    Twice(char),
    /// In a string.
    In(char),
    /// In a string, after a backslash.
    Escaped(char),
    /// In a triple-quoted string, after this number of closing quotes.
    Triple(char, u8),
    /// In a triple-quoted string, after a backslash.
    TripleEscaped(char),
}

impl Mode {
    /// Reads a character. `after_word` is `true` if a letter, digit or underscore precedes it.
    /// Returns the next mode, and `true` if the character was read as code.
    pub(super) fn step(self, c: char, after_word: bool) -> (Mode, bool) {
        let quote = c == '\'' || c == '"';
        let in_string = |q: char| match c {
            '\\' => Mode::Escaped(q),
            c if c == q => Mode::Code,
            _ => Mode::In(q),
        };
        match self {
            Mode::Code if quote && !after_word => (Mode::Once(c), true),
            Mode::Once(q) if c == q => (Mode::Twice(q), false),
            Mode::Once(q) | Mode::In(q) => (in_string(q), false),
            Mode::Twice(q) if c == q => (Mode::Triple(q, 0), false),
            Mode::Twice(_) if quote => (Mode::Once(c), true),
            Mode::Code | Mode::Twice(_) => (Mode::Code, true),
            Mode::Escaped(q) => (Mode::In(q), false),
            Mode::Triple(q, 2) if c == q => (Mode::Code, false),
            Mode::Triple(q, n) if c == q => (Mode::Triple(q, n + 1), false),
            Mode::Triple(q, _) if c == '\\' => (Mode::TripleEscaped(q), false),
            Mode::Triple(q, _) | Mode::TripleEscaped(q) => (Mode::Triple(q, 0), false),
        }
    }
}

const NONE: u32 = u32::MAX;

/// A linked list of candidates through [`Brackets::next`].
#[derive(Clone, Copy, Debug)]
struct Chain {
    head: u32,
    tail: u32,
}

impl Chain {
    const EMPTY: Chain = Chain { head: NONE, tail: NONE };
}

/// The candidates of one group at one depth, in two chains: without and with a keyword argument.
#[derive(Clone, Debug)]
struct Level {
    /// Depth minus the group's base.
    key: i64,
    plain: Chain,
    keyed: Chain,
}

#[derive(Clone, Debug)]
struct Group {
    mode: Mode,
    base: i64,
    /// Sorted by depth, smallest last, because the innermost candidate closes first.
    levels: Vec<Level>,
}

impl Group {
    fn top_depth(&self) -> Option<i64> {
        self.levels.last().map(|l| l.key + self.base)
    }
}

/// A call that closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Closed {
    pub(super) id: u32,
    /// `true` if a keyword argument is at its top level.
    pub(super) keyword: bool,
}

/// The open calls.
#[derive(Clone, Debug, Default)]
pub(super) struct Brackets {
    /// Oldest first.
    groups: Vec<Group>,
    /// The next candidate of the same chain, by candidate.
    next: Vec<u32>,
    /// Elementary steps so far.
    work: u64,
}

impl Brackets {
    /// `true` if no call is open.
    pub(super) fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Elementary steps so far, for tests of linearity.
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Reads a character, adding the calls that it closes to `closed`.
    pub(super) fn feed(&mut self, c: char, after_word: bool, closed: &mut Vec<Closed>) {
        let mut emptied = false;
        for g in &mut self.groups {
            self.work += 1;
            let (mode, code) = g.mode.step(c, after_word);
            g.mode = mode;
            if !code {
                continue;
            }
            // `base` moves all candidates of the group at once, so a bracket costs one addition.
            if c == '(' {
                g.base += 1;
            } else if c == ')' {
                g.base -= 1;
                if g.top_depth() == Some(0) {
                    if let Some(level) = g.levels.pop() {
                        for (chain, keyword) in [(level.plain, false), (level.keyed, true)] {
                            let mut id = chain.head;
                            while id != NONE {
                                self.work += 1;
                                closed.push(Closed { id, keyword });
                                id = self.next[id as usize];
                            }
                        }
                    }
                    emptied |= g.levels.is_empty();
                }
            }
        }
        if emptied {
            self.groups.retain(|g| !g.levels.is_empty());
        }
        // A single group has nothing to merge, which is the common case.
        if self.groups.len() > 1 {
            self.merge_equal_modes();
        }
    }

    /// Opens the call `id` (numbered from 0, in order) after the bracket that was just fed.
    pub(super) fn open(&mut self, id: u32) {
        // The matcher may be newer than the first calls, so the first id may be above 0.
        self.next.resize(id as usize + 1, NONE);
        let i = if let Some(i) = self.groups.iter().position(|g| g.mode == Mode::Code) {
            i
        } else {
            self.groups.push(Group { mode: Mode::Code, base: 0, levels: Vec::new() });
            self.groups.len() - 1
        };
        let g = &mut self.groups[i];
        g.levels.push(Level {
            key: 1 - g.base,
            plain: Chain { head: id, tail: id },
            keyed: Chain::EMPTY,
        });
    }

    /// Records a keyword argument for the calls that read the text as code at their top level.
    pub(super) fn keyword(&mut self) {
        for g in &mut self.groups {
            if g.mode == Mode::Code && g.top_depth() == Some(1) {
                if let Some(level) = g.levels.last_mut() {
                    level.keyed = join(&mut self.next, level.keyed, level.plain);
                    level.plain = Chain::EMPTY;
                }
            }
        }
    }

    fn merge_equal_modes(&mut self) {
        let mut i = 0;
        while i < self.groups.len() {
            let mut j = i + 1;
            while j < self.groups.len() {
                self.work += 1;
                if self.groups[i].mode == self.groups[j].mode {
                    let younger = self.groups.remove(j);
                    self.merge(i, younger);
                } else {
                    j += 1;
                }
            }
            i += 1;
        }
    }

    fn merge(&mut self, older: usize, mut younger: Group) {
        let Brackets { groups, next, work } = self;
        let older = &mut groups[older];
        let mut merged = Vec::new();
        while let Some(mut level) = younger.levels.pop() {
            let depth = level.key + younger.base;
            while older.top_depth().is_some_and(|d| d < depth) {
                *work += 1;
                merged.extend(older.levels.pop());
            }
            *work += 1;
            level.key = depth - older.base;
            if older.top_depth() == Some(depth) {
                if let Some(same) = older.levels.pop() {
                    level.plain = join(next, same.plain, level.plain);
                    level.keyed = join(next, same.keyed, level.keyed);
                }
            }
            merged.push(level);
        }
        older.levels.extend(merged.into_iter().rev());
    }
}

fn join(next: &mut [u32], a: Chain, b: Chain) -> Chain {
    if a.head == NONE {
        return b;
    }
    if b.head == NONE {
        return a;
    }
    next[a.tail as usize] = b.head;
    Chain { head: a.head, tail: b.tail }
}
