//! The journal stays bounded: `endstop runs prune`, and the removal by `endstop run`.

use crate::cli::{Cli, agent_args, answering};
use endstop::testkit::{Reply, Request, Server, Turn};

fn server() -> Server {
    answering(|request: &Request| Reply::turn(request, &Turn::text("It is done.")))
}

fn run(cli: &Cli, server: &Server, more: &[&str]) -> crate::cli::Done {
    let args = [&["Do it.", "--journal", "j.db"][..], more].concat();
    cli.run(agent_args(server, "openai-chat", &args)).exits(0)
}

fn ids(cli: &Cli) -> Vec<String> {
    let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn prune_removes_reports_and_keeps() {
    let (cli, server) = (Cli::new(), server());
    for _ in 0..4 {
        run(&cli, &server, &[]);
    }
    let all = ids(&cli);
    let prune = |more: &[&str]| cli.run([&["runs", "prune", "--journal", "j.db"], more].concat());
    let tried = prune(&["--keep", "1", "--dry-run"]).exits(0).stdout;
    assert!(tried.starts_with("would remove 3 runs of 4, freed "), "{tried}");
    assert_eq!(ids(&cli), all);
    let kept = prune(&["--older-than", "30d", "--max-size", "1GB", "--json"]).exits(0).lines();
    assert_eq!((&kept[0]["removed"], &kept[0]["left"]), (&serde_json::json!([]), &4.into()));
    let pruned = prune(&["--keep", "1", "--json"]).exits(0).lines();
    let removed: Vec<_> = all[1..].iter().rev().cloned().collect();
    assert_eq!(pruned[0]["removed"], serde_json::json!(removed));
    let bytes = std::fs::metadata(cli.path("j.db")).unwrap().len();
    assert_eq!(pruned[0]["bytes_after"], bytes);
    assert_eq!(ids(&cli), all[..1]);
    cli.run(["explain", "last", "--journal", "j.db"]).exits(0);
}

#[test]
fn prune_requires_a_usable_bound() {
    let (cli, server) = (Cli::new(), server());
    run(&cli, &server, &[]);
    for (args, says) in [
        (&[][..], "--older-than"),
        (&["--unfinished"], "--older-than"),
        (&["--older-than", "30"], "for example 12h or 30d"),
        (&["--max-size", "huge"], "for example 500MB"),
        (&["--keep", "-1"], "-1"),
    ] {
        let args = [&["runs", "prune", "--journal", "j.db"], args].concat();
        cli.run(args).exits(2).notes(&[says]);
    }
    cli.run(["runs", "prune", "--keep", "1", "--journal", "none.db"]).exits(2);
    assert!(!cli.path("none.db").exists(), "a journal that is not there is not made");
    assert_eq!(ids(&cli).len(), 1);
}

#[test]
fn run_bounds_journal_and_reports_it() {
    let (cli, server) = (Cli::new(), server());
    for _ in 0..6 {
        let done = run(&cli, &server, &["--journal-keep", "off"]);
        assert!(!done.stderr.contains("the journal exceeded its bound"), "{}", done.stderr);
    }
    let all = ids(&cli);
    let done = run(&cli, &server, &["--journal-keep", "4"]);
    done.notes(&["the journal exceeded its bound: the oldest", "--journal-keep"]);
    let left = ids(&cli);
    // The new run may or may not exist yet when the others are counted.
    assert!((4..=5).contains(&left.len()), "{left:?}");
    assert!(left.contains(&all[0]) && !left.contains(&all[5]), "{left:?} of {all:?}");
    let done = run(&cli, &server, &["--journal-keep", "100"]);
    assert!(!done.stderr.contains("the journal exceeded its bound"), "{}", done.stderr);
    let before = ids(&cli).len();
    run(&cli, &server, &["--journal-max-size", "1"]).notes(&["the journal exceeded its bound"]);
    assert!(ids(&cli).len() < before);
    let args = agent_args(&server, "openai-chat", &["x", "--journal-max-size", "much"]);
    cli.run(args).exits(2).notes(&["for example 500MB"]);
}
