//! The scripted server in a separate process, and the queries for its connections.
//!
//! ```text
//! let mut server = Silent::start()?; // a second process of this program
//! while server.open()? > 0 { … }
//! ```

use crate::runs::Result;
use endstop::testkit::{Reply, Server, Turn, sse};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The argument that makes this program the server.
pub(crate) const WORD: &str = "serve";

/// Raises the limit on descriptors to its maximum, because each connection needs one.
pub(crate) fn raise_descriptors() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?;
    Ok(())
}

/// Sends a first delta and nothing more, and answers each line with the number of open connections.
pub(crate) fn serve() -> Result<()> {
    raise_descriptors()?;
    let turn = Turn::pieces(&["Hello", " world"]);
    // The first event has the role only; the second has the first text.
    let first = sse::openai(&turn).iter().take(2).map(String::len).sum();
    let server = Server::start(move |request| Reply::turn(request, &turn).stall_after(first))?;
    println!("{}", server.base_url());
    for line in std::io::stdin().lock().lines() {
        line?;
        println!("{}", server.open_connections());
    }
    Ok(())
}

/// The server process, which is killed when the value is dropped.
pub(crate) struct Silent {
    pub(crate) base_url: String,
    process: Child,
    ask: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Silent {
    pub(crate) fn start() -> Result<Silent> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(WORD).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let ask = process.stdin.take().ok_or("no standard input")?;
        let told = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        let mut silent = Silent { base_url: String::new(), process, ask, told };
        silent.base_url = silent.line()?;
        Ok(silent)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.told.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&mut self) -> Result<usize> {
        self.ask.write_all(b"\n")?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
