//! The gatekeeper of a standing proxy: checks the token, chooses the profile, and hands the request
//! to the profile's gate.

use super::profile::{PROFILE_HEADER, Profile, choose};
use super::tokens::{TOKEN_HEADER, Tokens};
use crate::exchange::RunName;
use crate::proxy::{
    Answer, BodyMode, Disposition, Gatekeeper, Notice, RequestBody, RequestHead, Routed,
    UpstreamMap,
};
use crate::run::{
    Gate, GateLine, GuardEvent, Meter, RunHandle, Tally, decide_about, line_of, route_of,
};
use endstop::budget::SharedBudget;
use endstop_wire::redact::Redacted;
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderName, StatusCode};
use std::sync::Arc;

/// The header with the name of a run.
const RUN_HEADER: &str = "x-endstop-run";

/// Events for the owner of a standing proxy. They contain no credentials.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum StandingEvent {
    /// An event of the gate of a profile.
    Gate {
        /// The profile.
        profile: Arc<str>,
        /// The event.
        event: GuardEvent,
    },
    /// A run started.
    Started {
        /// The profile.
        profile: Arc<str>,
        /// The run.
        run: RunHandle,
    },
    /// A request was refused, because it has no valid token or no profile.
    Refused {
        /// The path, without credentials.
        target: Redacted,
        /// The reason.
        reason: Redacted,
    },
}

/// The reason why a request reaches no gate.
enum Refused {
    Token,
    Profile(String),
}

/// Receives the events of a standing proxy, on the task of the request.
pub type Watcher = Arc<dyn Fn(StandingEvent) + Send + Sync>;

/// Puts the calls of many agents under the kernel.
#[derive(Debug, Clone)]
pub struct Standing(Arc<Inner>);

struct Inner {
    tokens: Tokens,
    profiles: Vec<Profile>,
    /// The gate of each profile, in the same order.
    gates: Vec<Gate>,
    watcher: Watcher,
    /// Counts requests that reached no profile.
    unauthorised: Meter,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Standing")
            .field("profiles", &self.profiles)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}

impl Standing {
    /// Creates the gates of the profiles. The salt must be random.
    pub fn new(
        tokens: Tokens,
        profiles: Vec<Profile>,
        upstreams: &UpstreamMap,
        salt: [u8; 16],
        watcher: Watcher,
    ) -> Standing {
        // One gate each, so that no client reaches the runs of another profile by their names.
        let gates = profiles.iter().map(|profile| {
            let name: Arc<str> = profile.name.as_str().into();
            let (hears, starts) = (Arc::clone(&watcher), Arc::clone(&watcher));
            let of_gate = Arc::clone(&name);
            let hear = Arc::new(move |event| {
                hears(StandingEvent::Gate { profile: Arc::clone(&of_gate), event });
            });
            let gate = Gate::new(profile.settings.clone(), upstreams.clone(), salt, hear);
            gate.on_start(Box::new(move |run| {
                starts(StandingEvent::Started { profile: Arc::clone(&name), run: run.clone() });
            }))
        });
        let gates = gates.collect();
        let unauthorised = Meter::default();
        Standing(Arc::new(Inner { tokens, profiles, gates, watcher, unauthorised }))
    }

    /// The gates with the names of their profiles, for what outlives a process: the responses that requests can
    /// continue.
    pub fn gates(&self) -> impl Iterator<Item = (&str, &Gate)> {
        self.0.profiles.iter().map(|profile| profile.name.as_str()).zip(&self.0.gates)
    }

    /// The runs of every profile, with its name.
    pub fn runs(&self) -> Vec<(&str, RunHandle)> {
        let all = self.0.profiles.iter().zip(&self.0.gates);
        all.flat_map(|(profile, gate)| {
            gate.runs().into_iter().map(move |run| (profile.name.as_str(), run))
        })
        .collect()
    }

    /// The counters of each profile, with the number of its calls in flight.
    pub fn tallies(&self) -> Vec<(&str, Tally, usize)> {
        let all = self.0.profiles.iter().zip(&self.0.gates);
        all.map(|(profile, gate)| {
            let in_flight = gate.runs().iter().map(RunHandle::in_flight).sum();
            (profile.name.as_str(), profile.settings.meter.read(), in_flight)
        })
        .collect()
    }

    /// Requests that were refused because they had no valid token or no profile.
    pub fn unauthorised(&self) -> u64 {
        self.0.unauthorised.read().refusals
    }

    /// Returns the tokens.
    pub fn tokens(&self) -> &Tokens {
        &self.0.tokens
    }

    pub(super) fn profiles(&self) -> &[Profile] {
        &self.0.profiles
    }

    /// Forgets a run of a profile.
    pub(super) fn forget(&self, profile: &str, run: &RunHandle) {
        let at = self.0.profiles.iter().position(|known| known.name == profile);
        if let Some(gate) = at.and_then(|at| self.0.gates.get(at)) {
            gate.forget(run);
        }
    }

    /// Puts the runs of a profile that start from now on under a budget.
    pub(super) fn set_budget(&self, at: usize, budget: Option<SharedBudget>) {
        if let Some(gate) = self.0.gates.get(at) {
            gate.renew(|settings| settings.budget = budget);
        }
    }

    /// Returns the position of a request's gate, or the reason why it is refused.
    fn gate(&self, head: &RequestHead, line: &GateLine) -> Result<usize, Refused> {
        let inner = &self.0;
        let token = inner.tokens.of_request(&head.headers);
        if token.is_none() && !inner.tokens.is_empty() {
            return Err(Refused::Token);
        }
        // A value that is not text names no profile, and must not count as no wish.
        let asked =
            head.headers.get(PROFILE_HEADER).map(|value| value.to_str().unwrap_or_default());
        let run = named_run(head, line);
        let chosen = choose(&inner.profiles, run.as_ref().map(RunName::as_str), token, asked);
        chosen.map_err(Refused::Profile)
    }

    fn refuse(&self, head: &RequestHead, refused: &Refused) -> Answer {
        self.0.unauthorised.refused();
        let (status, kind, reason) = match refused {
            Refused::Token => (
                StatusCode::UNAUTHORIZED,
                "authentication_error",
                format!("this proxy requires its own token in the header {TOKEN_HEADER}"),
            ),
            Refused::Profile(reason) => {
                (StatusCode::BAD_REQUEST, "invalid_request_error", reason.clone())
            }
        };
        let target = head.redacted_target();
        (self.0.watcher)(StandingEvent::Refused { target, reason: head.redact(&reason) });
        Answer::error(status, kind, &format!("endstop guard: {reason}"))
    }
}

/// Returns the name that the client gave its run. An invalid one is reported by the gate.
fn named_run(head: &RequestHead, line: &GateLine) -> Option<RunName> {
    let of_path = line.as_ref().ok().and_then(|line| line.run.clone());
    of_path.or_else(|| RunName::new(head.header(RUN_HEADER)?.trim()).ok())
}

/// The gate of a request, with its line, or the reason why it is refused.
pub struct StandingLine(Result<(usize, GateLine), Refused>);

impl Gatekeeper for Standing {
    type Line = StandingLine;

    fn route(&self, head: &RequestHead) -> Routed<StandingLine> {
        let line = line_of(head);
        match self.gate(head, &line) {
            Ok(at) => {
                let Routed { route, line } = route_of(&self.0.gates[at], head, line);
                Routed { route, line: StandingLine(Ok((at, line))) }
            }
            // Without a right to a call, its body is not read.
            Err(refused) => Routed { route: BodyMode::Refuse, line: StandingLine(Err(refused)) },
        }
    }

    async fn decide(
        &self,
        head: Arc<RequestHead>,
        line: StandingLine,
        body: RequestBody,
    ) -> Disposition {
        let (at, line) = match line.0 {
            Ok(chosen) => chosen,
            Err(refused) => return Disposition::Answer(self.refuse(&head, &refused)),
        };
        let mut decision = decide_about(&self.0.gates[at], &head, &line, &body).await;
        if let Disposition::Forward(forward) = &mut decision {
            // They are for this proxy, and the token is a secret.
            for name in [TOKEN_HEADER, PROFILE_HEADER, RUN_HEADER] {
                forward.headers.push((HeaderName::from_static(name), None));
            }
            forward.headers.push((PROXY_AUTHORIZATION, None));
        }
        decision
    }

    fn notice(&self, notice: Notice) {
        match notice {
            // Refused by the proxy itself, before a profile was known.
            Notice::Refused { .. } => self.0.unauthorised.refused(),
            Notice::Stranger { reason, .. } => {
                self.0.unauthorised.refused();
                // Both are constants.
                let (target, reason) = (Redacted::exempt("a client"), Redacted::exempt(reason));
                (self.0.watcher)(StandingEvent::Refused { target, reason });
            }
            Notice::BodyCut { .. } | Notice::Accept { .. } => {}
        }
    }
}
