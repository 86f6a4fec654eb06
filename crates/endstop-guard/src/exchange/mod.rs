//! The pure part of guard: reads a client's request, decides which run, thread and turn it
//! belongs to, and writes answers in the client's format.
//!
//! Nothing here does I/O, reads a clock or draws random numbers. Salts, ids and times come in with
//! the calls. Requests are hostile: every table and every text is bounded.
//!
//! | task | item |
//! |---|---|
//! | Understand a method and a path | [`route()`] |
//! | Read the headers, without their secrets | [`ClientFacts`] |
//! | Read the body of a model call | [`Request`] |
//! | Find credentials in a body, so that they can be redacted | [`each_in_body()`] |
//! | Read the fields of a form | [`form_values()`] |
//! | Find the run, the thread, the turn and the kind of a call | [`Threads`] |
//! | Leave out of a result what differs each time | [`steady()`] |
//! | Answer in the client's format | [`answer`] |
//! | Lower the output cap of a body | [`cap_output`] |
//!
//! ```
//! use endstop_guard::exchange::{ClientFacts, Kind, Request, Salt, Threads, route};
//! let salt = Salt::new([7; 16]); // random in a real process
//! let mut threads = Threads::new(salt.clone());
//! let target = "/run/nightly/v1/chat/completions";
//! let body = br#"{"model":"m","tools":[{"function":{"name":"bash"}}],
//!                 "messages":[{"role":"user","content":"Fix the test."}]}"#;
//! let route = route("POST", target)?;
//! let facts = ClientFacts::read([("authorization", &b"Bearer secret"[..])], target, &salt);
//! let request = Request::read(&route, body)?;
//! let placed = threads.place(&facts, &route, &request)?;
//! assert_eq!(placed.seat.run.id(), "nightly");
//! assert_eq!((placed.kind, placed.turn), (Kind::Main, 1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod answer;
mod body_keys;
mod bounded_map;
mod digest;
mod request;
mod route;
mod run_name;
mod signs;
mod strict;
mod threads;

pub use body_keys::{each_in_body, form_boundary, form_values};
pub use digest::{Fingerprint, Salt, steady};
pub use request::{CapError, Request, Structured, Unreadable, cap_output};
pub use route::{Call, Delivery, Metered, Route, RouteError, owner, route};
pub use run_name::{ClientId, InvalidRunName, RunName};
pub use signs::{CLIENTS, Client, ClientFacts, Sign, Signs};
pub use threads::{
    Attempt, History, Kind, Placed, RunKey, RunSource, Seat, ThreadId, Threads, ToolAnswer,
};
