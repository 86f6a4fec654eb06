//! Answers of guard itself, each in the client's format and delivery.
//!
//! | answer | use |
//! |---|---|
//! | [`final_turn`] | the quickest clean stop: the client prints the text and ends, with exit status 0 |
//! | [`refusal`] | a stop that the client reports as an error, after one call |
//! | [`upgrade_required`] | a WebSocket is not available; codex then uses HTTP at once |
//! | [`bad_request`] | a request line or a run name that guard does not accept |
//! | [`Tail`] | the end of a stream that was cut while it wrote text |
//!
//! A stop never has a status of 401, 413, 429 or 5xx, because clients retry these, or compact their
//! history and continue.

mod deliver;
mod refusal;
mod reply;
mod tail;
mod turns;

pub use refusal::{bad_request, refusal, unknown_response, upgrade_required};
pub use reply::{Answer, Reply, Stamp, stop_message};
pub use tail::{Ending, Tail};
pub use turns::final_turn;
