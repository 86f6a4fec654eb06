//! What holds of a command with a keeper, one function each; `all` runs them one after the other.

use crate::processes::{SOON, alive, gone, marker, soon, started};
use endstop::process::{CommandLine, Finished, Stop};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

macro_rules! all {
    ($($check:ident),* $(,)?) => {
        [$((stringify!($check), || runtime().block_on($check()))),*]
    };
}

pub(crate) fn all() -> ExitCode {
    // An environment cannot be changed in a process with threads: it is given to a second one. So
    // is a signal that it ignores, which must not keep it from hearing how commands end.
    if std::env::var_os("ENDSTOP_TEST_API_KEY").is_none() {
        let again = Command::new("sh")
            .args(["-c", "trap '' CHLD; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(std::env::args_os().skip(1))
            .env("ENDSTOP_TEST_API_KEY", "hidden")
            .env("ENDSTOP_TEST_PASSWORD", "allowed")
            .status()
            .unwrap();
        return if again.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let checks: [(&str, fn()); 22] = all![
        a_command_has_a_keeper_with_a_session_of_its_own,
        its_end_is_told_exactly,
        its_output_comes_in_order_and_ends_with_it,
        it_has_no_input,
        what_cannot_start_is_an_error_as_without_a_keeper,
        secrets_are_not_handed_on,
        who_is_asked_may_clean_up,
        who_does_not_listen_dies_after_the_grace_with_all_its_children,
        a_kill_does_not_wait_for_the_grace,
        a_drop_kills_at_once,
        a_drop_before_it_has_started_leaves_nothing,
        who_left_group_session_and_environment_dies_with_it,
        a_nest_of_daemons_dies_with_it,
        who_hops_from_process_to_process_is_caught,
        daemons_may_be_left_and_the_group_is_not,
        a_keeper_does_not_hear_what_its_host_has_not_said,
        a_keeper_that_is_killed_is_replaced,
        a_keeper_that_is_killed_leaves_daemons_only_where_it_may,
        a_keeper_that_is_stopped_is_killed,
        orphans_are_reaped_while_the_command_goes_on,
        a_keeper_is_small,
        many_at_once_end_each_for_itself,
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
    CommandLine::new(line).run(&Stop::never()).await.unwrap()
}

/// Runs it until so many processes sleep, then does this, then gives its end.
async fn stopped(line: &str, mark: u32, count: usize, stop: Stop, then: impl FnOnce()) -> Finished {
    let command = CommandLine::new(line);
    let mut running = pin!(command.run(&stop));
    tokio::select! {
        early = &mut running => panic!("it does not end by itself: {early:?}"),
        () = started(mark, count) => {}
    }
    then();
    running.await.unwrap()
}

fn stop(grace: Duration) -> Stop {
    Stop { grace, ..Stop::never() }
}

async fn a_command_has_a_keeper_with_a_session_of_its_own() {
    let done = run("cat /proc/$PPID/comm; cut -d' ' -f4-6 /proc/self/stat; echo $PPID").await;
    let text = done.output.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "endstop-keeper");
    // Parent, group, session: of `cut`, whose parent is the shell, which leads the group.
    let numbers: Vec<&str> = lines[1].split(' ').collect();
    assert_eq!(numbers[0], numbers[1]);
    assert_eq!(numbers[2], lines[2], "the keeper leads the session");
    let words = run("tr '\\0' ' ' < /proc/$PPID/cmdline").await.output.text();
    assert!(words.starts_with("endstop-keeper --endstop-keeper=2 "), "{words}");
    assert!(!words.contains("cmdline"), "the command line is not among its words: {words}");
}

async fn its_end_is_told_exactly() {
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

async fn its_output_comes_in_order_and_ends_with_it() {
    let done = run("for n in 1 2 3 4 5; do echo out $n; echo err $n >&2; done").await;
    let lines: String = (1..=5).map(|n| format!("out {n}\nerr {n}\n")).collect();
    assert_eq!(done.output.text(), lines);
    assert!(!done.pipe_held);
    // The keeper lets go of the pipe once the command has started, not only when it ends.
    let held = "while readlink /proc/$PPID/fd/1 /proc/$PPID/fd/2 | grep -q pipe:; do :; done";
    let done = tokio::time::timeout(SOON, run(held)).await.expect("the keeper lets go");
    assert!(done.success());
    let flood = run("head -c 50000000 /dev/zero | tr '\\0' x; echo end").await;
    assert!(flood.output.text().ends_with("end\n") && !flood.pipe_held);
}

async fn it_has_no_input() {
    assert_eq!(run("cat; echo done").await.output.text(), "done\n");
    // No terminal either, whoever started these tests.
    assert!(!run("exec < /dev/tty").await.success());
}

async fn what_cannot_start_is_an_error_as_without_a_keeper() {
    let stop = Stop::never();
    let error = CommandLine::new("a\0b").run(&stop).await.unwrap_err();
    assert!(error.kind() == std::io::ErrorKind::InvalidInput && error.to_string().contains("nul"));
    let error = CommandLine::new("true").in_dir("/nonexistent").run(&stop).await.unwrap_err();
    assert!(error.to_string().contains("/nonexistent does not exist"), "{error}");
    // Longer than an argument may be, and than what waits in a socket.
    let long = format!("true {}", "x".repeat(3_000_000));
    let error = CommandLine::new(long).run(&stop).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ArgumentListTooLong);
    let long = format!("true {}; echo {}", "x".repeat(100_000), "y".repeat(20_000));
    assert_eq!(run(long).await.output.text(), format!("{}\n", "y".repeat(20_000)));
    assert!(run("").await.success());
}

async fn secrets_are_not_handed_on() {
    let line = "echo \"[$ENDSTOP_TEST_API_KEY] [$ENDSTOP_TEST_PASSWORD]\"; \
                tr '\\0' '\\n' < /proc/$PPID/environ | grep -c ENDSTOP_TEST_";
    assert_eq!(run(line).await.output.text(), "[] []\n0\n", "nor to the keeper");
    let one = CommandLine::new(line).allow_variable("ENDSTOP_TEST_PASSWORD");
    assert_eq!(one.run(&Stop::never()).await.unwrap().output.text(), "[] [allowed]\n1\n");
    let all = CommandLine::new(line).whole_environment();
    assert_eq!(all.run(&Stop::never()).await.unwrap().output.text(), "[hidden] [allowed]\n2\n");
}

async fn who_is_asked_may_clean_up() {
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

/// Processes of the group, of another session, of a daemon, all deaf: four.
fn deaf(mark: u32) -> String {
    format!(
        "trap '' TERM HUP INT; sleep {mark} & setsid sleep {mark} & \
         (setsid env -i sleep {mark} >/dev/null 2>&1 &); sleep {mark}; sleep {mark}"
    )
}

async fn who_does_not_listen_dies_after_the_grace_with_all_its_children() {
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
    assert!(took >= grace && took < grace + Duration::from_secs(5), "{took:?}");
    assert_eq!(done.how(), "killed by signal 9");
    assert!(alive(mark).is_empty(), "none is left when it is told");
    gone(mark);
}

async fn a_kill_does_not_wait_for_the_grace() {
    let mark = marker();
    let stop = stop(Duration::from_secs(600));
    let (ask, kill) = (stop.ask.clone(), stop.kill.clone());
    let asked = Instant::now();
    let done = stopped(&deaf(mark), mark, 4, stop, || {
        ask.cancel();
        kill.cancel();
    })
    .await;
    assert!(asked.elapsed() < SOON && done.how() == "killed by signal 9");
    assert!(alive(mark).is_empty());
    gone(mark);
}

async fn a_drop_kills_at_once() {
    let mark = marker();
    let line = CommandLine::new(deaf(mark));
    let stop = Stop::never();
    let mut running = Box::pin(line.run(&stop));
    tokio::select! {
        early = &mut running => panic!("it does not end by itself: {early:?}"),
        () = started(mark, 4) => {}
    }
    drop(running);
    gone(mark);
}

async fn a_drop_before_it_has_started_leaves_nothing() {
    for _ in 0..20 {
        let mark = marker();
        let line = CommandLine::new(deaf(mark));
        let stop = Stop::never();
        let mut running = Box::pin(line.run(&stop));
        assert!(running.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(running);
        gone(mark);
    }
}

async fn who_left_group_session_and_environment_dies_with_it() {
    let mark = marker();
    // The daemon runs when the command ends: it says so in a pipe.
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
    assert!(alive(mark).is_empty(), "none is left when it is told");
    gone(mark);
}

/// Waits, in a command, until so many processes sleep for so long. Its own words hold the number
/// glued to others.
fn sleeping(mark: u32, count: usize) -> String {
    format!("while [ $(grep -lzsx -e{mark} /proc/[0-9]*/cmdline | wc -l) -lt {count} ]; do :; done")
}

async fn a_nest_of_daemons_dies_with_it() {
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

/// Each starts its successor in a session of its own, and ends; after so many hops they stop by
/// themselves.
async fn who_hops_from_process_to_process_is_caught() {
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

async fn daemons_may_be_left_and_the_group_is_not() {
    let (daemon, child) = (marker(), marker());
    let runs = sleeping(daemon, 1);
    let line = format!(
        "setsid sleep {daemon} >/dev/null 2>&1 & trap '' TERM; sleep {child} & \
         {runs}; echo done"
    );
    let done = CommandLine::new(line).leave_daemons().run(&Stop::never()).await.unwrap();
    assert!(done.success() && done.left.is_empty(), "{done:?}");
    assert!(alive(child).is_empty());
    let living = alive(daemon);
    assert_eq!(living.len(), 1);
    Command::new("kill").arg("-9").arg(living[0].to_string()).status().unwrap();
    soon("the daemon is gone", || alive(daemon).is_empty());
}

async fn a_keeper_does_not_hear_what_its_host_has_not_said() {
    let mark = marker();
    let line = format!(
        "kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; kill -QUIT $PPID; \
         setsid sleep {mark} & cat /proc/$PPID/comm"
    );
    let done = run(line).await;
    assert_eq!(done.output.text(), "endstop-keeper\n");
    assert!(done.success());
    gone(mark);
    // And its command hears them: none is ignored in it.
    let done = run("kill -INT $$; echo deaf").await;
    assert_eq!(done.how(), "killed by signal 2");
}

async fn a_keeper_that_is_killed_is_replaced() {
    let mark = marker();
    // One without the variable in the group's session, one with it in another session, and one
    // plain child. All three run before the keeper is killed, so that the count is exact.
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

async fn a_keeper_that_is_killed_leaves_daemons_only_where_it_may() {
    let (daemon, child) = (marker(), marker());
    let runs = sleeping(daemon, 1);
    let line = format!(
        "setsid sleep {daemon} >/dev/null 2>&1 & sleep {child} & \
         {runs}; kill -9 $PPID; sleep {child}"
    );
    let done = CommandLine::new(line).leave_daemons().run(&Stop::never()).await.unwrap();
    assert!(done.status.is_none() && alive(child).is_empty());
    let living = alive(daemon);
    assert_eq!(living.len(), 1);
    Command::new("kill").arg("-9").arg(living[0].to_string()).status().unwrap();
    soon("the daemon is gone", || alive(daemon).is_empty());
}

async fn a_keeper_that_is_stopped_is_killed() {
    let mark = marker();
    let stop = Stop::never();
    let kill = stop.kill.clone();
    let line = format!("kill -STOP $PPID; {}", deaf(mark));
    let asked = Instant::now();
    // One of the four has neither the mark nor the session: only a keeper holds such a one.
    let line = line.replace("env -i ", "");
    let done = stopped(&line, mark, 4, stop, || kill.cancel()).await;
    assert!(asked.elapsed() < SOON && !done.success() && done.stopped, "{done:?}");
    gone(mark);
}

async fn orphans_are_reaped_while_the_command_goes_on() {
    let line = "n=0; while [ $n -lt 100 ]; do (true &); n=$((n+1)); done; \
                while grep -qsF \") Z $PPID \" /proc/[0-9]*/stat; do :; done; echo reaped";
    let done = tokio::time::timeout(SOON, run(line)).await.expect("they are reaped");
    assert_eq!(done.output.text(), "reaped\n");
}

async fn a_keeper_is_small() {
    let done = run("grep -E '^(VmRSS|RssAnon)' /proc/$PPID/status").await;
    let text = done.output.text();
    let kib = |name: &str| -> u64 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    // Its own pages; the others are those of the program, which its host has too.
    assert!(kib("RssAnon") < 8 * 1024, "{text}");
}

async fn many_at_once_end_each_for_itself() {
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
