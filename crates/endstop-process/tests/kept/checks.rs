//! Tests of commands that run under a keeper, one function each; `all` runs them one after another.

use crate::agents::{
    BECOMES_ROOT, agent_exit_is_number_or_signal, agent_has_hosts_group_and_input,
    agent_leaves_no_process, becomes_root, deaf_agent_is_terminated_then_killed,
    host_replaces_keeper_of_agent, killed_host_leaves_no_agent,
    launcher_ignores_interrupt_worker_ends, missing_agent_program_is_error,
    process_of_other_user_is_reported, suspended_agent_can_be_stopped,
    tool_in_own_session_is_interrupted,
};
use crate::processes::{SOON, alive, gone, marker, soon, started};
use endstop_process::{CommandLine, Finished, StopTokens};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

/// The id of a user without rights.
pub(crate) const PLAIN_USER: u32 = 65_534;

macro_rules! all {
    ($($check:ident),* $(,)?) => {
        [$((stringify!($check), || runtime().block_on($check()))),*]
    };
}

pub(crate) fn all() -> ExitCode {
    // The environment of a process with threads cannot be changed safely, so these tests run in a
    // second process. That process also ignores SIGCHLD, because a host that does so must still
    // learn how its commands end.
    if std::env::var_os("ENDSTOP_TEST_API_KEY").is_none() {
        let mut again = Command::new("sh");
        again
            .args(["-c", "trap '' CHLD; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env("ENDSTOP_TEST_API_KEY", "hidden")
            .env("ENDSTOP_TEST_PASSWORD", "allowed");
        let mut good = again.status().unwrap().success();
        // Root may signal and read every process, so the checks run once more without that right.
        if rustix::process::geteuid().is_root() {
            println!("as user {PLAIN_USER}:");
            let (_folder, program) = becomes_root();
            again.env(BECOMES_ROOT, program);
            good &= again.uid(PLAIN_USER).gid(PLAIN_USER).status().unwrap().success();
        }
        return if good { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let checks: [(&str, fn()); 33] = all![
        command_has_keeper_with_own_session,
        exit_status_is_exact,
        output_is_ordered_and_complete,
        command_has_no_input,
        start_failure_is_reported,
        secrets_are_withheld,
        asked_command_may_clean_up,
        deaf_command_dies_after_grace,
        kill_cuts_grace_short,
        drop_kills_at_once,
        early_drop_leaves_no_process,
        hidden_daemon_dies_with_command,
        nested_daemons_die_with_command,
        hopping_process_is_caught,
        allowed_daemon_outlives_group,
        keeper_ignores_signals_of_command,
        host_replaces_killed_keeper,
        killed_keeper_leaves_allowed_daemon,
        stopped_keeper_is_killed_by_host,
        orphans_are_reaped_during_command,
        keeper_uses_little_memory,
        parallel_commands_end_independently,
        agent_has_hosts_group_and_input,
        agent_exit_is_number_or_signal,
        missing_agent_program_is_error,
        tool_in_own_session_is_interrupted,
        launcher_ignores_interrupt_worker_ends,
        deaf_agent_is_terminated_then_killed,
        suspended_agent_can_be_stopped,
        agent_leaves_no_process,
        killed_host_leaves_no_agent,
        host_replaces_keeper_of_agent,
        process_of_other_user_is_reported,
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

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

async fn run(line: impl Into<String>) -> Finished {
    CommandLine::new(line).run(&StopTokens::never()).await.unwrap()
}

/// Runs the line until `count` processes sleep, calls `then`, and waits for the end of the command.
async fn stopped(
    line: &str,
    mark: u32,
    count: usize,
    stop: StopTokens,
    then: impl FnOnce(),
) -> Finished {
    let command = CommandLine::new(line);
    let mut running = pin!(command.run(&stop));
    tokio::select! {
        early = &mut running => panic!("it does not end by itself: {early:?}"),
        _ = started(mark, count) => {}
    }
    then();
    running.await.unwrap()
}

fn stop(grace: Duration) -> StopTokens {
    StopTokens { grace, ..StopTokens::never() }
}

async fn command_has_keeper_with_own_session() {
    let done = run("cat /proc/$PPID/comm; cut -d' ' -f4-6 /proc/self/stat; echo $PPID").await;
    let text = done.output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "endstop-keeper");
    // Parent, group and session of `cut`. Its parent is the shell, which leads the group.
    let numbers: Vec<&str> = lines[1].split(' ').collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[2], lines[2], "the keeper leads the session");
    let words = run("tr '\\0' ' ' < /proc/$PPID/cmdline").await.output.text();
    assert!(words.starts_with("endstop-keeper --endstop-keeper=2 "), "{words}");
    assert!(!words.contains("cmdline"), "the command line is not among its words: {words}");
}

async fn exit_status_is_exact() {
    for code in [0, 1, 3, 127, 255] {
        let done = run(format!("exit {code}")).await;
        assert_eq!(done.how(), format!("exit status {code}"));
        assert_eq!(done.success(), code == 0);
    }
    for signal in [1, 2, 9, 11, 15] {
        let done = run(format!("kill -{signal} $$; sleep 1000")).await;
        assert_eq!(done.how(), format!("killed by signal {signal}"));
        assert!(!done.success() && !done.stopped && done.left.is_empty());
    }
}

async fn output_is_ordered_and_complete() {
    let done = run("for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done").await;
    let lines: String = (1..=5).map(|n| format!("out {n}\nerr {n}\n")).collect();
    assert_eq!(done.output.text(), lines);
    assert!(!done.pipe_held);
    // The keeper closes the pipe once the command has started, not only when the command ends.
    let held = "while readlink /proc/$PPID/fd/1 /proc/$PPID/fd/2 | grep -q pipe:; do :; done";
    let done = tokio::time::timeout(SOON, run(held)).await.expect("the keeper closes the pipe");
    assert!(done.success());
    let flood = run("head -c 50000000 /dev/zero | tr '\\0' x; echo end").await;
    assert!(flood.output.text().ends_with("end\n") && !flood.pipe_held);
}

async fn command_has_no_input() {
    assert_eq!(run("cat; echo done").await.output.text(), "done\n");
    // It has no terminal either, even if these tests were started from one.
    assert!(!run("exec < /dev/tty").await.success());
}

async fn start_failure_is_reported() {
    let stop = StopTokens::never();
    let error = CommandLine::new("a\0b").run(&stop).await.unwrap_err();
    assert!(error.kind() == std::io::ErrorKind::InvalidInput && error.to_string().contains("nul"));
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent");
    let error = CommandLine::new("true").in_dir(&absent).run(&stop).await.unwrap_err();
    let says = format!("{} does not exist", absent.display());
    assert!(error.to_string().contains(&says), "{error}");
    // Longer than an argument may be, and longer than the buffer of a socket.
    let long = format!("true {}", "x".repeat(3_000_000));
    let error = CommandLine::new(long).run(&stop).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ArgumentListTooLong);
    let long = format!("true {}; echo {}", "x".repeat(100_000), "y".repeat(20_000));
    assert_eq!(run(long).await.output.text(), format!("{}\n", "y".repeat(20_000)));
    assert!(run("").await.success());
}

async fn secrets_are_withheld() {
    let line = "echo \"[$ENDSTOP_TEST_API_KEY] [$ENDSTOP_TEST_PASSWORD]\"; \
                cat /proc/$PPID/environ 2>/dev/null | tr '\\0' '\\n' | grep -c ENDSTOP_TEST_";
    // Only root can read the environment of a keeper, because it is hidden from other processes.
    let kept = |count: u32| if rustix::process::geteuid().is_root() { count } else { 0 };
    assert_eq!(run(line).await.output.text(), "[] []\n0\n", "nor to the keeper");
    let one = CommandLine::new(line).allow_variable("ENDSTOP_TEST_PASSWORD");
    let shown = one.run(&StopTokens::never()).await.unwrap().output.text();
    assert_eq!(shown, format!("[] [allowed]\n{}\n", kept(1)));
    let all = CommandLine::new(line).whole_environment();
    let shown = all.run(&StopTokens::never()).await.unwrap().output.text();
    assert_eq!(shown, format!("[hidden] [allowed]\n{}\n", kept(2)));
}

async fn asked_command_may_clean_up() {
    let mark = marker();
    let stop = stop(SOON);
    let ask = stop.ask.clone();
    let line = format!("trap 'echo cleaned; exit 7' TERM; sleep {mark} & wait");
    let done = stopped(&line, mark, 1, stop, || ask.cancel()).await;
    assert_eq!((done.output.text().as_str(), done.how().as_str()), ("cleaned\n", "exit status 7"));
    assert!(done.stopped);
    gone(mark);

    let mark = marker();
    let stop = self::stop(SOON);
    let ask = stop.ask.clone();
    let line = format!("sleep {mark} & sleep {mark}");
    let done = stopped(&line, mark, 2, stop, || ask.cancel()).await;
    assert_eq!(done.how(), "killed by signal 15");
    gone(mark);
}

/// A command with four processes that ignore SIGTERM: two in its group, one in another session, and
/// a daemon with an empty environment.
fn deaf(mark: u32) -> String {
    format!(
        "trap '' TERM HUP INT; sleep {mark} & setsid sleep {mark} & \
         (setsid env -i sleep {mark} >/dev/null 2>&1 &); sleep {mark}; sleep {mark}"
    )
}

async fn deaf_command_dies_after_grace() {
    let mark = marker();
    let grace = Duration::from_millis(300);
    let stop = stop(grace);
    let ask = stop.ask.clone();
    let mut asked = Instant::now();
    let done = stopped(&deaf(mark), mark, 4, stop, || {
        asked = Instant::now();
        ask.cancel();
    })
    .await;
    let took = asked.elapsed();
    assert!(took >= grace && took < grace + SOON, "{took:?}");
    assert_eq!(done.how(), "killed by signal 9");
    assert!(alive(mark).is_empty(), "a process outlived the command");
    gone(mark);
}

async fn kill_cuts_grace_short() {
    let mark = marker();
    let stop = stop(Duration::from_secs(600));
    let (ask, kill) = (stop.ask.clone(), stop.kill.clone());
    // Measured from the kill: the start may be slow on a busy machine.
    let mut asked = Instant::now();
    let done = stopped(&deaf(mark), mark, 4, stop, || {
        asked = Instant::now();
        ask.cancel();
        kill.cancel();
    })
    .await;
    assert!(asked.elapsed() < SOON && done.how() == "killed by signal 9");
    assert!(alive(mark).is_empty());
    gone(mark);
}

async fn drop_kills_at_once() {
    let mark = marker();
    let line = CommandLine::new(deaf(mark));
    let stop = StopTokens::never();
    let mut running = Box::pin(line.run(&stop));
    tokio::select! {
        early = &mut running => panic!("it does not end by itself: {early:?}"),
        _ = started(mark, 4) => {}
    }
    drop(running);
    gone(mark);
}

async fn early_drop_leaves_no_process() {
    let marks: Vec<u32> = (0..20).map(|_| marker()).collect();
    for mark in &marks {
        let line = CommandLine::new(deaf(*mark));
        let stop = StopTokens::never();
        let mut running = Box::pin(line.run(&stop));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(running);
        gone(*mark);
    }
    // Once more: a command that starts late was not there at the first look.
    marks.into_iter().for_each(gone);
}

async fn hidden_daemon_dies_with_command() {
    let mark = marker();
    // The command ends only after the daemon runs, because it waits for the daemon's line in a
    // pipe.
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let pipe = pipe.display();
    let line = format!(
        "mkfifo {pipe}; \
         (env -i setsid sh -c 'echo runs > {pipe}; exec sleep {mark}' >/dev/null 2>&1 &); \
         cat {pipe}"
    );
    let done = run(line).await;
    assert_eq!(done.output.text(), "runs\n");
    assert!(done.success() && done.left.is_empty());
    assert!(alive(mark).is_empty(), "a process outlived the command");
    gone(mark);
}

/// A shell loop that waits until `count` processes run `sleep {mark}`. Only `sleep` itself counts:
/// `setsid sleep {mark}` has the number among its words too, but may not have left its session yet.
/// The dots stand for the NUL bytes in `cmdline`.
fn sleeping(mark: u32, count: usize) -> String {
    format!(
        "while [ $(grep -lsax -esleep.{mark}. /proc/[0-9]*/cmdline | wc -l) -lt {count} ]; \
         do :; done"
    )
}

async fn nested_daemons_die_with_command() {
    let mark = marker();
    let all = sleeping(mark, 3);
    let line = format!(
        "setsid sh -c '(setsid sh -c \"(setsid sleep {mark} &) ; sleep {mark}\" &); sleep {mark}' & \
         {all}"
    );
    assert!(run(line).await.success());
    assert!(alive(mark).is_empty());
    gone(mark);
}

/// Each process starts its successor in a new session and exits. The chain ends by itself after a
/// limited number of hops, so that a failed test leaves nothing behind.
async fn hopping_process_is_caught() {
    let mark = marker();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("hop");
    let hop = "[ $2 -gt 0 ] && env -i setsid sh \"$0\" $1 $(($2 - 1)) >/dev/null 2>&1 &";
    std::fs::write(&script, hop).unwrap();
    for _ in 0..10 {
        let line = format!("sh {} {mark} 20000; sleep 0.05", script.display());
        let done = run(line).await;
        assert!(done.success() && done.left.is_empty(), "{done:?}");
        assert!(alive(mark).is_empty());
    }
}

async fn allowed_daemon_outlives_group() {
    let (daemon, child) = (marker(), marker());
    let runs = sleeping(daemon, 1);
    let line = format!(
        "setsid sleep {daemon} >/dev/null 2>&1 & trap '' TERM; sleep {child} & \
         {runs}; echo done"
    );
    let done = CommandLine::new(line).leave_daemons().run(&StopTokens::never()).await.unwrap();
    assert!(done.success() && done.left.is_empty(), "{done:?}");
    assert!(alive(child).is_empty());
    let living = alive(daemon);
    assert_eq!(living.len(), 1);
    Command::new("kill").arg("-9").arg(living[0].to_string()).status().unwrap();
    soon("the daemon is gone", || alive(daemon).is_empty());
}

async fn keeper_ignores_signals_of_command() {
    let mark = marker();
    let line = format!(
        "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; kill -QUIT $PPID; \
         setsid sleep {mark} & cat /proc/$PPID/comm"
    );
    let done = run(line).await;
    assert_eq!(done.output.text(), "endstop-keeper\n");
    assert!(done.success());
    gone(mark);
    // The command must receive them: it inherits no ignored signal.
    let done = run("kill -INT $$; echo deaf").await;
    assert_eq!(done.how(), "killed by signal 2");
}

async fn host_replaces_killed_keeper() {
    let mark = marker();
    // One without the variable in the group's session, one with it in another session, and one
    // plain child. The keeper is killed only after all three run, so that the count is exact.
    let all = sleeping(mark, 3);
    let line = format!(
        "trap '' TERM HUP; env -i sleep {mark} & setsid sleep {mark} & sleep {mark} & \
         {all}; kill -9 $PPID; wait"
    );
    let begun = Instant::now();
    let done = run(line).await;
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    // The shell and its three children; this program has not agreed to adopt orphans.
    let how = "killed with its keeper: 4 of its processes were killed, others may still run";
    assert_eq!(done.how(), how);
    assert!(done.status.is_none() && !done.success() && done.left.is_empty());
    assert!(alive(mark).is_empty());
    gone(mark);
}

async fn killed_keeper_leaves_allowed_daemon() {
    let (daemon, child) = (marker(), marker());
    let runs = sleeping(daemon, 1);
    let line = format!(
        "setsid sleep {daemon} >/dev/null 2>&1 & sleep {child} & \
         {runs}; kill -9 $PPID; sleep {child}"
    );
    let done = CommandLine::new(line).leave_daemons().run(&StopTokens::never()).await.unwrap();
    assert!(done.status.is_none() && alive(child).is_empty());
    let living = alive(daemon);
    assert_eq!(living.len(), 1);
    Command::new("kill").arg("-9").arg(living[0].to_string()).status().unwrap();
    soon("the daemon is gone", || alive(daemon).is_empty());
}

async fn stopped_keeper_is_killed_by_host() {
    // The host notices by itself.
    let mark = marker();
    // All of these have the mark: once the keeper is gone, the host finds no others.
    let marked = |mark| deaf(mark).replace("env -i ", "");
    let line = format!("kill -STOP $PPID; {}", marked(mark));
    let begun = Instant::now();
    let done = run(line).await;
    assert!(begun.elapsed() < SOON && done.status.is_none() && !done.stopped, "{done:?}");
    assert!(done.how().starts_with("killed with its keeper: "), "{done:?}");
    gone(mark);

    // The same if the command is killed meanwhile. The host may have noticed before that: which
    // is first depends on the machine, so the test must not wait for the processes to start.
    let mark = marker();
    let stop = StopTokens::never();
    let line = CommandLine::new(format!("kill -STOP $PPID; {}", marked(mark)));
    let mut running = pin!(line.run(&stop));
    let early = tokio::select! {
        early = &mut running => Some(early),
        _ = started(mark, 1) => None,
    };
    stop.kill.cancel();
    let done = match early {
        Some(done) => done.unwrap(),
        None => running.await.unwrap(),
    };
    assert!(!done.success(), "{done:?}");
    gone(mark);
}

async fn orphans_are_reaped_during_command() {
    let line = "n=0; while [ $n -lt 100 ]; do (true &); n=$((n+1)); done; \
                while grep -qsF \") Z $PPID \" /proc/[0-9]*/stat; do :; done; echo reaped";
    let done = tokio::time::timeout(SOON, run(line)).await.expect("they are reaped");
    assert_eq!(done.output.text(), "reaped\n");
}

async fn keeper_uses_little_memory() {
    let done = run("grep -E '^(VmRSS|RssAnon)' /proc/$PPID/status").await;
    let text = done.output.text();
    let kib = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Anonymous pages are its own; the other pages are those of the program, which the host has
    // too.
    assert!(kib("RssAnon") < 8 * 1024, "{text}");
}

async fn parallel_commands_end_independently() {
    let mark = marker();
    let calls = tokio_util::task::TaskTracker::new();
    let running: Vec<_> = (0..40)
        .map(|n| {
            calls.spawn(async move {
                let done =
                    run(format!("setsid sleep {mark} & sleep {mark} & echo {n}; exit {n}")).await;
                assert!(done.output.text().starts_with(&n.to_string()));
                assert_eq!(done.how(), format!("exit status {n}"));
            })
        })
        .collect();
    for call in running {
        call.await.unwrap();
    }
    gone(mark);
}
