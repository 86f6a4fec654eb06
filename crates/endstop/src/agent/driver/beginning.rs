//! Begins a run: a new one, or one that its journal resumes.
//!
//! ```text
//! let driver = Driver::new(owner, number, control, ending, sink, Beginning::New(conversation, params, schema, None));
//! ```

use super::alarm::Alarm;
use super::outer::Outer;
use super::parks::Parks;
use super::teller::Teller;
use super::{Again, Beginning, Driver, First, in_provider, requested};
use crate::agent::handle::approvals::Approvals;
use crate::agent::handle::ending::EndingCell;
use crate::agent::recorder::Recorder;
use crate::agent::session::state::SessionShared;
use crate::agent::start::conversation::Conversation;
use crate::agent::start::run_setup::Opened;
use crate::budget::Amount;
use crate::control::Control;
use crate::event::queue::EventSink;
use crate::journal::RunHeader;
use crate::provider::ModelParams;
use crate::schema::OutputSchema;
use crate::telemetry::Trace;
use endstop_core::{Effect, EventKind, Outcome, Run, RunPhase, Step};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Driver {
    pub(crate) fn new(
        owner: Arc<SessionShared>,
        number: u64,
        control: Control,
        ending: EndingCell,
        sink: EventSink,
        approvals: Approvals,
        beginning: Beginning,
    ) -> Driver {
        let (shared, outer) = (Arc::clone(&owner.agent), owner.outer.clone());
        let mut driver = Driver {
            owner,
            number,
            control,
            heard: None,
            ending,
            teller: Teller::new(sink),
            approvals,
            run: None,
            session: None,
            session_spec: None,
            fallback: 0,
            service: None,
            schema: None,
            price: None,
            began: Instant::now(),
            earlier: Duration::ZERO,
            input: None,
            recorder: None,
            beginning: None,
            trace: Trace::default(),
            call: None,
            tasks: None,
            task_of: Vec::new(),
            tools: Vec::new(),
            tool_budget: None,
            asked: BTreeMap::new(),
            reserved: BTreeMap::new(),
            due: None,
            parks: None,
            outer: outer.map(|context| Box::new(Outer::new(context))),
            hooks: None,
            alarm: Alarm::default(),
            queue: VecDeque::new(),
            finished: false,
            shared,
        };
        match beginning {
            Beginning::New(conversation, params, schema, id) => {
                let id = id.unwrap_or_else(crate::clock::run_id);
                driver.set_up_new(conversation, *params, schema, id);
            }
            Beginning::Again(again) => driver.set_up_resumed(*again),
        }
        driver
    }

    /// Sets up a new run.
    fn set_up_new(
        &mut self,
        conversation: Conversation,
        params: ModelParams,
        schema: Option<Arc<OutputSchema>>,
        id: String,
    ) {
        self.name(&id, 0);
        let config = &self.shared.config;
        let opened = Opened::new(config, params, schema);
        // Without a journal the run cannot be resumed, and the budget need not remember it.
        if let (Some(budget), Some(_)) = (&self.owner.budget, &config.journal) {
            budget.saw_run(&id);
        }
        self.input = conversation.messages.iter().map(|message| message.id).max();
        let named = (opened.provider.as_deref(), opened.model.as_deref());
        self.trace = Trace::begin(&*config.provider, named, config.streaming, Some(&id));
        self.service = opened.service_params();
        self.schema.clone_from(&opened.schema);
        self.price = opened.price(config).map(Box::new);
        let redacted = conversation.fork.as_ref().map_or(0, |fork| fork.redacted);
        let mut spec = opened.spec(config, conversation, id);
        spec.shared_budget = self.owner.budget.is_some();
        spec.reserve |= spec.shared_budget;
        if config.journal.is_some() {
            let header = RunHeader { redacted, ..opened.header(config, &spec) };
            self.beginning = Some(First::Keep(Box::new(header)));
        }
        self.run = Some(Run::new(spec));
        self.hooks = opened.run_hooks;
        self.session = opened.session;
        self.session_spec = opened.session_spec;
        self.queue = opened.faults.into();
    }

    /// Names the run in its events.
    fn name(&mut self, id: &str, turns: u32) {
        let outer = self.outer.as_ref().map(|outer| &outer.context);
        let nesting = outer.and_then(|outer| Some((outer.nesting()?, outer.call_id())));
        self.teller.name(id, nesting, turns);
    }

    /// Sets up a run at the point where it was interrupted.
    fn set_up_resumed(&mut self, again: Again) {
        let Again { opened, step, perform, at, recorder, resumes, id, input, parks } = again;
        self.parks = Some(parks).filter(|parks| !parks.is_empty()).map(Parks::of).map(Box::new);
        let named = (opened.provider.as_deref(), opened.model.as_deref());
        let config = &self.shared.config;
        self.trace = Trace::begin(&*config.provider, named, config.streaming, None);
        self.service = opened.service_params();
        self.schema.clone_from(&opened.schema);
        self.price = opened.price(config).map(Box::new);
        self.hooks = opened.run_hooks;
        self.session = opened.session;
        self.session_spec = opened.session_spec;
        self.queue = opened.faults.into();
        self.earlier = at;
        self.input = input;
        self.recorder = Some(recorder);
        let ended = match step {
            Step::Continue(run) => {
                let fallback = run.fallback();
                self.run = Some(run);
                self.switch_model(fallback);
                None
            }
            Step::Ended(outcome) => Some(outcome),
        };
        let turns = match (&ended, &self.run) {
            (Some(outcome), _) => outcome.turns,
            (None, run) => run.as_ref().map_or(0, Run::turns),
        };
        if let Some(budget) = &self.owner.budget {
            budget.resume_run(&resumes, self.earlier_spending(ended.as_deref()));
            budget.saw_run(&id);
        }
        self.name(&id, turns);
        self.beginning = Some(First::Perform(perform, ended));
    }

    /// Returns what a resumed run had spent. If the shared budget has not counted it, it must be
    /// charged now, because otherwise the runs that share the budget would be granted that money
    /// again.
    fn earlier_spending(&self, ended: Option<&Outcome>) -> Amount {
        match (ended, &self.run) {
            (Some(outcome), _) => Amount {
                usd: outcome.cost_upper.unwrap_or(outcome.cost),
                tokens: outcome.tokens_upper.unwrap_or(outcome.usage.total_tokens()),
            },
            (None, Some(run)) => Amount { usd: run.committed(), tokens: run.all_tokens() },
            (None, None) => Amount::ZERO,
        }
    }

    /// Begins the journal, or performs the pending effects of a resumed run. Breaks with the outcome of a
    /// run that had ended, and continues with `true` if the run starts.
    pub(super) async fn prepare(&mut self, first: First) -> ControlFlow<Box<Outcome>, bool> {
        match first {
            First::Keep(header) => {
                let config = &self.shared.config;
                let keys = in_provider(&*config.provider, || config.known_keys());
                match (keys, &config.journal) {
                    (Ok(keys), Some(journal)) => {
                        // The values of the run's headers are secrets as well.
                        let keys = keys.and(&header.keys);
                        let recorder = Recorder::begin(Arc::clone(journal), header, keys);
                        self.recorder = Some(Box::new(recorder));
                        self.recorded().await;
                        self.tell_problem();
                    }
                    // Without the credentials the journal cannot be redacted, so nothing is
                    // written.
                    (Err(panicked), _) => self.queue.push_back(panicked.into()),
                    (Ok(_), None) => {}
                }
                ControlFlow::Continue(true)
            }
            First::Perform(effects, ended) => {
                self.tell_problem();
                // Pending settlements are already part of the run's earlier spending.
                for effect in effects {
                    if !matches!(effect, Effect::Settle { .. }) {
                        self.perform(effect);
                    }
                }
                if let Some(outcome) = ended {
                    return ControlFlow::Break(outcome);
                }
                let phase = self.run.as_ref().map(Run::phase);
                ControlFlow::Continue(phase == Some(RunPhase::New))
            }
        }
    }

    /// Returns the seed of the waits between attempts.
    fn seed(&self) -> u64 {
        let config = &self.shared.config;
        let seed = config.seed.or_else(|| config.provider.seed());
        seed.unwrap_or_else(|| crate::clock::seed(self.number))
    }

    /// Returns the first event that the kernel gets. A run that was resumed has none if it does not start.
    pub(super) fn first_event(&mut self, starts: bool) -> Option<EventKind> {
        // A cancel or terminate from before the start takes precedence over it.
        if let Some(request) = self.control.pending(None) {
            return Some(requested(request));
        }
        // A run whose tools or provider cannot be opened ends before its first call.
        if let Some(EventKind::Fault { .. }) = self.queue.front() {
            return self.queue.pop_front();
        }
        starts.then(|| EventKind::Start {
            seed: self.seed(),
            price: self.price.take().map(|price| *price),
            wall_ms: Some(crate::clock::wall_ms()),
        })
    }
}
