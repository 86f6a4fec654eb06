//! `endstop guard --listen`, `--print-env`, and the commands for live runs.

use crate::cli::{Cli, Done, Started, answering, ask, eventually, playing, post_as_nobody};
use endstop::testkit::{Reply, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::process::Command;

const TOKEN: &str = "guard-token-0123456789";

/// The binary with a state folder of its own.
pub(crate) fn command(cli: &Cli, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut command = cli.command(args);
    command.env("XDG_STATE_HOME", cli.path("state")).env("TOKEN", TOKEN);
    command
}

fn run(cli: &Cli, args: &[&str]) -> Done {
    Started::new(command(cli, args), "").finish()
}

/// A standing proxy and its address.
pub(crate) struct Listening {
    started: Started,
    address: String,
}

impl Listening {
    fn start(cli: &Cli, file: &str) -> Listening {
        cli.write("guard.toml", file);
        let args = ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--json"];
        Listening::of(command(cli, args))
    }

    pub(crate) fn of(command: Command) -> Listening {
        let started = Started::new(command, "");
        eventually("the address", || started.stdout().contains("listening"));
        let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
        Listening { started, address: line["address"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn turn(&self, run: &str, turn: usize, headers: &str) -> (u16, String) {
        self.post(&format!("/run/{run}/v1/chat/completions"), &request(turn), headers)
    }

    fn post(&self, path: &str, body: &Value, headers: &str) -> (u16, String) {
        let answer = self.exchange(path, body, headers).unwrap();
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    /// Makes a call, and returns what comes of its answer.
    pub(crate) fn try_turn(&self, run: &str, turn: usize) -> std::io::Result<String> {
        self.exchange(&format!("/run/{run}/v1/chat/completions"), &request(turn), "")
    }

    fn exchange(&self, path: &str, body: &Value, headers: &str) -> std::io::Result<String> {
        let body = body.to_string();
        let mut stream = TcpStream::connect(&self.address)?;
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\
             content-length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        )?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.started.child), signal).unwrap();
    }

    pub(crate) fn finish(self) -> Done {
        self.started.finish()
    }

    pub(crate) fn stop(self, signal: Signal) -> Done {
        self.signal(signal);
        self.finish()
    }
}

fn request(turn: usize) -> Value {
    let mut messages = vec![json!({"role": "user", "content": "Go."})];
    for past in 1..turn {
        let call = json!({"id": format!("c{past}"), "type": "function",
            "function": {"name": "bash", "arguments": format!("{{\"n\":{past}}}")}});
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
        messages.push(json!({"role": "tool", "tool_call_id": format!("c{past}"), "content": format!("{past}")}));
    }
    let tool = json!({"type": "function", "function": {"name": "bash", "parameters": {}}});
    json!({"model": "m", "messages": messages, "tools": [tool]})
}

pub(crate) fn server() -> endstop::testkit::Server {
    answering(|request| Reply::turn(request, &Turn::call("bash", &json!({"n": request.number}))))
}

pub(crate) fn file(server: &endstop::testkit::Server, more: &str) -> String {
    format!("[upstream]\nopenai = \"{}\"\n{more}", server.base_url())
}

/// The ids of responses are in the journal, so that a conversation which the provider stores continues after a
/// restart. Those of another run, or that no proxy has seen, are refused.
#[test]
fn stored_conversation_continues_after_a_restart() {
    let (cli, server) = (Cli::new(), server());
    let file = file(&server, "[profile.default]\nlimits = { max_turns = 20 }\n");
    let tools = json!([{"type": "function", "name": "bash", "parameters": {}}]);
    let ask = |proxy: &Listening, run: &str, previous: Option<&str>| {
        let body =
            json!({"model": "m", "input": "Go.", "tools": tools, "previous_response_id": previous});
        let (status, answer) = proxy.post(&format!("/run/{run}/v1/responses"), &body, "");
        // The body may be chunked.
        let body = &answer[answer.find('{').unwrap()..=answer.rfind('}').unwrap()];
        let body: Value = serde_json::from_str(body).unwrap();
        (status, body["id"].as_str().map(str::to_owned))
    };
    let proxy = Listening::start(&cli, &file);
    let (status, id) = ask(&proxy, "a", None);
    assert_eq!(status, 200);
    let first = id.unwrap();
    let (status, id) = ask(&proxy, "a", Some(&first));
    assert_eq!(status, 200);
    let second = id.unwrap();
    proxy.stop(Signal::TERM);
    // A proxy that is killed has kept what it learned until a second before.
    for signal in [Signal::TERM, Signal::KILL] {
        let proxy = Listening::start(&cli, &file);
        for (run, previous, status) in [
            ("a", second.as_str(), 200),
            ("a", &first, 200),
            ("b", &second, 400),
            ("a", "resp_unseen", 400),
        ] {
            assert_eq!(ask(&proxy, run, Some(previous)).0, status, "{run} {previous}");
        }
        proxy.stop(signal);
    }
}

/// A job stops its proxy when its agent has ended, and not ten minutes later.
#[test]
fn stopped_proxy_judges_settled_runs_by_their_answers() {
    let cli = Cli::new();
    let turns =
        [Turn::text("done"), Turn::text("the wo").finish("length"), Turn::call("bash", &json!({}))];
    let server = playing(turns);
    let proxy = Listening::start(&cli, &file(&server, "[profile.default]\n"));
    for run in ["answered", "cut", "working"] {
        assert_eq!(proxy.turn(run, 1, "").0, 200);
    }
    let done = proxy.stop(Signal::TERM).exits(143);
    let lines = done.lines();
    for (run, ending) in
        [("answered", "stop"), ("cut", "error_output_truncated"), ("working", "cancelled")]
    {
        let line = lines.iter().find(|line| line["type"] == "outcome" && line["name"] == run);
        assert_eq!(line.expect(run)["termination"], ending, "{run}");
    }
}

#[test]
fn standing_proxy_limits_runs_and_reports_them() {
    let (cli, server) = (Cli::new(), server());
    let proxy = Listening::start(
        &cli,
        &file(
            &server,
            "[tokens]\nci = \"$TOKEN\"\n[profile.default]\nlimits = { max_turns = 2 }\n",
        ),
    );
    let token = format!("x-endstop-token: {TOKEN}\r\n");
    assert_eq!(proxy.turn("a", 1, "").0, 401);
    for (turn, status) in [(1, 200), (2, 200), (3, 400)] {
        assert_eq!(proxy.turn("a", turn, &token).0, status);
    }
    assert_eq!(proxy.turn("b", 1, &token).0, 200);
    eventually("the outcome", || proxy.started.stdout().contains("error_max_turns"));
    let done = proxy.stop(Signal::TERM).exits(143);
    assert!(!done.stdout.contains(TOKEN) && !done.stderr.contains(TOKEN), "{done:#?}");
    let endings: Vec<(String, String)> = done
        .lines()
        .iter()
        .filter(|line| line["type"] == "outcome")
        .map(|line| (line["name"].to_string(), line["termination"].to_string()))
        .collect();
    let of = |run: &str, ending: &str| (format!("\"{run}\""), format!("\"{ending}\""));
    assert_eq!(endings, [of("a", "error_max_turns"), of("b", "cancelled")]);
    for request in server.requests() {
        assert!(!format!("{:?}", request.headers).contains("endstop-token"), "{request:?}");
    }
}

#[test]
fn advice_names_the_file_of_the_proxy() {
    let cli = Cli::new();
    let server = server();
    let (address, rest) =
        (server.base_url().replace("127.0.0.1", "localhost"), "idle_after = \"1s\"\n");
    let profiles = "[profile.default]\nlimits = { max_turns = 2 }\n\
        [profile.dear]\nruns = [\"dear-*\"]\nlimits = { max_budget_usd = 1.0 }\n\
        [profile.priced]\nruns = [\"priced-*\"]\nlimits = { max_budget_usd = 0.00001 }\nprice = \"in=9,out=9\"\n";
    let proxy =
        Listening::start(&cli, &format!("{rest}[upstream]\nopenai = \"{address}\"\n{profiles}"));
    for turn in 1..4 {
        proxy.turn("night", turn, "");
    }
    let (status, refused) = proxy.turn("dear-1", 1, "");
    assert!(status == 400 && refused.contains("`price` in its profile"), "{refused}");
    for turn in 1..3 {
        proxy.turn("priced-1", turn, "");
    }
    eventually("the ends", || proxy.started.stdout().matches("\"outcome\"").count() == 3);
    let done = proxy.stop(Signal::TERM);
    for (name, decided, advice) in [
        (
            "night",
            "max_turns",
            "raise `limits.max_turns`, or reduce the task; under [profile.default]",
        ),
        (
            "dear-1",
            "unknown_price",
            "with `price = \"in=USD,out=USD\"` for a million tokens; under [profile.dear]",
        ),
        (
            "priced-1",
            "max_budget_usd",
            "raise `limits.max_budget_usd`, or reduce the task; under [profile.priced]",
        ),
    ] {
        let line =
            done.lines().into_iter().find(|line| line["type"] == "outcome" && line["name"] == name);
        let line = line.unwrap_or_else(|| panic!("no {name} in {done:#?}"));
        assert_eq!(line["decided_by"]["name"], decided, "{line}");
        let explained = run(&cli, &["explain", line["run_id"].as_str().unwrap()]).exits(0).stdout;
        assert!(explained.contains(advice), "no {advice:?} in {explained}");
        let next = explained.lines().find(|line| line.contains(advice)).unwrap();
        assert!(!next.contains("--"), "{next}");
    }
}

#[test]
fn runs_are_recorded_under_ids_of_their_own() {
    let (cli, server) = (Cli::new(), server());
    let listening = Listening::start(&cli, &format!("idle_after = \"1s\"\n{}", file(&server, "")));
    // The same name again, after the first run has ended.
    for _ in 0..2 {
        let ended = || listening.started.stdout().matches("\"outcome\"").count();
        let before = ended();
        assert_eq!(listening.turn("nightly", 1, "authorization: Bearer sk-secret-9753\r\n").0, 200);
        eventually("the end", || ended() > before);
    }
    let done = listening.stop(Signal::TERM);
    let lines = done.lines();
    let outcomes: Vec<&Value> = lines.iter().filter(|line| line["type"] == "outcome").collect();
    let id = |at: usize| outcomes[at]["run_id"].as_str().unwrap();
    assert!(id(0).starts_with("nightly-") && id(0) != id(1), "{outcomes:?}");
    assert!(outcomes.iter().all(|outcome| outcome["name"] == "nightly"), "{outcomes:?}");
    let listed = run(&cli, &["runs", "--json"]).exits(0);
    for at in 0..2 {
        assert!(listed.stdout.contains(id(at)), "{}", listed.stdout);
        let explained = run(&cli, &["explain", id(at), "--json"]).exits(0);
        assert!(explained.stdout.contains("\"bash\"") && !explained.stdout.contains("sk-secret"));
    }
}

#[test]
fn ceilings_of_periods_survive_restart() {
    let cli = Cli::new();
    let server = answering(|request| {
        let turn = Turn::call("bash", &json!({"n": request.number})).usage(1_000_000, 1);
        Reply::turn(request, &turn)
    });
    let text = file(
        &server,
        "[profile.default]\nprice = \"in=1,out=1\"\nspend = { max_usd_per_week = 1.0 }\n",
    );
    let proxy = Listening::start(&cli, &text);
    // The call costs a dollar, and may be made because something is left of the ceiling.
    assert_eq!(proxy.turn("a", 1, "").0, 200);
    proxy.stop(Signal::INT).exits(130);
    let proxy = Listening::start(&cli, &text);
    let (status, body) = proxy.turn("b", 1, "");
    assert_eq!(status, 400, "{body}");
    assert!(body.contains("error_max_budget_usd"), "{body}");
    // Another process shares the books.
    let other = Listening::start(&cli, &text);
    let (status, body) = other.turn("c", 1, "");
    assert_eq!(status, 400, "{body}");
    other.stop(Signal::TERM).exits(143);
    proxy.stop(Signal::TERM).exits(143);
    let listed = run(&cli, &["spend", "--by", "project", "--json"]).exits(0).lines();
    assert!(listed.iter().any(|line| line["name"] == "default"), "{listed:?}");
    // Without a journal the ceiling would not hold.
    let args = ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--journal", "off"];
    run(&cli, &args).exits(2).notes(&["profile default", "the ceilings are kept in the journal"]);
}

#[test]
fn own_ceilings_bound_a_standing_proxy() {
    let cli = Cli::new();
    let server = answering(|request| {
        let turn = Turn::call("bash", &json!({"n": request.number})).usage(1_000_000, 1);
        Reply::turn(request, &turn)
    });
    std::fs::create_dir_all(cli.path("config/endstop")).unwrap();
    cli.write("config/endstop/config.toml", "[spend]\nmax_usd_per_day = 1.0\n");
    cli.write("guard.toml", file(&server, "[profile.default]\nprice = \"in=1,out=1\"\n"));
    let args = ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--json"];
    let mut command = command(&cli, args);
    command.env("XDG_CONFIG_HOME", cli.path("config"));
    let proxy = Listening::of(command);
    assert_eq!(proxy.turn("a", 1, "").0, 200);
    let (status, body) = proxy.turn("b", 1, "");
    assert_eq!(status, 400, "{body}");
    proxy.stop(Signal::INT).exits(130);
}

#[test]
fn unsafe_settings_are_refused() {
    let cli = Cli::new();
    cli.write("guard.toml", "[profile.default]\nlimits = { max_turns = 0 }\n");
    cli.write("bad.toml", "\n[profil.default]\n");
    let token = "must have a token";
    for (args, note) in [
        (&["--listen", "0.0.0.0:0"][..], token),
        (&["--listen", "0.0.0.0:0", "--config", "guard.toml"], token),
        (&["--listen", "127.0.0.1:0", "--metrics", "0.0.0.0:0"], token),
        (
            &["--listen", "127.0.0.1:0", "--config", "bad.toml"],
            "bad.toml: line 2: `profil`: unknown name",
        ),
        (
            &["--listen", "127.0.0.1:0", "--max-turns", "3"],
            "set `limits.max_turns` under [profile.default]",
        ),
        (
            &["--listen", "127.0.0.1:0", "--price", "in=1,out=2"],
            "set `price` under [profile.default]",
        ),
        (&["--listen", "127.0.0.1:0", "--watch", "stop:stuck"], "set `watch` under"),
        (&["--listen", "127.0.0.1:0", "--max-calls", "deploy=1"], "set `max_calls` under"),
        (&["--listen", "127.0.0.1:0", "--policy", "final_pattern"], "set `policy` under"),
        (&["--listen", "127.0.0.1:0", "--verify", "true"], "does not start the programs"),
        (&["--listen", "127.0.0.1:0", "--name", "n"], "--name: each client"),
        (&["--listen", "127.0.0.1:0", "--overwrite"], "--listen"),
        (&["--listen", "127.0.0.1:0", "--strict"], "--listen"),
        (&["--listen", "127.0.0.1:0", "--on-limit", "refuse"], "--listen"),
        (&["--listen", "127.0.0.1:0", "--cap-output"], "--listen"),
        (&["--listen", "127.0.0.1:0", "--other", "pass"], "--listen"),
        (&["--listen", "127.0.0.1:0", "--", "true"], "remove the program"),
        (&["--listen", "nowhere"], "--listen nowhere: "),
        (&["--metrics", "127.0.0.1:0", "--", "true"], "--listen"),
    ] {
        let all: Vec<&str> = ["guard"].iter().chain(args).copied().collect();
        run(&cli, &all).exits(2).notes(&[note]);
    }
}

#[test]
fn own_prices_hold_for_a_standing_proxy() {
    let (cli, server) = (Cli::new(), server());
    let text = file(&server, "[profile.default]\nlimits = { max_budget_usd = 9.0 }\n");
    cli.write("guard.toml", &text);
    let start = |more: &[&str]| {
        let args = ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--json"];
        let mut command = command(&cli, args.iter().chain(more));
        command.env("XDG_CONFIG_HOME", cli.path("config"));
        Listening::of(command)
    };
    let proxy = start(&[]);
    let (status, answer) = proxy.turn("a", 1, "");
    assert!(status == 400 && answer.contains("no price is known for the model `m`"), "{answer}");
    assert!(answer.contains("`[prices]`"), "{answer}");
    proxy.stop(Signal::TERM).exits(143);
    let proxy = start(&["--unknown-price", "in=30,out=150"]);
    assert_eq!(proxy.turn("a", 1, "").0, 200);
    proxy.stop(Signal::TERM).exits(143);
    std::fs::create_dir_all(cli.path("config/endstop")).unwrap();
    cli.write("config/endstop/config.toml", "[prices]\n\"openai/m\" = \"in=1,out=2\"\n");
    let proxy = start(&[]);
    assert_eq!(proxy.turn("a", 1, "").0, 200);
    proxy.stop(Signal::TERM).exits(143);
}

#[test]
fn file_of_working_folder_is_not_read() {
    let cli = Cli::new();
    // Wrong on purpose: it would be an error if it were read.
    cli.write("guard.toml", "wrong");
    let started = Started::new(command(&cli, ["guard", "--listen", "127.0.0.1:0", "--json"]), "");
    eventually("the address", || started.stdout().contains("listening"));
    kill_process(Pid::from_child(&started.child), Signal::TERM).unwrap();
    started.finish().exits(143);
}

#[test]
fn live_runs_are_listed_limited_and_cancelled() {
    let (cli, server) = (Cli::new(), server());
    let proxy =
        Listening::start(&cli, &file(&server, "[profile.default]\nlimits = { max_turns = 1 }\n"));
    assert_eq!(proxy.turn("nightly-1", 1, "").0, 200);
    let list = run(&cli, &["runs", "--live", "--json"]).exits(0).lines();
    assert_eq!(list.len(), 1, "{list:?}");
    for (key, value) in [
        ("run_id", json!("nightly-1")),
        ("kind", json!("listen")),
        ("profile", json!("default")),
        ("phase", json!("waiting")),
        ("turns", json!(1)),
        ("calls_in_flight", json!(0)),
    ] {
        assert_eq!(list[0][key], value, "{key}: {list:?}");
    }
    assert!(run(&cli, &["runs", "--live"]).exits(0).stdout.contains("nightly-1"));
    // Loosened, by a prefix of the id.
    let done = run(&cli, &["limits", "night", "--max-turns", "2", "--json"]).exits(0);
    assert_eq!(done.lines(), [json!({"type": "limits_changed", "run_id": "nightly-1"})]);
    assert_eq!(proxy.turn("nightly-1", 2, "").0, 200);
    run(&cli, &["cancel", "nightly-1"]).exits(0);
    let (status, body) = proxy.turn("nightly-1", 3, "");
    assert_eq!(status, 400);
    assert!(body.contains("cancelled"), "{body}");
    for (args, note) in [
        (&["cancel", "nightly-1"][..], "has ended (cancelled), so it cannot be changed"),
        (&["limits", "x", "--max-turns", "2"], "no live run `x`"),
        (&["limits", "x"], "no limit is given"),
        (&["limits", "x", "--max-turns", "many"], "--max-turns: "),
    ] {
        run(&cli, args).exits(2).notes(&[note]);
    }
    proxy.stop(Signal::TERM).exits(143);
    assert!(run(&cli, &["runs", "--live", "--json"]).exits(0).stdout.is_empty());
}

#[test]
fn own_run_is_listed_and_cancelled() {
    // The server never answers, so the run lives until it is cancelled.
    let (cli, server) =
        (Cli::new(), answering(|request| Reply::turn(request, &Turn::text("x")).stall_after(0)));
    let url = server.base_url();
    let args = ["run", "Go.", "--model", "m", "--base-url", &url, "--journal", "j.db"];
    let started = Started::new(command(&cli, args), "");
    let live = || run(&cli, &["runs", "--live", "--json"]).exits(0).lines();
    eventually("the live run", || live().first().is_some_and(|run| run["phase"] == "calling"));
    let list = live();
    assert_eq!((list.len(), &list[0]["kind"]), (1, &json!("run")), "{list:?}");
    let id = list[0]["run_id"].as_str().unwrap();
    let done = run(&cli, &["limits", id, "--max-turns", "2", "--json"]).exits(0);
    assert_eq!(done.lines(), [json!({"type": "limits_changed", "run_id": id})]);
    let refused = run(&cli, &["limits", id, "--max-budget-usd", "1"]).exits(2);
    refused.notes(&["limit `max_budget_usd`: no price is known of the model"]);
    run(&cli, &["cancel", id]).exits(0);
    let done = started.finish().exits(130).notes(&["! limits changed: max_turns = 2"]);
    done.outcome_is("cancelled");
    done.notes(&["0/2 turns"]);
    assert!(live().is_empty());
}

#[test]
fn control_socket_holds_against_hostile_lines() {
    let (cli, server) = (Cli::new(), server());
    let proxy = Listening::start(&cli, &file(&server, "[profile.default]\n"));
    let folder = cli.path("state/endstop/control");
    assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
    let socket = folder.join(format!("{}.sock", proxy.started.child.id()));
    assert!(std::fs::metadata(&socket).unwrap().file_type().is_socket());
    let long = "x".repeat(1 << 20);
    let deep = "[".repeat(60_000) + "\n";
    for line in [
        "\n",
        "{}\n",
        "null\n",
        "{\"do\":\"format\"}\n",
        "\u{0}\u{1}\n",
        &long,
        &deep,
        "{\"do\":\"runs\",\"more\":1}\n",
        "{\"do\":\"limits\",\"run\":\"a\",\"limits\":3}\n",
    ] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        // The server may stop reading before everything is written.
        let _ = stream.write_all(line.as_bytes());
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        assert!(read.is_err() || answer.contains("invalid"), "{line:.40}: {answer}");
    }
    // Silent connections do not lock the others out.
    let silent: Vec<UnixStream> = (0..15).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    assert_eq!(proxy.turn("a", 1, "").0, 200);
    assert_eq!(run(&cli, &["runs", "--live", "--json"]).exits(0).lines().len(), 1);
    drop(silent);
    // A socket whose process is gone is removed.
    let stale = folder.join("1.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    run(&cli, &["runs", "--live"]).exits(0);
    assert!(!stale.exists() && socket.exists());
    // A folder that others may enter is not trusted.
    std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
    run(&cli, &["runs", "--live"]).exits(2).notes(&["mode 0700"]);
    proxy.stop(Signal::TERM).exits(143);
}

#[test]
fn proxy_without_tokens_serves_its_user_only() {
    let (cli, server) = (Cli::new(), server());
    let limits = "[profile.default]\nlimits = { max_turns = 2 }\n";
    let proxy = Listening::start(&cli, &file(&server, limits));
    let address = &proxy.address;
    let body = request(1).to_string();
    for (headers, status) in [
        ("host: evil.example\r\n", 421),
        ("host: localhost\r\norigin: http://evil.example\r\ncontent-type: text/plain\r\n", 403),
        ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
    ] {
        // More often than the limit allows turns.
        for _ in 0..4 {
            let (got, answer) = ask(address, "POST /run/job7/v1/chat/completions", headers, &body);
            assert_eq!(got, status, "{headers} {answer}");
        }
    }
    for _ in 0..2 {
        let answer = post_as_nobody(address, "/run/job7/v1/chat/completions", "");
        let Some(answer) = answer else { break };
        let why = "so it serves the user who started it; other users need a token";
        assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains(why), "{answer}");
    }
    assert!(server.requests().is_empty());
    for turn in 1..=2 {
        assert_eq!(proxy.turn("job7", turn, "").0, 200);
    }
    let done = proxy.stop(Signal::TERM).exits(143);
    assert!(done.stderr.contains("requests of web pages are refused"), "{}", done.stderr);
}

#[test]
fn proxy_with_tokens_serves_other_users_and_names() {
    let (cli, server) = (Cli::new(), server());
    let proxy = Listening::start(&cli, &file(&server, "[tokens]\nci = \"$TOKEN\"\n"));
    let token = format!("x-endstop-token: {TOKEN}\r\n");
    let line = "POST /run/job7/v1/chat/completions";
    let body = request(1).to_string();
    let named = |more: &str| format!("host: host.docker.internal:4000\r\n{more}");
    assert_eq!(ask(&proxy.address, line, &named(&token), &body).0, 200);
    assert_eq!(ask(&proxy.address, line, &named(""), &body).0, 401);
    let page = format!("{token}origin: https://evil.example\r\n");
    assert_eq!(ask(&proxy.address, line, &named(&page), &body).0, 403);
    if let Some(answer) = post_as_nobody(&proxy.address, "/run/job7/v1/embeddings", &token) {
        // Admitted; the file has no upstream for this path.
        assert!(answer.contains("no upstream is set for this call"), "{answer}");
    }
    proxy.stop(Signal::TERM).exits(143);
}

/// The limits of a process on open files: the soft and the hard one.
#[cfg(target_os = "linux")]
fn open_files(pid: u32) -> (String, String) {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut numbers = line.split_whitespace().skip(3).map(str::to_owned);
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// Connections without a token, more than the default limit of a shell allows files.
#[cfg(target_os = "linux")]
#[test]
fn half_open_connections_shut_out_no_client() {
    endstop::process::open_files::raise();
    for limit in ["-Sn 256", "-n 512"] {
        let (cli, server) = (Cli::new(), server());
        cli.write("guard.toml", file(&server, "[tokens]\nci = \"$TOKEN\"\n"));
        let guard =
            command(&cli, ["guard", "--listen", "127.0.0.1:0", "--config", "guard.toml", "--json"]);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("ulimit {limit}; exec \"$0\" \"$@\"")]);
        limited
            .arg(guard.get_program())
            .args(guard.get_args())
            .current_dir(guard.get_current_dir().unwrap());
        limited.env_clear().envs(guard.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let started = Started::new(limited, "");
        eventually("the address", || started.stdout().contains("listening"));
        let (soft, hard) = open_files(started.child.id());
        assert_eq!(soft, hard, "{limit}");
        let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
        let proxy = Listening { started, address: line["address"].as_str().unwrap().to_owned() };
        let token = format!("x-endstop-token: {TOKEN}\r\n");
        assert_eq!(proxy.turn("job", 1, &token).0, 200);
        let open: Vec<TcpStream> = (0..1100)
            .filter_map(|_| {
                let mut stream = TcpStream::connect(&proxy.address).ok()?;
                // It may be closed already, to make room for another one.
                let _ = stream.write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: lo");
                Some(stream)
            })
            .collect();
        assert!(open.len() > 1000, "{}", open.len());
        let began = std::time::Instant::now();
        for turn in 2..=4 {
            assert_eq!(proxy.turn("job", turn, &token).0, 200, "{limit}");
        }
        // Not when the time of the others is over.
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
        drop(open);
        let done = proxy.stop(Signal::TERM).exits(143);
        assert!(!done.stderr.contains("open files"), "{}", done.stderr);
    }
}

/// A program that cannot have more than the default number of files gets what its shell had.
#[cfg(target_os = "linux")]
#[test]
fn guarded_program_has_the_limit_of_its_shell() {
    let cli = Cli::new();
    let script =
        "ulimit -Sn 300; exec \"$0\" guard --journal off -- sh -c 'ulimit -Sn; ulimit -Hn'";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_endstop")]).current_dir(cli.dir.path());
    let done = Started::new(command, "").finish();
    let (_, hard) = open_files(std::process::id());
    assert_eq!(done.stdout, format!("300\n{hard}\n"), "{done:?}");
}

#[test]
fn too_few_open_files_are_reported() {
    let cli = Cli::new();
    for most in 10..=20 {
        for args in [
            &[
                "run",
                "Go.",
                "--model",
                "m",
                "--api",
                "openai-chat",
                "--base-url",
                "http://127.0.0.1:1",
            ][..],
            &["guard", "--", "true"],
            &["guard", "--listen", "127.0.0.1:0"],
            &["serve", "--listen", "127.0.0.1:0"],
        ] {
            let mut command = Command::new("sh");
            let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
            command.args(["-c", &script, env!("CARGO_BIN_EXE_endstop")]).args(args);
            command
                .current_dir(cli.dir.path())
                .env("HOME", cli.dir.path())
                .env("OPENAI_API_KEY", "k");
            let done = Started::new(command, "").finish();
            assert_eq!(done.code(), 70, "{most} {args:?} {done:?}");
            assert!(
                done.stderr.contains("too few open files are allowed"),
                "{most} {args:?} {done:?}"
            );
            assert!(done.stderr.contains("`ulimit -n 1024`"), "{done:?}");
        }
    }
}

#[test]
fn metrics_are_served_on_their_own_address() {
    let cli = Cli::new();
    let args = ["guard", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--json"];
    let started = Started::new(command(&cli, args), "");
    eventually("the address", || started.stdout().contains("listening"));
    let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
    let address = line["metrics"].as_str().unwrap();
    let (status, _) = ask(address, "GET /metrics", "host: evil.example\r\n", "");
    assert_eq!(status, 421);
    let (_, text) = ask(address, "GET /metrics", "host: localhost\r\n", "");
    assert!(text.contains("endstop_guard_runs_started_total{profile=\"default\"} 0"), "{text}");
    kill_process(Pid::from_child(&started.child), Signal::TERM).unwrap();
    started.finish().exits(143);
}

#[test]
fn environment_is_printed_for_shells() {
    let cli = Cli::new();
    let done = run(&cli, &["guard", "--print-env", "bash", "--listen", "0.0.0.0:4711"]).exits(0);
    for line in [
        "export OPENAI_BASE_URL='http://127.0.0.1:4711/v1'",
        "export ANTHROPIC_BASE_URL='http://127.0.0.1:4711'",
        "export GOOGLE_GEMINI_BASE_URL='http://127.0.0.1:4711'",
    ] {
        assert!(done.stdout.lines().any(|known| known == line), "no {line}: {done:#?}");
    }
    // A shell can execute the lines.
    let mut shell = Command::new("sh");
    let script = format!("{}\nprintf %s \"$OPENAI_BASE_URL\"", done.stdout);
    let output = shell.args(["-c", &script]).output().unwrap();
    assert_eq!(output.stdout, b"http://127.0.0.1:4711/v1", "{output:?}");
    let args =
        ["guard", "--listen", "guard.example:80", "--name", "nightly-1", "--print-env", "fish"];
    let done = run(&cli, &args).exits(0);
    let line = "set -gx OPENAI_BASE_URL 'http://guard.example:80/run/nightly-1/v1'";
    assert!(done.stdout.contains(line), "{done:#?}");
    // Without an address there is a note, and without a shell the variable decides.
    let mut command = command(&cli, ["guard", "--print-env"]);
    command.env("SHELL", "/usr/bin/fish").env("OPENAI_BASE_URL", "https://gateway.example/v1");
    let done = Started::new(command, "").finish().exits(0);
    assert!(
        done.stdout.contains("set -gx OPENAI_BASE_URL 'http://127.0.0.1:4000/v1'"),
        "{done:#?}"
    );
    done.notes(&[
        "no --listen",
        "endstop guard --listen 127.0.0.1:4000",
        "OPENAI_BASE_URL is set already",
    ]);
    for (args, note) in [
        (&["--print-env", "tcsh"][..], "unknown shell `tcsh`"),
        (&["--print-env", "sh", "--listen", "127.0.0.1:0"], "port 0"),
        (&["--print-env", "sh", "--listen", "a'b:1"], "expected an address and a port"),
        (&["--print-env", "sh", "--name", "a b"], "--name: "),
    ] {
        let all: Vec<&str> = ["guard"].iter().chain(args).copied().collect();
        run(&cli, &all).exits(2).notes(&[note]);
    }
}
