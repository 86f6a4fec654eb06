//! `endstop acp`: an editor starts the binary and talks to it.

use crate::cli::{ANTHROPIC_KEY, Cli, DEADLINE, OPENAI_KEY, playing};
use endstop::testkit::{Server, Turn};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Instant;

/// The binary, as an editor holds it.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    last: u32,
    /// Everything that it printed.
    said: String,
}

impl Agent {
    fn start(cli: &Cli, server: &Server, args: &[&str]) -> Agent {
        let url = server.base_url();
        let first = ["acp", "--model", "scripted", "--api", "openai-chat", "--base-url", &url];
        Agent::spawn(cli, &[&first, args].concat())
    }

    fn spawn(cli: &Cli, args: &[&str]) -> Agent {
        let mut command = cli.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut agent = Agent { child, input, output, last: 0, said: String::new() };
        let said = agent.ask("initialize", json!({"protocolVersion": 1}));
        assert_eq!(said["result"]["agentInfo"]["name"], "endstop");
        agent
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    fn request(&mut self, method: &str, params: Value) -> u32 {
        self.last += 1;
        let id = self.last;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended; before: {}", self.said);
        self.said.push_str(&line);
        serde_json::from_str(&line).unwrap()
    }

    /// Reads until the answer to this request. Allows every call that it asks about.
    fn answer(&mut self, id: u32) -> Value {
        loop {
            let said = self.next();
            if said["method"] == "session/request_permission" {
                let selected =
                    json!({"outcome": {"outcome": "selected", "optionId": "allow_once"}});
                self.send(&json!({"jsonrpc": "2.0", "id": said["id"], "result": selected}));
            } else if said["id"] == id {
                return said;
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params);
        self.answer(id)
    }

    fn open(&mut self, cli: &Cli) -> Value {
        let params = json!({"cwd": cli.dir.path(), "mcpServers": []});
        self.ask("session/new", params)
    }

    fn prompt(&mut self, session: &Value) -> u32 {
        let prompt = json!([{"type": "text", "text": "Go."}]);
        self.request("session/prompt", json!({"sessionId": session, "prompt": prompt}))
    }

    /// Waits for the end, with a deadline, and returns the exit status.
    fn status(mut self) -> Option<i32> {
        for key in [OPENAI_KEY, ANTHROPIC_KEY] {
            assert!(!self.said.contains(key));
        }
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it hangs; before: {}", self.said);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn shell(command: &str) -> Turn {
    Turn::call("shell", &json!({ "command": command }))
}

#[test]
fn prompt_asks_and_ends_typed() {
    let cli = Cli::new();
    let finish = json!({"status": "done", "deliverable": "It is done."});
    let server = playing([shell("echo x > mark"), Turn::call("finish", &finish)]);
    let mut agent = Agent::start(&cli, &server, &["--journal", "j.db"]);
    let session = agent.open(&cli)["result"]["sessionId"].clone();
    let id = agent.prompt(&session);
    let answer = agent.answer(id);
    assert_eq!(answer["result"]["stopReason"], "end_turn");
    let facts = &answer["result"]["_meta"]["endstop"];
    assert_eq!(facts["termination"], "submitted");
    assert!(agent.said.contains("session/request_permission"));
    assert!(agent.said.contains("It is done."));
    // The tool worked in the folder of the session.
    assert_eq!(cli.read("mark"), "x\n");
    agent.input = None;
    assert_eq!(agent.status(), Some(0));
    // The run is in the journal, like any other.
    let run = facts["run_id"].as_str().unwrap();
    let text = cli.run(["explain", run, "--journal", "j.db"]).exits(0).stdout;
    assert!(text.contains("submitted"), "{text}");
}

#[test]
fn limits_of_flags_apply() {
    let cli = Cli::new();
    let server = playing([shell("true")]);
    let args = ["--max-turns", "2", "--no-ask", "--journal", "off"];
    let mut agent = Agent::start(&cli, &server, &args);
    let session = agent.open(&cli)["result"]["sessionId"].clone();
    let id = agent.prompt(&session);
    let answer = agent.answer(id);
    assert_eq!(answer["result"]["stopReason"], "max_turn_requests");
    assert_eq!(answer["result"]["_meta"]["endstop"]["termination"], "error_max_turns");
    assert!(!agent.said.contains("request_permission"));
}

#[cfg(unix)]
#[test]
fn signals_answer_prompts_and_exit() {
    use rustix::process::{Pid, Signal, kill_process};
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let cli = Cli::new();
        let server = playing([shell("echo $$ > pid; sleep 60")]);
        let mut agent = Agent::start(&cli, &server, &["--no-ask", "--journal", "off"]);
        let session = agent.open(&cli)["result"]["sessionId"].clone();
        let id = agent.prompt(&session);
        while !std::fs::read_to_string(cli.path("pid")).is_ok_and(|pid| pid.ends_with('\n')) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let pid = Pid::from_raw(i32::try_from(agent.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        assert_eq!(agent.answer(id)["result"]["stopReason"], "cancelled");
        assert_eq!(agent.status(), Some(status));
        let tool = Pid::from_raw(cli.read("pid").trim().parse().unwrap()).unwrap();
        assert!(rustix::process::test_kill_process(tool).is_err(), "the tool is left");
    }
}

#[test]
fn untrusted_folder_opens_no_session() {
    let cli = Cli::new();
    cli.write(
        "endstop.toml",
        "base_url = \"http://127.0.0.1:1/\"\n[mcp.x]\ncommand = \"touch started\"\n",
    );
    let mut agent = Agent::spawn(&cli, &["acp", "--journal", "off"]);
    let error = agent.open(&cli)["error"]["data"].clone();
    assert!(error.as_str().unwrap().contains("endstop trust"), "{error}");
    assert!(!cli.path("started").exists());
}

#[test]
fn missing_model_is_explained() {
    let cli = Cli::new();
    let mut agent = Agent::spawn(&cli, &["acp"]);
    let error = agent.open(&cli)["error"]["data"].clone();
    assert!(error.as_str().unwrap().contains("--model PROVIDER/MODEL"), "{error}");
}
