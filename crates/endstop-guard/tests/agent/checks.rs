//! The tests, one function each; `all` runs them one after another.

use crate::host::HOST;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Time after which a test counts as hanging.
const HANG: Duration = Duration::from_secs(60);

pub(crate) fn all() -> ExitCode {
    let checks: [(&str, fn()); 8] = [
        ("first_interrupt_is_noted", first_interrupt_is_noted),
        ("second_interrupt_stops_program", second_interrupt_stops_program),
        ("termination_stops_program_with_143", termination_stops_program_with_143),
        ("temporary_files_are_private_and_removed", temporary_files_are_private_and_removed),
        ("killed_guard_leaves_no_files", killed_guard_leaves_no_files),
        ("mirrored_folder_leads_to_users_files", mirrored_folder_leads_to_users_files),
        ("terminal_keys_reach_program_once", terminal_keys_reach_program_once),
        ("suspended_program_suspends_guard", suspended_program_suspends_guard),
    ];
    let filter = std::env::args().nth(1).filter(|word| !word.starts_with('-')).unwrap_or_default();
    let mut failed = 0;
    for (name, check) in checks.into_iter().filter(|(name, _)| name.contains(&filter)) {
        let good = catch_unwind(AssertUnwindSafe(check)).is_ok();
        println!("check {name} ... {}", if good { "ok" } else { "FAILED" });
        failed += u32::from(!good);
    }
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts a host with a script of the shell, in a process group of its own.
fn guard(script: &str) -> Child {
    use std::os::unix::process::CommandExt;
    Command::new(std::env::current_exe().unwrap())
        .args([HOST, "http://127.0.0.1:9/run/t", "sh", "-c", script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap()
}

fn signal(child: &Child, name: &str) {
    let killed = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(killed.unwrap().success());
}

fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Returns the exit status and the report of a host.
fn end(mut child: Child) -> (Option<i32>, String) {
    let end = Instant::now() + HANG;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            let _ = child.kill();
            panic!("the host hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

/// Returns a length for `sleep` that no other test uses.
fn marker() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    2_100_000_000 + (std::process::id() % 40_000) * 1000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

fn alive(word: u32) -> usize {
    let listed = Command::new("ps").args(["-A", "-o", "args="]).output().unwrap().stdout;
    let word = format!("sleep {word}");
    String::from_utf8_lossy(&listed).lines().filter(|line| **line == word).count()
}

fn until(what: &str, so: impl Fn() -> bool) {
    let end = Instant::now() + HANG;
    while !so() {
        assert!(Instant::now() < end, "{what}: not within {HANG:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn first_interrupt_is_noted() {
    let word = marker();
    // The program ends after the second line of its input pipe is gone: its own tool ends first.
    let mut child = guard(&format!("echo ready; sleep {word} & wait; exit 4"));
    assert_eq!(first_line(&mut child), "ready");
    until("the tool runs", || alive(word) == 1);
    signal(&child, "-INT");
    // Guard leaves the program alone; its end comes from itself.
    let listed = Command::new("ps").args(["-A", "-o", "pid=,args="]).output().unwrap().stdout;
    let listed = String::from_utf8_lossy(&listed).into_owned();
    let tool = listed.lines().find(|line| line.ends_with(&format!("sleep {word}"))).unwrap();
    let pid = tool.split_whitespace().next().unwrap().to_owned();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    let (status, said) = end(child);
    assert_eq!(status, Some(4), "{said}");
    assert!(said.contains("exit status 4; interrupted true; stopped false None; left 0"), "{said}");
}

fn second_interrupt_stops_program() {
    let word = marker();
    let mut child = guard(&format!(
        "trap '' INT; trap 'exit 9' TERM; echo ready; sleep {word} & while :; do wait; done"
    ));
    assert_eq!(first_line(&mut child), "ready");
    until("the tool runs", || alive(word) == 1);
    signal(&child, "-INT");
    // Signals that come together count as one.
    let mut line = String::new();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "guard: noted");
    signal(&child, "-INT");
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    let (status, said) = (child.wait().unwrap().code(), rest);
    assert_eq!(status, Some(9), "{said}");
    assert!(said.contains("interrupted true; stopped true Some(Terminate); left 0"), "{said}");
    assert_eq!(alive(word), 0);
}

fn termination_stops_program_with_143() {
    for name in ["-TERM", "-HUP"] {
        let word = marker();
        let mut child = guard(&format!("trap 'exit 6' INT; echo ready; sleep {word} & wait"));
        assert_eq!(first_line(&mut child), "ready");
        until("the tool runs", || alive(word) == 1);
        signal(&child, name);
        let (status, said) = end(child);
        assert_eq!(status, Some(143), "{name}: {said}");
        assert!(said.contains("exit status 6; interrupted false; stopped true"), "{name}: {said}");
        assert_eq!(alive(word), 0);
    }
}

fn temporary_files_are_private_and_removed() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("pi");
    // Stands in for the client: reports the extension's path and access rights.
    fs::write(&program, "#!/bin/sh\necho \"$2\"\nls -l \"$2\" | cut -c1-10\nls -ld \"${2%/*}\" | cut -c1-10\ngrep -c registerProvider \"$2\"\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "http://127.0.0.1:9", program.to_str().unwrap(), "-p", "task"])
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[1..], ["-rw-------", "drwx------", "3"], "{said}");
    assert!(!fs::exists(lines[0]).unwrap());
}

fn killed_guard_leaves_no_files() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let (program, word) = (folder.path().join("pi"), marker());
    fs::write(&program, format!("#!/bin/sh\necho \"$2\"\nsleep {word} & wait\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "http://127.0.0.1:9", program.to_str().unwrap()])
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let file = first_line(&mut child);
    until("the tool runs", || alive(word) == 1);
    assert!(fs::exists(&file).unwrap(), "{file}");
    child.kill().unwrap();
    child.wait().unwrap();
    until("the program and its files are gone", || {
        alive(word) == 0 && !fs::exists(std::path::Path::new(&file).parent().unwrap()).unwrap()
    });
}

fn mirrored_folder_leads_to_users_files() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join(".gemini/tmp")).unwrap();
    fs::write(home.path().join(".gemini/settings.json"), "{\"model\":\"m\"}").unwrap();
    fs::write(home.path().join(".gemini/GEMINI.md"), "memory").unwrap();
    let program = home.path().join("gemini");
    // Stands in for the client: reads its settings and a file, and writes to both folders.
    let script = "#!/bin/sh\ncd $GEMINI_CLI_HOME/.gemini && cat settings.json GEMINI.md\n\
        echo session > tmp/session; echo changed > settings.json\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "http://127.0.0.1:9", program.to_str().unwrap()])
        .env("HOME", home.path())
        .env("GEMINI_API_KEY", "k")
        .env_remove("GEMINI_CLI_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(run.stdout).unwrap();
    let settings = r#"{"model":"m","security":{"auth":{"selectedType":"gemini-api-key"}}}"#;
    assert_eq!(said, format!("{settings}memory"), "{}", String::from_utf8_lossy(&run.stderr));
    let read = |name: &str| fs::read_to_string(home.path().join(".gemini").join(name)).unwrap();
    // What the client has written stays, but for the settings, which are guard's.
    assert_eq!((read("tmp/session"), read("GEMINI.md")), ("session\n".into(), "memory".into()));
    assert_eq!(read("settings.json"), "{\"model\":\"m\"}");
}

/// Runs a script of Python that plays the user at a terminal. Prints a notice if there is no pty.
fn at_terminal(script: &str) {
    let run = Command::new("python3")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .stdin(Stdio::null())
        .output();
    let Ok(run) = run else { return println!("  skipped: there is no Python") };
    if run.status.code() == Some(77) {
        return println!("  skipped: there is no pty");
    }
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
}

/// A terminal, and the functions of a user: `expect` and `press`. The host leads the session of the
/// terminal unless a shell is started.
const USER: &str = r#"
import os, pty, select, sys, time
host = sys.argv[1]
def start(words):
    global pid, fd, seen
    try: pid, fd = pty.fork()
    except OSError: sys.exit(77)
    if pid == 0: os.execvp(words[0], words)
    seen = b""
def expect(text, times=1):
    global seen
    end = time.monotonic() + 60
    while seen.count(text) < times:
        assert time.monotonic() < end, (text, seen)
        if select.select([fd], [], [], 0.1)[0]:
            try: seen += os.read(fd, 4096)
            except OSError: raise AssertionError(("terminal closed", text, seen))
def press(keys): os.write(fd, keys)
def status(): return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
# The program waits with `select`, which a signal wakes at any moment, and which reads nothing. A
# blocking read could miss the handler of a signal, or take a key of the shell before it stops. Its
# lines are single writes, because guard writes to the same terminal.
agent = """
import os, select, signal
woken, wake = os.pipe()
os.set_blocking(wake, False)
signal.set_wakeup_fd(wake)
def say(text): os.write(1, (text + chr(10)).encode())
def line():
    while True:
        if 0 in select.select([0, woken], [], [])[0]: return os.read(0, 1000).decode().strip()
        os.read(woken, 100)
"""
guarded = lambda code: [host, "--guard", "http://127.0.0.1:9", sys.executable, "-c", agent + code]
"#;

fn terminal_keys_reach_program_once() {
    at_terminal(&format!(
        "{USER}{}",
        r#"
# Cooked: Ctrl-C is a signal, for the program and for guard.
start(guarded("""
count = 0
def caught(*_):
    global count; count += 1; say("caught %d" % count)
signal.signal(signal.SIGINT, caught)
say("ready")
said = line()
say("read %s %d" % (said, count))
"""))
expect(b"ready")
press(b"\x03")
expect(b"caught 1")
press(b"hello\r")
expect(b"read hello 1")
expect(b"interrupted true; stopped false")
assert status() == 0
assert b"caught 2" not in seen, seen
# Raw: Ctrl-C is a character, which only the program reads.
start(guarded("""
import termios, tty
old = termios.tcgetattr(0)
tty.setraw(0)
say("raw")
key = os.read(0, 1)
termios.tcsetattr(0, termios.TCSADRAIN, old)
say("key %r" % key)
"""))
expect(b"raw")
press(b"\x03")
expect(b"key b'\\x03'")
expect(b"interrupted false; stopped false")
assert status() == 0
"#
    ));
}

fn suspended_program_suspends_guard() {
    at_terminal(&format!(
        "{USER}{}",
        r#"
os.environ["PS1"] = "SHELL> "
os.environ["ENV"] = ""
os.environ["CODE"] = agent + """
signal.signal(signal.SIGCONT, lambda *_: say("resu" + "med"))
say("re" + "ady")
line()
os.kill(os.getpid(), signal.SIGSTOP)
say("contin" + "ued")
line()
say("do" + "ne")
"""
os.environ["HOST"], os.environ["PYTHON"] = host, sys.executable
start(["bash", "--norc", "--noprofile", "--noediting", "-i"])
expect(b"SHELL> ")
press(b'"$HOST" --guard http://127.0.0.1:9 "$PYTHON" -c "$CODE"\r')
expect(b"ready")
# The program stops itself: the shell gets the terminal back.
press(b"\r")
expect(b"Stopped")
expect(b"SHELL> ", 2)
press(b"fg\r")
expect(b"continued")
# The key stops both at once.
press(b"\x1a")
expect(b"Stopped", 2)
expect(b"SHELL> ", 3)
press(b"fg\r")
expect(b"resumed", 2)
press(b"\r")
expect(b"done")
expect(b"stopped false None; left 0")
expect(b"SHELL> ", 4)
press(b"exit\r")
assert status() == 0
"#
    ));
}
