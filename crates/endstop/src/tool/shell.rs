//! `shell`: a command line in a process group of its own, which dies whole.
//!
//! The group is signalled while its leader is not yet reaped, so that its number cannot have gone
//! to somebody else. What the command left in the background is killed when it ends: nothing
//! outlives its call.

use super::{Tool, ToolContext, ToolFuture, ToolOutput, text_argument};
use crate::process::{Capture, Group};
use serde_json::{Map, Value, json};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

/// How long the pipes are read after the command has ended: a grandchild may hold them for ever.
const DRAIN: Duration = Duration::from_millis(100);

/// Runs command lines with `sh -c`.
#[derive(Clone, Debug, Default)]
pub struct Shell {
    allowed: Vec<String>,
}

impl Shell {
    /// Lets commands see a variable of the environment whose name looks like a secret.
    #[must_use]
    pub fn allow_variable(mut self, name: impl Into<String>) -> Shell {
        self.allowed.push(name.into());
        self
    }
}

impl Tool for Shell {
    fn name(&self) -> &'static str {
        "shell"
    }
    fn description(&self) -> &'static str {
        "Runs a command line with `sh -c` and answers with what it printed and how it ended. \
         Background processes are killed when it ends."
    }
    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"]
        })
    }
    fn runs_code(&self) -> bool {
        true
    }
    fn touches_machine(&self) -> bool {
        true
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            match text_argument(&arguments, "command") {
                Ok(line) => run(line, &self.allowed, &context).await,
                Err(problem) => problem,
            }
        })
    }
}

async fn run(line: &str, allowed: &[String], context: &ToolContext) -> ToolOutput {
    let mut command = Command::new("sh");
    command
        .arg("-c")
        .arg(line)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(dir) = context.working_dir() {
        command.current_dir(dir);
    }
    for (name, _) in std::env::vars_os() {
        let shown = name.to_string_lossy();
        if looks_secret(&shown) && !allowed.iter().any(|allowed| *allowed == shown) {
            command.env_remove(&name);
        }
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return ToolOutput::error(format!("`sh` could not be started: {error}")),
    };
    let Some(mut group) = child.id().and_then(Group::of) else {
        return ToolOutput::error("the command ended before it could be watched");
    };
    let mut out = child.stdout.take();
    let mut err = child.stderr.take();
    let mut capture = Capture::default();
    let mut killed = false;
    let mut deadline = None;
    let mut buffers = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        let last_call = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = group.exited() => break,
            () = context.cancelled(), if deadline.is_none() && !killed => {
                let grace = context.grace();
                if grace.is_zero() {
                    group.kill();
                    killed = true;
                } else {
                    group.terminate();
                    deadline = Some(tokio::time::Instant::now() + grace);
                }
            }
            () = last_call, if deadline.is_some() && !killed => {
                group.kill();
                killed = true;
            }
            read = read_some(&mut out, &mut buffers.0) => capture.take(&buffers.0[..read]),
            read = read_some(&mut err, &mut buffers.1) => capture.take(&buffers.1[..read]),
        }
    }
    // The leader has ended and is not reaped yet: what it left behind dies now.
    group.kill();
    let drained = async {
        while out.is_some() || err.is_some() {
            tokio::select! {
                read = read_some(&mut out, &mut buffers.0) => capture.take(&buffers.0[..read]),
                read = read_some(&mut err, &mut buffers.1) => capture.take(&buffers.1[..read]),
            }
        }
    };
    let _ = tokio::time::timeout(DRAIN, drained).await;
    let status = child.wait().await;
    group.reaped();
    report(status, &capture, context.is_cancelled())
}

/// Reads what there is; at the end of the pipe it is closed, and further reads never return.
async fn read_some<R: AsyncRead + Unpin>(pipe: &mut Option<R>, buffer: &mut [u8]) -> usize {
    match pipe {
        None => std::future::pending().await,
        Some(reader) => match reader.read(buffer).await {
            Ok(0) | Err(_) => {
                *pipe = None;
                0
            }
            Ok(read) => read,
        },
    }
}

fn report(status: std::io::Result<ExitStatus>, capture: &Capture, cancelled: bool) -> ToolOutput {
    use std::os::unix::process::ExitStatusExt;
    let printed = capture.text();
    let (ok, how) = match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(0), _) => (true, "exit status 0".to_owned()),
            (Some(code), _) => (false, format!("exit status {code}")),
            (None, signal) => (false, format!("killed by signal {}", signal.unwrap_or(0))),
        },
        Err(error) => (false, format!("its end could not be read: {error}")),
    };
    let stopped = if cancelled { ", stopped with its run" } else { "" };
    let content = format!(
        "{printed}{}[{how}{stopped}]",
        if printed.ends_with('\n') || printed.is_empty() { "" } else { "\n" }
    );
    ToolOutput { content, is_error: !ok || cancelled, halt: None }
}

/// Whether a variable's name looks like that of a secret.
fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["API_KEY", "APIKEY", "_TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE_KEY"]
        .iter()
        .any(|mark| name.contains(mark))
        || name == "TOKEN"
}
