//! Verifiers: judge the answer of a run before it ends as a success.
//!
//! ```
//! use endstop::testkit::{ScriptedModel, Turn};
//! use endstop::verifier::Verification;
//! use endstop::{Agent, Limits};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = ScriptedModel::new([Turn::text("3"), Turn::text("4")]);
//! let agent = Agent::builder(model)
//!     .verifier(|answer: Option<String>| async move {
//!         match answer.as_deref() {
//!             Some("4") => Verification::accepted(),
//!             _ => Verification::rejected("2 + 2 is not that"),
//!         }
//!     })
//!     // The model reads why an answer was rejected, and may try again.
//!     .limits(Limits { verify_rounds: Some(3), ..Limits::default() })
//!     .build()?;
//! let outcome = agent.run("What is 2 + 2?")?.outcome().await;
//! assert_eq!((outcome.verified, outcome.verify_rounds.len()), (Some(true), 2));
//! # Ok(()) }
//! ```

use endstop_process::{Capture, CommandLine, StopTokens, environment_secrets};
use std::fmt::Write as _;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;

/// Number of bytes that are stored of each end of a verifier's output. The model receives at most
/// half of it.
const KEPT: usize = 16 * 1024;

/// A verdict on an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verification {
    /// `true` if the answer is accepted.
    pub passed: bool,
    /// The reason. The model reads it if the answer is rejected; a long text loses its middle.
    pub output: String,
}

impl Verification {
    /// Accepts the answer.
    pub fn accepted() -> Verification {
        Verification { passed: true, output: String::new() }
    }

    /// Rejects the answer for this reason.
    pub fn rejected(reason: impl Into<String>) -> Verification {
        Verification { passed: false, output: reason.into() }
    }

    /// Sets the output, also that of an accepted answer.
    #[must_use]
    pub fn output(mut self, output: impl Into<String>) -> Verification {
        self.output = output.into();
        self
    }
}

/// The future of a verdict.
pub type VerificationFuture<'a> = Pin<Box<dyn Future<Output = Verification> + Send + 'a>>;

/// Judges an answer. A closure from the answer to a future of a [`Verification`] is a verifier, too.
///
/// The verifier of a run whose process died is called again when the run is resumed, so it should
/// have no effects of its own.
pub trait Verifier: Send + Sync {
    /// Returns the verdict on this answer; `None` if the run has no text. The future is dropped if
    /// the run ends first, or after [`verify_timeout`](crate::Limits::verify_timeout).
    fn verify(&self, answer: Option<String>) -> VerificationFuture<'_>;
}

impl<F, V> Verifier for F
where
    F: Fn(Option<String>) -> V + Send + Sync,
    V: Future<Output = Verification> + Send + 'static,
{
    fn verify(&self, answer: Option<String>) -> VerificationFuture<'_> {
        Box::pin(self(answer))
    }
}

/// A verifier that runs a command: exit status 0 accepts the answer, any other rejects it with the
/// command's output. It sees the whole environment, and the values of variables that look like secrets
/// are removed from its output. All processes of the command end with the verification.
///
/// ```
/// use endstop::verifier::CommandVerifier;
/// let verifier = CommandVerifier::new("cargo test").in_dir("/src/project");
/// # let _ = verifier;
/// ```
#[derive(Clone, Debug)]
pub struct CommandVerifier {
    command: String,
    dir: Option<PathBuf>,
}

impl CommandVerifier {
    /// Creates a verifier from a command line for the shell.
    pub fn new(command: impl Into<String>) -> CommandVerifier {
        CommandVerifier { command: command.into(), dir: None }
    }

    /// Returns `true` if the command is blank: it has only spaces and comments of the shell, for
    /// example because a variable was empty. A shell would report success without a check, so a
    /// blank command rejects every answer.
    pub fn is_blank(&self) -> bool {
        self.command.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#'))
    }

    /// Runs the command in this folder.
    #[must_use]
    pub fn in_dir(mut self, dir: impl Into<PathBuf>) -> CommandVerifier {
        self.dir = Some(dir.into());
        self
    }

    async fn run(&self) -> Verification {
        if self.is_blank() {
            return Verification::rejected(
                "the verifier's command is blank, so nothing was checked",
            );
        }
        let mut line = CommandLine::new(&self.command).whole_environment();
        if let Some(dir) = &self.dir {
            line = line.in_dir(dir);
        }
        // No stop token: dropping the future kills the command with its processes.
        let done = match line.run(&StopTokens::never()).await {
            Ok(done) => done,
            // A verifier that cannot start accepts nothing.
            Err(error) => {
                let command = &self.command;
                return Verification::rejected(format!(
                    "{command:?} could not be started: {error}"
                ));
            }
        };
        let mut output = done.output.text();
        if !done.success() {
            let newline = if output.is_empty() || output.ends_with('\n') { "" } else { "\n" };
            let _ = write!(output, "{newline}[{}]", done.how());
        }
        for pid in &done.left {
            let _ = write!(output, "\n[process {pid} could not be killed]");
        }
        // The output goes to the model's server.
        let output = environment_secrets().out_of_text(&output).into_owned();
        Verification { passed: done.success(), output }
    }
}

impl Verifier for CommandVerifier {
    fn verify(&self, _answer: Option<String>) -> VerificationFuture<'_> {
        Box::pin(self.run())
    }
}

/// Returns an output that may be journalled: a longer one loses its middle.
pub(crate) fn bounded(output: String) -> String {
    if output.len() <= 2 * KEPT {
        return output;
    }
    let mut capture = Capture::keeping(KEPT);
    capture.take(output.as_bytes());
    capture.text()
}
