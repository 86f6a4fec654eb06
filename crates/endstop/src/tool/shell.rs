//! The `shell` tool: runs a command line and kills its whole process tree when it ends.
//!
//! ```
//! use endstop::tool::{Shell, Tool, ToolContext};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let arguments = serde_json::from_str(r#"{"command": "echo hello"}"#).unwrap();
//! let output = Shell::default().call(arguments, ToolContext::detached("call_1")).await;
//! assert_eq!(output.content.replace('\r', ""), "hello\n[exit status 0]");
//! # }
//! ```
//!
//! A command that ran to its end does not count as failed, whatever its exit status: `grep` without
//! a match and a failing test are valid answers. Only a command that could not start, was killed or
//! was stopped is an error.
//!
//! [`process`](crate::process) describes how commands are contained and stopped.

use super::arguments::{seconds_argument, text_argument};
use super::{Tool, ToolContext, ToolFuture, ToolOutput};
use endstop_process::{CommandLine, Finished};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The argument with which the model requests a time limit.
const TIMEOUT: &str = "timeout_seconds";

/// Runs command lines with `sh -c` (Windows: `cmd /C`).
#[derive(Clone, Debug, Default)]
pub struct Shell {
    allowed: Vec<String>,
    timeout: Option<Duration>,
    leave_daemons: bool,
}

impl Shell {
    /// Passes an environment variable to commands although its name looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> Shell {
        self.allowed.push(name.into());
        self
    }

    /// Sets the time limit of each command. Without it the run's `tool_timeout` applies, and the
    /// model may request another limit up to `max_tool_timeout`.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Shell {
        self.timeout = Some(limit);
        self
    }

    /// Allows a command to leave daemons behind outside its process group. Background processes
    /// inside the group (`server &`) are killed anyway.
    #[must_use]
    pub fn leave_daemons(mut self) -> Shell {
        self.leave_daemons = true;
        self
    }

    fn command(&self, line: &str, context: &ToolContext) -> CommandLine {
        let mut command = CommandLine::new(line);
        if let Some(dir) = context.working_dir() {
            command = command.in_dir(dir);
        }
        if self.leave_daemons {
            command = command.leave_daemons();
        }
        self.allowed.iter().fold(command, CommandLine::allow_variable)
    }
}

impl Tool for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }
    fn description(&self) -> &'static str {
        if cfg!(windows) {
            "Runs a command line with `cmd /C` and answers with what it printed and how it ended. \
             It has no input. What it leaves running in the background is killed when it ends."
        } else {
            "Runs a command line with `sh -c` and answers with what it printed and how it ended. \
             It has no input. What it leaves running in the background is killed when it ends."
        }
    }
    fn schema(&self) -> Value {
        let mut schema = json!({
            "type": "object",
            "properties": {
                "command": {"type": "string", "description": "The command line."}
            },
            "required": ["command"]
        });
        if self.timeout.is_none() {
            schema["properties"][TIMEOUT] = json!({
                "type": "integer",
                "minimum": 1,
                "description": "Seconds after which the command is stopped."
            });
        }
        schema
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
    fn timeout_argument(&self) -> Option<&str> {
        self.timeout.is_none().then_some(TIMEOUT)
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let line = match text_argument(&arguments, "command") {
                Ok(line) => line,
                Err(problem) => return problem,
            };
            // The run enforces the limit. A value that it cannot read is refused here, because it
            // would otherwise be ignored silently.
            if self.timeout.is_none()
                && let Err(problem) = seconds_argument(&arguments, TIMEOUT)
            {
                return problem;
            }
            // The last check before the command starts.
            if context.is_cancelled() {
                return ToolOutput::error("stopped before it started");
            }
            match self.command(line, &context).run(&context.stop()).await {
                Ok(finished) => report(&finished),
                Err(error) => ToolOutput::error(format!("the command could not be run: {error}")),
            }
        })
    }
}

/// Formats the output of a command, followed by how it ended.
fn report(finished: &Finished) -> ToolOutput {
    let mut content = finished.output.text();
    if !content.is_empty() && !content.ends_with('\n') {
        content.push('\n');
    }
    let how = finished.how();
    let stopped = if finished.stopped { "stopped before it finished: " } else { "" };
    let held = if finished.pipe_held {
        "; a process that left its group may still be running"
    } else {
        ""
    };
    let left = left(&finished.left);
    let content = format!("{content}[{stopped}{how}{held}{left}]");
    // An exit status is the command's own answer. Processes that are left behind are an error in
    // any case.
    if finished.exited() && finished.left.is_empty() {
        ToolOutput::ok(content)
    } else {
        ToolOutput::error(content)
    }
}

/// Describes the processes that could not be killed.
fn left(pids: &[u32]) -> String {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    match pids.len() {
        0 => String::new(),
        1 => format!("; process {} could not be killed and may still be running", pids[0]),
        _ => {
            format!("; processes {} could not be killed and may still be running", pids.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_process::Capture;

    #[test]
    fn unkilled_processes_are_reported_as_error() {
        let mut finished = Finished {
            status: Some(std::process::ExitStatus::default()),
            output: Capture::default(),
            stopped: false,
            pipe_held: false,
            left: Vec::new(),
            orphans: None,
        };
        assert_eq!(report(&finished), ToolOutput::ok("[exit status 0]"));
        finished.left = vec![4711];
        let said = "[exit status 0; process 4711 could not be killed and may still be running]";
        assert_eq!(report(&finished), ToolOutput::error(said));
        finished.left = vec![4711, 4712];
        let said =
            "[exit status 0; processes 4711, 4712 could not be killed and may still be running]";
        assert_eq!(report(&finished), ToolOutput::error(said));
        finished.status = None;
        assert!(report(&finished).content.starts_with("[it was killed but has not exited; proc"));
    }
}
