//! The gatekeeper of guard: places each call in its run, and admits, answers or refuses it.

use super::event::{GuardEvent, OnEvent};
use super::guarded::Guarded;
use super::handle::RunHandle;
use super::journal::KeySets;
use super::pricing::{no_price, price_of};
use super::settings::Settings;
use super::shared::Shared;
use crate::exchange::{ClientFacts, Route, RunKey, RunName, Salt, Threads};
use crate::proxy::{RequestHead, UpstreamMap};
use endstop::telemetry::TraceParent;
use endstop_core::Price;
use endstop_wire::WireFormat;
use endstop_wire::catalog::prices::{ModelInfo, PriceSource};
use http::Uri;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

/// Runs that are remembered after their end, so that late calls are still refused.
const MOST_RUNS: usize = 10_000;

/// Receives each run that starts, on the task of its first request.
pub type OnStart = Box<dyn Fn(&RunHandle) + Send + Sync>;

/// Puts the calls of agents under the kernel.
pub struct Gate {
    settings: RwLock<Arc<Settings>>,
    pub(super) upstreams: UpstreamMap,
    pub(super) salt: Salt,
    pub(super) threads: Arc<Mutex<Threads>>,
    key_sets: Arc<KeySets>,
    pub(super) runs: Mutex<Runs>,
    /// The run of every call, if the guard has started the only program that it serves.
    pub(super) only: Option<RunName>,
    pub(super) on_event: OnEvent,
    /// Requests of clients that may not use the guard.
    pub(super) strangers: AtomicU64,
    on_start: Option<OnStart>,
}

#[derive(Default)]
pub(super) struct Runs {
    pub(super) by_key: HashMap<RunKey, RunHandle>,
    /// Keys in the order in which the runs started.
    order: std::collections::VecDeque<RunKey>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("settings", &self.settings()).finish_non_exhaustive()
    }
}

impl Gate {
    /// Creates a gate. The salt must be random: with it, keys of clients become fingerprints.
    pub fn new(
        settings: Settings,
        upstreams: UpstreamMap,
        salt: [u8; 16],
        on_event: OnEvent,
    ) -> Gate {
        let salt = Salt::new(salt);
        Gate {
            settings: RwLock::new(Arc::new(settings)),
            upstreams,
            threads: Arc::new(Mutex::new(Threads::new(salt.clone()))),
            salt,
            key_sets: Arc::default(),
            runs: Mutex::default(),
            only: None,
            on_event,
            strangers: AtomicU64::new(0),
            on_start: None,
        }
    }

    /// Reports each run that starts.
    #[must_use]
    pub fn on_start(mut self, on_start: OnStart) -> Gate {
        self.on_start = Some(on_start);
        self
    }

    /// Changes the settings of runs that start from now on.
    pub fn renew(&self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.settings.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Settings::clone(&settings);
        change(&mut new);
        *settings = Arc::new(new);
    }

    /// Puts back the responses that an earlier process has learned; see [`Threads::restore`].
    pub fn restore(&self, kept: &[(String, String)]) {
        lock(&self.threads).restore(kept);
    }

    /// Takes the responses that were learned since the last call; see [`Threads::take_learned`].
    pub fn take_learned(&self) -> Vec<(String, String)> {
        lock(&self.threads).take_learned()
    }

    /// Forgets a run: the next call with its name starts another one.
    pub fn forget(&self, handle: &RunHandle) {
        let key = handle.key();
        let mut runs = lock(&self.runs);
        // The name may belong to a later run by now.
        if runs.by_key.get(&key).is_some_and(|known| Arc::ptr_eq(&known.0, &handle.0)) {
            runs.by_key.remove(&key);
            runs.order.retain(|known| *known != key);
        }
        drop(runs);
        lock(&self.threads).forget(&key);
    }

    pub(super) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts every call into one run, whatever the client says, and starts that run now.
    pub fn only(mut self, name: RunName) -> (Gate, RunHandle) {
        let handle = self.run_of(&RunKey::of_prefix(&name), None);
        self.only = Some(name);
        (self, handle)
    }

    /// The runs, in the order in which they started.
    pub fn runs(&self) -> Vec<RunHandle> {
        let runs = lock(&self.runs);
        runs.order.iter().filter_map(|key| runs.by_key.get(key).cloned()).collect()
    }

    /// The settings of a run, whose limits can have changed, or those of the next one.
    pub(super) fn settings_of(&self, run: Option<&RunHandle>) -> Arc<Settings> {
        run.map_or_else(|| self.settings(), |run| Arc::clone(&run.0.lock().settings))
    }

    /// Returns the run that the request line or a header names, if it has started.
    pub(super) fn named_run(&self, head: &RequestHead, line: &Route) -> Option<RunHandle> {
        self.started_run(&self.named_key(head, line)?)
    }

    /// Returns the key of the run that the request line or a header names.
    pub(super) fn named_key(&self, head: &RequestHead, line: &Route) -> Option<RunKey> {
        let headers = head.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let facts = ClientFacts::read(headers, &line.target, &self.salt);
        lock(&self.threads).run_in_headers(&facts, line).ok().flatten()
    }

    pub(super) fn started_run(&self, key: &RunKey) -> Option<RunHandle> {
        lock(&self.runs).by_key.get(key).cloned()
    }

    pub(super) fn url(&self, line: &Route, format: Option<WireFormat>) -> Result<Uri, String> {
        let (path, query) = match line.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (line.target.as_str(), None),
        };
        self.upstreams.url(format, path, query).map_err(|error| error.to_string())
    }

    /// Returns a run, which starts if it is not known, at this place of a trace.
    pub(super) fn run_of(&self, key: &RunKey, parent: Option<&TraceParent>) -> RunHandle {
        let mut runs = lock(&self.runs);
        if let Some(handle) = runs.by_key.get(key) {
            return handle.clone();
        }
        if runs.order.len() >= MOST_RUNS {
            // An ended run first: a live one would lose its budget.
            let ended =
                |key: &RunKey| runs.by_key.get(key).is_none_or(|handle| handle.outcome().is_some());
            let at = runs.order.iter().position(ended).unwrap_or(0);
            if let Some(old) = runs.order.remove(at)
                && let Some(handle) = runs.by_key.remove(&old)
            {
                handle.close(false, "the guard serves too many runs");
            }
        }
        let start = || {
            let on_event = Arc::clone(&self.on_event);
            Shared::start(key.clone(), &self.settings(), &self.threads, &self.key_sets, on_event)
        };
        let handle = RunHandle(TraceParent::above(parent, start));
        runs.order.push_back(key.clone());
        runs.by_key.insert(key.clone(), handle.clone());
        drop(runs);
        if let Some(on_start) = &self.on_start {
            on_start(&handle);
        }
        (self.on_event)(GuardEvent::RunStarted { run: key.id().to_owned() });
        handle
    }

    /// Returns the price of a call. If it names two models, that is the higher one.
    pub(super) fn price(&self, named: &NamedModels<'_>, prompt_bytes: u64) -> CallPrice {
        let settings = self.settings();
        if let Some(price) = settings.price {
            return CallPrice { price: Some(price), ..CallPrice::default() };
        }
        let look = |model: &str| price_of(&settings.prices, named.format, named.host, model);
        let info = named.model.and_then(look);
        let price = info.as_ref().map(|info| info.price);
        // The model that answers has its price in the catalogue, which the user's own must not be compared with.
        let info = info.filter(|info| info.source != PriceSource::User);
        let mut found = CallPrice { price, info, other_unknown: None };
        if let Some(name) = named.other {
            match look(name) {
                Some(other) => {
                    let rates = other.price.up_to_prompt(prompt_bytes);
                    let own = found.price.map(|own| own.up_to_prompt(prompt_bytes));
                    found.price = own.map(|own| own.highest_rates(&rates));
                }
                None => found.other_unknown = Some(name.to_owned()),
            }
        }
        found
    }
}

/// The models that a call names, and the server that it goes to.
pub(super) struct NamedModels<'a> {
    pub(super) format: WireFormat,
    pub(super) host: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    /// Another model: the path and the body can differ.
    pub(super) other: Option<&'a str>,
}

/// The price of a call.
#[derive(Default)]
pub(super) struct CallPrice {
    pub(super) price: Option<Price>,
    /// The model that is asked for, if the price is that of the catalogue.
    pub(super) info: Option<ModelInfo>,
    /// The other model that the call names, if its price is not known.
    pub(super) other_unknown: Option<String>,
}

impl CallPrice {
    /// Returns the reason why a ceiling of a run on money could not be kept with the call.
    pub(super) fn objection(
        &self,
        run: &Guarded,
        model: Option<&str>,
        is_only: bool,
    ) -> Option<String> {
        if !run.account.needs_price(&run.settings.limits) {
            return None;
        }
        let unknown = match (self.price, &self.other_unknown) {
            (None, _) => model,
            (Some(_), Some(other)) if run.settings.is_strict() => Some(other.as_str()),
            (Some(_), _) => return None,
        };
        Some(no_price(unknown, is_only))
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
