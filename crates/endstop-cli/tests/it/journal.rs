//! Stored runs: listed, explained, resumed after `kill -9`; and data that a journal must not
//! contain.

use crate::cli::{Cli, FORMATS, OPENAI_KEY, Started, agent_args, answering, eventually, playing};
use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

const JOURNAL: [&str; 2] = ["--journal", "j.db"];

/// A model that has the shell write one line for each step, based on the results it has, and then
/// answers.
fn steps(most: usize) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |request| {
        let body = request.body.to_string();
        // The formats nest results differently, so results are counted by their text.
        let done = body.matches("[exit status 0]").count() + body.matches("may have done").count();
        let turn = if done < most {
            Turn::call("shell", &json!({"command": format!("echo step {} >> steps.txt", done + 1)}))
        } else {
            Turn::text("All is done.")
        };
        Reply::turn(request, &turn.pace(Duration::from_millis(5)))
    }
}

fn begin(server: &Server, api: &str, more: &[&str]) -> Vec<String> {
    let args = [&["Do the steps.", "--tool", "shell"][..], &JOURNAL, more].concat();
    agent_args(server, api, &args)
}

#[test]
fn turn_without_price_says_so() {
    let cli = Cli::new();
    let server = playing([Turn::text("Hi.")]);
    for (price, cost) in [(&[][..], ", no price)"), (&["--price", "in=1,out=2"], " so far)")] {
        let args = [&["Go."][..], &JOURNAL, price].concat();
        cli.agent(&server, "openai-chat", &args).exits(0);
        let told = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
        let line = told.lines().find(|line| line.contains("text \"Hi.\""));
        assert!(line.is_some_and(|line| line.ends_with(cost)), "{cost}: {told}");
    }
}

#[test]
fn run_is_listed_and_explained() {
    for api in FORMATS {
        let cli = Cli::new();
        cli.write("note.txt", "still building <b>&</b>\n");
        let server = playing([Turn::call("read_file", &json!({"path": "note.txt"}))]);
        let args = [&["Wait.", "--tool", "read_file"][..], &JOURNAL].concat();
        let done = cli.agent(&server, api, &args).exits(20);
        let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!(runs.len(), 1);
        let id = runs[0]["run_id"].as_str().unwrap();
        assert_eq!(runs[0]["termination"], "error_no_progress");
        let done = done.notes(&[&format!("endstop explain {id}")]);

        let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
        assert!(listed.contains(id) && listed.contains("error_no_progress"), "{listed}");
        let told = cli.run(["explain", &id[..6], "--journal", "j.db"]).exits(0).stdout;
        for says in [
            "turn 2 attempt 1   [max_turns 1 of 25 turns]",
            "→ read_file",
            "repeats: read_file({\"path\":\"note.txt\"}): turns 1 to 4",
            "limits at the end: max_turns 4 of 25 turns · max_unproductive_turns 3 of 3 turns\n",
        ] {
            assert!(told.contains(says), "no {says:?} in {told}");
        }
        // The card of the run and that of `explain` differ only in the row `run`.
        let card = |text: &str| {
            let (_, card) = text.rsplit_once("── stopped: ").unwrap();
            let rows = card.lines().filter(|line| !line.starts_with("  run "));
            rows.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(card(&told), card(&done.stderr));
        let story = cli.run(["explain", "last", "--json", "--journal", "j.db"]).exits(0).lines();
        let story = &story[0];
        assert_eq!(story["state"], "ended");
        assert_eq!(story["problems"], json!([]));
        assert_eq!(story["repeats"][0]["turns"], json!([1, 2, 3, 4]));
        let end = story["limits"].as_array().unwrap().last().unwrap();
        assert!(end["turn"].is_null());
        let met: Vec<&Value> =
            end["checks"].as_array().unwrap().iter().filter(|check| check["met"] == true).collect();
        assert_eq!(met.len(), 1);
        assert_eq!(met[0]["limit"], "max_unproductive_turns");

        cli.run(["explain", id, "--html", "run.html", "--journal", "j.db"]).exits(0);
        let page = cli.read("run.html");
        assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
        // A self-contained page: it fetches nothing, runs nothing, and shows tool results as text.
        for no in ["http://", "https://", "<script", "src=", "@import", "<b>&"] {
            assert!(!page.contains(no), "{no:?} in the page");
        }
        let decided = "<dt>decided</dt> <dd>limit `max_unproductive_turns`: 3 of 3 turns";
        for says in
            [decided, "<svg", "ended the run", "still building &lt;b&gt;&amp;&lt;/b&gt;", "A"]
        {
            assert!(page.contains(says), "no {says:?} in the page");
        }
    }
}

#[test]
fn killed_run_resumes_under_its_id() {
    for api in FORMATS {
        let cli = Cli::new();
        let server = answering(steps(6));
        let mut started = Started::new(cli.command(begin(&server, api, &[])), "");
        eventually("two steps", || {
            std::fs::read_to_string(cli.path("steps.txt"))
                .is_ok_and(|text| text.lines().count() >= 2)
        });
        started.child.kill().unwrap();
        started.child.wait().unwrap();
        let before = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!((before.len(), &before[0]["termination"]), (1, &Value::Null));
        let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
        assert!(listed.contains("(its process died)"), "{listed}");
        let told = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
        assert!(told.contains("no outcome: its process died"), "{told}");

        let id = before[0]["run_id"].as_str().unwrap();
        let hint =
            format!("\nnext: resume: endstop run --resume {id} --trust-journal --journal j.db\n");
        assert!(told.contains(&hint), "{told}");
        // Model, address, tools and limits come from the stored run.
        let done = cli
            .run(["run", "--resume", id, "--json", "--trust-journal", "--journal", "j.db"])
            .exits(0);
        let outcome = done.outcome();
        assert_eq!((&outcome["termination"], &outcome["run_id"]), (&json!("stop"), &json!(id)));
        done.notes(&["▶ resuming run", id]);
        let text = cli.read("steps.txt");
        let mut once: Vec<&str> = text.lines().collect();
        once.dedup();
        assert_eq!(once, text.lines().collect::<Vec<_>>(), "no step was done twice");
        let after = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!((after.len(), &after[0]["termination"]), (1, &json!("stop")));
        let again = ["run", "--resume", "last", "--trust-journal", "--journal", "j.db"];
        cli.run(again).exits(2).notes(&["ended as stop", "nothing to resume"]);
    }
}

#[test]
fn raised_limit_lets_run_resume() {
    let cli = Cli::new();
    let server = answering(steps(4));
    let done = cli.run(begin(&server, "openai-chat", &["--max-turns", "2"])).exits(20);
    done.notes(&["endstop run --resume ", " --max-turns 4"]);
    let resume = |more: &[&str]| {
        cli.run(
            [&["run", "--resume", "last", "--json", "--trust-journal", "--journal", "j.db"], more]
                .concat(),
        )
    };
    resume(&[]).exits(2).notes(&["would end again at once as error_max_turns", "raise"]);
    let outcome = resume(&["--max-turns", "9"]).exits(0).outcome();
    assert_eq!((&outcome["turns"], &outcome["tool_calls"]), (&json!(5), &json!(4)));
    assert_eq!(cli.read("steps.txt"), "step 1\nstep 2\nstep 3\nstep 4\n");
    let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    assert_eq!(runs[0]["continues"], runs[1]["run_id"]);
    // The work is done, so it is not to be done again.
    let [later, earlier] = [0, 1].map(|nth| runs[nth]["run_id"].as_str().unwrap());
    let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
    for mark in [format!("(continues {earlier})"), format!("(continued by {later})")] {
        assert!(listed.contains(&mark), "no {mark:?} in {listed}");
    }
    let failed = cli.run(["runs", "--failed", "--journal", "j.db"]).exits(0);
    assert_eq!(failed.stdout, "", "{failed:#?}");
    let explained = cli.run(["explain", earlier, "--journal", "j.db"]).exits(0).stdout;
    assert!(explained.contains(&format!("continued to a success by run {later}")), "{explained}");
    assert!(!explained.contains("--resume"), "{explained}");
}

#[test]
fn changed_settings_need_acceptance() {
    let cli = Cli::new();
    let server = answering(steps(4));
    cli.run(begin(&server, "openai-chat", &["--max-turns", "2"])).exits(20);
    let other = ["run", "--resume", "last", "--max-turns", "9", "--tool", "read_file", "--system"];
    let other = [&other[..], &["Be quick.", "--trust-journal"], &JOURNAL].concat();
    let refused = cli.run(&other).exits(2);
    refused.notes(&[
        "the configuration differs from the original run",
        "instructions: was none",
        "is Be quick.",
        "tool shell: was there",
        "is gone",
        "tool read_file: was not there",
        "--accept-changes",
    ]);
    assert_eq!(cli.run(["runs", "--json", "--journal", "j.db"]).lines().len(), 1);
    // The tool is gone, so the call counts as a mistake, and mistakes end the run.
    let accepted = [&other[..], &["--accept-changes", "--json"]].concat();
    let outcome = cli.run(&accepted).exits(20).outcome();
    assert_eq!(outcome["termination"], "error_consecutive_mistakes");
}

#[test]
fn journal_before_0_1_is_left_untouched() {
    let (cli, server) = (Cli::new(), playing([Turn::text("Yes.")]));
    std::fs::create_dir(cli.path("runs")).unwrap();
    let old = rusqlite::Connection::open(cli.path("runs/old.db")).unwrap();
    old.execute_batch(
        "PRAGMA journal_mode = wal; CREATE TABLE runs (id TEXT);
         PRAGMA application_id = 0x456e6473; PRAGMA user_version = 4",
    )
    .unwrap();
    drop(old);
    let files = || -> Vec<_> {
        let folder = std::fs::read_dir(cli.path("runs")).unwrap();
        let file = |path: PathBuf| {
            let found = std::fs::metadata(&path).unwrap();
            let time = found.modified().unwrap();
            (std::fs::read(&path).unwrap(), time, found.permissions(), path)
        };
        folder.map(|entry| file(entry.unwrap().path())).collect()
    };
    let before = files();
    assert_eq!(before.len(), 1);
    let reason = "runs/old.db: a journal from before version 0.1 of Endstop, which this version cannot read; choose another file";
    let run = agent_args(&server, "openai-chat", &["Is it?", "--journal", "runs/old.db"]);
    let commands: [&[&str]; 9] = [
        &["runs", "--journal", "runs/old.db"],
        &["explain", "last", "--journal", "runs/old.db"],
        &["explain", "runs/old.db"],
        &["spend", "--journal", "runs/old.db"],
        &["runs", "prune", "--keep", "1", "--journal", "runs/old.db"],
        &["guard", "--journal", "runs/old.db", "--", "true"],
        &["serve", "--listen", "127.0.0.1:0", "--journal", "runs/old.db"],
        &["backtest", "runs/old.db"],
        &run.iter().map(String::as_str).collect::<Vec<_>>(),
    ];
    for args in commands {
        let done = cli.run(args).exits(2).notes(&[reason]);
        assert_eq!(done.stderr.lines().count(), 1, "{args:?}: {done:#?}");
        assert_eq!(files(), before, "{args:?}");
    }
    assert_eq!(server.requests().len(), 0);
    // In a folder it is a problem of the report.
    let report: Value = serde_json::from_str(&cli.run(["audit", "runs", "--json"]).stdout).unwrap();
    assert!(report["problems"]["unreadable"]["first"].to_string().contains(reason), "{report:#}");
    assert_eq!(files(), before);
}

#[test]
fn unusable_journal_is_reported() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    cli.write("notes.txt", "dear diary, ".repeat(100));
    let with =
        |journal: &str| agent_args(&server, "openai-chat", &["Is it?", "--journal", journal]);
    cli.run(with("notes.txt")).exits(2).notes(&["--journal notes.txt", "not an Endstop journal"]);
    assert!(cli.read("notes.txt").starts_with("dear diary"));
    cli.run(with("/proc/none/j.db")).exits(2).notes(&["--journal /proc/none/j.db"]);
    cli.run(with("off")).exits(0);
    cli.run(["runs", "--journal", "off"]).exits(2).notes(&["--journal FILE"]);
    cli.run(["runs", "--journal", "none.db"]).exits(2).notes(&["no journal found"]);
    cli.run(["explain", "zzz", "--journal", "none.db"]).exits(2).notes(&["zzz: No such file"]);
    // The default journal is optional: the run continues if it cannot be written.
    let mut command = cli.command(agent_args(&server, "openai-chat", &["Is it?"]));
    command.env("XDG_STATE_HOME", "/proc/none").env("HOME", "/proc/none");
    Started::new(command, "").finish().exits(0).notes(&["this run is not stored", "--journal off"]);
    // A resume requires it.
    let mut command = cli.command(["run", "--resume", "last"]);
    command.env("XDG_STATE_HOME", "/proc/none").env("HOME", "/proc/none");
    let done = Started::new(command, "").finish().exits(2);
    assert!(done.stderr.contains("--resume: the journal could not be opened: "), "{}", done.stderr);
    assert!(!done.stderr.contains("not stored"), "{}", done.stderr);
    // A default journal that can be written is used.
    let mut command = cli.command(agent_args(&server, "openai-chat", &["Is it?"]));
    command.env("XDG_STATE_HOME", cli.path("state"));
    Started::new(command, "").finish().exits(0);
    assert!(cli.path("state/endstop/journal.db").exists());
    // A journal that a settings file names.
    cli.write("settings.toml", "journal = \"kept/here.db\"\n");
    let settings = ["Is it?", "--config", "settings.toml"];
    cli.run(agent_args(&server, "openai-chat", &settings)).exits(0);
    assert!(cli.path("kept/here.db").exists());
    cli.run(["run", "x", "--resume", "last"]).exits(2).notes(&["--resume"]);
}

/// Keys in the environment, in headers, in an address, in errors and in tool results: none of them
/// may appear in any byte that is written.
#[test]
fn no_written_byte_contains_keys() {
    const DEPLOY: &str = "dpl0y-7Kq2Zx9Lm4Wn8Vb3Tc6Yd1";
    for api in FORMATS {
        let cli = Cli::new();
        let key = if api == "anthropic-messages" { crate::cli::ANTHROPIC_KEY } else { OPENAI_KEY };
        let server = answering(move |request| match request.number {
            1 => {
                let command =
                    format!("echo {DEPLOY}; echo the key is {key}; cat key.txt >&2; exit 3");
                Reply::turn(request, &Turn::call("shell", &json!({ "command": command })))
            }
            2 => Reply::turn(
                request,
                &Turn::error(500, format!("{{\"error\":{{\"message\":\"bad key {key}\"}}}}")),
            ),
            3 => Reply::turn(
                request,
                &Turn::error(401, format!("{{\"error\":{{\"message\":\"{DEPLOY} {key}\"}}}}")),
            ),
            _ => Reply::turn(request, &Turn::text(format!("The key is {key}, and {DEPLOY}."))),
        });
        cli.write("key.txt", format!("{key} {DEPLOY}"));
        let url = server.base_url().replace("//", "//me:hunter2hunter2@");
        let command = |args: &[&str]| {
            let mut command = cli.command(args);
            command.env("DEPLOY_TOKEN", DEPLOY);
            command
        };
        let run = [
            "run",
            "Use it.",
            "--model",
            "scripted",
            "--api",
            api,
            "--base-url",
            &url,
            "--tool",
            "shell",
            "--journal",
            "j.db",
            "--events",
            "events.jsonl",
        ];
        let first = Started::new(command(&run), "").finish().exits(30);
        let again = [
            "run",
            "--resume",
            "last",
            "--base-url",
            &url,
            "--trust-journal",
            "--accept-redacted",
            "--journal",
            "j.db",
            "--json",
        ];
        let second = Started::new(command(&again), "").finish().exits(0);
        assert_eq!(second.outcome()["termination"], "stop");
        for run in cli.run(["runs", "--json", "--journal", "j.db"]).lines() {
            let id = run["run_id"].as_str().unwrap();
            let page = format!("{id}.html");
            cli.run(["explain", id, "--html", &page, "--journal", "j.db"]).exits(0);
            let told = cli.run(["explain", id, "--json", "--journal", "j.db"]).exits(0);
            assert!(!told.stdout.contains(key) && !told.stdout.contains(DEPLOY));
        }
        let mut searched = 0;
        let mut search = |what: &str, bytes: &[u8]| {
            searched += 1;
            for secret in [key, DEPLOY, "hunter2hunter2"] {
                for part in secret.as_bytes().windows(10) {
                    let found = bytes.windows(part.len()).position(|window| window == part);
                    assert_eq!(found, None, "{api}: a part of {secret} is in {what}");
                }
            }
        };
        for file in std::fs::read_dir(cli.dir.path()).unwrap().flatten() {
            if file.file_name() != "key.txt" && file.file_type().unwrap().is_file() {
                search(&file.file_name().to_string_lossy(), &std::fs::read(file.path()).unwrap());
            }
        }
        search("what was logged", first.stderr.as_bytes());
        search("what was logged", second.stderr.as_bytes());
        search("what was printed as JSON", second.stdout.as_bytes());
        assert!(searched >= 7, "the journal, its log, events, two pages, the screen: {searched}");
    }
}

/// Limits the size of every file to some kilobytes, which has the effect of a full disk.
#[cfg(target_os = "linux")]
#[test]
fn full_disk_does_not_end_run() {
    let cli = Cli::new();
    // The journal exists already, with a run in it.
    let small = playing([Turn::text("Yes.")]);
    let begin = [&["Is it?"][..], &JOURNAL].concat();
    cli.agent(&small, "openai-chat", &begin).exits(0);
    cli.write("long.txt", "word ".repeat(12_000));
    let run = |more: &[&str]| {
        let read = Turn::call("read_file", &json!({"path": "long.txt"}));
        let server = playing([read, Turn::text("It is long.")]);
        let args = [&["Read.", "--tool", "read_file"][..], more].concat();
        let args = agent_args(&server, "openai-chat", &args);
        let mut command = std::process::Command::new("sh");
        let limited = "trap '' XFSZ; ulimit -f 160; exec \"$0\" \"$@\"";
        let plain = cli.command(&args);
        command.arg("-c").arg(limited).arg(plain.get_program()).args(&args).args(JOURNAL);
        command.current_dir(cli.dir.path()).env_clear();
        let path = std::env::var_os("PATH").unwrap_or_default();
        command.env("PATH", path).env("OPENAI_API_KEY", OPENAI_KEY);
        Started::new(command, "").finish().exits(0)
    };
    let done = run(&["--json"]);
    assert_eq!(done.outcome()["termination"], "stop", "{done:#?}");
    let warnings: Vec<Value> =
        done.lines().into_iter().filter(|line| line["type"] == "warning").collect();
    assert_eq!(warnings.len(), 1, "said once: {done:#?}");
    let said = warnings[0]["message"].as_str().unwrap();
    assert!(said.contains("the journal cannot store this run"), "{said}");
    // Runs that were complete stay complete, and the part of this run that is there is reported as
    // such.
    let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert_eq!((&runs[0]["termination"], &runs[1]["termination"]), (&Value::Null, &json!("stop")));
    let told = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(told.contains("turn 1 attempt 1") && told.contains("no outcome"), "{told}");
    run(&[]).notes(&["⚠ the journal cannot store this run", "stopped: stop (success)"]);
}

#[test]
fn explain_shows_verifier_result() {
    let cli = Cli::new();
    for (verify, status, says) in [("false", 1, "NO: the verifier"), ("true", 0, "yes")] {
        let server = playing([Turn::text("Done.")]);
        let args = ["Go.", "--verify", verify, "--journal", "j.db", "--events", "e.jsonl"];
        let done = cli.agent(&server, "openai-chat", &[&args[..], &["--overwrite"]].concat());
        done.exits(status).notes(&[&format!("  verified {says}")]);
        let explain =
            ["explain", "--journal", "j.db", "--html", "page.html", "--overwrite", "last"];
        cli.run(explain).exits(0);
        let html = cli.read("page.html");
        let class = if status == 1 { " class=\"bad\"" } else { "" };
        assert!(html.contains(&format!("<dt>verified</dt> <dd{class}>{says}")), "{html}");
        assert!(html.contains(&format!("(`{verify}`)")), "{html}");
        assert_eq!(html.contains("<h1 class=\"bad\">"), status == 1, "{html}");
        let text = cli.run(["explain", "--journal", "j.db"]).exits(0).stdout;
        let line = text.lines().find(|line| line.starts_with("  verified ")).unwrap();
        assert!(line.contains(says) && line.ends_with(&format!("(`{verify}`)")), "{line}");
        assert_eq!(text.contains("nothing: the work is done"), status == 0, "{text}");
        let events = cli.run(["explain", "e.jsonl"]).exits(0).stdout;
        assert!(events.contains(&format!("\n  verified {says}")), "{events}");
    }
    let server = playing([Turn::text("Done.")]);
    cli.agent(&server, "openai-chat", &["Go.", "--journal", "j.db"]).exits(0);
    let text = cli.run(["explain", "--journal", "j.db"]).exits(0).stdout;
    assert!(!text.contains("verified"), "{text}");
}

#[test]
fn refused_resume_announces_nothing() {
    let cli = Cli::new();
    let server = answering(steps(4));
    cli.run(begin(&server, "openai-chat", &["--max-turns", "2"])).exits(20);
    let refused = cli.run(["run", "--resume", "last", "--journal", "j.db"]).exits(2);
    assert!(!refused.stderr.contains('▶'), "{refused:#?}");
}

#[test]
fn resumed_run_shows_earlier_call() {
    let cli = Cli::new();
    let server = answering(steps(4));
    cli.run(begin(&server, "openai-chat", &["--max-turns", "2"])).exits(20);
    let resume = ["run", "--resume", "last", "--max-turns", "9", "--journal", "j.db"];
    let done = cli.run(resume.iter().chain(&["--trust-journal"])).exits(0);
    let (_, shown) = done.stderr.split_once('▶').unwrap();
    let lines: Vec<&str> = shown.lines().filter(|line| line.starts_with(['→', '←'])).collect();
    assert!(lines.len() >= 4 && lines.len().is_multiple_of(2), "{done:#?}");
    for pair in lines.chunks(2) {
        assert!(pair[0].starts_with("→ shell") && pair[1].starts_with("← shell"), "{done:#?}");
    }
    assert!(lines[0].ends_with("(before the resume)"), "{done:#?}");
    assert!(!lines[2].contains("before"), "{done:#?}");
}
