//! Notifies a person of runs: at thresholds of their limits, when they are parked, and when they have ended. A run does
//! not wait for it.
//!
//! ```json
//! {"type":"limit_near","run_id":"4k2v9x0abc","limit":"max_budget_usd","percent":80,"used":1.63,"of":2.0}
//! {"type":"run_parked","run_id":"4k2v9x0abc","request":{"kind":"approval","tool":"shell", …}}
//! {"type":"run_ended","run_id":"4k2v9x0abc","termination":"stop","category":"success", …}
//! ```

mod near;
mod notice;
mod send;

use crate::config::notify::NotifySettings;
use crate::failure::{Failure, Result};
use crate::output;
use endstop::agent::AgentBuilder;
use endstop::core::Near;
use endstop::park::ParkRequest;
use endstop::wire::redact::KnownKeys;
use endstop::{AgentEvent, AgentEventKind, Limits, Outcome};
use endstop_guard::run::RunHandle;
use near::Used;
use notice::ended;
pub(crate) use notice::parked;
use send::{LOOK_EVERY, Report, Sender};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Notifies a person of the runs of this process. Without a command and a webhook it does nothing.
#[derive(Clone, Default)]
pub(crate) struct Notifier(Option<Arc<Active>>);

struct Active {
    sender: Sender,
    percentages: Vec<u8>,
    /// Runs that are followed by their events.
    runs: Mutex<HashMap<String, Followed>>,
}

/// A run, as its events show it.
struct Followed {
    began: Instant,
    used: Used,
    limits: Limits,
    near: Near,
}

impl Notifier {
    /// Starts to notify. Without `report`, problems are noted by [`finish`](Notifier::finish), because the terminal shows
    /// the run until then.
    ///
    /// # Errors
    /// The webhook is not valid.
    pub(crate) fn begin(
        settings: &NotifySettings,
        allow_http: bool,
        report: Option<Report>,
    ) -> Result<Notifier> {
        let webhook = settings.address(allow_http).map_err(Failure::usage)?;
        if settings.command.is_none() && webhook.is_none() {
            return Ok(Notifier::default());
        }
        if let Some(url) = &webhook {
            // The address of a webhook is its key.
            output::hide(&KnownKeys::new([url.as_str(), url.path()]));
        }
        let percentages = settings.percentages();
        let active = Arc::new_cyclic(|active: &std::sync::Weak<Active>| {
            let times = active.clone();
            let look = move || {
                if let Some(active) = times.upgrade() {
                    active.look();
                }
            };
            let sender = Sender::begin(settings.command.clone(), webhook, look, report);
            Active { sender, percentages, runs: Mutex::default() }
        });
        Ok(Notifier(Some(active)))
    }

    /// Notes problems on standard error at once.
    pub(crate) fn on_stderr() -> Report {
        Arc::new(|problem: &str| output::note(&format!("endstop: {problem}")))
    }

    /// Follows the runs of an agent with these limits. `ends` is `false` if the caller reports the endings itself,
    /// because it has more to say about them.
    pub(crate) fn follows(
        &self,
        builder: AgentBuilder,
        limits: &Limits,
        ends: bool,
    ) -> AgentBuilder {
        let Some(active) = self.0.clone() else { return builder };
        let limits = limits.clone();
        builder.on_event(move |event| active.saw(event, &limits, ends))
    }

    /// Follows a guarded run until it has ended, without its ending.
    pub(crate) async fn follow(&self, run: &RunHandle) {
        let Some(active) = &self.0 else { return };
        let (id, near) = (run.record_id(), Mutex::new(Near::default()));
        let look = |run: &RunHandle| {
            let live = run.live();
            let used = Used {
                turns: live.turns,
                cost: live.cost.unwrap_or_default(),
                tokens: live.tokens,
                time: live.elapsed,
            };
            let mut near = near.lock().unwrap_or_else(PoisonError::into_inner);
            active.near(&mut near, &id, &used, &run.limits());
            live.ended.is_some()
        };
        // Time passes without a change of the run.
        while tokio::time::timeout(LOOK_EVERY, run.until(look)).await.is_err() {
            look(run);
        }
        // The ending may be the call that crossed several.
        if let Some(outcome) = run.outcome() {
            let mut near = near.lock().unwrap_or_else(PoisonError::into_inner);
            active.near(&mut near, &id, &Used::by(&outcome), &run.limits());
        }
    }

    /// Notifies of a parked run.
    pub(crate) fn parked(&self, run_id: &str, request: &ParkRequest) {
        if let Some(active) = &self.0 {
            active.sender.send(parked(run_id, request));
        }
    }

    /// Notifies of an ended run.
    pub(crate) fn ended(&self, outcome: &Outcome) {
        if let Some(active) = &self.0 {
            active.sender.send(ended(outcome));
        }
    }

    /// Waits until the notices are delivered, or for a bounded time.
    pub(crate) fn finish(&self) {
        if let Some(active) = &self.0 {
            active.sender.finish();
        }
    }
}

impl Active {
    fn runs(&self) -> MutexGuard<'_, HashMap<String, Followed>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn near(&self, near: &mut Near, run_id: &str, used: &Used, limits: &Limits) {
        for crossing in near.crossed(used.of(limits), &self.percentages) {
            self.sender.send(near::notice(&crossing, run_id));
        }
    }

    /// Looks at the time of each run.
    fn look(&self) {
        for (id, run) in &mut *self.runs() {
            let used = Used { time: run.began.elapsed(), ..run.used };
            let Followed { near, limits, .. } = run;
            self.near(near, id, &used, limits);
        }
    }

    fn saw(&self, event: &AgentEvent, limits: &Limits, ends: bool) {
        // A run inside another one counts in that one.
        if !event.path().is_empty() {
            return;
        }
        let id = event.origin.run_id();
        let mut runs = self.runs();
        if !runs.contains_key(id) {
            let followed = Followed {
                began: Instant::now(),
                used: Used::default(),
                limits: limits.clone(),
                near: Near::default(),
            };
            runs.insert(id.to_owned(), followed);
        }
        let Some(run) = runs.get_mut(id) else { return };
        match &event.kind {
            AgentEventKind::Usage { usage, cost } => {
                run.used.tokens = run.used.tokens.saturating_add(usage.total_tokens());
                run.used.cost = cost.unwrap_or(run.used.cost);
            }
            AgentEventKind::TurnFinished { .. } => run.used.turns += 1,
            AgentEventKind::LimitsChanged { limits } => limits.apply(&mut run.limits),
            AgentEventKind::Parked { request } => {
                if ends {
                    self.sender.send(parked(id, request));
                }
                runs.remove(id);
                return;
            }
            AgentEventKind::Finished { outcome } => {
                let Followed { near, limits, .. } = run;
                self.near(near, id, &Used::by(outcome), limits);
                if ends {
                    self.sender.send(ended(outcome));
                }
                runs.remove(id);
                return;
            }
            _ => return,
        }
        let used = Used { time: run.began.elapsed(), ..run.used };
        let Followed { near, limits, .. } = run;
        self.near(near, id, &used, limits);
    }
}

impl Used {
    fn by(outcome: &Outcome) -> Used {
        Used {
            turns: outcome.turns,
            cost: outcome.cost,
            tokens: outcome.usage.total_tokens(),
            time: outcome.duration,
        }
    }
}
