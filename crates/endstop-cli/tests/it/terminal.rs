//! The view on a terminal: the binary runs on a real pseudo-terminal, and a terminal emulator reads
//! its output.

use crate::cli::{Cli, agent_args, answering, eventually, playing};
use endstop::testkit::{Reply, Server, Turn, sse};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::num::NonZero;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};

pub(crate) const ROWS: u16 = 12;
pub(crate) const COLUMNS: u16 = 40;

pub(crate) struct Terminal {
    /// The folder, which exists until the end.
    pub(crate) cli: Cli,
    /// The input side of the terminal.
    keyboard: File,
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: std::thread::JoinHandle<()>,
}

impl Terminal {
    /// Runs the binary with all three standard streams on a terminal.
    pub(crate) fn run(server: &Server, args: &[&str]) -> Terminal {
        Terminal::with(Cli::new(), agent_args(server, "openai-chat", args))
    }

    /// Runs the binary with these arguments in this folder.
    pub(crate) fn with<S: AsRef<OsStr>>(cli: Cli, args: impl IntoIterator<Item = S>) -> Terminal {
        let command = cli.command(args);
        Terminal::of(cli, command)
    }

    /// Runs a script of bash, which the terminal controls: its keys send signals. `$ENDSTOP` is the binary.
    pub(crate) fn script(cli: Cli, script: &str) -> Terminal {
        let model = cli.command(["--version"]);
        let mut command = Command::new("setsid");
        command.args(["--ctty", "bash", "-c", script]).env("ENDSTOP", model.get_program());
        for (name, value) in model.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(model.get_current_dir().unwrap());
        Terminal::of(cli, command)
    }

    fn of(cli: Cli, mut command: Command) -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let size = Winsize { ws_row: ROWS, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap().into_string().unwrap();
        let theirs = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let child = command.stdin(theirs()).stdout(theirs()).stderr(theirs()).spawn().unwrap();
        // The command object holds the other end, too; reading ends when the last holder closes it.
        drop(command);
        let [rows, columns] = [ROWS, COLUMNS].map(|n| NonZero::new(n).unwrap());
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 1000)));
        let fed = Arc::clone(&screen);
        let mut file = File::from(ours);
        let keyboard = file.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = file.read(&mut bytes) {
                fed.lock().unwrap().process(&bytes[..read]);
            }
        });
        Terminal { cli, keyboard, child, screen, reader }
    }

    /// Types text.
    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Interrupts the process with a signal, because this terminal controls no process and Ctrl-C
    /// has no effect.
    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Sets the size in rows, which sends a signal to the programs.
    pub(crate) fn resize(&self, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).unwrap();
    }

    /// The private modes that are on, for example the alternate screen.
    pub(crate) fn modes(&self) -> Vec<&'static str> {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let modes = [
            ("alternate screen", screen.alternate_screen()),
            ("mouse", screen.mouse_protocol_mode() != vt100::MouseProtocolMode::None),
            ("mouse encoding", {
                screen.mouse_protocol_encoding() != vt100::MouseProtocolEncoding::Default
            }),
            ("bracketed paste", screen.bracketed_paste()),
            ("hidden cursor", screen.hide_cursor()),
            ("cursor keys", screen.application_cursor()),
            ("keypad", screen.application_keypad()),
        ];
        modes.into_iter().filter(|(_, on)| *on).map(|(name, _)| name).collect()
    }

    pub(crate) fn rows(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        screen.screen().rows(0, COLUMNS).map(|row| row.trim_end().to_owned()).collect()
    }

    /// Returns all output after the end: first the lines that scrolled away, then the screen, with
    /// wrapped lines joined.
    pub(crate) fn finish(mut self) -> (i32, String) {
        let status = self.child.wait().unwrap();
        self.reader.join().unwrap();
        let mut parser = self.screen.lock().unwrap();
        let mut all: Vec<(String, bool)> = Vec::new();
        parser.screen_mut().set_scrollback(usize::MAX);
        for above in (0..=parser.screen().scrollback()).rev() {
            parser.screen_mut().set_scrollback(above);
            let screen = parser.screen();
            let shown = if above == 0 { usize::from(ROWS) } else { 1 };
            all.extend(
                screen
                    .rows(0, COLUMNS)
                    .take(shown)
                    .enumerate()
                    .map(|(at, row)| (row, screen.row_wrapped(u16::try_from(at).unwrap()))),
            );
        }
        let text = all.iter().fold(String::new(), |mut text, (row, wrapped)| {
            text.push_str(row);
            if !wrapped {
                text.push('\n');
            }
            text
        });
        (status.code().unwrap(), text)
    }
}

fn is_status(row: &str) -> bool {
    row.starts_with("turn 1/25 · 0 tokens")
}

/// A demo is for a person who tries the command. A job that lost its settings must not pass as one.
#[test]
fn run_without_model_is_a_demo_only_for_a_person() {
    let (status, text) = Terminal::with(Cli::new(), ["run"]).finish();
    assert!(status == 0 && text.contains("showing the built-in `fix` demo"), "{status}: {text}");
    let bare: &[&str] = &["run"];
    let works: [&[&str]; 4] = [
        &["run", "Fix it."],
        &["run", "--tool", "shell"],
        &["run", "--verify", "false"],
        &["run", "--policy", "max_steps={\"steps\": 1}"],
    ];
    for args in works {
        let (status, text) = Terminal::with(Cli::new(), args).finish();
        assert!(status == 2 && text.contains("--model PROVIDER/MODEL"), "{args:?}: {text}");
    }
    for args in works.into_iter().chain([bare]) {
        Cli::new().run(args).exits(2).notes(&["no model is configured", "--model PROVIDER/MODEL"]);
    }
    Cli::new().feed(["run"], "Fix it.").exits(2).notes(&["--model PROVIDER/MODEL"]);
}

#[test]
fn invalid_line_is_reported_once() {
    let invalid = "{\"result\": 5}";
    for (args, file) in [
        (&["decide", "--policy", "final_pattern", "bad"][..], invalid),
        (&["simulate", "--jsonl", "bad"][..], "{\"id\": 1}\n{}"),
        (&["detect", "--jsonl", "bad"][..], "{\"id\": 1}\n{}"),
    ] {
        let cli = Cli::new();
        cli.write("bad", file);
        let piped = cli.run(args).exits(2);
        assert!(piped.stderr.contains("endstop: bad: line 1: "), "{piped:#?}");
        let (status, text) = Terminal::with(cli, args).finish();
        let reported = text.matches("line 1: ").count();
        assert_eq!((status, reported), (2, 1), "{args:?}: {text}");
    }
}

/// Answers one request with this turn, and pauses after two thirds of it until the sender is dropped.
/// Returns the base URL.
fn pausing(turn: &Turn) -> (String, mpsc::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let events = sse::openai(turn);
    let (more, go) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // The request ends with the end of its JSON body; no part before that ends in a brace.
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
        }
        let (first, rest) = events.split_at(events.len() * 2 / 3);
        let head =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        stream.write_all((head.to_owned() + &first.concat()).as_bytes()).unwrap();
        let _ = go.recv();
        stream.write_all(rest.concat().as_bytes()).unwrap();
    });
    (url, more)
}

#[test]
fn status_line_leaves_no_trace() {
    let words: String = (1..=150).map(|n| format!("word{n} ")).collect();
    let text = format!("{words}\nA new line.\n\n- a list\n- its end");
    let (url, more) = pausing(&Turn::text(&text));
    let args = ["run", "Talk.", "--model", "scripted", "--api", "openai-chat", "--base-url", &url];
    let terminal = Terminal::with(Cli::new(), args);
    // In the middle of a line, with the end of the text in the row above the status.
    eventually("a status below the text", || {
        let rows = terminal.rows();
        let at = rows.iter().position(|row| is_status(row));
        at.is_some_and(|at| at > 0 && rows[at - 1].contains("word"))
    });
    // Also at the bottom of the screen, which has no room below.
    eventually("a status in the last row", || {
        terminal.rows().last().is_some_and(|row| is_status(row))
    });
    drop(more);
    let (code, seen) = terminal.finish();
    assert_eq!(code, 0);
    assert!(seen.starts_with(text.as_str()), "{seen}");
    assert!(!seen.lines().any(is_status), "{seen}");
    assert!(seen.contains("stopped: stop (success)"), "{seen}");
}

#[test]
fn terminal_escapes_are_not_passed_on() {
    let hostile = "a\u{1b}]0;owned\u{7}b\u{1b}[2Jc\u{9b}31md";
    let server = answering(move |request| Reply::turn(request, &Turn::text(hostile)));
    let (code, seen) = Terminal::run(&server, &["Talk."]).finish();
    assert_eq!(code, 0);
    // Symbols for the control characters, and a number for the one that has no symbol.
    assert!(seen.starts_with("a␛]0;owned␇b␛[2Jc<U+009B>31md"), "{seen}");
    // In a pipe the text is that of the model, byte for byte.
    let done = Cli::new().agent(&server, "openai-chat", &["Talk."]).exits(0);
    assert!(done.stdout.starts_with(hostile), "{done:#?}");
}

#[test]
fn dumb_terminal_gets_no_escapes() {
    let server = playing([Turn::text("Done.")]);
    let cli = Cli::new();
    let mut command = cli.command(agent_args(&server, "openai-chat", &["Talk."]));
    command.env("TERM", "dumb");
    let (code, seen) = Terminal::of(cli, command).finish();
    assert!(code == 0 && seen.contains("stopped: stop") && !seen.contains('\x1b'), "{seen:?}");
}

#[test]
fn invisible_characters_of_calls_are_numbered() {
    let command = "echo a\u{202e}b\u{200b}c\u{2028}d\u{feff}";
    let server = playing([
        Turn::call("shell", &serde_json::json!({ "command": command })),
        Turn::text("x\u{2066}y"),
    ]);
    let (code, seen) = Terminal::run(&server, &["Talk.", "--tool", "shell"]).finish();
    assert_eq!(code, 0);
    let shown = "a<U+202E>b<U+200B>c<U+2028>d<U+FEFF>";
    assert_eq!(seen.matches(shown).count(), 2, "in the call and in its result: {seen}");
    assert!(seen.contains("x<U+2066>y"), "{seen}");
}
