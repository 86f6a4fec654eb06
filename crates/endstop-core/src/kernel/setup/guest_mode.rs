//! The vocabulary of guest runs: the abilities of a driver that does not own the loop, and the model
//! call that it reports.
//!
//! ```
//! use endstop_core::{GuestCall, GuestMode, Limits, Message, RunSpec};
//! let spec = RunSpec { guest: Some(GuestMode::default()), ..RunSpec::default() };
//! assert!(!spec.guest.unwrap().inject, "a guest that can only observe and stop");
//! let call = GuestCall { input: vec![Message::user("Hello")], prompt_bytes: 120, ..GuestCall::default() };
//! assert!(!call.attempt_of_previous);
//! ```

use crate::limits::{InGuest, LimitError, LimitRow, LimitValue, Limits, TABLE};
use crate::message::Message;
use crate::price::Price;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The abilities of a guest: a driver that does not own the loop. It observes model calls and tool
/// results, and may only answer "continue" or "stop, and why".
///
/// Each field is a capability that the guest was granted; by default it has none. The kernel
/// requests no effect that needs a capability which is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestMode {
    /// `true` if the guest can add a message to the next call. If off, nudges, repairs,
    /// continuations and notes of policies are dropped.
    pub inject: bool,
    /// `true` if the guest can add a line to the next request, and nothing else: warnings of limits.
    #[serde(skip_serializing_if = "is_false")]
    pub warns: bool,
    /// `true` if the guest can make a model call that the kernel requests: retries and re-calls. If
    /// off, a failed attempt waits for the client's own retry.
    pub retry: bool,
    /// `true` if the guest enforces the timeouts of calls and tools. If off, only the run's own
    /// `timeout` and that of reasoning apply.
    pub clocks: bool,
    /// `true` if the guest lowers the output cap of a call as requested, so that ceilings are
    /// strict. If off, a call is metered while it streams, and aborted at the ceiling.
    pub capped: bool,
    /// `true` if the guest holds a call back until [`Guest::pause`](crate::guest::Guest::pause) returns none.
    #[serde(skip_serializing_if = "is_false")]
    pub waits: bool,
    /// `true` if the guest keeps the conversation itself, or needs none: the run, and so its outcome,
    /// has the messages of the last turn only. A long run then takes little memory.
    #[serde(skip_serializing_if = "is_false")]
    pub forgets: bool,
    /// `true` if the run keeps none of the client's messages, and drops the turn before a response when
    /// that has arrived: a run that waits for its client then takes little memory, too.
    #[serde(skip_serializing_if = "is_false")]
    pub forgets_input: bool,
}

/// What the kernel may ask of a driver. One that owns the loop can do all of it, and a guest what its
/// [`GuestMode`] grants.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Capability {
    /// Own the loop: run the tools, decide when the model is called, end when the run ends.
    Loop,
    /// Add a message to the conversation.
    Inject,
    /// Add a line to the next request.
    Warn,
    /// Repeat a model call.
    Retry,
    /// Enforce the timeouts of calls and tools.
    Clocks,
    /// Lower the output cap of a call.
    Cap,
    /// Hold a call back.
    Wait,
    /// Have the run store the messages of earlier turns.
    EarlierTurns,
    /// Have the run store the messages that are sent to the model.
    Input,
}

impl GuestMode {
    /// `true` if the guest has the capability.
    pub(super) fn grants(self, capability: Capability) -> bool {
        match capability {
            Capability::Loop => false,
            Capability::Inject => self.inject,
            Capability::Warn => self.inject || self.warns,
            Capability::Retry => self.retry,
            Capability::Clocks => self.clocks,
            Capability::Cap => self.capped,
            Capability::Wait => self.waits,
            Capability::EarlierTurns => !self.forgets,
            Capability::Input => !self.forgets_input,
        }
    }

    /// Returns an error for the first limit that was set and has no effect on a guest with these
    /// capabilities. Drivers refuse such a limit, because the user would rely on it. The default,
    /// off and 0 are accepted.
    ///
    /// # Errors
    /// Names the limit, and the capability that it needs.
    ///
    /// ```
    /// use endstop_core::{GuestMode, Limits};
    /// let observer = GuestMode::default();
    /// assert!(observer.check(&Limits { max_turns: Some(50), ..Limits::default() }).is_ok());
    /// let rounds = Limits { verify_rounds: Some(3), ..Limits::default() };
    /// assert_eq!(observer.check(&rounds).unwrap_err().key, "verify_rounds");
    /// ```
    pub fn check(self, limits: &Limits) -> Result<(), LimitError> {
        let default = Limits::default();
        let asked = |row: &&LimitRow| {
            let value = row.value(limits);
            let nothing = [
                LimitValue::Off,
                LimitValue::Count(0),
                LimitValue::Time(Duration::ZERO),
                row.value(&default),
            ];
            !nothing.contains(&value)
        };
        TABLE.iter().filter(asked).try_for_each(|row| match self.obstacle(row) {
            Some(obstacle) => Err(LimitError { key: row.name.into(), problem: obstacle.into() }),
            None => Ok(()),
        })
    }

    /// Returns the reason why the limit has no effect on this guest.
    pub fn obstacle(self, limit: &LimitRow) -> Option<&'static str> {
        match limit.in_guest {
            InGuest::Injecting if !self.inject => {
                Some("has no effect, because no message can be added to the program's requests")
            }
            InGuest::Warning if !self.inject && !self.warns => {
                Some("has no effect, because no line can be added to the program's requests")
            }
            InGuest::Retrying if !self.retry => {
                Some("has no effect, because the program repeats its requests itself")
            }
            InGuest::Timing if !self.clocks => Some(
                "has no effect, because the program measures its calls itself; `timeout` limits the whole run",
            ),
            InGuest::Waiting if !self.waits => {
                Some("has no effect, because the program's calls cannot be held back")
            }
            InGuest::Never => Some(
                "has no effect, because the program has its own loop; only an `Agent` of Endstop applies it",
            ),
            _ => None,
        }
    }

    /// Switches off the limits that need a capability which the guest does not have.
    pub(crate) fn restrict_limits(self, limits: &mut Limits) {
        if !self.inject {
            limits.max_continuations = 0;
        }
        if !self.retry {
            (limits.max_retries, limits.retry_for) = (Some(0), Some(Duration::ZERO));
        }
        if !self.clocks {
            limits.turn_timeout = None;
            limits.first_content_timeout = None;
            limits.stall_timeout = None;
            limits.tool_timeout = None;
        }
    }
}

/// A model call that the client of a guest is about to make.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestCall {
    /// The messages that are new since the previous call, without the model's own turns and without
    /// messages that the kernel injected. Ids are assigned by the run. Tool results answer the open
    /// calls with the same id; results of other calls are dropped.
    pub input: Vec<Message>,
    /// Upper bound on the tokens of the whole prompt, for example the bytes of the request without
    /// the data of images, plus what the server stores of earlier requests.
    pub prompt_bytes: u64,
    /// The output cap in the request; `None`: the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_cap: Option<u64>,
    /// The reasoning budget in the request (0: none). The output cap is never lowered below it.
    #[serde(skip_serializing_if = "is_zero")]
    pub thinking_budget: u64,
    /// The requested model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Price of this call; `None`: the price given at the start of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<Price>,
    /// `true` if the response is streamed.
    pub streaming: bool,
    /// `true` if the request equals the previous one, byte for byte. The call is then another
    /// attempt at the same turn.
    #[serde(skip_serializing_if = "is_false")]
    pub attempt_of_previous: bool,
    /// `true` if a person works with the program, and may have asked for something else after a refusal of the model.
    #[serde(skip_serializing_if = "is_false")]
    pub attended: bool,
    /// Turns of other conversations that are in flight. They count towards `max_turns` when this call is
    /// admitted, and are reported with [`EventKind::Spent`](crate::EventKind::Spent) once they are turns.
    #[serde(skip_serializing_if = "is_none")]
    pub turns_in_flight: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_none(value: &u32) -> bool {
    *value == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_false(value: &bool) -> bool {
    !*value
}
