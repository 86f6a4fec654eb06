//! `endstop serve`: the built-in agent, configured agents and tokens, signals, and `kill -9`.

use crate::cli::{Cli, Done, OPENAI_KEY, Started, eventually, playing};
use endstop::testkit::Turn;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

const TOKEN: &str = "serve-token-0123456789";

/// A running server and its address.
pub(crate) struct Serving {
    started: Started,
    address: String,
}

pub(crate) fn command(cli: &Cli, args: &[&str]) -> Command {
    let mut all = vec!["serve", "--listen", "127.0.0.1:0", "--journal", "journal.db", "--json"];
    all.extend(args);
    let mut command = cli.command(all);
    command.env("XDG_STATE_HOME", cli.path("state")).env("XDG_CONFIG_HOME", cli.path("config"));
    command
}

impl Serving {
    fn start(cli: &Cli, args: &[&str]) -> Serving {
        Serving::of(command(cli, args))
    }

    pub(crate) fn of(command: Command) -> Serving {
        let started = Started::new(command, "");
        eventually("the address", || {
            assert!(!started.stderr().contains("error:"), "{}", started.stderr());
            started.stdout().contains("listening")
        });
        let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
        Serving { started, address: line["address"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn ask(&self, line: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask(&format!("POST {path}"), "", &body.to_string());
        assert!(status < 300, "{status}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn run(&self, id: &str) -> Value {
        let (status, text) = self.ask(&format!("GET /v1/runs/{id}"), "", "");
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    pub(crate) fn begin(&self, agent: &str, task: &str) -> String {
        let run = self.post("/v1/runs", &json!({"agent": agent, "task": task}));
        run["run_id"].as_str().unwrap().to_owned()
    }

    /// Reads the events of a run after a number, until `enough` or the end of the stream. A server
    /// that was killed ends the stream, too.
    fn events(&self, id: &str, after: u64, mut enough: impl FnMut(&Value) -> bool) -> Events {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(
            stream,
            "GET /v1/runs/{id}/events HTTP/1.1\r\nhost: {}\r\nlast-event-id: {after}\r\n\
             connection: close\r\n\r\n",
            self.address
        )
        .unwrap();
        let (mut events, mut number) = (Events::new(), None);
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if let Some(id) = line.strip_prefix("id: ") {
                number = Some(id.parse().unwrap());
            } else if let Some(data) = line.strip_prefix("data: ") {
                let data: Value = serde_json::from_str(data).unwrap();
                let stop = enough(&data);
                if let Some(number) = number.take() {
                    events.insert(number, data);
                }
                if stop {
                    break;
                }
            }
        }
        events
    }

    /// Waits for the end of a run, and returns it.
    pub(crate) fn ended(&self, id: &str) -> Value {
        self.events(id, 0, |_| false);
        let run = self.run(id);
        assert_eq!(run["state"], "ended", "{run}");
        run
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.started.child), signal).unwrap();
    }

    pub(crate) fn stop(self, signal: Signal) -> Done {
        self.signal(signal);
        self.started.finish()
    }
}

/// The numbered events of a run.
type Events = BTreeMap<u64, Value>;

#[test]
fn built_in_agent_repairs_the_test() {
    let cli = Cli::new();
    let server = Serving::start(&cli, &[]);
    let id = server.begin("demo", "fix");
    let run = server.ended(&id);
    assert_eq!((&run["termination"], &run["category"]), (&json!("submitted"), &json!("success")));
    let cut = server.ended(&server.begin("demo", "cut"));
    assert_eq!(cut["termination"], "error_output_truncated");
    let budget = server.ended(&server.begin("demo", "budget"));
    assert_eq!(budget["termination"], "error_max_budget_usd");
    assert!(server.started.stderr().contains("no agent is configured"));
    server.stop(Signal::TERM).exits(143);
    // The same journal serves the other commands.
    let explained = cli.run(["explain", &id, "--journal", "journal.db", "--json"]).exits(0);
    assert!(explained.stdout.contains("submitted"), "{explained:?}");
    // The folders of the runs are gone with them.
    let left = std::fs::read_dir(cli.path("journal.db.demo")).map_or(0, Iterator::count);
    assert_eq!(left, 0);
}

#[test]
fn demo_waits_for_approval() {
    let cli = Cli::new();
    let server = Serving::start(&cli, &[]);
    let id = server.begin("demo", "approve");
    let mut last = 0;
    loop {
        let mut asked = None;
        let events = server.events(&id, last, |event| {
            asked = (event["type"] == "approval_requested").then(|| event["request_id"].clone());
            asked.is_some()
        });
        last = events.keys().last().copied().unwrap_or(last);
        let Some(request_id) = asked else { break };
        let answer = json!({"request_id": request_id, "decision": "allow"});
        server.post(&format!("/v1/runs/{id}/answer"), &answer);
    }
    assert_eq!(server.ended(&id)["termination"], "submitted");
    server.stop(Signal::INT).exits(130);
}

#[test]
fn configured_agents_run_with_tokens() {
    let (cli, model) = (Cli::new(), playing([Turn::text("It is fine.")]));
    cli.write(
        "serve.toml",
        format!(
            "base_url = {:?}\nmodel = \"m\"\n[limits]\nmax_turns = 9\n\
             [agents.reviewer]\nsystem = \"Review.\"\nlimits = {{ max_turns = 3 }}\n\
             [agents.other]\n",
            model.base_url()
        ),
    );
    let tokens = format!(
        "[tokens.ci]\ntoken = \"$CI_TOKEN\"\nagents = [\"reviewer\"]\n\
         [tokens.all]\ntoken = \"{TOKEN}-all\"\n"
    );
    let path = cli.write("tokens.toml", tokens);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let args = ["--config", "serve.toml", "--token-file", "tokens.toml"];
    let mut command = command(&cli, &args);
    command.env("CI_TOKEN", TOKEN);
    let server = Serving::of(command);
    let ask = |line: &str, token: &str, body: &str| {
        server.ask(line, &format!("authorization: Bearer {token}\r\n"), body)
    };
    assert_eq!(server.ask("GET /v1/runs", "", "").0, 401);
    let (status, agents) = ask("GET /v1/agents", TOKEN, "");
    let agents: Value = serde_json::from_str(&agents).unwrap();
    assert_eq!((status, agents["agents"].as_array().unwrap().len()), (200, 1), "{agents}");
    assert_eq!(agents["agents"][0]["limits"]["max_turns"], 3);
    let task = json!({"agent": "reviewer", "task": format!("Look at {OPENAI_KEY}.")}).to_string();
    let (status, started) = ask("POST /v1/runs", TOKEN, &task);
    assert_eq!(status, 201, "{started}");
    assert!(!started.contains(OPENAI_KEY), "{started}");
    let id =
        serde_json::from_str::<Value>(&started).unwrap()["run_id"].as_str().unwrap().to_owned();
    eventually("the end of the run", || {
        ask(&format!("GET /v1/runs/{id}"), TOKEN, "").1.contains("\"state\":\"ended\"")
    });
    let (_, run) = ask(&format!("GET /v1/runs/{id}"), TOKEN, "");
    assert!(run.contains("It is fine.") && !run.contains(OPENAI_KEY), "{run}");
    // The model got the task as it was written; nothing that is stored or shown has the key.
    assert!(model.requests()[0].body.to_string().contains(OPENAI_KEY));
    for path in ["/metrics", &format!("/v1/runs/{id}/events")] {
        let (_, text) = ask(&format!("GET {path}"), &format!("{TOKEN}-all"), "");
        assert!(!text.contains(OPENAI_KEY) && !text.contains(TOKEN), "{path}: {text}");
    }
    let done = server.stop(Signal::TERM).exits(143);
    assert!(!done.stderr.contains(TOKEN) && !done.stdout.contains(TOKEN), "{done:?}");
    for file in ["journal.db", "journal.db-wal", "journal.db.serve", "journal.db.serve-wal"] {
        let bytes = std::fs::read(cli.path(file)).unwrap_or_default();
        let has = |text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
        assert!(!has(OPENAI_KEY) && !has(TOKEN), "{file}");
    }
}

#[test]
fn untrusted_agents_need_consent() {
    let cli = Cli::new();
    cli.write(
        "endstop.toml",
        "[agents.helper]\nmodel = \"openai/gpt-4o\"\ntools = [\"shell\"]\nverify = \"touch owned\"\n",
    );
    let refused = Started::new(command(&cli, &[]), "").finish().exits(2);
    assert!(refused.stderr.contains("`agents.helper` needs your consent"), "{refused:?}");
    let mut trust = cli.command(["trust"]);
    trust.env("XDG_STATE_HOME", cli.path("state")).env("XDG_CONFIG_HOME", cli.path("config"));
    let asked = Started::new(trust, "").finish().exits(2);
    // What it asks for is shown by its effect.
    let commands = asked.stdout.find("commands to run").unwrap();
    let tools = asked.stdout.find("tools for the model").unwrap();
    assert!(asked.stdout[commands..tools].contains("agents.helper.verify = touch owned"));
    assert!(asked.stdout[tools..].contains("agents.helper.tools = shell"), "{asked:?}");
}

#[test]
fn wrong_settings_are_reported_at_start() {
    let cli = Cli::new();
    for (file, part) in [
        ("[agents.a]\nmodel = 1\n", "[agents.a]: `model`: expected a string"),
        ("[agents.a]\nnonsense = 1\n", "`nonsense`"),
        ("[agents.a]\njournal = \"x\"\n", "`journal` does not belong to an agent"),
        ("[agents.\"a b\"]\n", "expected a name of 1 to 64"),
        ("[agents]\na = 1\n", "[agents.a]: expected a table"),
        ("agents = 1\n", "`agents`: expected a table"),
        ("[agents.a]\ntools = [\"shell\"]\n", "no model is configured"),
        ("[agents.a]\nmodel = \"openai/gpt-4o\"\ndir = \"nowhere\"\n", "not a folder"),
    ] {
        cli.write("serve.toml", file);
        let done = Started::new(command(&cli, &["--config", "serve.toml"]), "").finish().exits(2);
        assert!(done.stderr.contains(part), "{file}: {}", done.stderr);
    }
    for (args, part) in [
        (&["--listen", "0.0.0.0:0"][..], "a token is required"),
        (&["--listen", "nonsense"], "--listen nonsense"),
        (&["--grace", "soon"], "--grace: `soon` is not a time"),
        (&["--max-running", "0"], "--max-running: expected at least 1"),
        (&["--token-file", "missing.toml"], "--token-file missing.toml"),
        (&["--journal", "off"], "--journal FILE"),
    ] {
        let mut all = vec!["serve", "--config", "/dev/null"];
        all.extend(args);
        let mut command = cli.command(all);
        command.env("XDG_STATE_HOME", cli.path("state"));
        let done = Started::new(command, "").finish().exits(2);
        assert!(done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn sigterm_cancels_after_grace() {
    let cli = Cli::new();
    let server = Serving::start(&cli, &["--grace", "100ms"]);
    let id = server.begin("demo", "cancel");
    server.events(&id, 0, |event| event["type"] == "text_delta");
    server.stop(Signal::TERM).exits(143);
    let server = Serving::start(&cli, &[]);
    assert_eq!(server.ended(&id)["termination"], "cancelled");
}

/// Kills the server again and again, before and after it has accepted an answer, and reads on each
/// time after the last event that was seen. `ENDSTOP_KILLS` sets the number of kills.
#[test]
fn killed_server_loses_no_event() {
    let kills = std::env::var("ENDSTOP_KILLS").ok().and_then(|kills| kills.parse().ok());
    let cli = Cli::new();
    let mut server = Serving::start(&cli, &[]);
    let ids: Vec<String> = (0..4).map(|_| server.begin("demo", "approve")).collect();
    let mut seen = vec![Events::new(); ids.len()];
    let mut interrupted = 0;
    for round in 0..kills.unwrap_or(12) {
        let at = round % ids.len();
        // In every second round of a run its open question is answered before the kill.
        let answers = round / ids.len() % 2 == 1;
        read_on(&server, &ids[at], &mut seen[at], answers);
        interrupted += usize::from(server.run(&ids[at])["state"] == "running");
        server.signal(Signal::KILL);
        drop(server);
        server = Serving::start(&cli, &[]);
    }
    assert!(interrupted >= ids.len(), "{interrupted}");
    for (id, seen) in ids.iter().zip(&mut seen) {
        while server.run(id)["state"] != "ended" {
            read_on(&server, id, seen, true);
        }
        let last = seen.keys().last().copied().unwrap_or(0);
        seen.extend(server.events(id, last, |_| false));
        // The script may go round in a circle if a kill took a result from it; that ends the run, too.
        assert!(server.run(id)["termination"].is_string(), "{}", server.run(id));
        let whole = server.events(id, 0, |_| false);
        assert_eq!(*seen, whole, "the reader that resumed has other events");
        let numbers: Vec<u64> = whole.keys().copied().collect();
        assert_eq!(numbers, (1..=whole.len() as u64).collect::<Vec<u64>>());
        let endings = whole.values().filter(|event| event["type"] == "finished").count();
        assert_eq!(endings, 1);
        // No call is repeated whose result was journalled: each call has one result.
        let mut results = BTreeMap::new();
        for event in whole.values().filter(|event| event["type"] == "tool_finished") {
            *results.entry(format!("{} {}", event["turn"], event["call_id"])).or_insert(0) += 1;
        }
        assert!(results.values().all(|count| *count == 1), "{results:?}");
    }
    let (_, list) = server.ask("GET /v1/runs?state=running", "", "");
    assert!(list.contains("\"runs\":[]"), "{list}");
}

/// Reads the events of a run after those that were seen, until it asks a question or ends. Allows the
/// call if `answers`.
fn read_on(server: &Serving, id: &str, seen: &mut Events, answers: bool) {
    let last = seen.keys().last().copied().unwrap_or(0);
    let open = |event: &Value| event["type"] == "approval_requested";
    // A question that was seen before a kill is asked again under another number.
    let more = server.events(id, last, open);
    assert!(more.keys().all(|number| *number > last), "{more:?} after {last}");
    let asked = more.values().find(|event| open(event)).cloned();
    seen.extend(more);
    if let Some(asked) = asked.filter(|_| answers) {
        let body = json!({"request_id": asked["request_id"], "decision": "allow"}).to_string();
        let (status, text) = server.ask(&format!("POST /v1/runs/{id}/answer"), "", &body);
        // A question that an earlier process asked may have been answered since.
        assert!([200, 404, 409].contains(&status), "{text}");
    }
}

#[test]
fn other_commands_list_limit_and_cancel_runs() {
    let cli = Cli::new();
    let server = Serving::start(&cli, &["--park-after", "off"]);
    let id = server.begin("demo", "approve");
    eventually("the question", || server.run(&id)["approvals"] == 1);
    let ask = |args: &[&str]| {
        let mut command = cli.command(args);
        command.env("XDG_STATE_HOME", cli.path("state")).env("XDG_CONFIG_HOME", cli.path("config"));
        Started::new(command, "").finish()
    };
    let list = ask(&["runs", "--live", "--json"]).exits(0).lines();
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!((&list[0]["run_id"], &list[0]["kind"]), (&json!(id), &json!("serve")));
    assert_eq!((&list[0]["profile"], &list[0]["turns"]), (&json!("demo"), &json!(1)));
    ask(&["limits", &id, "--max-turns", "7"]).exits(0);
    let changed = |event: &Value| event["type"] == "limits_changed";
    let events = server.events(&id, 0, changed);
    assert!(events.values().any(changed), "{events:?}");
    let other = server.begin("demo", "approve");
    eventually("the other question", || server.run(&other)["approvals"] == 1);
    ask(&["cancel", "last"]).exits(2).notes(&["2 runs are live, so name one"]);
    ask(&["cancel", &other]).exits(0);
    eventually("the other end", || server.run(&other)["termination"] == "cancelled");
    ask(&["cancel", "last"]).exits(0);
    eventually("its end", || server.run(&id)["termination"] == "cancelled");
    assert!(ask(&["runs", "--live", "--json"]).exits(0).stdout.is_empty());
    ask(&["cancel", &id]).exits(2);
}
