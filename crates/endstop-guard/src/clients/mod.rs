//! Client programs: how each is pointed at the proxy, and which upstream its user has chosen.
//!
//! ```
//! use endstop_guard::clients::{NoFiles, Request, wire};
//! use endstop_wire::WireFormat;
//! use std::path::Path;
//!
//! let wiring = wire(&Request {
//!     command: &["codex".into(), "exec".into(), "fix the test".into()],
//!     environment: &[("OPENAI_BASE_URL".into(), "https://gateway.example/v1".into())].into(),
//!     folder: Path::new("/src"),
//!     proxy: "http://127.0.0.1:4000/run/r1",
//!     private: Path::new("/tmp/endstop-r1"),
//!     is_strict: false,
//!     files: &NoFiles,
//! });
//! // codex ignores the variable, so it also gets an option.
//! assert_eq!(wiring.command[2], *r#"openai_base_url="http://127.0.0.1:4000/run/r1/v1""#);
//! assert_eq!(wiring.variable("ANTHROPIC_BASE_URL"), Some("http://127.0.0.1:4000/run/r1"));
//! // An SDK script that codex starts does not ignore it.
//! assert_eq!(wiring.upstream(WireFormat::OpenAiChat), Some("https://gateway.example/v1"));
//! ```
//!
//! The variables are set for every program, because a script may start a client. Options and
//! temporary files are only for programs that are known by name ([`CLIENTS`]). No file of the user
//! is changed.
//!
//! An upstream gets the user's key. Therefore only the user may name it: in the environment, in the
//! command line, or in the user's own configuration. A configuration file in the working folder
//! comes from a repository. It is reported ([`Warning::RepositoryUpstream`]) and overridden.

mod aider;
mod aws_keys;
mod aws_profile;
mod claude;
mod codex;
mod command;
mod copilot;
mod gemini;
mod opencode;
mod parse;
mod pi;
mod plan;
mod qwen;
mod recognise;
mod request;
mod shell;
mod table;
mod variables;
mod wiring;

pub use aws_keys::AwsKeys;
#[cfg(feature = "bedrock")]
pub(crate) use aws_profile::AwsKey;
pub use request::{DiskFiles, Files, NoFiles, Request};
pub use shell::{Shell, UnknownShell, print_env};
pub use table::{CLIENTS, Client};
pub use wiring::{Mirror, Source, TempFile, Unguardable, Warning, Wiring};

/// Returns the name of the client that a command starts, if its calls may go around the proxy although the variables
/// of the wiring are set: it does not read them, or a file of the user names another address.
///
/// ```
/// use endstop_guard::clients::{NoFiles, Request, goes_around};
/// use std::path::Path;
/// let around = |program: &str| goes_around(&Request {
///     command: &[program.into()],
///     environment: &[("GEMINI_API_KEY".into(), "key".into())].into(),
///     folder: Path::new("/src"),
///     proxy: "http://127.0.0.1:4000/run/r1",
///     private: Path::new("/tmp"),
///     is_strict: false,
///     files: &NoFiles,
/// });
/// assert_eq!((around("codex"), around("gemini"), around("make")), (Some("codex"), None, None));
/// ```
pub fn goes_around(request: &Request<'_>) -> Option<&'static str> {
    let (client, command) = recognise::recognise(request.command);
    let client = client?;
    // A command that names an address of this machine was pointed at a proxy, for example by a guard of its own.
    let is_pointed = |word: &std::ffi::OsString| {
        let word = word.to_string_lossy();
        ["http://127.0.0.1:", "http://localhost:"].iter().any(|local| word.contains(local))
    };
    if command.words.iter().any(is_pointed) || recognise::makes_no_run(Some(client), &command) {
        return None;
    }
    let wiring = wire(request);
    let by_file = wiring.upstreams.iter().any(|(_, _, source)| matches!(source, Source::File(_)));
    let goes =
        !client.reads_variables || by_file || wiring.warnings.iter().any(Warning::is_unguarded);
    goes.then_some(client.name)
}

/// Decides how a command is pointed at the proxy. Pure: everything that it depends on is in the
/// request.
pub fn wire(request: &Request<'_>) -> Wiring {
    let (client, command) = recognise::recognise(request.command);
    let makes_no_run = recognise::makes_no_run(client, &command);
    let mut plan = plan::Plan::new(request, command);
    plan.wiring.client = client.map(|client| client.name);
    plan.wiring.is_agent = client.is_some_and(|client| client.offers_tools);
    plan.wiring.resume = client.map(|client| client.resume).filter(|command| !command.is_empty());
    plan.wiring.submits_with =
        client.map(|client| client.submits_with).filter(|word| !word.is_empty());
    plan.wiring.makes_no_run = makes_no_run;
    variables::set(&mut plan);
    if let Some(client) = client {
        (client.wire)(&mut plan);
    }
    plan.finish()
}
