//! Messages and changes of limits while a run works.
//!
//! ```text
//! let plan = Plan::new(&mut dice, verifies);
//! tokio::select! { outcome = run => …, () = plan.perform(&steering, &user) => {} }
//! assert!(user.said().iter().all(|text| outcome_has(text)));
//! ```

use crate::dice::Dice;
use crate::tally::Tally;
use endstop::agent::SteerError;
use endstop::{LimitChanges, Limits, Steering};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

enum Action {
    Say(String),
    Change(LimitChanges),
}

/// The actions of the user during one part of a run, each with the time after the one before it.
pub(crate) struct Plan(Vec<(Duration, Action)>);

/// The messages and limits of its user that a run has accepted.
pub(crate) struct User {
    tally: Arc<Tally>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    said: Vec<String>,
    /// The limits that were in force, one after the other.
    limits: Vec<Limits>,
}

impl User {
    pub(crate) fn new(tally: &Arc<Tally>) -> User {
        User { tally: Arc::clone(tally), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the messages that were accepted.
    pub(crate) fn said(&self) -> Vec<String> {
        self.state().said.clone()
    }

    /// Notes a message as accepted.
    pub(crate) fn note(&self, text: String) {
        self.state().said.push(text);
    }

    /// Returns all limits that were in force.
    pub(crate) fn limits(&self) -> Vec<Limits> {
        self.state().limits.clone()
    }

    /// Adds limits that are in force from now on.
    pub(crate) fn under(&self, limits: Limits) {
        self.state().limits.push(limits);
    }
}

impl Plan {
    pub(crate) fn new(dice: &mut Dice) -> Plan {
        let number = if dice.percent(30) { dice.between(1, 3) } else { 0 };
        let action = |_| {
            let after = Duration::from_micros(dice.below(40_000));
            if dice.percent(60) {
                return (after, Action::Say(format!("message {}", dice.below(u64::MAX))));
            }
            let (name, value) = change(dice);
            // Each value is valid for its limit; an error would leave the limits as they are.
            let changes = LimitChanges::new().set(name, value).unwrap_or_default();
            (after, Action::Change(changes))
        };
        Plan((0..number).map(action).collect())
    }

    /// Performs the actions, and never returns.
    pub(crate) async fn perform(self, steering: Steering, user: &User) {
        for (after, action) in self.0 {
            tokio::time::sleep(after).await;
            match action {
                Action::Say(text) => match steering.say(&text) {
                    Ok(()) => {
                        user.tally.acted("says");
                        user.note(text);
                    }
                    Err(error) => user.refused(&error),
                },
                Action::Change(changes) => {
                    let mut limits = steering.limits();
                    changes.apply(&mut limits);
                    // Before, because the run may end by them at once.
                    user.under(limits);
                    match steering.set_limits(changes) {
                        Ok(()) => user.tally.acted("changes limits"),
                        Err(error) => user.refused(&error),
                    }
                }
            }
        }
        std::future::pending::<()>().await;
    }
}

impl User {
    fn refused(&self, error: &SteerError) {
        match error {
            SteerError::Ended => self.tally.acted("steers a run that has ended"),
            SteerError::Parked => self.tally.acted("steers a run that is parked"),
            SteerError::Limit(_) => self.tally.acted("sets an impossible limit"),
            other => self.tally.broken(&format!("a message was refused: {other}")),
        }
    }
}

fn change(dice: &mut Dice) -> (&'static str, Value) {
    match dice.below(9) {
        0 | 1 => ("max_turns", json!(dice.between(1, 8))),
        2 => ("timeout", json!(format!("{}ms", dice.between(20, 400)))),
        3 => ("max_tokens", json!(dice.between(300, 20_000))),
        4 => ("max_budget_usd", json!(dice.between(1, 40) as f64 / 10_000.0)),
        5 => ("tool_timeout", json!(format!("{}ms", dice.between(20, 60)))),
        6 => ("verify_rounds", json!(dice.between(1, 4))),
        7 => ("wrap_up", json!(false)),
        _ => ("tool_concurrency", json!(dice.between(1, 4))),
    }
}
