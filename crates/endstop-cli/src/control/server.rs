//! The server of the control socket.

use super::folder;
use super::protocol::{Controlled, Reply, Request};
use crate::output;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

/// The longest question, in bytes.
const LONGEST: u64 = 64 << 10;
/// Connections at a time; further ones wait.
const MOST: usize = 16;
/// The longest time for a question and its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The open control socket of this process. Dropping it closes and removes it.
pub(crate) struct Control {
    path: PathBuf,
    _task: JoinSet<()>,
}

impl Control {
    /// Opens the socket of this process. `None` if there is no place for it: the runs work without
    /// it, but other commands do not find them.
    pub(crate) fn open(controlled: Arc<dyn Controlled>) -> Option<Control> {
        let folder = folder::create()
            .inspect_err(|error| {
                // Without a folder for it nothing was to be expected, but here is one that is not safe.
                if error.kind() == std::io::ErrorKind::PermissionDenied {
                    output::note(&format!(
                        "endstop: `endstop runs --live` does not find this run: {error}"
                    ));
                }
            })
            .ok()?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        // Left by a killed process that had the same number.
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).ok()?;
        let mut task = JoinSet::new();
        task.spawn(serve(listener, controlled));
        Some(Control { path, _task: task })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, controlled: Arc<dyn Controlled>) {
    let own = rustix::process::geteuid().as_raw();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept(), if tasks.len() < MOST => match accepted {
                // The folder keeps other users out; root, and a folder whose mode was changed
                // later, do not count on it.
                Ok((stream, _)) if stream.peer_cred().is_ok_and(|peer| peer.uid() == own) => {
                    let controlled = Arc::clone(&controlled);
                    tasks.spawn(async move {
                        // A client that is too slow or hangs up loses only its own answer.
                        let _ = tokio::time::timeout(PATIENCE, answer(stream, &*controlled)).await;
                    });
                }
                Ok(_) => {}
                // Too many open files: a connection must end first.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

async fn answer(stream: UnixStream, controlled: &dyn Controlled) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    (&mut stream).take(LONGEST).read_until(b'\n', &mut line).await?;
    let reply = if line.last() == Some(&b'\n') {
        match serde_json::from_slice::<Request>(&line) {
            Ok(request) => controlled.reply(&request),
            Err(error) => Reply::Invalid(format!("not a question: {error}")),
        }
    } else {
        Reply::Invalid(format!("expected one line of at most {LONGEST} bytes"))
    };
    let mut text = serde_json::to_vec(&reply).map_err(std::io::Error::other)?;
    text.push(b'\n');
    stream.get_mut().write_all(&text).await?;
    stream.get_mut().shutdown().await
}
