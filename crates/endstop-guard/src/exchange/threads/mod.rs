//! The table of threads: which run, thread and turn a request belongs to.
//!
//! | file | content |
//! |---|---|
//! | `table` | [`Threads`]: places requests, and learns from responses |
//! | `links` | ids of calls and responses, and prompts of sub-agents, with their threads |
//! | `state` | one thread: its last request, its open calls; hashes of a request, to compare it with the one before |
//! | `opening` | the beginning of a history, and requests for a summary |
//! | `seat` · `placed` | the run and the thread of a call, which its client may name; the result of placing a request |

mod links;
mod opening;
mod placed;
mod seat;
mod state;
mod table;

pub use placed::{Attempt, History, Kind, Placed, ToolAnswer};
pub use seat::{RunKey, RunSource, Seat, ThreadId};
pub use table::Threads;
