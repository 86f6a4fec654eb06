//! A standing proxy: many agents and machines behind one address.
//!
//! ```text
//! request ─► guard.rs: token ─► profile ─► the profile's Gate ─► kernel
//!               keeper.rs: idle runs, the ceilings of periods
//! GET /metrics ─► scrape.rs ─► metrics.rs ◄─ counters of each profile
//! ```
//!
//! Each profile has a gate of its own, so runs with the same name under two profiles are two runs,
//! and the clients of one profile cannot reach the runs of another.

mod file;
mod guard;
mod keeper;
mod metrics;
mod profile;
mod scrape;
mod tokens;
mod toml;

pub use file::StandingFile;
pub use guard::{Standing, StandingEvent, Watcher};
pub use keeper::{Hour, Keeper, KeeperError, OpenBudget};
pub use metrics::render;
pub use profile::{PROFILE_HEADER, Profile, choose};
pub use scrape::serve_metrics;
pub use tokens::{TOKEN_HEADER, TokenError, Tokens};
