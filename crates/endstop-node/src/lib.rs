//! Node.js bindings of Endstop: detection of why a model's turn ended, and runs of other frameworks
//! under the kernel.
//!
//! The bindings own no loop, no socket, no thread and no clock: the time comes in with each call. A
//! program feeds a `run::NativeRun` with the model's responses, as bytes, and gets plain objects
//! back, which the JavaScript half freezes.
//!
//! The JavaScript half is in `ts`; its `index.ts` lists the public names.

#![cfg_attr(test, allow(dead_code, reason = "`#[napi]` exports nothing from a test build"))]

mod code_policy;
mod decoder;
mod describe;
mod detection;
mod errors;
mod fields;
mod limits;
mod outcome;
mod policy;
mod price;
mod redact;
mod response;
mod run;
mod run_input;
mod slot;
mod verdict;
