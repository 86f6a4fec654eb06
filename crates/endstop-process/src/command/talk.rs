//! Runs a command with which the host exchanges data in both directions, as with an MCP server. Its
//! process tree is killed as that of every command.
//!
//! ```text
//! let Talk { mut command, input, output, errors } = talk::start(&CommandLine::new("cat"))?;
//! input.write_all(b"hello\n").await?; // dropping it is the end of the command's input
//! command.ask(); // SIGTERM; dropping it kills
//! let how = command.ended().await; // "exit status 0"
//! ```

use super::CommandLine;
use super::finished::how;
use super::pipe::into_stdout;
use super::running::Running;
use crate::ended::Exit;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::process::ChildStdout;

/// A running command and its three streams.
pub struct Talk {
    /// Ends the command, and reports how it ended.
    pub command: KillOnDrop,
    /// The command's standard input. Dropping it closes the input.
    pub input: Box<dyn AsyncWrite + Send + Unpin>,
    /// The command's standard output.
    pub output: Box<dyn AsyncRead + Send + Unpin>,
    /// The command's standard error.
    pub errors: ChildStdout,
}

/// Handle of a running command. Dropping it kills the command at once.
#[derive(Debug)]
pub struct KillOnDrop {
    running: Running,
    exit: Exit,
}

impl KillOnDrop {
    /// Asks every process of the command's group to end.
    pub fn ask(&self) {
        self.running.ask();
    }

    /// Kills the command and everything that it started.
    pub fn kill(&self) {
        self.running.kill();
    }

    /// Waits until the command has ended and its remaining processes are dead, and describes how it
    /// ended. The future may be dropped and the method called again until it has returned once.
    pub async fn ended(&mut self) -> String {
        match (&mut self.exit).await {
            Ok(ended) => match ended.status {
                Ok(status) => how(status, &ended.left, ended.orphans),
                Err(error) => format!("it could not be started: {error}"),
            },
            Err(_) => "its exit status is unknown".to_owned(),
        }
    }
}

/// Starts a command, connected to this process.
///
/// # Errors
/// The command could not be started. With a keeper, [`KillOnDrop::ended`] may report that instead.
///
/// # Panics
/// Outside of a tokio runtime with I/O.
#[cfg(unix)]
pub fn start(line: &CommandLine) -> io::Result<Talk> {
    let mut starting = line.starting()?;
    // One socket for both directions, because a keeper has only one descriptor to pass on.
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    starting.talk_over(theirs.into())?;
    let (errors, their_errors) = io::pipe()?;
    starting.command().stderr(their_errors);
    ours.set_nonblocking(true)?;
    let (output, input) = tokio::net::UnixStream::from_std(ours)?.into_split();
    let errors = ChildStdout::from_std(into_stdout(errors))?;
    let (running, exit) = starting.start()?;
    let command = KillOnDrop { running, exit };
    Ok(Talk { command, input: Box::new(input), output: Box::new(output), errors })
}

/// Starts a command, connected to this process.
///
/// # Errors
/// The command could not be started.
///
/// # Panics
/// Outside of a tokio runtime with I/O.
#[cfg(windows)]
pub fn start(line: &CommandLine) -> io::Result<Talk> {
    let mut starting = line.starting()?;
    let (theirs, input) = io::pipe()?;
    let (output, their_output) = io::pipe()?;
    let (errors, their_errors) = io::pipe()?;
    starting.command().stdin(theirs).stdout(their_output).stderr(their_errors);
    let input: std::process::ChildStdin = std::os::windows::io::OwnedHandle::from(input).into();
    let input = tokio::process::ChildStdin::from_std(input)?;
    let output = ChildStdout::from_std(into_stdout(output))?;
    let errors = ChildStdout::from_std(into_stdout(errors))?;
    let (running, exit) = starting.start()?;
    let command = KillOnDrop { running, exit };
    Ok(Talk { command, input: Box::new(input), output: Box::new(output), errors })
}
