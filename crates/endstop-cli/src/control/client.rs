//! Asks the live processes of this user.

use super::folder;
use super::protocol::{LiveRun, Reply, Request};
use crate::failure::{Failure, Result};
use crate::visible::visible;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The longest answer, in bytes: some thousand runs.
const LONGEST: u64 = 16 << 20;
/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A live run, and the socket of its process.
pub(crate) struct Found {
    pub(crate) run: LiveRun,
    socket: PathBuf,
}

/// Lists the live runs of this user, and removes the sockets that dead processes left.
pub(crate) fn live() -> Result<Vec<Found>> {
    let Some(folder) = folder::path() else { return Ok(Vec::new()) };
    match folder::check(&folder) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Failure::usage(error.to_string())),
    }
    let entries = std::fs::read_dir(&folder)
        .map_err(|error| Failure::usage(format!("{}: {error}", folder.display())))?;
    let mut found = Vec::new();
    for socket in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if socket.extension().is_none_or(|extension| extension != "sock") {
            continue;
        }
        match ask(&socket, &Request::Runs {}) {
            Ok(Reply::Runs(runs)) => {
                found.extend(runs.into_iter().map(|run| Found { run, socket: socket.clone() }));
            }
            // No process listens any more.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                let _ = std::fs::remove_file(&socket);
            }
            // A process that is about to end, or a version with other answers.
            Ok(_) | Err(_) => {}
        }
    }
    found.sort_by(|one, other| {
        let key = |found: &Found| (found.run.pid, found.run.run_id.clone());
        key(one).cmp(&key(other))
    });
    Ok(found)
}

/// Finds one live run by its id, a prefix of it, or `last`: the one that started last.
pub(crate) fn find(name: &str) -> Result<Found> {
    let mut all = live()?;
    // Of several live runs, the newest may not be the one that is meant, and it is about to be changed.
    if name == "last" && all.len() == 1 {
        return Ok(all.swap_remove(0));
    }
    if name == "last" && all.len() > 1 {
        let live = all.len();
        return Err(Failure::usage(format!(
            "`last`: {live} runs are live, so name one; `endstop runs --live` lists them"
        )));
    }
    let exact = all.iter().position(|found| found.run.run_id == name);
    // Two processes may have runs of the same name, and a guess could stop the wrong one.
    if let Some(at) = exact.filter(|_| all.iter().filter(|f| f.run.run_id == name).count() == 1) {
        return Ok(all.swap_remove(at));
    }
    all.retain(|found| !name.is_empty() && found.run.run_id.starts_with(name));
    match all.len() {
        1 => Ok(all.swap_remove(0)),
        0 => Err(Failure::usage(format!(
            "no live run `{}`; `endstop runs --live` lists them",
            visible(name)
        ))),
        several => Err(Failure::usage(format!(
            "`{}` fits {several} live runs; `endstop runs --live` lists them",
            visible(name)
        ))),
    }
}

impl Found {
    /// Asks the process of the run to do something with it.
    pub(crate) fn ask(&self, request: &Request) -> Result<()> {
        let id = visible(&self.run.run_id);
        match ask(&self.socket, request) {
            Ok(Reply::Done) => Ok(()),
            Ok(Reply::UnknownRun) => Err(Failure::usage(format!("run {id} has ended"))),
            Ok(Reply::NotSupported(what)) => {
                Err(Failure::usage(format!("not supported by run {id}: {}", visible(&what))))
            }
            Ok(Reply::Invalid(problem)) => Err(Failure::usage(visible(&problem))),
            Ok(Reply::Runs(_)) => Err(Failure::fault("the process gave another answer")),
            Err(error) => Err(Failure::usage(format!("the process of run {id}: {error}"))),
        }
    }
}

fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(LONGEST)).read_until(b'\n', &mut answer)?;
    serde_json::from_slice(&answer).map_err(io::Error::other)
}
