//! The conversations of a guarded run: when they begin, which are in memory, and which one ends the run.

use super::calls::{CallFacts, CallsInFlight, Place, Work};
use super::conversation::{Conversation, Judged};
use crate::exchange::{Kind, ThreadId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The most conversations of a run whose state is in memory. A conversation that continues after it
/// had to leave counts as a new one; what it has spent stays in the ledger.
const MOST_CONVERSATIONS: usize = 1024;

/// The conversations of a run.
pub(super) struct Conversations {
    /// Those in memory; none after the end.
    all: HashMap<Place, Conversation>,
    /// The conversation of the first turn, which is the one that the journal records. It stays in memory.
    lead: Option<Place>,
    /// The lead before the first turn.
    unassigned: Option<Conversation>,
    /// The main conversation of the last turn.
    last_main: Option<Place>,
    /// The last call that was not a turn, and the time of its end: the ending of a program that offers no tools. It is
    /// closed only if it is needed.
    last_auxiliary: Option<(Duration, Conversation)>,
}

impl Conversations {
    /// The conversations of a run before its first call.
    pub(super) fn new(lead: Conversation) -> Conversations {
        Conversations {
            all: HashMap::new(),
            lead: None,
            unassigned: Some(lead),
            last_main: None,
            last_auxiliary: None,
        }
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Conversation> {
        self.all.get(place)
    }

    pub(super) fn get_mut(&mut self, place: &Place) -> Option<&mut Conversation> {
        self.all.get_mut(place)
    }

    pub(super) fn insert(&mut self, place: Place, conversation: Conversation) {
        self.all.insert(place, conversation);
    }

    pub(super) fn remove(&mut self, place: &Place) -> Option<Conversation> {
        self.all.remove(place)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Place, &Conversation)> {
        self.all.iter()
    }

    /// The conversations, and the lead before the first turn.
    pub(super) fn all_mut(
        &mut self,
    ) -> (impl Iterator<Item = &mut Conversation>, Option<&mut Conversation>) {
        (self.all.values_mut(), self.unassigned.as_mut())
    }

    /// The place of the lead, once a turn was made.
    pub(super) fn lead(&self) -> Option<&Place> {
        self.lead.as_ref()
    }

    pub(super) fn is_lead(&self, place: &Place) -> bool {
        self.lead.as_ref() == Some(place)
    }

    /// The lead, also before the first turn.
    pub(super) fn lead_mut(&mut self) -> Option<&mut Conversation> {
        match &self.lead {
            Some(place) => self.all.get_mut(place),
            None => self.unassigned.as_mut(),
        }
    }

    /// The main conversation of the last turn.
    pub(super) fn last_main(&self) -> Option<&Place> {
        self.last_main.as_ref()
    }

    /// Makes the conversation of the first turn the lead. Returns `false` if there is a lead already.
    pub(super) fn begin_lead(&mut self, place: &Place) -> bool {
        let Some(lead) = self.unassigned.take_if(|_| self.lead.is_none()) else { return false };
        self.lead = Some(place.clone());
        self.last_auxiliary = None;
        self.all.insert(place.clone(), lead);
        true
    }

    /// Notes the main conversation of the last turn. Returns the one before, if it is not needed any more.
    pub(super) fn set_last_main(&mut self, place: &Place, calls: &CallsInFlight) -> Option<Place> {
        if self.last_main.as_ref() == Some(place) {
            return None;
        }
        let before = self.last_main.replace(place.clone())?;
        // A single call was kept only because it was the last one.
        let is_over = before.is_single()
            && self.last_call(&before, calls).is_none()
            && !calls.is_held(&before);
        is_over.then_some(before)
    }

    /// Takes the last call of a program without tools, if it failed, or was refused and has the same request: the next one
    /// continues its conversation, so that such calls in a row are counted together. A program that sends many texts may
    /// have some of them refused.
    pub(super) fn take_repeated(&mut self, request: u64) -> Option<Conversation> {
        let (_, mut one) = self.last_auxiliary.take_if(|(_, one)| {
            one.waits_after_failure() || (one.was_refused() && one.last_request == request)
        })?;
        // A refused response was counted as a turn by the conversation itself.
        if one.waits_after_failure() {
            one.begin_another();
        }
        Some(one)
    }

    /// Keeps the last call that was not a turn.
    pub(super) fn keep_auxiliary(&mut self, at: Duration, place: &Place) {
        self.last_auxiliary = self.all.remove(place).map(|one| (at, one));
    }

    /// Takes the last call that was not a turn, and the time of its end.
    pub(super) fn take_auxiliary(&mut self) -> Option<(Duration, Conversation)> {
        self.last_auxiliary.take()
    }

    /// Forgets all, because the run has ended.
    pub(super) fn clear(&mut self) {
        self.all = HashMap::new();
        (self.unassigned, self.last_auxiliary) = (None, None);
    }

    /// The number of the last call of a conversation, if it is in flight. A run can have very many calls in flight, so
    /// they are not searched.
    pub(super) fn last_call(&self, place: &Place, calls: &CallsInFlight) -> Option<u64> {
        let number = match place {
            Place::Thread(_) => self.all.get(place)?.last_call,
            Place::Parallel(number) | Place::Auxiliary(number) => *number,
        };
        // A conversation without a call has the number of another one.
        calls.get(number).filter(|one| one.place == *place).map(|_| number)
    }

    /// The conversation that was idle longest, if there are too many. One with a call in flight must stay, because its
    /// response is still to be booked.
    pub(super) fn surplus(&self, calls: &CallsInFlight) -> Option<Place> {
        if self.all.len() < MOST_CONVERSATIONS {
            return None;
        }
        let busy = calls.places();
        let stays = |place: &Place| self.is_lead(place) || self.last_main.as_ref() == Some(place);
        let idle = self.all.iter().filter(|(place, _)| !busy.contains(*place) && !stays(place));
        idle.min_by_key(|(_, one)| one.last_call).map(|(place, _)| place.clone())
    }

    /// The conversation whose ending is that of the run if the program ends now.
    pub(super) fn deciding(&self) -> Option<&Conversation> {
        let main = self.last_main.as_ref().and_then(|place| self.all.get(place));
        let lead = || self.all.get(self.lead.as_ref()?);
        main.or_else(lead).or(self.last_auxiliary.as_ref().map(|(_, one)| one))
    }

    /// The rules that judge a conversation. Each call of a program that offers no tools is a turn; known
    /// agents offer some, so a call without is a title or the like.
    pub(super) fn judged(&self, place: &Place, facts: &CallFacts) -> Judged {
        match place {
            Place::Thread(_) => Judged::Conversation,
            Place::Auxiliary(_) if self.counts_as_turn(facts) => Judged::Turn,
            Place::Auxiliary(_) => Judged::Call,
            Place::Parallel(_) => Judged::Turn,
        }
    }

    /// The part of a call in the work of its program.
    pub(super) fn work_of(&self, facts: &CallFacts) -> Work {
        match self.counts_as_turn(facts) {
            true if facts.kind.is_turn() => Work::TurnWithTools,
            true => Work::Turn,
            false => Work::Aside,
        }
    }

    /// The part of a call that has no place yet.
    pub(super) fn work_of_unplaced(&self, offers_tools: bool, is_known_agent: bool) -> Work {
        match offers_tools {
            true => Work::TurnWithTools,
            false if self.lead.is_none() && !is_known_agent => Work::Turn,
            false => Work::Aside,
        }
    }

    /// `true` if a call is a turn.
    pub(super) fn counts_as_turn(&self, facts: &CallFacts) -> bool {
        match facts.kind {
            kind if kind.is_turn() => true,
            Kind::Compaction { offers_tools } => offers_tools,
            _ => self.lead.is_none() && !facts.is_known_agent && !facts.is_metered(),
        }
    }
}

/// The conversations of a run that has ended, for the answers to later calls.
#[derive(Debug, Default)]
pub(super) struct AfterEnd {
    /// The conversations of the ended run.
    conversations: HashMap<ThreadId, Ended>,
    /// Final texts that the main conversation may still get, one for each stopped sub-agent.
    more_texts: u32,
}

/// A conversation of a run that has ended.
#[derive(Debug)]
struct Ended {
    name: Option<Arc<str>>,
    /// `true` once it got the answer with the reason for the stop.
    has_text: bool,
}

impl AfterEnd {
    /// Remembers a conversation of the run that ends.
    pub(super) fn add(&mut self, thread: ThreadId, name: Option<Arc<str>>) {
        self.conversations.insert(thread, Ended { name, has_text: false });
    }

    pub(super) fn name(&self, thread: Option<&ThreadId>) -> Option<String> {
        self.conversations.get(thread?)?.name.as_ref().map(ToString::to_string)
    }

    /// `true` if a conversation gets its text with this call, because it is the first one after the end.
    pub(super) fn takes_text(&mut self, facts: &CallFacts) -> bool {
        let kind = facts.kind;
        let first = |one: &mut Ended| !std::mem::replace(&mut one.has_text, true);
        // A title or a summary after the end has no conversation that could get it.
        let ended = facts.thread().and_then(|thread| self.conversations.get_mut(thread));
        if ended.is_some_and(first) {
            if kind == Kind::Sub {
                self.more_texts += 1;
            }
            return true;
        }
        // The main agent is called again for each sub-agent that was stopped in its background.
        let again = kind == Kind::Main && self.more_texts > 0;
        if again {
            self.more_texts -= 1;
        }
        again
    }
}
