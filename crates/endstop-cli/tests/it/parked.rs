//! Parked runs: `--ask park`, `endstop pending`, `endstop answer`, `--resume`, and `--notify`; also
//! if any of the processes is killed with `kill -9`.

use crate::cli::{Cli, Done, OPENAI_KEY, Started, agent_args, answering, playing};
use endstop::Outcome;
use endstop::journal::SqliteJournal;
use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const JOURNAL: [&str; 2] = ["--journal", "j.db"];

/// Starts a run that parks at its first call.
fn park(cli: &Cli, server: &Server, more: &[&str]) -> Done {
    let args = ["Clean up.", "--tool", "shell", "--ask", "park"];
    cli.run(agent_args(server, "openai-chat", &[&args[..], &JOURNAL, more].concat())).exits(75)
}

/// A model that removes a file, and then answers.
fn removing() -> Server {
    answering(|request| {
        let done = results(request) > 0;
        let call = Turn::call("shell", &json!({"command": "echo removed >> log.txt"}));
        Reply::turn(request, &if done { Turn::text("It is gone.") } else { call })
    })
}

fn results(request: &Request) -> usize {
    let messages = request.body["messages"].as_array().unwrap();
    messages.iter().filter(|message| message["role"] == "tool").count()
}

fn pending(cli: &Cli) -> Vec<Value> {
    cli.run(["pending", "--json", "--journal", "j.db"]).exits(0).lines()
}

fn answer(cli: &Cli, args: &[&str]) -> Done {
    cli.run([&["answer", "last"], args, &JOURNAL].concat())
}

fn resume(cli: &Cli, more: &[&str]) -> Done {
    cli.run([&["run", "--resume", "last", "--trust-journal"], more, &JOURNAL].concat())
}

#[test]
fn approved_run_continues_after_exit() {
    let cli = Cli::new();
    let server = removing();
    let notify = ["--notify", "cat >> notices.txt"];
    let parked = park(&cli, &server, &notify);
    assert!(
        parked.stderr.contains(r#"arguments  {"command":"echo removed >> log.txt"}"#),
        "{}",
        parked.stderr
    );
    let [request] = &pending(&cli)[..] else { panic!("one request") };
    let id = request["run_id"].as_str().unwrap();
    let digest = request["request"]["digest"].as_str().unwrap();
    let command =
        format!("endstop answer {id} --approve --digest {} --journal j.db", &digest[..12]);
    assert!(parked.stderr.contains(&command), "{}", parked.stderr);
    assert!(!cli.path("log.txt").exists());
    let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
    assert!(listed.contains("(parked)"), "{listed}");
    let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(explained.contains("parked: waits for approval: `shell`"), "{explained}");

    let answered = answer(&cli, &["--approve", "--digest", &digest[..12]]).exits(0);
    assert!(answered.stdout.contains(&format!("endstop run --resume {id}")), "{}", answered.stdout);
    resume(&cli, &notify).exits(0);
    assert_eq!(cli.read("log.txt"), "removed\n");
    assert!(pending(&cli).is_empty());
    let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(explained.contains("the request was approved"), "{explained}");

    let notices = cli.read("notices.txt");
    let notices: Vec<Value> =
        notices.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&notices[0]["type"], &notices[1]["type"]),
        (&json!("run_parked"), &json!("run_ended"))
    );
    assert_eq!(notices[0]["request"]["digest"], digest);
    assert_eq!((&notices[1]["run_id"], &notices[1]["termination"]), (&json!(id), &json!("stop")));
}

#[test]
fn json_ends_with_the_request() {
    let cli = Cli::new();
    let parked = park(&cli, &removing(), &["--json", "--events", "events.jsonl"]);
    let lines = parked.lines();
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["type"], &last["request"]["kind"]),
        (&json!("run_parked"), &json!("approval"))
    );
    assert!(lines.iter().any(|line| line["type"] == "parked"));
    let explained = cli.run(["explain", "events.jsonl"]).exits(0).stdout;
    assert!(explained.contains("parked until its request is decided"), "{explained}");
}

#[test]
fn denied_call_is_told_to_the_model() {
    let cli = Cli::new();
    let server = removing();
    park(&cli, &server, &[]);
    answer(&cli, &["--deny", "the log is needed"]).exits(0);
    resume(&cli, &[]).exits(0);
    assert!(!cli.path("log.txt").exists());
    let last = server.requests().last().unwrap().body.to_string();
    assert!(last.contains("denied: the log is needed"), "{last}");
}

#[test]
fn wrong_answers_are_refused() {
    let cli = Cli::new();
    let server = removing();
    park(&cli, &server, &[]);
    let refused = |args: &[&str], says: &str| {
        let done = answer(&cli, args).exits(2);
        assert!(done.stderr.contains(says), "{args:?}: {}", done.stderr);
    };
    refused(&["--approve", "--deny", "no"], "cannot be used with");
    refused(&[], "required");
    refused(&["--text", "yes"], "expected an approval or a denial: --approve, --deny WHY");
    refused(
        &["--approve", "--digest", "0123456789"],
        "look at the request again; `endstop pending`",
    );
    // Without a decision it parks again.
    resume(&cli, &[]).exits(75);
    answer(&cli, &["--approve"]).exits(0);
    refused(&["--deny", "no"], "was decided before (approve)");
    resume(&cli, &[]).exits(0);
    refused(&["--approve"], "has ended as stop");
    assert_eq!(cli.read("log.txt"), "removed\n");
    let other = cli.run(["answer", "nonesuch", "--approve", "--journal", "j.db"]).exits(2);
    assert!(other.stderr.contains("there is no run"), "{}", other.stderr);
}

#[test]
fn parked_run_can_be_cancelled() {
    let cli = Cli::new();
    park(&cli, &removing(), &[]);
    let id = pending(&cli)[0]["run_id"].as_str().unwrap().to_owned();
    let cancel = || cli.run(["cancel", &id[..6], "--journal", "j.db"]);
    assert_eq!(cancel().exits(0).stdout, format!("{id}: cancelled\n"));
    let listed = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    assert_eq!(
        (&listed[0]["termination"], &listed[0]["parked"]),
        (&json!("cancelled"), &json!(false))
    );
    let late = answer(&cli, &["--approve"]).exits(2);
    assert!(late.stderr.contains("has ended as cancelled"), "{}", late.stderr);
    cancel().exits(2);
}

#[test]
fn cancel_withdraws_decision() {
    for decision in [&["--approve"][..], &["--deny", "no"]] {
        let cli = Cli::new();
        let server = removing();
        park(&cli, &server, &[]);
        let id = pending(&cli)[0]["run_id"].as_str().unwrap().to_owned();
        answer(&cli, decision).exits(0);
        cli.run(["cancel", &id, "--journal", "j.db"]).exits(0);
        // Also after another resume, which reads the history of the first one.
        for _ in 0..2 {
            resume(&cli, &[]).exits(75);
            assert!(!cli.path("log.txt").exists(), "the withdrawn call ran");
        }
        assert_eq!(server.requests().len(), 1, "the model received a denial");
        answer(&cli, &["--approve"]).exits(0);
        resume(&cli, &[]).exits(0);
        assert_eq!(cli.read("log.txt"), "removed\n");
    }
}

#[test]
fn expired_request_is_a_timeout() {
    let cli = Cli::new();
    let server = removing();
    // The shortest time that there is; the request has expired when the command has ended.
    park(&cli, &server, &["--park-expiry", "0s"]);
    assert_eq!(pending(&cli)[0]["expired"], true);
    let late = answer(&cli, &["--approve"]).exits(2);
    assert!(late.stderr.contains("denied by timeout"), "{}", late.stderr);
    resume(&cli, &[]).exits(0);
    assert!(!cli.path("log.txt").exists());
    let last = server.requests().last().unwrap().body.to_string();
    assert!(last.contains("a timeout, not a person's decision"), "{last}");
}

#[test]
fn park_needs_a_journal() {
    let cli = Cli::new();
    let args = ["Go.", "--tool", "shell", "--ask", "park", "--journal", "off"];
    let done = cli.run(agent_args(&removing(), "openai-chat", &args)).exits(2);
    assert!(done.stderr.contains("a journal"), "{}", done.stderr);
    let args = ["Go.", "--park-expiry", "1h"];
    let done = cli.run(agent_args(&removing(), "openai-chat", &args)).exits(2);
    assert!(done.stderr.contains("add --ask park"), "{}", done.stderr);
}

#[test]
fn secrets_stay_out_of_requests() {
    let cli = Cli::new();
    let command = format!("curl -H 'Authorization: Bearer {OPENAI_KEY}' example.com");
    let server = playing([Turn::call("shell", &json!({"command": command}))]);
    let parked = park(&cli, &server, &["--notify", "cat > notice.txt; exit 3"]);
    assert!(parked.stderr.contains("--notify: exit status 3"), "{}", parked.stderr);
    for text in [cli.read("notice.txt"), pending(&cli)[0].to_string(), parked.stderr.clone()] {
        assert!(text.contains("[redacted]") && !text.contains(OPENAI_KEY), "{text}");
    }
}

/// Number of calls that need approval in each run that is killed.
const CALLS: usize = 3;

/// A model that makes one call after another.
fn three_calls() -> Server {
    answering(|request| {
        let done = results(request);
        let line = format!("echo begin {done} >> steps; sleep 0.02; echo end {done} >> steps");
        let turn = match done {
            CALLS => Turn::text("All is done."),
            _ => Turn::call("shell", &json!({"command": line})),
        };
        Reply::turn(request, &turn.usage(100, 10))
    })
}

struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn share(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as f64 / f64::from(1u32 << 31)
    }
}

/// Result of a run with all its deaths.
struct Killed {
    outcome: Value,
    denied: Vec<bool>,
    steps: String,
    deaths: u32,
}

/// Plays a run to its end. Each process may be killed within this time.
fn play(server: &Server, random: &mut Random, time: Option<Duration>) -> Killed {
    let cli = Cli::new();
    let (mut deaths, mut denied) = (0, Vec::new());
    let path = cli.path("j.db");
    for life in 0..100 {
        let mut line = |args: Vec<String>, random: &mut Random| {
            let mut started = Started::new(cli.command(args), "");
            // The last lives are left alone, so that every run ends.
            if let Some(time) = time.filter(|_| life < 80 && random.share() < 0.6) {
                std::thread::sleep(time.mul_f64(random.share()));
                started.child.kill().unwrap();
            }
            let status = started.child.wait().unwrap();
            deaths += u32::from(status.code().is_none());
            started.finish();
        };
        let own =
            |args: &[&str]| args.iter().chain(&JOURNAL).map(|arg| (*arg).to_owned()).collect();
        let journal = SqliteJournal::read(&path).ok();
        let last = journal.as_ref().and_then(|journal| journal.runs(9).unwrap().into_iter().next());
        let Some(last) = last else {
            let args = ["Go.", "--tool", "shell", "--ask", "park", "--price", "in=3,out=15"];
            // Each call may be denied, which would count as a mistake.
            let args = [&args[..], &["--max-consecutive-mistakes", "off"], &JOURNAL].concat();
            line(agent_args(server, "openai-chat", &args), random);
            continue;
        };
        let journal = journal.unwrap();
        if last.termination.is_some() {
            assert_eq!(journal.runs(9).unwrap().len(), 1, "one run");
            let recorded = journal.load(&last.id).unwrap();
            let outcome = recorded.outcome.clone().unwrap();
            let replay = recorded.replay(None).unwrap();
            let again: &Outcome = replay.outcome().unwrap();
            assert_eq!(serde_json::to_string(again).unwrap(), outcome.to_string(), "replayed");
            let steps = std::fs::read_to_string(cli.path("steps")).unwrap_or_default();
            return Killed { outcome, denied, steps, deaths };
        }
        match journal.pending().unwrap().first() {
            Some(parked) if parked.decision.is_none() => {
                let nth = journal.load(&last.id).unwrap();
                let nth =
                    nth.events.iter().filter(|event| event.kind.name() == "turn_ended").count();
                if denied.len() < nth {
                    denied.push(random.share() < 0.25);
                }
                let deny = denied[nth - 1];
                let how: &[&str] = if deny { &["--deny", "not this one"] } else { &["--approve"] };
                line(own(&[&["answer", "last"], how].concat()), random);
            }
            _ => line(own(&["run", "--resume", "last", "--trust-journal"]), random),
        }
    }
    panic!("the run did not end: {}", cli.dir.keep().display())
}

/// Checks what is left of a run. Returns the number of calls that were reported as possibly run,
/// and of model calls that were cut.
fn check(killed: &Killed, whole: f64) -> (u32, u64) {
    let Killed { outcome, denied, steps, deaths } = killed;
    assert_eq!(outcome["termination"], "stop", "{outcome}");
    let results: Vec<&Value> = outcome["messages"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|message| message["parts"].as_array().unwrap())
        .filter(|part| part["type"] == "tool_result")
        .collect();
    assert_eq!((results.len(), denied.len()), (CALLS, CALLS));
    let mut may_have_run = 0;
    for (nth, (result, denied)) in results.iter().zip(denied).enumerate() {
        let count =
            |word: &str| steps.lines().filter(|line| *line == format!("{word} {nth}")).count();
        let content = result["content"].as_str().unwrap();
        if *denied {
            assert_eq!(content, "denied: not this one");
            assert_eq!(count("begin"), 0, "a denied call ran");
        } else if result["status"] == "ok" {
            assert_eq!((count("begin"), count("end")), (1, 1), "call {nth}: {steps}");
        } else {
            assert!(content.contains("may have done"), "{content}");
            assert!(count("begin") <= 1, "call {nth} ran twice: {steps}");
            may_have_run += 1;
        }
    }
    assert!(may_have_run <= *deaths);
    let cut = outcome["model_calls"].as_u64().unwrap() - (CALLS as u64 + 1);
    let cost = outcome["cost_usd"].as_f64().unwrap();
    if cut == 0 {
        assert!((cost - whole).abs() < 1e-9, "{cost} instead of {whole}");
    } else {
        // The calls that were cut are charged as estimates.
        assert!(cost > whole && cut <= u64::from(*deaths), "{cost} for {cut} cut calls");
    }
    (may_have_run, cut)
}

/// `ENDSTOP_PARKED=200` plays 200 runs.
#[test]
fn killed_processes_run_calls_once() {
    let server = three_calls();
    let mut random = Random(0x5eed);
    let began = Instant::now();
    let whole = play(&server, &mut random, None);
    // Seven processes, and one more for each call that was approved.
    let time = began.elapsed() / 7;
    let cost = whole.outcome["cost_usd"].as_f64().unwrap();
    assert_eq!((whole.deaths, check(&whole, cost)), (0, (0, 0)));
    let runs = std::env::var("ENDSTOP_PARKED").ok().and_then(|n| n.parse().ok()).unwrap_or(8);
    let (mut deaths, mut may_have_run, mut cut) = (0, 0, 0);
    for _ in 0..runs {
        let killed = play(&server, &mut random, Some(time));
        let seen = check(&killed, cost);
        deaths += killed.deaths;
        may_have_run += seen.0;
        cut += seen.1;
    }
    assert!(deaths > 0, "no process was killed");
    println!(
        "{runs} runs with {CALLS} approvals, {deaths} deaths: each ended once, {may_have_run} calls were reported as possibly run, {cut} model calls were cut"
    );
}
