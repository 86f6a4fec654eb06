//! Ceilings per day that processes share, and `endstop spend`.

use crate::cli::{Cli, Done, Started, agent_args, answering, eventually, playing};
use endstop::NanoUsd;
use endstop::budget::Amount;
use endstop::journal::{Period, SpendBooks, SpendBudget, SqliteJournal};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A call costs $0.0045 at this price: 1,000 prompt tokens and 100 generated ones.
const PRICE: [&str; 2] = ["--price", "in=3,out=15"];
const CALL: NanoUsd = NanoUsd(4_500_000);
/// The lease of a reservation, as the page documents it.
const LEASE_MS: u64 = 60_000;

#[expect(clippy::disallowed_methods, reason = "a day is a matter of the wall clock")]
fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Adds up the books of the days on which the test may have run.
fn books(file: &Path, now: u64) -> SpendBooks {
    let Ok(journal) = SqliteJournal::read(file) else { return SpendBooks::default() };
    let day = now_ms() / 86_400_000;
    let all = [day - 1, day]
        .map(|day| journal.books(Period::Day, day * 86_400_000, now).unwrap_or_default());
    all.into_iter().flatten().fold(SpendBooks::default(), |sum, one| SpendBooks {
        project: None,
        spent: sum.spent + one.spent,
        spent_tokens: sum.spent_tokens + one.spent_tokens,
        reserved: sum.reserved + one.reserved,
        reserved_tokens: sum.reserved_tokens + one.reserved_tokens,
        lost: sum.lost + one.lost,
        lost_tokens: sum.lost_tokens + one.lost_tokens,
    })
}

/// A model that works without end, and counts its calls when it begins to answer them.
fn endless(delay: Duration) -> (Server, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&calls);
    let server = answering(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        let command = format!("echo {}", request.number);
        let turn = Turn::call("shell", &json!({"command": command})).usage(1_000, 100);
        Reply::turn(request, &turn.after(delay))
    });
    (server, calls)
}

fn start(cli: &Cli, server: &Server) -> Started {
    let args = ["Go.", "--tool", "shell", "--config", "spend.toml", "--journal", "j.db"];
    // The default cap of a call would reserve $0.12.
    let more = ["--max-output-tokens", "300", "--max-turns", "off"];
    let args = [&args[..], &more, &PRICE].concat();
    Started::new(cli.command(agent_args(server, "openai-chat", &args)), "")
}

#[test]
fn twenty_processes_share_a_ceiling() {
    let cli = Cli::new();
    let ceiling = NanoUsd::from_usd(0.45);
    cli.write("spend.toml", "project = \"web\"\n[spend]\nmax_usd_per_day = 0.45\n");
    let (server, calls) = endless(Duration::from_millis(5));
    let mut processes: Vec<Started> = (0..20).map(|_| start(&cli, &server)).collect();
    let hang = Instant::now();
    let mut looks = 0;
    while processes.iter_mut().any(|process| process.child.try_wait().unwrap().is_none()) {
        let SpendBooks { spent, reserved, lost, .. } = books(&cli.path("j.db"), now_ms());
        assert!(spent + reserved + lost <= ceiling, "{spent} + {reserved} + {lost}");
        looks += u32::from(reserved > NanoUsd::ZERO);
        assert!(hang.elapsed() < Duration::from_secs(240), "a process hangs");
    }
    assert!(looks > 0, "no reservation was seen");
    for process in processes {
        let done = process.finish().exits(20);
        done.outcome_is("error_max_budget_usd");
        assert!(done.stderr.contains("$0.45 in the ceiling per day (UTC)"), "{}", done.stderr);
        assert!(done.stderr.contains("it resets at 20"), "{}", done.stderr);
    }
    let billed = NanoUsd(CALL.0 * calls.load(Ordering::SeqCst));
    let after = books(&cli.path("j.db"), now_ms());
    assert_eq!((after.spent, after.reserved, after.lost), (billed, NanoUsd::ZERO, NanoUsd::ZERO));
    assert!(billed <= ceiling, "{billed}");
    // A call of at most 300 tokens no longer fits, and that is all that is left.
    assert!(ceiling.saturating_sub(billed) < NanoUsd::from_usd(0.02), "{billed}");
}

/// `ENDSTOP_SPEND_KILLS=200` kills more processes.
#[test]
fn killed_processes_leave_no_reservation() {
    let kills = std::env::var("ENDSTOP_SPEND_KILLS").ok().and_then(|kills| kills.parse().ok());
    let cli = Cli::new();
    let ceiling = NanoUsd::from_usd(50.0);
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 50\n");
    let (server, calls) = endless(Duration::from_millis(20));
    let (mut seed, mut lost) = (0x5eed_u64, 0);
    for _ in 0..kills.unwrap_or(12) {
        let mut process = start(&cli, &server);
        // The moment is drawn over the start of a process and some of its calls.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((seed >> 33) % 400_000));
        process.child.kill().unwrap();
        process.child.wait().unwrap();
    }
    let before = books(&cli.path("j.db"), now_ms());
    assert!(before.spent + before.reserved + before.lost <= ceiling);
    // A lease later nothing is reserved, whatever was in flight; what may have been billed counts.
    let later = now_ms() + LEASE_MS + 1;
    let after = books(&cli.path("j.db"), later);
    assert_eq!((after.reserved, after.reserved_tokens), (NanoUsd::ZERO, 0));
    assert_eq!(after.lost, before.reserved + before.lost);
    lost += u32::from(after.lost > NanoUsd::ZERO);
    let billed = NanoUsd(CALL.0 * calls.load(Ordering::SeqCst));
    assert!(after.spent + after.lost >= billed, "{billed} may have been billed");
    assert!(lost == 1, "no process was killed during a call");
    // And everything else can be reserved, by a process that comes after it.
    let journal = SqliteJournal::open(cli.path("j.db")).unwrap();
    let budget = SpendBudget::new()
        .max_usd(Period::Day, ceiling)
        .clock(move || later)
        .open(&journal)
        .unwrap();
    let all = budget.reserve_amount(Amount::from(ceiling), Amount::ZERO).unwrap();
    // At midnight the later clock is in the next day, which begins anew.
    if later / 86_400_000 == (later - LEASE_MS - 1) / 86_400_000 {
        assert_eq!(all.usd, ceiling.saturating_sub(after.spent + after.lost));
    }
}

#[test]
fn locked_journal_never_means_unlimited() {
    let cli = Cli::new();
    cli.write("spend.toml", "[spend]\nmax_tokens_per_day = 100000\n");
    let (server, calls) = endless(Duration::ZERO);
    let mut process = start(&cli, &server);
    eventually("a call", || calls.load(Ordering::SeqCst) > 2);
    let journal = rusqlite::Connection::open(cli.path("j.db")).unwrap();
    journal.busy_timeout(Duration::from_secs(60)).unwrap();
    journal.execute_batch("BEGIN IMMEDIATE").unwrap();
    eventually("its end", || process.child.try_wait().unwrap().is_some());
    journal.execute_batch("ROLLBACK").unwrap();
    let done = process.finish().exits(10);
    done.outcome_is("error_during_execution");
    assert!(done.stderr.contains("the shared budget cannot be asked"), "{}", done.stderr);
    assert!(done.stderr.contains("another process has locked it"), "{}", done.stderr);
}

#[test]
fn ceilings_need_a_journal_and_a_price() {
    let cli = Cli::new();
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 1\n");
    let server = playing([Turn::text("Done.")]);
    let run = |more: &[&str]| {
        let args = [&["Go.", "--config", "spend.toml"], more].concat();
        cli.agent(&server, "openai-chat", &args).exits(2)
    };
    let without = run(&["--journal", "off", "--price", "in=3,out=15"]);
    assert!(without.stderr.contains("--journal FILE"), "{}", without.stderr);
    let unpriced = run(&["--journal", "j.db"]);
    assert!(unpriced.stderr.contains("price"), "{}", unpriced.stderr);
    cli.write("spend.toml", "[spend]\nmax_usd_per_year = 1\n");
    run(&["--journal", "j.db"]).notes(&["max_usd_per_day"]);
    assert!(server.requests().is_empty());
    // A file of the folder may name a project, and may not set ceilings.
    cli.write("endstop.toml", "project = \"web\"\n[spend]\nmax_usd_per_day = 100\n");
    let folder = cli.agent(&server, "openai-chat", &["Go.", "--journal", "j.db"]).exits(2);
    assert!(
        folder.stderr.contains("`spend.max_usd_per_day` needs your consent"),
        "{}",
        folder.stderr
    );
}

/// A journal of its own has a day of its own, which the user must know.
#[test]
fn ceilings_in_another_journal_are_noted() {
    let server = playing([Turn::text("Done.")]);
    let note = "the ceilings per day count the runs of";
    for (config, journal, noted) in [
        ("[spend]\nmax_usd_per_day = 1\n", Some("j.db"), true),
        ("[spend]\nmax_usd_per_day = 1\n", None, false),
        ("[limits]\nmax_turns = 3\n", Some("j.db"), false),
    ] {
        let cli = Cli::new();
        cli.write("spend.toml", config);
        let args = ["Go.", "--config", "spend.toml", "--price", "in=3,out=15"];
        let more: &[&str] = journal.map_or(&[], |_| &["--journal", "j.db"]);
        let args = agent_args(&server, "openai-chat", &[&args[..], more].concat());
        let mut command = cli.command(args);
        command.env("XDG_STATE_HOME", cli.path("state"));
        let done = Started::new(command, "").finish().exits(0);
        assert_eq!(done.stderr.contains(note), noted, "{}", done.stderr);
        assert_eq!(done.stderr.contains("j.db only; those in other journals"), noted);
    }
}

#[test]
fn spending_is_added_up() {
    let cli = Cli::new();
    let server = playing([Turn::text("Done.").usage(1_000, 100)]);
    let run = |more: &[&str], code: i32| {
        let args = [&["Go.", "--journal", "j.db"], more].concat();
        cli.agent(&server, "openai-chat", &args).exits(code);
    };
    let spend = |more: &[&str]| {
        let args = [&["spend", "--journal", "j.db", "--json"], more].concat();
        cli.run(args).exits(0).lines()
    };
    run(&[&PRICE[..], &["--project", "web"]].concat(), 0);
    run(&[&PRICE[..], &["--project", "web"]].concat(), 0);
    run(&PRICE, 0);
    run(&["--project", "api"], 0);
    run(&["--max-turns", "0"], 20);

    let [api, web, none] = &by_name(spend(&["--by", "project"]))[..] else { panic!("three") };
    assert_eq!(
        (&web["name"], &web["runs"], &web["cost_usd"]),
        (&json!("web"), &json!(2), &json!(0.009))
    );
    assert_eq!(web["tokens"], 2_200);
    // A run without a price is not a run that cost nothing.
    assert_eq!((&api["cost_usd"], &api["runs_without_price"]), (&Value::Null, &json!(1)));
    assert_eq!((&none["name"], &none["runs"]), (&Value::Null, &json!(2)));
    let endings = by_name(spend(&["--by", "ending"]));
    let endings: Vec<&Value> = endings.iter().map(|group| &group["name"]).collect();
    assert_eq!(endings, ["error_max_turns", "stop"]);
    assert_eq!(spend(&["--by", "model"]).len(), 1);
    let days = spend(&["--since", "1d"]);
    assert_eq!(days.iter().map(|day| day["runs"].as_u64().unwrap()).sum::<u64>(), 5);
    assert!(spend(&["--since", "2100-01-01"]).is_empty());

    cli.write("spend.toml", "[spend.projects.web]\nmax_usd_per_day = 0.5\n");
    run(&[&PRICE[..], &["--project", "web", "--config", "spend.toml"]].concat(), 0);
    let lines = spend(&["--config", "spend.toml"]);
    let ceiling = lines.last().unwrap();
    assert_eq!((&ceiling["type"], &ceiling["project"]), (&json!("ceiling"), &json!("web")));
    // What was spent before the ceiling was set counts.
    assert_eq!((&ceiling["spent_usd"], &ceiling["reserved_usd"]), (&json!(0.0135), &json!(0.0)));
    let text = cli.run(["spend", "--journal", "j.db", "--config", "spend.toml"]).exits(0).stdout;
    assert!(text.contains("1 run without a known price"), "{text}");
    assert!(text.contains("today, project web: $0.0135 of $0.5000 spent"), "{text}");
}

fn by_name(mut groups: Vec<Value>) -> Vec<Value> {
    groups.sort_by_key(|group| group["name"].as_str().unwrap_or("~").to_owned());
    groups
}

#[test]
fn resumed_run_keeps_its_ceilings() {
    let cli = Cli::new();
    cli.write("spend.toml", "project = \"web\"\n[spend.projects.web]\nmax_usd_per_day = 0.02\n");
    let (server, _) = endless(Duration::ZERO);
    let ended = start(&cli, &server).finish().exits(20);
    assert!(ended.stderr.contains("of the project `web`"), "{}", ended.stderr);
    let resume = ["run", "--resume", "last", "--trust-journal", "--journal", "j.db"];
    let again = cli.run(resume).exits(20);
    assert!(again.stderr.contains("of the project `web`"), "{}", again.stderr);
    let spent = books(&cli.path("j.db"), now_ms());
    assert!(spent.spent <= NanoUsd::from_usd(0.02) && spent.reserved == NanoUsd::ZERO);
}

/// A script costs nothing, and its runs are not sessions of the user.
#[test]
fn demos_count_nowhere() {
    let cli = Cli::new();
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 0.30\n");
    let spend = ["spend", "--config", "spend.toml"];
    let state = cli.path("state");
    let with = |args: &[&str]| {
        let mut command = cli.command(args);
        command.env("XDG_STATE_HOME", &state).env("HOME", cli.dir.path());
        Started::new(command, "").finish()
    };
    let prints = |done: Done, texts: &[&str]| {
        texts.iter().for_each(|text| assert!(done.stdout.contains(text), "{text}: {done:#?}"));
    };
    for _ in 0..2 {
        with(&["demo", "budget"]).exits(20);
    }
    let spent = with(&spend).exits(0).notes(&["no run is stored"]);
    prints(spent, &["$0.0000 of $0.3000 spent"]);
    prints(with(&["runs"]).exits(0), &["(demo budget)", "error_max_budget_usd"]);
    assert_eq!(with(&["runs", "--json"]).exits(0).lines()[0]["uncounted"], "budget");
    let journal = state.join("endstop/journal.db");
    let audited = with(&["audit", journal.to_str().unwrap()]);
    assert!(!audited.stdout.contains("2 sessions"), "{}", audited.stdout);
    // The ceiling of the day has room for a run of the user.
    let server = playing([Turn::text("Done.").usage(1_000, 100)]);
    let args = ["Go.", "--max-output-tokens", "300", "--config", "spend.toml"];
    let real = agent_args(&server, "openai-chat", &[&args[..], &PRICE].concat());
    let real: Vec<&str> = real.iter().map(String::as_str).collect();
    with(&real).exits(0);
    prints(with(&spend).exits(0), &["$0.0045 of $0.3000 spent"]);
    let audited = with(&["audit", journal.to_str().unwrap()]).exits(0);
    assert!(audited.stdout.contains("1 session"), "{}", audited.stdout);
}

/// A resume does not count again what was spent before it, and a replay pays nothing.
#[test]
fn resumed_and_replayed_runs_count_what_was_paid() {
    let cli = Cli::new();
    std::fs::write(cli.path("note.txt"), "x").unwrap();
    let read = Turn::call("read_file", &json!({"path": "note.txt"})).usage(1_000, 100);
    let server = playing([read.clone(), read, Turn::text("Done.").usage(1_000, 100)]);
    let limits = ["Go.", "--tool", "read_file", "--max-turns", "2", "--journal", "j.db"];
    let recorded = [&limits[..], &PRICE, &["--record", "r.jsonl"]].concat();
    cli.agent(&server, "openai-chat", &recorded).exits(20);
    let more = ["--max-turns", "9", "--trust-journal", "--journal", "j.db"];
    cli.run([&["run", "--resume", "last"][..], &more].concat()).exits(0);
    let replay = ["run", "--replay", "r.jsonl", "--tool", "read_file", "--max-turns", "2"];
    cli.run([&replay[..], &["--journal", "j.db"]].concat()).exits(20);
    let spent = cli.run(["spend", "--json", "--journal", "j.db"]).exits(0).lines();
    let (runs, cost, tokens) = (&spent[0]["runs"], &spent[0]["cost_usd"], &spent[0]["tokens"]);
    assert_eq!((runs, tokens), (&json!(2), &json!(3_300)), "{spent:#?}");
    assert!((cost.as_f64().unwrap() - 3.0 * CALL.to_usd()).abs() < 1e-9, "{spent:#?}");
    // The first ceiling of the day finds the same in the stored runs.
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 0.30\n");
    let server = playing([Turn::text("Done.").usage(1_000, 100)]);
    let args = ["Go.", "--max-output-tokens", "300", "--config", "spend.toml", "--journal", "j.db"];
    cli.agent(&server, "openai-chat", &[&args[..], &PRICE].concat()).exits(0);
    let books = books(&cli.path("j.db"), now_ms());
    assert_eq!((books.spent, books.spent_tokens), (NanoUsd(4 * CALL.0), 4_400));
    // One session that was resumed, and the last run.
    let audited = cli.run(["audit", "j.db"]).exits(0);
    assert!(audited.stdout.contains("2 sessions"), "{}", audited.stdout);
    assert!(cli.run(["runs", "--journal", "j.db"]).exits(0).stdout.contains("(replay)"));
}

#[test]
fn runs_are_listed_by_ending_and_time() {
    let cli = Cli::new();
    let server = answering(|request| {
        let turn = Turn::text("Half an answ");
        Reply::turn(request, &if request.number == 1 { turn.finish("length") } else { turn })
    });
    for status in [20, 0] {
        let args = ["Go.", "--journal", "j.db", "--max-continuations", "0"];
        cli.run(agent_args(&server, "openai-chat", &args)).exits(status);
    }
    let listed = |more: &[&str]| {
        let args = [&["runs", "--json", "--journal", "j.db"][..], more].concat();
        let runs = cli.run(args).exits(0).lines();
        runs.iter().map(|run| run["termination"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&[]), ["stop", "error_output_truncated"]);
    assert_eq!(listed(&["--failed"]), ["error_output_truncated"]);
    assert_eq!(listed(&["--failed", "-n", "1"]), ["error_output_truncated"]);
    assert_eq!(listed(&["--ended", "stop"]), ["stop"]);
    assert_eq!(listed(&["--since", "1h"]).len(), 2);
    assert!(listed(&["--since", "2999-01-01"]).is_empty());
    let wrong = cli.run(["runs", "--ended", "error_output_truncate"]).exits(2).stderr;
    assert!(wrong.contains("did you mean `error_output_truncated`"), "{wrong}");
    cli.run(["runs", "--ended", "gave_up", "--journal", "j.db"]).exits(0).notes(&["no such run"]);
}
