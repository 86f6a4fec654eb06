//! Tests of agent programs, which share the terminal of their host.

use crate::checks::PLAIN_USER;
use crate::processes::{SOON, alive, gone, marker, soon, started};
use endstop_process::{AgentExit, AgentProcess, AgentProgram, StopStep};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// First argument of this program if it is the host of an agent program.
pub(crate) const HOST: &str = "--agent-host";

/// Time between the steps of a stop if all processes should obey the first one. Long, because a busy
/// machine must not turn a step into the next one.
const PATIENT: Duration = Duration::from_secs(15);

fn run_id() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn sh(script: impl Into<String>) -> AgentProcess {
    AgentProgram::new("sh", run_id()).args(["-c".to_owned(), script.into()]).start().unwrap()
}

/// Runs an agent program until it ends: the host that a test kills.
pub(crate) fn host() -> ExitCode {
    endstop_process::keeper::adopt_orphans();
    let words: Vec<String> = std::env::args().skip(2).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let agent = AgentProgram::new(&words[0], run_id()).args(&words[1..]);
        match agent.start().unwrap().wait().await.unwrap().exit() {
            AgentExit::Code(code) => ExitCode::from(code as u8),
            _ => ExitCode::from(99),
        }
    })
}

pub(crate) async fn agent_has_hosts_group_and_input() {
    let script = "read line; test \"$line\" = hello || exit 3
        set -- $(sed 's/.*) //' /proc/self/stat); echo $3 $4; echo \"$ENDSTOP_RUN\" >&2";
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut host.stdin.take().unwrap(), b"hello\n").unwrap();
    let pid = host.id();
    let output = host.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // The host is in the group and the session of this process, and so is the program.
    // Read as text, because in a container both may be 0, which `getsid` of rustix does not allow.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let (group, session) = (fields[2], fields[3]);
    let said = String::from_utf8(output.stdout).unwrap();
    if group == "0" {
        // A group outside of the container cannot be joined by its number.
        assert!(said.trim().ends_with(&format!(" {session}")), "{said}");
    } else {
        assert_eq!(said.trim(), format!("{group} {session}"));
    }
    let mark = String::from_utf8(output.stderr).unwrap();
    assert_eq!(mark.trim(), format!("test-{pid}-0"));
}

pub(crate) async fn agent_exit_is_number_or_signal() {
    for (script, exit) in [
        ("exit 0", AgentExit::Code(0)),
        ("exit 41", AgentExit::Code(41)),
        ("kill -SEGV $$", AgentExit::Signal(11)),
    ] {
        let mut agent = sh(script);
        let end = agent.wait().await.unwrap();
        assert_eq!(end.exit(), exit);
        assert!(end.stopped_by.is_none() && end.survivors.is_empty() && end.orphans.is_none());
        // The end can be asked for again, and a stop then changes nothing.
        assert_eq!(agent.stop(PATIENT).await.unwrap().exit(), exit);
    }
}

pub(crate) async fn missing_agent_program_is_error() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let mut agent = AgentProgram::new(&absent, run_id()).start().unwrap();
    assert_eq!(agent.wait().await.unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert!(AgentProgram::new("sh", "").start().is_err());
    assert!(AgentProgram::new("sh", run_id()).args(["a\0b"]).start().is_err());
    assert!(AgentProgram::new("sh", run_id()).in_dir(&absent).start().is_err());
}

/// Both tools leave the group: one in a session of its own, one by a double fork without the mark.
pub(crate) async fn tool_in_own_session_is_interrupted() {
    let word = marker();
    let mut agent = sh(format!(
        "setsid sleep {word} & (setsid env -i sleep {word} &) ; trap 'exit 7' INT; sleep {word} & wait"
    ));
    started(word, 3).await;
    let end = agent.stop(PATIENT).await.unwrap();
    // Background processes of a shell ignore SIGINT, so the second step was necessary.
    assert_eq!((end.exit(), end.stopped_by), (AgentExit::Code(7), Some(StopStep::Terminate)));
    gone(word);
    assert!(end.survivors.is_empty());
}

/// As Gemini CLI: the launcher ignores SIGINT and waits for its worker, which does not.
pub(crate) async fn launcher_ignores_interrupt_worker_ends() {
    let word = marker();
    // Each creates a file when it is ready, because Python turns an earlier interrupt into another
    // exit status.
    let folder = tempfile::tempdir().unwrap();
    let worker = format!(
        "import time,sys\ntry:\n open(sys.argv[1]+'/worker','w').close()\n time.sleep({word})\n\
         except KeyboardInterrupt: sys.exit(5)"
    );
    let launcher = "import signal,subprocess,sys
p=subprocess.Popen([sys.executable,'-c',sys.argv[1],sys.argv[2],sys.argv[3]],start_new_session=True)
signal.signal(signal.SIGINT,signal.SIG_IGN)
open(sys.argv[2]+'/launcher','w').close()
sys.exit(p.wait())";
    let mut agent = AgentProgram::new("python3", run_id())
        .args(["-c", launcher, &worker, folder.path().to_str().unwrap(), &word.to_string()])
        .start()
        .unwrap();
    let ready = |name: &str| folder.path().join(name).exists();
    soon("both are ready", || ready("worker") && ready("launcher"));
    let end = agent.stop(PATIENT).await.unwrap();
    assert_eq!((end.exit(), end.stopped_by), (AgentExit::Code(5), Some(StopStep::Interrupt)));
    gone(word);
}

pub(crate) async fn deaf_agent_is_terminated_then_killed() {
    let grace = Duration::from_millis(100);
    for (traps, exit, step) in [
        ("trap '' INT; trap 'exit 9' TERM", AgentExit::Code(9), StopStep::Terminate),
        ("trap '' INT TERM", AgentExit::Signal(9), StopStep::Kill),
    ] {
        let word = marker();
        // The words of the script are set after the traps, so that a process which shows the word
        // already ignores the signals.
        let mut agent = sh(format!("{traps}; (exec sleep {word}) & while :; do wait; done"));
        started(word, 1).await;
        let end = agent.stop(if step == StopStep::Kill { grace } else { PATIENT }).await;
        let end = end.unwrap();
        assert_eq!((end.exit(), end.stopped_by), (exit, Some(step)), "{traps}");
        gone(word);
    }
}

pub(crate) async fn suspended_agent_can_be_stopped() {
    let word = marker();
    // A stopped tool: the agent itself must not be stopped, because its host would stop too.
    let mut agent = sh(format!("python3 -c 'import time; time.sleep({word})' {word} & wait"));
    let pid = started(word, 1).await[0].to_string();
    assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
    let end = agent.stop(PATIENT).await.unwrap();
    assert!(end.stopped_by <= Some(StopStep::Terminate), "{end:?}");
    gone(word);
}

pub(crate) async fn agent_leaves_no_process() {
    let word = marker();
    let mut agent =
        sh(format!("(trap '' INT TERM HUP; setsid sleep {word} &) ; sleep {word} & exit 0"));
    let end = agent.wait().await.unwrap();
    assert_eq!((end.exit(), end.survivors.len()), (AgentExit::Code(0), 0));
    gone(word);
}

pub(crate) async fn killed_host_leaves_no_agent() {
    let word = marker();
    let script =
        format!("trap '' INT TERM HUP; (setsid env -i sleep {word} &); sleep {word} & wait");
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    started(word, 2).await;
    host.kill().unwrap();
    host.wait().unwrap();
    gone(word);
}

/// The agent kills its keeper, which is its parent.
pub(crate) async fn host_replaces_keeper_of_agent() {
    let word = marker();
    let script = format!("(setsid sleep {word} &); sleep {word} & kill -KILL $PPID; wait");
    let mut host = Command::new(std::env::current_exe().unwrap())
        .args([HOST, "sh", "-c", &script])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let end = std::time::Instant::now() + SOON;
    let status = loop {
        if let Some(status) = host.try_wait().unwrap() {
            break status;
        }
        assert!(std::time::Instant::now() < end, "the host waits for a dead keeper");
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!(status.code(), Some(99), "the status is unknown");
    gone(word);
}

/// Variable with the path of an interpreter that becomes root.
pub(crate) const BECOMES_ROOT: &str = "ENDSTOP_TEST_BECOMES_ROOT";

/// Copies the interpreter of Python into a folder that only the plain user may enter, with the right
/// to become root. Dropping the folder removes it.
pub(crate) fn becomes_root() -> (tempfile::TempDir, std::path::PathBuf) {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("python");
    let which = "import os,sys; print(os.path.realpath(sys.executable))";
    let real = Command::new("python3").args(["-c", which]).output().unwrap().stdout;
    std::fs::copy(String::from_utf8(real).unwrap().trim(), &program).unwrap();
    for (path, mode) in [(folder.path(), 0o710), (program.as_path(), 0o4750)] {
        chown(path, Some(0), Some(PLAIN_USER)).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    (folder, program)
}

/// A process of root cannot be killed by the user who has started it.
pub(crate) async fn process_of_other_user_is_reported() {
    let program = std::env::var(BECOMES_ROOT).unwrap_or_default();
    let starts = Command::new(&program).args(["-c", "import os; os.setuid(0)"]).output();
    if rustix::process::geteuid().is_root() || !starts.is_ok_and(|ran| ran.status.success()) {
        return println!("  skipped: needs a plain user and a program that root has prepared");
    }
    let word = marker();
    let script = format!("import os,time\nos.setuid(0)\ntime.sleep({word})");
    let starts = Command::new(&program).args(["-c", "import os; os.setuid(0)"]).output();
    if rustix::process::geteuid().is_root() || !starts.is_ok_and(|started| started.status.success())
    {
        return println!("  skipped: needs a plain user and a program that root has prepared");
    }
    let mut agent = AgentProgram::new("sh", run_id())
        .args(["-c", "\"$0\" -c \"$1\" \"$2\" & wait", &program, &script])
        .args([word.to_string()])
        .start()
        .unwrap();
    let of_root = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|status| status.contains("\nUid:\t0\t0\t0\t0\n"))
    };
    soon("root runs it", || alive(word).iter().any(of_root));
    let end = agent.stop(Duration::from_millis(100)).await.unwrap();
    assert_eq!((end.exit(), end.stopped_by), (AgentExit::Signal(2), Some(StopStep::Kill)));
    let [survivor] = &end.survivors[..] else { panic!("{end:?}") };
    assert_eq!(alive(word), [survivor.pid]);
    assert!(survivor.command.ends_with(&format!(" {word}")), "{survivor}");
    assert!(!survivor.command.contains('\n'), "{survivor}");
    let kill = format!("import os; os.setuid(0); os.kill({}, 9)", survivor.pid);
    assert!(Command::new(&program).args(["-c", &kill]).status().unwrap().success());
    gone(word);
}
