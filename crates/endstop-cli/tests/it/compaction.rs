//! A conversation that outgrows its context window.

use crate::cli::{Cli, FORMATS, answering};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};

/// A model that reads one page in each of ten turns and reports the size of its prompt.
fn reader() -> Server {
    answering(|request| {
        let messages = request.body.get("messages").unwrap_or(&request.body["input"]);
        let tokens = messages.to_string().len() as u64 / 4;
        let turn = match request.number {
            11.. => Turn::text("Read."),
            page => Turn::call("read_file", &json!({"path": format!("{page}.txt")})),
        };
        Reply::turn(request, &turn.usage(tokens, 10))
    })
}

fn library() -> Cli {
    let cli = Cli::new();
    for page in 1..=10 {
        cli.write(&format!("{page}.txt"), format!("page {page}: {}", "word ".repeat(400)));
    }
    cli
}

fn read(cli: &Cli, server: &Server, api: &str, more: &[&str]) -> (Value, Vec<Value>) {
    let base = ["Read it.", "--tool", "read_file", "--context-window", "6000", "--json"];
    let args: Vec<&str> = base.iter().chain(more).copied().collect();
    let done = cli.agent(server, api, &args).exits(0);
    let told = done.lines().into_iter().filter(|event| event["type"] == "compacted").collect();
    (done.outcome(), told)
}

#[test]
fn conversation_is_compacted_by_default() {
    for api in FORMATS {
        let (cli, server) = (library(), reader());
        let (outcome, told) = read(&cli, &server, api, &[]);
        assert_eq!(outcome["turns"], 11, "{outcome}");
        assert!(!told.is_empty(), "{outcome}");
        assert_eq!(outcome["compactions"].as_array().unwrap().len(), told.len());
        for one in &told {
            assert!(one["strategy"].as_str().unwrap().starts_with("elide"), "{one}");
            assert_eq!(one["forced"], false);
            assert!(one["tokens_after"].as_u64() < one["tokens_before"].as_u64(), "{one}");
        }
        let longest = server.requests().iter().map(|request| request.bytes.len()).max().unwrap();
        assert!(longest < 24_000, "{longest} bytes for a window of 6,000 tokens");
    }
}

#[test]
fn compact_flag_overrides_setting() {
    let strategies = |toml: &str, more: &[&str]| -> Vec<String> {
        let (cli, server) = (library(), reader());
        cli.write("settings.toml", toml);
        let more = [&["--config", "settings.toml"], more].concat();
        let (_, told) = read(&cli, &server, "openai-chat", &more);
        let mut by: Vec<String> =
            told.iter().map(|one| one["strategy"].as_str().unwrap().to_owned()).collect();
        by.dedup();
        by
    };
    assert_eq!(strategies("", &["--compact", "off"]), [""; 0]);
    assert_eq!(strategies("compaction = \"off\"", &[]), [""; 0]);
    assert_eq!(strategies("compaction = \"off\"", &["--compact", "drop"]), ["drop"]);
    let table = "[compaction]\nstrategies = [\"drop\"]\nat = 0.5\nkeep_turns = 1\n";
    assert_eq!(strategies(table, &[]), ["drop"]);
    assert_eq!(strategies(table, &["--compact", "elide"]), ["elide"]);
}

#[test]
fn compaction_is_shown_to_user() {
    let (cli, server) = (library(), reader());
    let args = ["Read it.", "--tool", "read_file", "--context-window", "6000"];
    cli.agent(&server, "openai-chat", &args).exits(0).notes(&["shortened", "messages", "(elide"]);
}
