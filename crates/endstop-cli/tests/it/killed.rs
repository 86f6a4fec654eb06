//! No process outlives its run, however the run is stopped: also if `endstop` or the keeper of its
//! command is killed with SIGKILL.
//!
//! Each way to stop is tried with each way to hide. A test finds its processes by a duration of
//! `sleep` that only they use.

use crate::cli::{Cli, Done, FORMATS, Started, agent_args, answering, eventually};
use endstop::testkit::{Reply, Server, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};

/// Commands, and the number of processes that sleep; `N` is the duration of the sleep.
const KINDS: [(&str, usize); 5] = [
    // A child and a grandchild.
    ("sleep N & sleep N", 2),
    ("sh -c 'sh -c \"sleep N & wait\" & wait' & sleep N", 2),
    // A grandchild in its own session.
    ("sh -c 'setsid sleep N & wait' & sleep N", 2),
    // A daemon: in its own session, with its parent gone.
    ("( setsid sleep N >/dev/null 2>&1 & ) ; sh -c 'sleep N & sleep N'", 3),
    // A daemon without the environment, which only a keeper can find.
    ("( env -i setsid sleep N >/dev/null 2>&1 & ) ; sleep N", 2),
];

/// Returns a duration of `sleep` that no other process uses.
fn length() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    (1_000_000_000 + (std::process::id() % 1_000_000) * 1000 + next).to_string()
}

/// Returns the living processes with this word among their arguments.
fn alive(word: &str) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter(|process| {
            let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes())
        })
        .filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Returns the keeper that this process has started.
fn keeper(of: Pid) -> Option<Pid> {
    let parent = of.as_raw_nonzero().to_string();
    std::fs::read_dir("/proc").unwrap().flatten().find_map(|process| {
        // `pid (name) state parent …`
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let (name, fields) = stat.rsplit_once(") ")?;
        let parents = name.ends_with("(endstop-keeper") && fields.split(' ').nth(1)? == parent;
        parents.then(|| Pid::from_raw(process.file_name().to_str()?.parse().ok()?))?
    })
}

/// Returns the number of children of a process that ended and were not reaped.
fn zombies(of: Pid) -> usize {
    let parent = of.as_raw_nonzero().to_string();
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    stats
        .filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok())
        .filter(|stat| {
            let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
            fields.next() == Some("Z") && fields.next() == Some(&parent)
        })
        .count()
}

/// A run whose model has called a command, after that command sleeps.
struct Sleeping {
    length: String,
    server: Server,
    started: Option<Started>,
    _cli: Cli,
}

impl Sleeping {
    /// Starts a run; `processes` processes of its command sleep.
    fn new((command, processes): (&str, usize), args: &[&str]) -> Sleeping {
        let sleeping = Sleeping::starting(command, args);
        eventually("the processes sleep", || alive(&sleeping.length).len() == processes);
        sleeping
    }

    fn starting(command: &str, args: &[&str]) -> Sleeping {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let api = FORMATS[NEXT.fetch_add(1, Ordering::Relaxed) as usize % FORMATS.len()];
        let length = length();
        let line = command.replace('N', &length);
        let server = answering(move |request| {
            if request.number > 1 {
                return Reply::turn(request, &Turn::text("Never mind."));
            }
            Reply::turn(request, &Turn::call("shell", &json!({"command": line})))
        });
        let cli = Cli::new();
        let all = [&["Sleep.", "--tool", "shell"], args].concat();
        let command = cli.command(agent_args(&server, api, &all));
        let started = Some(Started::new(command, ""));
        Sleeping { length, server, started, _cli: cli }
    }

    fn endstop(&self) -> Pid {
        Pid::from_child(&self.started.as_ref().unwrap().child)
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.endstop(), signal).unwrap();
    }

    /// Waits until no process is left.
    #[track_caller]
    fn none_left(&self) {
        eventually("none is left", || alive(&self.length).is_empty());
        eventually("its keeper has ended", || keeper(self.endstop()).is_none());
    }

    fn finish(mut self) -> Done {
        self.started.take().unwrap().finish()
    }
}

/// Leaves no process behind if the test fails.
impl Drop for Sleeping {
    fn drop(&mut self) {
        drop(self.started.take());
        for process in alive(&self.length) {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

#[test]
fn cancel_leaves_no_process() {
    for kind in KINDS {
        let run = Sleeping::new(kind, &["--json"]);
        run.signal(Signal::INT);
        run.none_left();
        assert_eq!(run.finish().exits(130).outcome()["termination"], "cancelled");
    }
}

#[test]
fn terminate_leaves_no_process() {
    for (command, processes) in KINDS {
        // A command that ignores the signals of a cancel; its children inherit the ignored signals.
        let deaf = format!("trap '' TERM HUP INT; {command}");
        let run = Sleeping::new((&deaf, processes), &["--cancel-grace", "1h"]);
        run.signal(Signal::INT);
        eventually("it was cancelled", || {
            run.started.as_ref().unwrap().stderr().contains("stopping (cancelled)")
        });
        run.signal(Signal::INT);
        run.none_left();
        run.finish().exits(143).notes(&["stopped: terminated (fatal)"]);
    }
}

#[test]
fn sigterm_leaves_no_process() {
    for kind in KINDS {
        let run = Sleeping::new(kind, &["--json"]);
        run.signal(Signal::TERM);
        run.none_left();
        assert_eq!(run.finish().exits(143).outcome()["termination"], "cancelled");
    }
}

#[test]
fn tool_timeout_leaves_no_process() {
    for (command, _) in KINDS {
        let run = Sleeping::starting(command, &["--tool-timeout", "400ms", "--json"]);
        eventually("the run continues", || run.server.requests().len() > 1);
        run.none_left();
        assert_eq!(run.finish().exits(0).outcome()["termination"], "stop");
    }
}

#[test]
fn run_timeout_leaves_no_process() {
    for (command, _) in KINDS {
        let mut run = Sleeping::starting(command, &["--timeout", "400ms", "--json"]);
        let done = run.started.take().unwrap().finish();
        eventually("none is left", || alive(&run.length).is_empty());
        assert_eq!(done.exits(20).outcome()["termination"], "error_timeout");
    }
}

#[test]
fn sigkill_leaves_no_process() {
    for (command, processes) in KINDS {
        let deaf = format!("trap '' TERM HUP INT; {command}");
        for command in [command, &deaf] {
            let run = Sleeping::new((command, processes), &[]);
            let kept = keeper(run.endstop()).expect("its command has a keeper");
            run.signal(Signal::KILL);
            run.none_left();
            eventually("its keeper has ended", || {
                std::fs::read(format!("/proc/{}/cmdline", kept.as_raw_nonzero()))
                    .map_or(true, |line| line.is_empty())
            });
        }
    }
}

/// Sends a signal to the keeper; asserts that no process is left and that the model is informed.
fn signal_to_keeper_leaves_no_process(signal: Signal) {
    for kind in KINDS {
        let run = Sleeping::new(kind, &["--json"]);
        let kept = keeper(run.endstop()).unwrap();
        kill_process(kept, signal).unwrap();
        if signal == Signal::KILL {
            run.none_left();
        }
        eventually("the model is informed", || run.server.requests().len() == 2);
        assert!(alive(&run.length).is_empty(), "none is left when it is informed");
        let told = run.server.requests()[1].body.to_string();
        assert!(told.contains("killed with its keeper: "), "{told}");
        assert!(told.contains("of its processes were killed]"), "nothing is in doubt: {told}");
        eventually("its orphans are reaped", || zombies(run.endstop()) == 0);
        assert_eq!(run.finish().exits(0).outcome()["termination"], "stop");
    }
}

#[test]
fn killed_keeper_leaves_no_process() {
    signal_to_keeper_leaves_no_process(Signal::KILL);
}

#[test]
fn stopped_keeper_leaves_no_process() {
    signal_to_keeper_leaves_no_process(Signal::STOP);
}

#[test]
fn keeper_killed_by_command_leaves_none() {
    for signal in ["KILL", "STOP"] {
        // A daemon without its environment, and one that is orphaned when the command ends.
        let line = format!(
            "(env -i setsid sleep N & env -i setsid sh -c 'sleep N & sleep N' &); kill -{signal} $PPID; sleep 0.1"
        );
        let run = Sleeping::starting(&line, &["--json"]);
        eventually("the model is informed", || run.server.requests().len() == 2);
        assert!(alive(&run.length).is_empty(), "none is left when it is informed");
        let told = run.server.requests()[1].body.to_string();
        assert!(told.contains("killed with its keeper: "), "{told}");
        assert_eq!(run.finish().exits(0).outcome()["termination"], "stop");
    }
}

#[test]
fn keeper_argument_alone_is_refused() {
    // Without the host's socket it is an ordinary argument, and an unknown one.
    let done = Cli::new().run(["--endstop-keeper=2", "-"]).exits(2);
    assert!(done.stderr.contains("--endstop-keeper"), "{done:?}");
}
