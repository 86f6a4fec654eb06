//! `endstop guard` at a terminal that controls it: keys send signals, and full-screen programs change its modes.

use crate::cli::{Cli, eventually, playing};
use crate::terminal::Terminal;
use endstop::testkit::{Server, Turn};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("full_screen.py");

/// Starts guard with these options around the program, between two looks at the modes of the terminal.
fn at_terminal(server: &Server, options: &str, program: &str) -> Terminal {
    let cli = Cli::new();
    cli.write("agent.py", PROGRAM);
    let url = server.base_url();
    let script = format!(
        "set -m; trap : INT; export OPENAI_BASE_URL={url}; echo above; stty -a | tail -n +2 > before
        $ENDSTOP guard --journal off --events events {options} -- python3 agent.py {program}
        echo $? > status; stty -a | tail -n +2 > new; mv new after
        [ -e continues ] && {{ fg; echo $? > status; stty -a | tail -n +2 > new; mv new after; }}
        exec sleep 0.1"
    );
    Terminal::script(cli, &script)
}

fn asks(times: usize) -> Server {
    playing((0..times).map(|n| Turn::text(format!("text {n}"))).collect::<Vec<_>>())
}

fn shows(terminal: &Terminal, text: &str) -> bool {
    // The rows have no trailing blanks, so a text may be split between two words.
    let shown: String = terminal.rows().concat().split_whitespace().collect();
    shown.contains(&text.split_whitespace().collect::<String>())
}

fn until(terminal: &Terminal, text: &str) {
    eventually(text, || shows(terminal, text));
}

/// Waits for the end; the modes must be those from before. Returns the status of guard and what is shown.
fn restored(terminal: Terminal) -> (String, String) {
    eventually("the end", || terminal.cli.path("after").exists());
    eventually("no modes", || terminal.modes().is_empty());
    let (before, after) = (terminal.cli.read("before"), terminal.cli.read("after"));
    assert_eq!(before, after);
    let status = terminal.cli.read("status").trim().to_owned();
    let events = terminal.cli.read("events");
    let (_, shown) = terminal.finish();
    // The screen from before the program is there again, and the card is below it.
    let joined: String = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let (above, card) = (joined.find("above").unwrap(), joined.find("stopped: ").unwrap());
    assert!(above < card, "{shown}");
    assert!(!joined.contains("answer:") && !joined.contains("refused:"), "{shown}");
    (status, format!("{joined}\n{events}"))
}

fn started(server: &Server, options: &str) -> Terminal {
    let terminal = at_terminal(server, options, "");
    until(&terminal, "ready");
    assert!(terminal.modes().len() == 7, "{:?}", terminal.modes());
    terminal
}

#[test]
fn full_screen_program_is_closed_when_it_calls_again() {
    let server = asks(1);
    let mut terminal = started(&server, "--max-turns 1 --grace 1s");
    terminal.types("c");
    until(&terminal, "answer: text 0");
    terminal.types("c");
    until(&terminal, "answer: Run stopped by endstop: error_max_turns");
    until(
        &terminal,
        "endstop guard closes this program; to continue, start it under `endstop guard`",
    );
    // Longer than the grace: an idle prompt costs nothing.
    let read = Instant::now();
    while read.elapsed() < Duration::from_secs(3) {
        assert!(!terminal.cli.path("status").exists(), "closed while its user reads");
        std::thread::sleep(Duration::from_millis(50));
    }
    terminal.types("c");
    let (status, shown) = restored(terminal);
    assert_eq!(status, "20", "{shown}");
    assert!(shown.contains("stopped: error_max_turns"), "{shown}");
}

#[test]
fn full_screen_program_is_closed_at_its_timeout() {
    let server = asks(1);
    let mut terminal = started(&server, "--timeout 2s --grace 1s");
    terminal.types("c");
    until(&terminal, "answer: text 0");
    let (status, shown) = restored(terminal);
    // The last answer was complete when the time was over.
    assert_eq!(status, "0", "{shown}");
    assert!(shown.contains("stopped: stop") && shown.contains("also error_timeout"), "{shown}");
    assert!(shown.contains("killed by signal 2"), "{shown}");
}

#[test]
fn refused_or_killed_program_leaves_a_usable_terminal() {
    for (options, again) in [("--on-limit refuse --grace 1s", 2), ("--on-limit kill", 0)] {
        let server = asks(1);
        let mut terminal = started(&server, &format!("--max-turns 1 {options}"));
        terminal.types("c");
        until(&terminal, "answer: text 0");
        terminal.types("c");
        if again > 0 {
            until(&terminal, "refused: Run stopped by endstop: error_max_turns");
            // After the grace the next call closes it.
            std::thread::sleep(Duration::from_millis(1500));
            terminal.types("c");
        }
        let (status, shown) = restored(terminal);
        assert_eq!(status, "20", "{options}: {shown}");
    }
}

#[test]
fn terminated_program_leaves_a_usable_terminal() {
    let server = asks(1);
    let mut terminal = started(&server, "");
    terminal.types("c");
    until(&terminal, "answer: text 0");
    let guard = std::fs::read_dir("/proc").unwrap().flatten().find(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let folder = std::fs::read_link(process.path().join("cwd")).ok();
        line.windows(6).any(|part| part == b"\0guard")
            && folder == terminal.cli.dir.path().canonicalize().ok()
    });
    let pid = guard.unwrap().file_name().to_string_lossy().parse().unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (status, shown) = restored(terminal);
    assert_eq!(status, "143", "{shown}");
    assert!(shown.contains("stopped: terminated"), "{shown}");
}

#[test]
fn program_that_is_left_or_suspended_keeps_its_modes() {
    for program in ["", "group"] {
        let server = asks(1);
        let mut terminal = at_terminal(&server, "", program);
        until(&terminal, "ready");
        terminal.resize(14);
        until(&terminal, "rows 14");
        terminal.types("c");
        until(&terminal, "answer: text 0");
        terminal.cli.write("continues", "");
        terminal.types("z");
        until(&terminal, "continued");
        assert!(terminal.modes().contains(&"alternate screen"), "{:?}", terminal.modes());
        std::fs::remove_file(terminal.cli.path("after")).unwrap();
        terminal.types("q");
        let (status, shown) = restored(terminal);
        assert_eq!(status, "0", "{shown}");
        assert!(shown.contains("stopped: stop"), "{shown}");
    }
}

/// A WebSocket is asked for by each codex, which then uses HTTP. The line goes to the events alone.
#[test]
fn request_for_a_web_socket_is_no_note() {
    let cli = Cli::new();
    let server = asks(1);
    let script = "import os,urllib.request as u
request = u.Request(os.environ['OPENAI_BASE_URL'] + '/responses', headers={'upgrade': 'websocket', 'connection': 'upgrade'})
try: u.urlopen(request)
except u.HTTPError as error: assert error.code == 426, error";
    let mut command = cli.command(["guard", "--events", "events", "--", "python3", "-c", script]);
    command.env("OPENAI_BASE_URL", server.base_url());
    let done = crate::cli::Started::new(command, "").finish().exits(0);
    assert!(!done.stderr.contains("refused"), "{done:#?}");
    assert!(cli.read("events").contains("/responses: not HTTP"), "{}", cli.read("events"));
}

fn lines(server: &Server, options: &str) -> Terminal {
    let terminal = at_terminal(server, options, "lines");
    until(&terminal, "ask");
    terminal
}

fn ended(terminal: Terminal) -> (String, String) {
    eventually("the end", || terminal.cli.path("after").exists());
    let status = terminal.cli.read("status").trim().to_owned();
    let events = terminal.cli.read("events");
    let last: serde_json::Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
    (status, last["termination"].as_str().unwrap().to_owned())
}

#[test]
fn interrupt_belongs_to_the_program() {
    let server = asks(3);
    let mut terminal = lines(&server, "--grace 1s");
    terminal.types("one\n");
    until(&terminal, "answer: text 0");
    terminal.types("\x03");
    until(&terminal, "interrupted");
    // Longer than the time for a second one, and than the grace.
    std::thread::sleep(Duration::from_millis(4000));
    terminal.types("\x03");
    eventually("again", || terminal.rows().concat().matches("interrupted").count() == 2);
    std::thread::sleep(Duration::from_millis(1500));
    terminal.types("two\n");
    until(&terminal, "answer: text 1");
    terminal.types("quit\n");
    assert_eq!(ended(terminal), ("0".to_owned(), "stop".to_owned()));
}

#[test]
fn program_that_ends_after_an_interrupt_is_cancelled() {
    let server = asks(1);
    let mut terminal = lines(&server, "");
    terminal.types("one\n");
    until(&terminal, "answer: text 0");
    terminal.types("\x03");
    until(&terminal, "interrupted");
    terminal.types("quit\n");
    assert_eq!(ended(terminal), ("130".to_owned(), "cancelled".to_owned()));
}

#[test]
fn second_interrupt_in_time_ends_the_run() {
    let server = asks(1);
    let mut terminal = lines(&server, "");
    terminal.types("one\n");
    until(&terminal, "answer: text 0");
    // As a person who keeps pressing: on a busy machine two keys may be too far apart to count as two in time, or
    // so close that the system delivers one signal.
    let began = Instant::now();
    while !terminal.cli.path("status").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{}", terminal.rows().concat());
        terminal.types("\x03");
        std::thread::sleep(Duration::from_millis(700));
    }
    assert_eq!(ended(terminal), ("130".to_owned(), "cancelled".to_owned()));
}
