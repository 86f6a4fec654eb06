//! Starts the binary in its own folder and environment, and waits for its end with a deadline.

use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The keys in the environment of the binary; neither may ever be printed.
pub(crate) const OPENAI_KEY: &str = "sk-proj-Dummy0penA1KeyThatMustNeverBeShown";
pub(crate) const ANTHROPIC_KEY: &str = "sk-ant-api03-DummyAnthr0picKeyThatMustNeverBeShown";

/// A deadline longer than anything in these tests takes, so that only a hang exceeds it.
pub(crate) const DEADLINE: Duration = Duration::from_secs(240);

/// Time for the collectors to read what the ended binary left in its pipes; only a process that
/// outlived it exceeds this.
const SETTLES: Duration = Duration::from_secs(30);

/// The formats in which a run is tried.
pub(crate) const FORMATS: [&str; 3] = ["openai-chat", "anthropic-messages", "openai-responses"];

/// A folder for a few invocations.
pub(crate) struct Cli {
    pub(crate) dir: TempDir,
}

impl Cli {
    pub(crate) fn new() -> Cli {
        Cli { dir: TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.dir.path().join(name)).unwrap()
    }

    /// Returns the binary with these arguments, in this folder, with both keys set, and without the
    /// environment of this process except `PATH`.
    pub(crate) fn command(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_endstop"));
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("OPENAI_API_KEY", OPENAI_KEY)
            .env("ANTHROPIC_API_KEY", ANTHROPIC_KEY);
        command
    }

    /// Runs the binary to its end, with empty standard input.
    pub(crate) fn run(&self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Done {
        Started::new(self.command(args), "").finish()
    }

    /// Runs the binary to its end, with this standard input.
    pub(crate) fn feed(
        &self,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
        input: &str,
    ) -> Done {
        Started::new(self.command(args), input).finish()
    }

    /// Runs `endstop run` against a server, in a format.
    pub(crate) fn agent(&self, server: &Server, api: &str, args: &[&str]) -> Done {
        self.run(agent_args(server, api, args))
    }
}

/// Returns the arguments of `endstop run` against a server, in a format; `args` begin with the
/// task.
pub(crate) fn agent_args(server: &Server, api: &str, args: &[&str]) -> Vec<String> {
    let url = server.base_url();
    let mut all = vec!["run", "--model", "scripted", "--api", api, "--base-url", &url];
    all.extend(args);
    all.into_iter().map(str::to_owned).collect()
}

/// An address that refuses connections while this exists: the local end of a connection, on which
/// nothing listens. A port that is merely free may be given to another test's server.
pub(crate) struct Refusing {
    pub(crate) address: String,
    _ends: (TcpListener, TcpStream),
}

impl Refusing {
    pub(crate) fn new() -> Refusing {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        Refusing { address: stream.local_addr().unwrap().to_string(), _ends: (listener, stream) }
    }
}

/// A server that plays these turns in order, and then repeats the last one.
pub(crate) fn playing(turns: impl Into<Vec<Turn>>) -> Server {
    let turns = turns.into();
    answering(move |request| {
        let at = usize::try_from(request.number - 1).unwrap().min(turns.len() - 1);
        Reply::turn(request, &turns[at])
    })
}

/// A server that answers with this function.
pub(crate) fn answering(respond: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
    Server::start(respond).unwrap()
}

/// A running binary whose output is collected.
pub(crate) struct Started {
    pub(crate) child: Child,
    stdout: Collected,
    stderr: Collected,
}

#[derive(Clone, Default)]
struct Collected(Arc<Mutex<Vec<u8>>>);

impl Collected {
    fn of(mut pipe: impl Read + Send + 'static) -> Collected {
        let collected = Collected::default();
        let into = collected.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = pipe.read(&mut buffer) {
                into.0.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        collected
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Started {
    pub(crate) fn new(mut command: Command, input: &str) -> Started {
        let stdin = if input.is_empty() { Stdio::null() } else { Stdio::piped() };
        let mut child =
            command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = Collected::of(child.stdout.take().unwrap());
        let stderr = Collected::of(child.stderr.take().unwrap());
        if let Some(mut pipe) = child.stdin.take() {
            let input = input.to_owned();
            // In a thread, because a binary that refuses its arguments never reads its input.
            std::thread::spawn(move || pipe.write_all(input.as_bytes()));
        }
        Started { child, stdout, stderr }
    }

    /// Starts it with a standard output that is already closed.
    pub(crate) fn unread(mut child: Child) -> Started {
        let stderr = Collected::of(child.stderr.take().unwrap());
        Started { child, stdout: Collected::default(), stderr }
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until it has ended and all its pipes are closed.
    pub(crate) fn finish(mut self) -> Done {
        let status = wait(&mut self.child, &self.stderr);
        // A process that outlived it would hold a pipe, and the collectors would wait forever; the
        // tests that look for processes report it.
        let settled = Instant::now() + SETTLES;
        while Instant::now() < settled
            && (Arc::strong_count(&self.stdout.0) > 1 || Arc::strong_count(&self.stderr.0) > 1)
        {
            std::thread::sleep(Duration::from_millis(2));
        }
        let done = Done { status, stdout: self.stdout(), stderr: self.stderr() };
        done.never_shows_a_key_or_a_panic();
        done
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(child: &mut Child, stderr: &Collected) -> ExitStatus {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(Instant::now() < deadline, "it hangs; so far it said: {}", stderr.text());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Sends a request of HTTP/1.1 with `connection: close`, and returns the status and the whole answer.
pub(crate) fn ask(address: &str, line: &str, headers: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nconnection: close\r\ncontent-length: {length}\r\n");
    write!(stream, "{head}{headers}\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
}

/// Posts an empty object as the user `nobody`, and returns the answer. `None` with a notice if the
/// test is not run by root, who alone can start a process of another user.
#[expect(clippy::print_stderr, reason = "the notice of a test that is skipped")]
pub(crate) fn post_as_nobody(address: &str, path: &str, headers: &str) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can start a client of another user");
        return None;
    }
    let (host, port) = address.rsplit_once(':').unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: 2\r\n{headers}\r\n{{}}"
    );
    let script = "exec 3<>\"/dev/tcp/$1/$2\"; printf %s \"$3\" >&3; timeout 20 cat <&3";
    let mut client = Command::new("bash");
    std::os::unix::process::CommandExt::uid(&mut client, 65_534);
    client.current_dir("/").args(["-c", script, "sh", host, port, &request]);
    Some(String::from_utf8(client.output().unwrap().stdout).unwrap())
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !so() {
        assert!(Instant::now() < deadline, "it never came: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The result of a run of the binary.
#[derive(Debug)]
pub(crate) struct Done {
    status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    /// Returns the exit status; panics after a death by a signal.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("killed by a signal: {self:#?}"))
    }

    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Done {
        assert_eq!(self.code(), code, "{self:#?}");
        self
    }

    /// Asserts that standard error contains all of these.
    #[track_caller]
    pub(crate) fn notes(self, texts: &[&str]) -> Done {
        for text in texts {
            assert!(self.stderr.contains(text), "no {text:?} in: {self:#?}");
        }
        self
    }

    /// Asserts that the card names this ending.
    #[track_caller]
    pub(crate) fn outcome_is(&self, termination: &str) {
        let head = format!("── stopped: {termination} (");
        assert!(self.stderr.contains(&head), "not {termination}: {self:#?}");
    }

    /// Returns the lines of standard output, each parsed as JSON.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout
            .lines()
            .map(|line| {
                serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}\n{self:#?}"))
            })
            .collect()
    }

    /// Returns the outcome of a run with `--json`: the last line, and no other.
    #[track_caller]
    pub(crate) fn outcome(&self) -> Value {
        let mut lines = self.lines();
        let outcome = lines.pop().unwrap_or_else(|| panic!("no output: {self:#?}"));
        assert_eq!(outcome["type"], "outcome", "{self:#?}");
        for line in lines {
            assert!(line["type"].is_string() && line["type"] != "outcome", "{line}");
        }
        outcome
    }

    #[track_caller]
    fn never_shows_a_key_or_a_panic(&self) {
        for text in [&self.stdout, &self.stderr] {
            for key in [OPENAI_KEY, ANTHROPIC_KEY] {
                assert!(!text.contains(key), "a key is shown: {self:#?}");
            }
            assert!(!text.contains("panicked"), "{self:#?}");
        }
    }
}
