//! Runs: their store, their queue, their events, and the tasks that drive them.

mod branch;
mod drive;
mod feed;
mod found;
mod frame;
mod hub;
mod live;
mod parked;
mod recover;
mod request;
mod shared;
mod store;

pub(crate) use feed::{Cursor, Next};
pub(crate) use frame::{Frame, Story, event_of};
pub(crate) use hub::{Created, Refused, Runs, StopError};
pub(crate) use live::{Live, Progress};
pub(crate) use parked::Undecided;
pub(crate) use request::{BranchBody, Origin, RunBody, RunRequest};
pub use store::StoreError;
pub(crate) use store::{Filter, RunRow, RunState, Stop};
