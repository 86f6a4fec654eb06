//! Places requests in runs, threads and turns, and learns from responses.

use super::links::{Links, RESPONSES};
use super::opening::{
    Opening, Openings, asks_for_summary, first_of_user, message_print, newest_results, scoped,
};
use super::placed::{Attempt, History, Kind, Placed};
use super::seat::{RunKey, RunSource, Seat, ThreadId, named};
use super::state::{First, Last, Marked, Sent, ThreadState, input_of};
use crate::exchange::bounded_map::BoundedMap;
use crate::exchange::digest::{Fingerprint, Mixer, Salt};
use crate::exchange::request::Request;
use crate::exchange::route::Route;
use crate::exchange::run_name::{ClientId, InvalidRunName};
use crate::exchange::signs::{ClientFacts, Signs};
use endstop_core::ModelTurn;

/// The most threads, sessions and keys.
const MOST: usize = 10_000;

/// The table of threads. It has a fixed size: if it is full, the thread that was used least recently
/// is dropped and reported.
///
/// The caller reports each response with [`answered`](Threads::answered) or
/// [`failed`](Threads::failed), because the ids in responses place later requests.
pub struct Threads {
    salt: Salt,
    states: BoundedMap<Seat, ThreadState>,
    links: Links,
    openings: Openings,
    /// The first session of a chain of sessions that started each other.
    roots: BoundedMap<ClientId, ClientId>,
    /// The last run of each API key.
    recent: BoundedMap<Fingerprint, RunKey>,
    /// Number of the last thread with each beginning, if there were several.
    again: BoundedMap<Fingerprint, u32>,
    /// The first beginning of a thread whose client has added to its prompt.
    grown: BoundedMap<Fingerprint, Fingerprint>,
}

/// The place of a request, before its thread is looked up.
struct Found {
    seat: Seat,
    parent: Option<ThreadId>,
    sub: bool,
    prompt_bytes: u64,
    prompt_known: bool,
}

impl Threads {
    /// The most responses that are known by their ids.
    pub const MOST_RESPONSES: usize = RESPONSES;

    /// Creates a table. The salt must be random, and the one that the [`ClientFacts`] are read with.
    pub fn new(salt: Salt) -> Threads {
        Threads::with_capacity(salt, MOST)
    }

    /// Creates a table of at most this many threads.
    pub fn with_capacity(salt: Salt, most: usize) -> Threads {
        Threads {
            links: Links::new(salt.clone()),
            openings: Openings::new(),
            salt,
            states: BoundedMap::new(most),
            roots: BoundedMap::new(MOST),
            recent: BoundedMap::new(MOST),
            again: BoundedMap::new(MOST),
            grown: BoundedMap::new(MOST),
        }
    }

    /// Number of threads in the table.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// `true` if the table has no thread.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the seat of a call other than a model call: in the run that it names, or else in the one that the
    /// same key used last.
    ///
    /// # Errors
    /// The header `x-endstop-run` has an invalid name, and no prefix takes precedence.
    pub fn seat_of_other(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
    ) -> Result<Seat, InvalidRunName> {
        let known = self.run_in_headers(facts, route)?;
        let scope = self.scope(known.as_ref(), facts.key);
        let recent = self.recent.get(&scope).map(|run| run.clone());
        let run = known.or(recent).unwrap_or_else(|| self.run_of_key(scope, "other"));
        Ok(Seat { run, thread: ThreadId::new("other", &"calls"), scope })
    }

    /// Decides what a request is, and remembers it as the last one of its thread.
    ///
    /// # Errors
    /// The header `x-endstop-run` has an invalid name, and no prefix takes precedence.
    pub fn place(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
        request: &Request<'_>,
    ) -> Result<Placed, InvalidRunName> {
        let signs = facts.signs.or(&request.signs);
        let known = self.known_run(facts, route, &signs)?;
        // A summary of codex has no tools either, so its own sign is checked first.
        let kind = if signs.compaction || route.is_compaction() || asks_for_summary(request) {
            Kind::Compaction { offers_tools: !request.tools.is_empty() }
        } else if request.tools.is_empty()
            && !self.continues_turn(facts, known.as_ref(), &signs, request)
        {
            Kind::Auxiliary
        } else {
            Kind::Main
        };
        let marked = Marked::of(request, &self.salt);
        let found = self.find(facts, known, &signs, &marked, kind);
        Ok(if kind.is_turn() { self.place_turn(found, &marked) } else { other(found, kind) })
    }

    /// `true` if a request continues a turn by its id, so that it is one itself: its tools are those that the
    /// provider stores.
    fn continues_turn(
        &mut self,
        facts: &ClientFacts,
        known: Option<&RunKey>,
        signs: &Signs,
        request: &Request<'_>,
    ) -> bool {
        let scope = self.scope(known, facts.key);
        if let Some(id) = &request.previous_response {
            return self.links.response(scope, id).is_some_and(|continued| continued.is_turn);
        }
        let Some(named) = named(signs).filter(|_| request.continues()) else { return false };
        let run = known.cloned().unwrap_or_else(|| self.run_of_key(scope, named.thread.as_str()));
        self.states.peek(&Seat { run, thread: named.thread, scope }).is_some()
    }

    /// Returns the run that the path or a header names, for a request whose body cannot be read.
    ///
    /// # Errors
    /// The header `x-endstop-run` has an invalid name, and no prefix takes precedence.
    pub fn run_in_headers(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
    ) -> Result<Option<RunKey>, InvalidRunName> {
        self.known_run(facts, route, &facts.signs)
    }

    /// Returns the run that a request most probably belongs to, without placing it: the one that it names, or
    /// the last one of its key.
    pub fn likely_run(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
        request: &Request<'_>,
    ) -> Option<RunKey> {
        let known = self.known_run(facts, route, &facts.signs.or(&request.signs)).ok()?;
        known.or_else(|| {
            let scope = self.scope(None, facts.key);
            self.recent.get(&scope).map(|run| run.clone())
        })
    }

    /// Learns from a response: its id, and the ids of its calls.
    pub fn answered(&mut self, seat: &Seat, kind: Kind, turn: &ModelTurn) {
        let state = self.states.get(seat);
        let prompt_bytes = state.as_ref().map_or(0, |state| state.prompt_bytes);
        if let Some(state) = state.filter(|_| kind.is_turn()) {
            state.answered(turn.tool_calls());
            self.links.learn_calls(seat, turn);
        }
        // A summary can be continued by id too, so every response is learned.
        self.links.learn_response(seat, turn, prompt_bytes, kind.is_turn());
    }

    /// Puts back the responses that an earlier process with the same salt has [taken](Threads::take_learned), so
    /// that requests can continue them, and begins to note new ones.
    pub fn restore(&mut self, kept: &[(String, String)]) {
        self.links.restore(kept);
    }

    /// Takes the responses that were learned since the last call, as pairs of a name and a value. They have no
    /// ids and no texts of clients, but fingerprints. Empty before [`restore`](Threads::restore).
    pub fn take_learned(&mut self) -> Vec<(String, String)> {
        self.links.take_learned()
    }

    /// Learns the id of a response that the provider still works on.
    pub fn works_on(&mut self, seat: &Seat, kind: Kind, id: &str) {
        let prompt_bytes = self.states.get(seat).map_or(0, |state| state.prompt_bytes);
        self.links.learn_id(seat, id, prompt_bytes, kind.is_turn());
    }

    /// Returns the run of the response with this id, if the client of the request has received it.
    pub fn run_of_response(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
        id: &str,
    ) -> Option<RunKey> {
        let known = self.run_in_headers(facts, route).ok()?;
        let scope = self.scope(known.as_ref(), facts.key);
        self.links.response(scope, id).map(|continued| continued.seat.run)
    }

    /// Learns that a call failed: an error status, a cut stream, or an abort.
    pub fn failed(&mut self, seat: &Seat, kind: Kind) {
        if let Some(state) = self.states.get(seat).filter(|_| kind.is_turn()) {
            state.failed();
        }
    }

    /// Forgets the threads of a run that is over. If the same client continues, its threads count
    /// as new ones.
    pub fn forget(&mut self, run: &RunKey) {
        self.states.remove(|seat| seat.run == *run);
    }

    /// Returns the run that the request names.
    fn known_run(
        &mut self,
        facts: &ClientFacts,
        route: &Route,
        signs: &Signs,
    ) -> Result<Option<RunKey>, InvalidRunName> {
        if let Some(name) = &route.run {
            return Ok(Some(RunKey::new(RunSource::Prefix, name.as_str())));
        }
        if let Some(name) = &facts.run {
            // The user chose this name, so a mistake in it is reported instead of replaced.
            let name = name.as_ref().map_err(Clone::clone)?;
            return Ok(Some(RunKey::new(RunSource::Header, name.as_str())));
        }
        let root = signs.conversation.as_ref().map(|id| self.root(id, signs));
        let session = signs.session.clone().or(root);
        Ok(session.map(|id| RunKey::new(RunSource::Session, id.as_str())))
    }

    /// Returns the first session of the chain that started this one.
    fn root(&mut self, id: &ClientId, signs: &Signs) -> ClientId {
        // Later requests of a child may leave out its parent, so the root is remembered.
        let Some(parent) = &signs.parent_conversation else {
            return self.roots.peek(id).unwrap_or(id).clone();
        };
        let root = self.roots.peek(parent).unwrap_or(parent).clone();
        self.roots.put(id.clone(), root.clone());
        root
    }

    fn find(
        &mut self,
        facts: &ClientFacts,
        known: Option<RunKey>,
        signs: &Signs,
        marked: &Marked<'_>,
        kind: Kind,
    ) -> Found {
        let request = marked.request;
        let scope = self.scope(known.as_ref(), facts.key);
        // The prompt of a continued response is larger than the body: the provider adds what it stored.
        let previous = request.previous_response.as_ref();
        let continued = previous.and_then(|id| self.links.response(scope, id));
        let before = continued.as_ref().map_or(0, |continued| continued.bytes);
        let prompt_bytes = before.saturating_add(request.body_bytes);
        // A stored conversation may have been written by anyone.
        let prompt_known = !request.continues() || continued.is_some();
        if let Some(named) = named(signs) {
            let run = known.unwrap_or_else(|| self.run_of_key(scope, named.thread.as_str()));
            let seat = Seat { run, thread: named.thread, scope };
            let (parent, sub) = (named.parent, named.sub);
            return Found { seat, parent, sub, prompt_bytes, prompt_known };
        }
        // An id that only this thread received is exact; the beginning of a history is not.
        let linked = continued.map(|continued| continued.seat).or_else(|| {
            let ids = newest_results(request);
            ids.iter().find_map(|id| self.links.caller(scope, id))
        });
        let named = known.is_some();
        let (mut seat, texts) = if let Some(seat) = linked {
            (seat, Vec::new())
        } else {
            let opening = self.openings.of(marked, &self.salt, scope);
            (self.by_opening(known, scope, &opening, request, kind), opening.texts)
        };
        let parent = match self.states.peek(&seat) {
            Some(state) => state.parent.clone(),
            None => self.links.prompter(&texts).map(|asker| {
                // A sub-agent without ids spends the money of the run that started it.
                if !named {
                    seat.run = asker.run;
                }
                asker.thread
            }),
        };
        let sub = signs.subagent || parent.is_some();
        Found { seat, parent, sub, prompt_bytes, prompt_known }
    }

    /// Returns what separates call ids of one client from those of others: the run if it is named,
    /// otherwise the key.
    fn scope(&self, known: Option<&RunKey>, key: Option<Fingerprint>) -> Fingerprint {
        let scope = Mixer::new(&self.salt, "scope");
        match (known, key) {
            (Some(run), _) => {
                scope.add(format!("{:?}", run.source()).as_bytes()).add(run.id().as_bytes()).done()
            }
            (None, Some(key)) => scope.add(key.to_string().as_bytes()).done(),
            (None, None) => scope.done(),
        }
    }

    /// Returns a run that is named by its key and its first thread.
    fn run_of_key(&self, scope: Fingerprint, thread: &str) -> RunKey {
        let id = scoped(&self.salt, "run", scope).add(thread.as_bytes()).done();
        RunKey::new(RunSource::Key, &id.to_string())
    }

    /// Returns the thread that begins like this request.
    fn by_opening(
        &mut self,
        known: Option<RunKey>,
        scope: Fingerprint,
        opening: &Opening,
        request: &Request<'_>,
        kind: Kind,
    ) -> Seat {
        let named = known.is_some();
        let print = self.first_beginning(known.as_ref(), scope, opening, request, kind);
        let number = self.number_of(print);
        let seat = self.numbered(known.clone(), scope, print, number);
        if !kind.is_turn() {
            // A title or a router call has a beginning of its own; it belongs to the run that the
            // same key used last.
            let recent = self.recent.get(&scope).map(|run| run.clone());
            let own = named || self.states.peek(&seat).is_some();
            let run = recent.filter(|_| !own).unwrap_or(seat.run);
            return Seat { run, thread: seat.thread, scope };
        }
        let state = self.states.peek(&seat);
        let count = request.message_count();
        // A program that starts again sends the same beginning. The old thread had gone further, so
        // this is neither a retry nor a compaction.
        if opening.is_all && state.is_some_and(|state| state.was_longer_than(count)) {
            let number = number.saturating_add(1);
            self.again.put(print, number);
            return self.numbered(known, scope, print, number);
        }
        seat
    }

    /// Returns the beginning that the thread of this request had first. A client that stores no answer, because the
    /// model refused for example, adds a text to its prompt, and the history then begins in another way.
    fn first_beginning(
        &mut self,
        known: Option<&RunKey>,
        scope: Fingerprint,
        opening: &Opening,
        request: &Request<'_>,
        kind: Kind,
    ) -> Fingerprint {
        if let Some(first) = self.grown.get(&opening.print) {
            return *first;
        }
        if !opening.is_all || !kind.is_turn() {
            return opening.print;
        }
        let count = request.message_count();
        let continues = |first: &Fingerprint| {
            let seat = self.numbered(known.cloned(), scope, *first, self.number_of(*first));
            self.states.peek(&seat).is_some_and(|state| !state.was_longer_than(count))
        };
        let first = |print| self.grown.peek(print).copied().unwrap_or(*print);
        let Some(first) = opening.shorter.iter().rev().map(first).find(continues) else {
            return opening.print;
        };
        self.grown.put(opening.print, first);
        first
    }

    /// Returns the number of the last thread with this beginning.
    fn number_of(&self, print: Fingerprint) -> u32 {
        self.again.peek(&print).copied().unwrap_or(1)
    }

    /// Returns the seat of the thread with this beginning and number.
    fn numbered(
        &self,
        known: Option<RunKey>,
        scope: Fingerprint,
        print: Fingerprint,
        number: u32,
    ) -> Seat {
        let name = if number == 1 { print.to_string() } else { format!("{print}-{number}") };
        let run = known.unwrap_or_else(|| self.run_of_key(scope, &name));
        Seat { run, thread: ThreadId::new("first", &name), scope }
    }

    fn place_turn(&mut self, found: Found, marked: &Marked<'_>) -> Placed {
        let Found { seat, parent, sub, prompt_bytes, prompt_known } = found;
        // The full table drops a thread only for a new one.
        let mut dropped = None;
        if self.states.get(&seat).is_none() {
            let state = ThreadState::new(parent.clone());
            dropped = self.states.put(seat.clone(), state).map(|(seat, _)| seat);
        }
        // Calls without tools follow the last run of their key.
        if seat.run.source() == RunSource::Key {
            self.recent.put(seat.scope, seat.run.clone());
        }
        let mut placed = Placed {
            kind: if sub { Kind::Sub } else { Kind::Main },
            turn: 0,
            attempt: Attempt::First,
            history: History::New,
            input: Vec::new(),
            results: Vec::new(),
            unmatched: 0,
            prompt_bytes,
            prompt_known,
            dropped,
            parent,
            seat,
        };
        // The thread was put into the table above.
        if let Some(state) = self.states.get(&placed.seat) {
            compare(&self.salt, state, marked, &mut placed);
        }
        placed
    }
}

/// Places a call that is not a turn. The thread that it belongs to does not change.
fn other(found: Found, kind: Kind) -> Placed {
    Placed {
        seat: found.seat,
        parent: found.parent,
        kind,
        turn: 0,
        attempt: Attempt::First,
        history: History::Grown,
        input: Vec::new(),
        results: Vec::new(),
        unmatched: 0,
        prompt_bytes: found.prompt_bytes,
        prompt_known: found.prompt_known,
        dropped: None,
    }
}

/// Returns the request as it is compared with the one before. A message with the same bytes as before
/// is not parsed again.
fn sent_of(salt: &Salt, state: &ThreadState, marked: &Marked<'_>) -> Sent {
    let request = marked.request;
    let known = state.first().filter(|known| marked.up_to(known.at, salt) == known.raw);
    let first = known.or_else(|| {
        let (at, message) = first_of_user(request)?;
        let content = message_print(salt, message);
        Some(First { at, raw: marked.up_to(at, salt), content })
    });
    let last = request.last_message().map(|message| Last {
        raw: marked.messages.last().copied(),
        content: message_print(salt, message),
    });
    Sent {
        body: marked.body,
        count: request.message_count(),
        first,
        last,
        // A continued request has only new messages, so its count does not show the length of the history.
        chained: request.continues(),
    }
}

/// Compares a request with the last one of its thread.
fn compare(salt: &Salt, state: &mut ThreadState, marked: &Marked<'_>, placed: &mut Placed) {
    let request = marked.request;
    let sent = sent_of(salt, state, marked);
    let count = sent.count;
    let is_last = |at: usize, last: Last| {
        let content = |message| message_print(salt, message) == last.content;
        marked.messages.get(at).copied() == last.raw || request.message(at).is_some_and(content)
    };
    let (history, from) = state.change(sent, is_last);
    let grown = history == History::Grown;
    let new_from = if sent.chained { 0 } else { state.count() };
    // The clients of these formats invent the ids of calls, or have none.
    let by_name = request.matches_results_by_name();
    let mut answered = Vec::new();
    for at in from..count {
        let Some(message) = request.message(at) else { continue };
        for result in message.tool_results() {
            match state.close(result, by_name) {
                Some(answer) => {
                    answered.push(result.call_id.clone());
                    placed.results.push(answer);
                }
                None => placed.unmatched += usize::from(grown && at >= new_from),
            }
        }
        placed.input.extend(input_of(message, grown, &answered));
    }
    // A new result means that the client continued, even if it is the same text again.
    if placed.results.is_empty() && history != History::New {
        placed.attempt = state.attempt(sent);
    }
    // The first attempt has reported these messages.
    if placed.attempt != Attempt::First {
        placed.input.clear();
    }
    state.sent(sent, placed.attempt);
    state.prompt_bytes = placed.prompt_bytes;
    placed.history = history;
    placed.turn = state.turn;
}
