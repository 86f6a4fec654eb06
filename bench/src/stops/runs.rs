//! Starts and stops the runs of `bench-stops`, and watches their processes until the last exit.
//!
//! ```text
//! table(100)?; // every kind of process tree, stopped in every way
//! overhead()?; // `true` with and without a keeper
//! ```

use endstop::process::{CommandLine, StopTokens};
use endstop::testkit::{Reply, Server, Turn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use serde_json::json;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Kinds of process trees: name, command (`N` is the duration of the sleep), number of sleepers.
const KINDS: [(&str, &str, usize); 4] = [
    ("child", "sleep N & sleep N & wait", 2),
    ("grandchild", "sh -c 'sh -c \"sleep N & wait\" & wait' & sleep N & wait", 2),
    ("setsid", "sh -c 'setsid sleep N & wait' & sleep N & wait", 2),
    ("daemon", "( setsid sleep N >/dev/null 2>&1 & ) ; sleep N & wait", 2),
];

const STOPS: [&str; 5] = ["cancel", "terminate", "timeout", "SIGTERM", "kill -9"];

/// Time limit of a call, if that is the stop.
const TOOL_TIMEOUT: Duration = Duration::from_millis(250);

/// Time after which a process that still lives counts as left.
const LEFT: Duration = Duration::from_secs(10);

/// Stops every kind of process tree in every way, this many times, and prints the table.
pub(crate) fn table(times: usize) -> Result<()> {
    let endstop = std::env::current_exe()?.with_file_name("endstop");
    if !endstop.exists() {
        return Err(format!("{} is not there: build endstop-cli", endstop.display()).into());
    }
    println!("| processes | stop | times | p50 ms | p99 ms | max ms | left |");
    println!("|---|---|---|---|---|---|---|");
    for (kind, command, sleepers) in KINDS {
        for stop in STOPS {
            let (mut took, mut left) = (Vec::new(), 0);
            for _ in 0..times {
                let (one, still) = stopped(&endstop, command, sleepers, stop)?;
                took.push(one.as_secs_f64() * 1e3);
                left += still;
            }
            took.sort_by(f64::total_cmp);
            let at = |share: f64| took.get((took.len() as f64 * share) as usize).or(took.last());
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| at(share).copied().unwrap_or(0.0));
            println!("| {kind} | {stop} | {times} | {p50:.1} | {p99:.1} | {max:.1} | {left} |");
            // A table takes minutes; each row appears when it is complete, also in a pipe.
            std::io::stdout().flush()?;
        }
    }
    Ok(())
}

/// Stops one run; returns the time to the last exit, and the number of processes left.
fn stopped(
    endstop: &Path,
    command: &str,
    sleepers: usize,
    stop: &str,
) -> Result<(Duration, usize)> {
    let length = length();
    let mut line = command.replace('N', &length);
    if stop == "terminate" {
        // Ignores the cancel that precedes a terminate; child processes inherit an ignored signal.
        line = format!("trap '' TERM; {line}");
    }
    let server = Server::start(move |request| {
        let turn = match request.number {
            1 => Turn::call("shell", &json!({"command": line})),
            _ => Turn::text("Never mind."),
        };
        Reply::turn(request, &turn)
    })?;
    let mut run = Run::start(endstop, &server, stop)?;
    let called = run.called()?;
    // Only when all of them sleep, because a stop before that would have fewer to end.
    let held = sleeping(&length, sleepers)?;
    let since = match stop {
        "cancel" => run.signal(Signal::INT)?,
        "terminate" => {
            run.signal(Signal::INT)?;
            // Two signals at once could arrive as one.
            run.says("stopping")?;
            run.signal(Signal::INT)?
        }
        "SIGTERM" => run.signal(Signal::TERM)?,
        "kill -9" => run.signal(Signal::KILL)?,
        _ => called + TOOL_TIMEOUT,
    };
    let (last, left) = last_exit(&held)?;
    run.child.wait()?;
    Ok((last.saturating_duration_since(since), left))
}

/// A running `endstop`.
struct Run {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: BufReader<ChildStderr>,
}

impl Run {
    fn start(endstop: &Path, server: &Server, stop: &str) -> Result<Run> {
        let mut command = Command::new(endstop);
        command.args(["run", "Sleep.", "--model", "scripted", "--api", "openai-chat"]);
        command.args(["--base-url", &server.base_url(), "--tool", "shell"]);
        if stop == "terminate" {
            // Only the terminate may end the command.
            command.args(["--cancel-grace", "1h"]);
        }
        if stop == "timeout" {
            command.arg("--tool-timeout").arg(format!("{}ms", TOOL_TIMEOUT.as_millis()));
        }
        command.env("OPENAI_API_KEY", "none").stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no standard output")?;
        let stderr = child.stderr.take().ok_or("no standard error")?;
        Ok(Run { child, stdout: BufReader::new(stdout), stderr: BufReader::new(stderr) })
    }

    /// Waits until it reports the tool call, and returns the time.
    fn called(&mut self) -> Result<Instant> {
        self.says("→ shell")?;
        Ok(Instant::now())
    }

    /// Reads its standard error until a line contains this text.
    fn says(&mut self, text: &str) -> Result<()> {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            if self.stderr.read_line(&mut line)? == 0 {
                return Err(format!("`endstop` never printed {text:?}").into());
            }
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<Instant> {
        // Before the signal, so that the time of the system call is included.
        let now = Instant::now();
        kill_process(Pid::from_child(&self.child), signal)?;
        Ok(now)
    }
}

/// Kills the process, so that a failed measurement leaves nothing.
impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The pipe must stay open until now, because a closed one cancels the run.
        let _ = self.stdout.get_ref();
    }
}

/// Returns a duration for `sleep` that no other process uses.
fn length() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    // Too long for a sleep to end by itself.
    (u64::from(std::process::id()) * 100_000 + 100_000_000_000 + u64::from(next)).to_string()
}

/// Waits for this many processes that sleep this long, and opens a pidfd for each.
fn sleeping(length: &str, count: usize) -> Result<Vec<OwnedFd>> {
    let end = Instant::now() + LEFT;
    loop {
        let found: Vec<Pid> = std::fs::read_dir("/proc")?
            .flatten()
            .filter(|process| {
                let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
                line.starts_with(b"sleep\0")
                    && line.split(|byte| *byte == 0).any(|word| word == length.as_bytes())
            })
            .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
            .collect();
        if found.len() == count {
            let held = found.into_iter().map(|pid| pidfd_open(pid, PidfdFlags::empty()));
            return Ok(held.collect::<std::result::Result<_, _>>()?);
        }
        if Instant::now() > end {
            return Err("the processes did not start".into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the time at which the last of them ended, and the number that did not end.
fn last_exit(held: &[OwnedFd]) -> Result<(Instant, usize)> {
    let end = Instant::now() + LEFT;
    // One after the other is enough, because the last wait returns at the last exit.
    for (at, one) in held.iter().enumerate() {
        let rest = end.saturating_duration_since(Instant::now());
        let rest =
            Timespec { tv_sec: rest.as_secs() as i64, tv_nsec: i64::from(rest.subsec_nanos()) };
        let mut fds = [PollFd::new(one, PollFlags::IN)];
        if poll(&mut fds, Some(&rest))? == 0 {
            return Ok((Instant::now(), held.len() - at));
        }
    }
    Ok((Instant::now(), 0))
}

/// Measures the overhead of a keeper: runs `true` with and without one, alternately.
pub(crate) fn overhead() -> Result<()> {
    let program: PathBuf = std::env::current_exe()?;
    println!();
    for word in ["bare", "kept", "bare", "kept"] {
        let done = Command::new(&program).arg(word).output()?;
        print!("{word}: {}", String::from_utf8_lossy(&done.stdout));
    }
    Ok(())
}

/// Runs `true` this many times in sequence, and prints the times.
pub(crate) fn trues(times: usize) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let command = CommandLine::new("true");
    let stop = StopTokens::never();
    let mut took = Vec::with_capacity(times);
    runtime.block_on(async {
        for _ in 0..times {
            let since = Instant::now();
            let done = command.run(&stop).await?;
            took.push(since.elapsed().as_secs_f64() * 1e3);
            if !done.success() {
                return Err(std::io::Error::other(done.how()));
            }
        }
        Ok(())
    })?;
    took.sort_by(f64::total_cmp);
    let at = |share: f64| took.get((times as f64 * share) as usize).copied().unwrap_or(0.0);
    println!("`true` {times} times, ms: p50 {:.2}, p99 {:.2}", at(0.5), at(0.99));
    Ok(())
}
