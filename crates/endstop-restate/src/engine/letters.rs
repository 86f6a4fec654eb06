//! Letters to a run: numbered promises of its workflow. The worker that drives the run waits for the next
//! one, and the workflow answers each with the step that has the decision.
//!
//! | promise | value | resolved by |
//! |---|---|---|
//! | `letter-N` | [`Slot`]: the letter, or the end of the run | `steer`, and the end of the workflow |
//! | `steered-N` | `null`, or a [`Refusal`](crate::Refusal) | the workflow, after the step with the decision |

use super::shared::Shared;
use crate::letter::Letter;
use crate::letterbox::Steerer;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The largest number of letters to a run, because each new one is compared with those before it.
pub(super) const MOST_LETTERS: u64 = 256;

/// The longest message in bytes: that of a run.
pub(super) const MOST_TEXT: usize = 64 << 10;

/// The value of the promise of a letter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Slot {
    /// A letter.
    Letter(Letter),
    /// The run has ended, so that it takes no letter with this number or a higher one.
    Over,
}

/// Returns the promise of a letter.
pub(super) fn letter(number: u64) -> String {
    format!("letter-{number}")
}

/// Returns the promise of the decision about a letter.
pub(super) fn steered(number: u64) -> String {
    format!("steered-{number}")
}

/// Ends what waits for letters of a run that has ended, from a number on: refuses the letters that the run
/// has not decided, and closes the number after them. A letter whose decision is there keeps it.
macro_rules! close_letters {
    ($ctx:expr, $from:expr) => {{
        let mut number: u64 = $from;
        loop {
            let promise = $crate::engine::letters::letter(number);
            $ctx.resolve_promise(&promise, Json($crate::engine::letters::Slot::Over));
            // A letter that came before keeps the number.
            let Json(slot) = $ctx.promise::<Json<$crate::engine::letters::Slot>>(&promise).await?;
            if slot == $crate::engine::letters::Slot::Over {
                break;
            }
            let refusal = Some($crate::letter::Refusal::ended());
            $ctx.resolve_promise(&$crate::engine::letters::steered(number), Json(refusal));
            number += 1;
        }
    }};
}
pub(super) use close_letters;

/// The first and the longest delay before the engine is asked again.
const DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Passes letters to the run on, from a number on, until the run has ended. An engine that does not answer is
/// asked again.
pub(super) async fn pass_on(shared: Arc<Shared>, run: String, from: u64, steerer: Steerer) {
    let path = format!("/EndstopRun/{run}/letter");
    for number in from.. {
        let mut delay = DELAYS.0;
        let slot = loop {
            match shared.client.post::<Slot>(&path, &number).await {
                Ok(slot) => break slot,
                Err(_) => tokio::time::sleep(delay).await,
            }
            delay = DELAYS.1.min(delay * 2);
        };
        match slot {
            Slot::Letter(letter) => steerer.send(number, letter.content),
            Slot::Over => return,
        }
    }
}
