//! Runs a program in one case, and observes it from outside: a fresh folder and home, no keys, its signals, its output,
//! and its processes.
//!
//! The program runs below a shell that stays after its end, so that the processes that it leaves can be seen before they are
//! killed. If the suite itself is killed, all of them are killed, too.

mod a2a;
mod acp;
mod elsewhere;
mod launch;
mod place;
mod version;

pub use launch::{Launch, absolute};
pub use place::is_own;
pub use version::version;

use crate::case::{Act, Case, Documented, Signal, When};
use crate::evidence::{Again, Evidence, Exit, Record, Stopped};
use crate::profile::Serves;
use crate::provider::{Provider, Script};
use crate::vocabulary::Capability;
use a2a::AFTER_CANCEL;
use elsewhere::Elsewhere;
use endstop_process::{CommandLine, StopTokens};
use place::{MARK, Place, TOOL};
use std::io;
use std::time::{Duration, Instant};

/// The most bytes of output of a program, on each of its streams.
pub const MOST_OUTPUT: u64 = 64 << 20;

/// Time between two looks at a program.
const BETWEEN: Duration = Duration::from_millis(20);

/// Time that a program has to end after a signal, before the suite ends it. Longer than the checks allow.
const AFTER_SIGNAL: Duration = Duration::from_secs(15);

/// Time after the end of a run that was asked to stop in which no call may come, from whatever it has left behind.
const AFTER_STOP: Duration = Duration::from_secs(5);

/// Time after the end of a program in which its connections to the model have to close.
const CLOSE: Duration = Duration::from_secs(2);

/// Time between two looks at what is left of a program.
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// The status of a process that SIGTERM has ended.
const TERMINATED: i32 = 143;

/// The status of a process that SIGKILL has ended.
const KILLED: i32 = 137;

/// Time that a program has for its first call, at least. Some load for long on a machine that is busy.
const FIRST_CALL: Duration = Duration::from_secs(30);

/// Runs a program in a case.
///
/// # Errors
/// The suite itself has failed: no port, no folder, no process.
pub async fn run(launch: &Launch<'_>, case: &Case) -> io::Result<Evidence> {
    if cfg!(not(unix)) {
        let problem = "conform starts programs through a Unix shell; run it on Linux or macOS";
        return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
    }
    let place = Place::new(launch)?;
    let began = Instant::now();
    let script =
        Script::new(case.clone()).in_folder(place.started()).for_client(launch.profile).from(began);
    let provider = Provider::start(script)?;
    let elsewhere = Elsewhere::start().await?;
    let mut evidence = Evidence { patience: launch.patience.as_secs(), ..Evidence::default() };

    let first = place.prepare(launch, case, &provider.base(), elsewhere.address(), false)?;
    evidence.command = first.shown();
    let watch = Watch { launch, case, provider: &provider, place: &place, began };
    let ended = watch.run(&first, case.act, case.settle).await?;
    evidence.exit = Some(ended.exit);
    evidence.seconds = ended.seconds;
    evidence.acted = ended.acted;
    evidence.left = ended.left.all;
    evidence.left_of_tool = ended.left.of_tool;
    evidence.connection_left = ended.left.has_connection;
    evidence.hung_up = ended.hung_up;
    evidence.problem = ended.problem;
    (evidence.stdout, evidence.stderr) = place.output();
    if let Some(said) = ended.said {
        // The caller reads what the protocol says, and not what the server prints.
        evidence.stderr = std::mem::replace(&mut evidence.stdout, said) + &evidence.stderr;
    }
    let records = match &launch.profile.verdict.file {
        Some(file) => place.text(file),
        None => evidence.stdout.clone(),
    };
    evidence.calls_of_first = provider.count();
    evidence.started_of_first = place.bodies().len();
    if case.resume && launch.profile.can(Capability::Resume) {
        let second = place.prepare(launch, case, &provider.base(), elsewhere.address(), true)?;
        let ended = watch.run(&second, None, 0).await?;
        let (stdout, stderr) = place.output();
        evidence.problem = evidence.problem.or(ended.problem);
        evidence.again = Some(Again { exit: ended.exit, stdout, stderr });
    }
    evidence.calls = provider.calls();
    evidence.started = place.bodies();
    evidence.elsewhere = elsewhere.hosts();
    evidence.record = Record::read(&records, &launch.profile.verdict);
    let was_killed = case.act.is_some_and(|act| act.signal == Signal::Kill);
    if launch.profile.serves.is_some() && evidence.has_ended() && !was_killed {
        // The exit status of a server says nothing about a run; the verdict stands in its place.
        evidence.exit = Some(Exit::Status(i32::from(evidence.record.success != Some(true))));
    }
    if evidence.calls.is_empty() && evidence.problem.is_none() {
        let status = match evidence.exit {
            Some(Exit::Status(status)) => format!("exit status {status}"),
            Some(Exit::Stopped(why)) => format!("stopped: {why:?}"),
            None => "not started".to_owned(),
        };
        let said = [&evidence.stderr, &evidence.stdout];
        let said = said
            .into_iter()
            .find_map(|text| text.lines().rev().find(|line| !line.trim().is_empty()));
        let said: String = said.unwrap_or("no output").chars().take(200).collect();
        // A call elsewhere is a reason of its own.
        if evidence.elsewhere.is_empty() {
            evidence.problem = Some(format!("the program made no call ({status}): {said}"));
        }
    }
    Ok(evidence)
}

/// `true` if a process has this number.
fn is_running(pid: Option<i32>) -> bool {
    #[cfg(unix)]
    {
        use rustix::process::{Pid, test_kill_process};
        pid.and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok())
    }
    #[cfg(not(unix))]
    {
        let _ = pid;
        false
    }
}

/// A program under observation.
struct Watch<'a> {
    launch: &'a Launch<'a>,
    case: &'a Case,
    provider: &'a Provider,
    place: &'a Place,
    began: Instant,
}

/// The end of one start.
struct Ended {
    exit: Exit,
    seconds: f64,
    acted: Option<f64>,
    left: Left,
    /// Times in seconds at which the program closed a connection in the middle of an answer.
    hung_up: Vec<f64>,
    /// Reason for which its end says nothing.
    problem: Option<String>,
    /// The events that the client of a protocol was sent, if these are not the output of the program.
    said: Option<String>,
}

/// The processes and connections that a program has left after its end.
#[derive(Default)]
struct Left {
    /// All of its processes that are known; `None` if this system does not show them.
    all: Option<Vec<String>>,
    /// Those of a tool, which carry its mark.
    of_tool: Option<Vec<String>>,
    /// `true` if a connection to the provider was open.
    has_connection: bool,
}

/// The suite as the client of a program that serves a protocol.
enum Client<'a> {
    Acp(acp::Client<'a>),
    A2a(a2a::Client),
}

impl Client<'_> {
    /// The time of the verdict.
    fn ended(&self) -> Option<Instant> {
        match self {
            Client::Acp(client) => client.ended(),
            Client::A2a(client) => client.ended(),
        }
    }
}

impl Watch<'_> {
    async fn run(&self, start: &place::Start, act: Option<Act>, settle: u64) -> io::Result<Ended> {
        let stop = StopTokens::never();
        let mut command = CommandLine::new(start.script()).in_dir(self.place.work());
        for (name, value) in start.variables() {
            command = command.variable(name, value);
        }
        let running = command.run(&stop);
        tokio::pin!(running);
        let watching = self.watch(start, act, settle);
        tokio::pin!(watching);
        let ended = tokio::select! {
            ended = &mut watching => ended?,
            // The shell stays after the end of the program, so that it ends only if it is killed.
            finished = &mut running => {
                let how = finished?.how();
                return Ok(Ended {
                    exit: Exit::Status(KILLED),
                    seconds: self.began.elapsed().as_secs_f64(),
                    acted: None,
                    left: Left::default(),
                    hung_up: Vec::new(),
                    problem: Some(format!("the program has ended the shell above it ({how}), so that its end is not known")),
                    said: None,
                });
            }
        };
        stop.kill.cancel();
        running.await?;
        self.end_tools();
        Ok(ended)
    }

    async fn watch(
        &self,
        start: &place::Start,
        act: Option<Act>,
        settle: u64,
    ) -> io::Result<Ended> {
        let started = Instant::now();
        let mut client = self.client(start)?;
        let (before, scripted_before) = (self.provider.count(), self.provider.scripted());
        let mut first_call: Option<Instant> = None;
        let mut event: Option<Instant> = None;
        let mut acted: Option<Instant> = None;
        let mut left: Option<Instant> = None;
        // The first one that is seen, because the program can write the file, too.
        let mut pid: Option<i32> = None;
        let exit = loop {
            pid = pid.or_else(|| self.place.pid());
            if let Some(status) = self.place.status().filter(|_| !is_running(pid)) {
                break Exit::Status(status);
            }
            match &mut client {
                Some(Client::Acp(client)) => client.step()?,
                Some(Client::A2a(client)) if client.has_left() => match left {
                    None => {
                        // The run has ended; a server serves on until it is asked to end.
                        self.send(Signal::Terminate);
                        left = Some(Instant::now());
                    }
                    Some(at) if at.elapsed() > AFTER_SIGNAL => break Exit::Status(TERMINATED),
                    Some(_) => {}
                },
                Some(Client::A2a(_)) | None => {}
            }
            let calls = self.provider.count();
            if calls > before && first_call.is_none() {
                first_call = Some(Instant::now());
            }
            if let Some(act) = act {
                let is_there = match act.when {
                    When::Call => calls > before,
                    When::Tool => self.place.has_bodies(),
                };
                if is_there && event.is_none() {
                    event = Some(Instant::now());
                }
                let due =
                    event.is_some_and(|at| at.elapsed() >= Duration::from_millis(act.after_ms));
                if due && acted.is_none() {
                    match (&mut client, act.signal) {
                        (Some(Client::Acp(client)), Signal::Interrupt) => client.cancel(),
                        (Some(Client::A2a(client)), Signal::Interrupt) => client.cancel(),
                        (_, signal) => self.send(signal),
                    }
                    acted = Some(Instant::now());
                }
            }
            let scripted = self.provider.scripted() - scripted_before;
            let calls = (calls - before, scripted);
            let verdict = client.as_ref().and_then(Client::ended);
            if let Some(stopped) = self.should_stop(started, first_call, (acted, verdict), calls) {
                break Exit::Stopped(stopped);
            }
            tokio::time::sleep(BETWEEN).await;
        };
        // A server serves on for a while, in which nothing may follow.
        let ended = client.as_ref().and_then(Client::ended).unwrap_or_else(Instant::now);
        let since = |at: Instant| at.saturating_duration_since(self.began).as_secs_f64();
        let seconds = since(ended);
        let hung_up = self.provider.hung_up().into_iter().map(since).collect();
        let was_asked = acted.is_some() && act.is_some_and(|act| act.signal != Signal::Kill);
        let least = if was_asked { AFTER_STOP } else { Duration::ZERO };
        let left = match exit {
            Exit::Status(_) => self.settle(least, Duration::from_secs(settle)).await,
            Exit::Stopped(_) => Left::default(),
        };
        let acted = acted.map(since);
        let said = match &client {
            Some(Client::A2a(client)) => Some(client.said()),
            Some(Client::Acp(_)) | None => None,
        };
        Ok(Ended { exit, seconds, acted, left, hung_up, problem: None, said })
    }

    fn client<'c>(&'c self, start: &'c place::Start) -> io::Result<Option<Client<'c>>> {
        Ok(match self.launch.profile.serves {
            Some(Serves::Acp) => Some(Client::Acp(acp::Client::new(self.place, start.task()))),
            Some(Serves::A2a) => {
                let address = format!("{}{}", self.place.address(), self.launch.profile.at);
                Some(Client::A2a(a2a::Client::new(address, start.task())?))
            }
            None => None,
        })
    }

    fn should_stop(
        &self,
        started: Instant,
        first_call: Option<Instant>,
        (acted, verdict): (Option<Instant>, Option<Instant>),
        (calls, scripted): (usize, usize),
    ) -> Option<Stopped> {
        if self.place.output_size() > MOST_OUTPUT {
            return Some(Stopped::Output);
        }
        let documented = &self.launch.profile.documented;
        let limit = documented.calls.filter(|_| self.case.documented == Some(Documented::Calls));
        // A program may reach the limit that it documents.
        let most = limit.map_or(self.case.most_calls, |limit| self.case.most_calls.max(limit + 1));
        if scripted >= most || calls >= most * 2 {
            return Some(Stopped::Calls);
        }
        // The client of a protocol stays for a while after the verdict, before the server is asked to end.
        let late = match verdict {
            Some(verdict) => Some((verdict, AFTER_CANCEL + AFTER_SIGNAL)),
            None => acted.map(|at| (at, AFTER_SIGNAL)),
        };
        if acted.is_some() && late.is_some_and(|(at, most)| at.elapsed() > most) {
            return Some(Stopped::Time);
        }
        let patience = self.launch.patience;
        let Some(first) = first_call else {
            return (started.elapsed() > patience.max(FIRST_CALL)).then_some(Stopped::Patience);
        };
        let time = self.case.documented.and_then(|bound| match bound {
            Documented::Content => documented.content,
            // Guard sees reasoning only in a stream.
            Documented::Response if self.launch.guard.is_some() && !self.provider.streams() => None,
            Documented::Response => documented.response,
            Documented::Tool => documented.tool,
            Documented::Calls => None,
        });
        // The time is when the program begins to end: ten minutes are the timeout of many clients, and some wait before they
        // repeat the call.
        let allowed = Duration::from_secs(time.unwrap_or(self.case.seconds) + 10);
        let patience = patience.max(Duration::from_secs(self.case.at_least));
        if first.elapsed() > allowed && limit.is_none() {
            return Some(Stopped::Time);
        }
        (first.elapsed() > patience).then_some(Stopped::Patience)
    }

    /// Waits for the least time, and then until no process of the program is left, at most for the other time.
    async fn settle(&self, least: Duration, most: Duration) -> Left {
        let began = Instant::now();
        let mut has_connection = false;
        loop {
            let found = endstop_process::carriers(MARK, self.place.mark());
            // Found by a mark of its own, because a program may start its tools with another environment.
            let of_tool = endstop_process::carriers(TOOL, &self.place.started_text());
            let is_open = self.provider.open_connections() > 0;
            has_connection |= is_open && began.elapsed() >= CLOSE.min(most);
            let is_empty = |found: &Option<Vec<_>>| found.as_ref().is_none_or(Vec::is_empty);
            let is_clean = is_empty(&found) && is_empty(&of_tool) && !is_open;
            if began.elapsed() >= least && (is_clean || began.elapsed() >= most) {
                let mut all = found;
                for one in of_tool.iter().flatten() {
                    let all = all.get_or_insert_default();
                    if !all.contains(one) {
                        all.push(one.clone());
                    }
                }
                let shown = |found: Vec<endstop_process::Survivor>| {
                    found.iter().map(ToString::to_string).collect()
                };
                return Left { all: all.map(shown), of_tool: of_tool.map(shown), has_connection };
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Ends the processes of a tool that the end of the program's shell does not reach: those with an environment of their own,
    /// if no keeper stands above the shell.
    fn end_tools(&self) {
        #[cfg(unix)]
        for one in endstop_process::carriers(TOOL, &self.place.started_text()).unwrap_or_default() {
            use rustix::process::{Pid, Signal, kill_process};
            if let Some(pid) = i32::try_from(one.pid).ok().and_then(Pid::from_raw) {
                // It may have ended by itself.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    #[cfg(unix)]
    fn send(&self, signal: Signal) {
        use rustix::process::{Pid, Signal as Sent, getpgid, kill_process, kill_process_group};
        let Some(pid) = self.place.pid().and_then(Pid::from_raw) else { return };
        // A process that has just ended needs no signal.
        let _ = match signal {
            // A terminal sends it to the whole group. The shell above the program ignores it.
            Signal::Interrupt => {
                getpgid(Some(pid)).and_then(|group| kill_process_group(group, Sent::INT))
            }
            Signal::Terminate => kill_process(pid, Sent::TERM),
            Signal::Kill => kill_process(pid, Sent::KILL),
        };
    }

    #[cfg(not(unix))]
    fn send(&self, _signal: Signal) {}
}
