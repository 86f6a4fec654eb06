//! The beginning of a run: a new one, or one that its journal resumes.
//!
//! ```text
//! let opening = Opening::of(beginning, &owner); // the parts that depend on how the run begins
//! ```

use super::model::Model;
use super::parks::Parks;
use super::reporter::{Named, Queue};
use crate::agent::recorder::Recorder;
use crate::agent::session::state::SessionShared;
use crate::agent::setup::config::Config;
use crate::agent::start::conversation::Conversation;
use crate::agent::start::run_hooks::RunHooks;
use crate::agent::start::run_setup::Opened;
use crate::budget::Amount;
use crate::journal::RunHeader;
use crate::park::ParkHistory;
use crate::provider::ModelParams;
use crate::schema::OutputSchema;
use crate::telemetry::{RunFacts, Trace};
use endstop_core::{Effect, MessageId, Outcome, Price, Run, Step};
use endstop_wire::redact::KnownKeys;
use std::sync::Arc;
use std::time::Duration;

/// The state in which a run begins.
pub(crate) enum Beginning {
    /// A new run, with its id if the caller chose one.
    New(Conversation, Box<ModelParams>, Option<Arc<OutputSchema>>, Option<String>),
    /// A run resumed from its journal.
    Resumed(Box<ResumedRun>),
}

impl Beginning {
    /// Returns the values of the run's headers, which are secrets.
    pub(in crate::agent) fn keys(&self) -> KnownKeys {
        match self {
            Beginning::New(_, params, _, _) => {
                KnownKeys::new(params.headers.iter().map(|(_, value)| value.expose()))
            }
            Beginning::Resumed(resumed) => resumed.opened.known_keys(),
        }
    }
}

/// A resumed run.
pub(crate) struct ResumedRun {
    pub(in crate::agent) opened: Opened,
    pub(in crate::agent) step: Step,
    pub(in crate::agent) perform: Vec<Effect>,
    /// Time on the run's clock when it was interrupted.
    pub(in crate::agent) at: Duration,
    pub(in crate::agent) recorder: Box<Recorder>,
    /// The id of the journalled run that is resumed.
    pub(in crate::agent) resumes: String,
    /// The id of the run from now on.
    pub(in crate::agent) id: String,
    /// The newest message of the run's original input.
    pub(in crate::agent) input: Option<MessageId>,
    /// The requests and decisions of the run so far.
    pub(in crate::agent) parks: ParkHistory,
}

/// The first thing a driver does.
pub(super) enum First {
    /// Start the run's record in the journal.
    Record(Box<RunHeader>),
    /// Perform the effects that were pending at the interruption; if there is an outcome, the run
    /// has ended with it.
    Perform(Vec<Effect>, Option<Box<Outcome>>),
}

/// What a driver needs until the run starts.
pub(super) struct Start {
    pub(super) first: Option<First>,
    /// The price of the run's own calls, until the kernel has it. Boxed, because it is large.
    pub(super) price: Option<Box<Price>>,
}

/// The parts of a driver that depend on how its run begins.
pub(super) struct Opening {
    pub(super) named: Named,
    pub(super) run: Option<Run>,
    pub(super) model: Model,
    pub(super) schema: Option<Arc<OutputSchema>>,
    pub(super) hooks: Option<Box<RunHooks>>,
    pub(super) start: Start,
    /// Time on the run's clock when it was interrupted.
    pub(super) earlier: Duration,
    pub(super) input: Option<MessageId>,
    pub(super) recorder: Option<Box<Recorder>>,
    pub(super) parks: Option<Box<Parks>>,
    pub(super) trace: Trace,
    /// The faults of code that could not be opened.
    pub(super) faults: Queue,
}

impl Opening {
    pub(super) fn of(beginning: Beginning, owner: &SessionShared) -> Opening {
        match beginning {
            Beginning::New(conversation, params, schema, id) => {
                let id = id.unwrap_or_else(crate::clock::run_id);
                Opening::new_run(owner, conversation, *params, schema, id)
            }
            Beginning::Resumed(resumed) => Opening::resumed(owner, *resumed),
        }
    }

    fn new_run(
        owner: &SessionShared,
        conversation: Conversation,
        params: ModelParams,
        schema: Option<Arc<OutputSchema>>,
        id: String,
    ) -> Opening {
        let config = &owner.agent.config;
        let opened = Opened::new(config, params, schema);
        // Without a journal the run cannot be resumed, and the budget need not remember it.
        if let (Some(budget), Some(_)) = (&owner.budget, &config.journal) {
            budget.saw_run(&id);
        }
        let input = conversation.messages.iter().map(|message| message.id).max();
        let trace = trace(&opened, config, &id);
        let redacted = conversation.fork.as_ref().map_or(0, |fork| fork.redacted);
        let mut spec = opened.spec(config, conversation, id.clone());
        spec.shared_budget = owner.budget.is_some();
        spec.reserve |= spec.shared_budget;
        let first = config.journal.as_ref().map(|_| {
            let header = RunHeader { redacted, ..opened.header(config, &spec) };
            First::Record(Box::new(header))
        });
        let named = Named { id, turns: 0 };
        let opening = Opening::opened(opened, config, named, trace, first);
        Opening { run: Some(Run::new(spec)), input, ..opening }
    }

    /// Returns the parts of a run at the point where it was interrupted.
    fn resumed(owner: &SessionShared, resumed: ResumedRun) -> Opening {
        let ResumedRun { opened, step, perform, at, recorder, resumes, id, input, parks } = resumed;
        let config = &owner.agent.config;
        let parks = Some(parks).filter(|parks| !parks.is_empty()).map(Parks::of).map(Box::new);
        let trace = trace(&opened, config, &id);
        let (run, ended) = match step {
            Step::Continue(run) => (Some(run), None),
            Step::Ended(outcome) => (None, Some(outcome)),
        };
        let turns = match &ended {
            Some(outcome) => outcome.turns,
            None => run.as_ref().map_or(0, Run::turns),
        };
        let earlier = spent_before(run.as_ref(), ended.as_deref());
        let first = Some(First::Perform(perform, ended));
        let named = Named { id, turns };
        let mut opening = Opening::opened(opened, config, named, trace, first);
        if let Some(run) = &run {
            let fault = opening.model.switch(config, &mut opening.trace, run.fallback());
            opening.faults.extend(fault);
        }
        if let Some(budget) = &owner.budget {
            budget.resume_run(&resumes, earlier);
            budget.saw_run(&opening.named.id);
        }
        Opening { run, earlier: at, input, recorder: Some(recorder), parks, ..opening }
    }

    /// Returns the parts that both have.
    fn opened(
        opened: Opened,
        config: &Config,
        named: Named,
        trace: Trace,
        first: Option<First>,
    ) -> Opening {
        let service = opened.service_params();
        let start = Start { first, price: opened.price(config).map(Box::new) };
        Opening {
            named,
            run: None,
            model: Model::new(opened.session, opened.session_spec, service),
            schema: opened.schema,
            hooks: opened.run_hooks,
            start,
            earlier: Duration::ZERO,
            input: None,
            recorder: None,
            parks: None,
            trace,
            faults: opened.faults.into(),
        }
    }
}

fn trace(opened: &Opened, config: &Config, id: &str) -> Trace {
    let (provider, model) = (opened.provider.as_deref(), opened.model.as_deref());
    let facts = RunFacts { id: Some(id), provider, model, ..RunFacts::default() };
    let keys = || config.known_keys().and(&opened.known_keys());
    Trace::begin(&*config.provider, &facts, config.streaming, &config.spans, keys)
}

/// Returns what a resumed run had spent. If the shared budget has not counted it, it must be
/// charged now, because otherwise the runs that share the budget would be granted that money
/// again.
fn spent_before(run: Option<&Run>, ended: Option<&Outcome>) -> Amount {
    match (ended, run) {
        (Some(outcome), _) => Amount {
            usd: outcome.cost_upper.unwrap_or(outcome.cost),
            tokens: outcome.tokens_upper.unwrap_or(outcome.usage.total_tokens()),
        },
        (None, Some(run)) => Amount { usd: run.committed(), tokens: run.all_tokens() },
        (None, None) => Amount::ZERO,
    }
}
