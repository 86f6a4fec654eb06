//! `endstop run` with MCP servers, played by a shell script.

use crate::cli::{Cli, playing};
use endstop::testkit::Turn;
use serde_json::{Value, json};

/// A server that answers calls with its folder and its environment, and records its end.
const SERVER: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    case $line in
    *'"initialize"'*) answer='"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}';;
    *'"tools/list"'*) answer='"result":{"tools":[{"name":"look","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) answer='"result":{"content":[{"type":"text","text":"saw '$(basename "$PWD")' '${OPENAI_API_KEY:+a}' key"}]}';;
    *) answer='"error":{"code":-32601,"message":"no"}';;
    esac
    [ -z "$id" ] || printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$answer"
done
echo ended >> "$0.log"
"#;

fn looking() -> [Turn; 2] {
    [Turn::call("files__look", &json!({})), Turn::text("done")]
}

fn names(body: &Value) -> Vec<&str> {
    let tools = body["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect()
}

#[test]
fn server_ends_with_the_run() {
    let cli = Cli::new();
    cli.write("server.sh", SERVER);
    std::fs::create_dir(cli.path("inner")).unwrap();
    let server = playing(looking());
    let flag = format!("files=sh {}", cli.path("server.sh").display());
    let args = ["go", "--mcp", &flag, "--dir", "inner", "--json"];
    let done = cli.agent(&server, "openai-chat", &args).exits(0);
    assert_eq!(names(&server.requests()[0].body), ["files__look", "finish"]);
    assert!(done.stdout.contains("saw inner  key"), "{}", done.stdout);
    assert_eq!(cli.read("server.sh.log"), "ended\n");
}

#[test]
fn unusable_server_costs_nothing() {
    let cli = Cli::new();
    let server = playing(looking());
    for (flag, words) in [
        ("files=echo no luck >&2; exit 3", "exit status 3; its output: no luck"),
        ("files", "expected NAME=COMMAND"),
        ("a b=true", "MCP server `a b`: invalid server name"),
        ("web=https://host/?key=abc", "use a variable as `$NAME`"),
    ] {
        let done = cli.agent(&server, "openai-chat", &["go", "--mcp", flag]).exits(2);
        assert!(done.stderr.contains(words), "{flag}: {}", done.stderr);
    }
    cli.write("endstop.toml", "[mcp.files]\ncomand = \"x\"\n");
    let done = cli.agent(&server, "openai-chat", &["go"]).exits(2);
    assert!(done.stderr.contains("endstop.toml: line 1: [mcp.files]: `comand`"), "{}", done.stderr);
    let done = cli.agent(
        &server,
        "openai-chat",
        &["go", "--ask", "--mcp", "x=true", "--config", "/dev/null"],
    );
    assert!(done.exits(2).stderr.contains("--ask"));
    assert!(server.requests().is_empty());
}

#[test]
fn blank_task_starts_no_server() {
    let cli = Cli::new();
    let server = playing(looking());
    for task in ["", " \n"] {
        let args = [task, "--mcp", "x=touch mark"];
        let done = cli.agent(&server, "openai-chat", &args).exits(2);
        assert!(done.stderr.contains("the task is empty"), "{done:?}");
    }
    assert!(!cli.path("mark").exists());
}

#[test]
fn resumed_run_reconnects_its_servers() {
    let cli = Cli::new();
    let script = cli.write("server.sh", SERVER);
    let toml = format!(
        "[mcp.files]\ncommand = [\"sh\", \"{}\"]\nenv = [\"OPENAI_API_KEY\"]\ntools = [\"look\"]\ntimeout = \"5s\"\n",
        script.display()
    );
    cli.write("files.toml", toml);
    let server = playing(looking());
    let kept = ["--journal", "journal.db"];
    let args = ["go", "--max-turns", "1", "--config", "files.toml", kept[0], kept[1]];
    cli.agent(&server, "openai-chat", &args).exits(20);
    std::fs::remove_file(cli.path("files.toml")).unwrap();
    let done = cli
        .run(["run", "--resume", "last", "--max-turns", "5", "--trust-journal", kept[0], kept[1]])
        .exits(0);
    assert_eq!(done.stdout, "done\n");
    let requests = server.requests();
    assert_eq!(names(&requests[1].body), ["files__look", "finish"]);
    // The settings allow it to read the key.
    assert!(requests[1].body.to_string().contains(" a key"), "{}", requests[1].body);
    assert_eq!(cli.read("server.sh.log"), "ended\nended\n");
}
