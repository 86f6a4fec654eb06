//! Guard: a transparent reverse proxy that puts any agent program under the kernel's limits.
//!
//! An agent program (a coding agent, a script with an SDK) is given the proxy's address instead of
//! its provider's. Requests and responses pass unchanged; copies go to the decoders of
//! [`endstop_wire`], and what they say goes to one kernel run for each conversation of the agent.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod answer;
pub mod clients;
pub mod exchange;
pub mod process;
pub mod proxy;
pub mod run;
pub mod standing;
