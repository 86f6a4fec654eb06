//! Runs of this process: their store, their queue, their events, and the tasks that drive them.

mod answer;
mod blocking;
mod branch;
mod deltas;
mod drive;
mod embedded;
mod feed;
mod found;
mod hub;
mod live;
mod metrics;
mod parked;
mod reader;
mod recover;
mod row;
mod shared;
mod store;

pub(crate) use hub::Runs;
pub(crate) use live::Progress;
pub use store::StoreError;
