//! Tests of MCP servers that run as processes.

use crate::processes::{alive, gone, marker, soon, started};
use crate::support::{Played, call, tool};
use endstop::mcp::{McpError, McpErrorKind, McpServer, McpTools};
use endstop::testkit::{ScriptedModel, Turn};
use endstop::tool::ToolOutput;
use endstop::{Agent, AgentBuilder, Limits, Outcome, Termination};
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Bound for calls that must not hang. A server that hangs does so for a thousand seconds, so the
/// bound may be long enough for a busy machine.
const IN_TIME: Duration = Duration::from_secs(60);

pub fn all() -> Vec<(&'static str, fn())> {
    crate::checks![
        tools_are_listed_and_called,
        pages_of_tools_are_one_list,
        large_schemas_are_left_out_by_name,
        server_gets_no_secrets,
        unusable_server_is_explained_error,
        cancel_notifies_server_and_ends_call,
        time_limit_notifies_server,
        terminate_notifies_server,
        server_that_stops_reading_blocks_nothing,
        killed_server_ends_all_calls,
        exit_status_of_server_is_reported,
        huge_answer_is_not_stored,
        floods_are_bounded,
        endless_flood_blocks_nothing,
        requests_of_server_are_refused,
        unrequested_answers_are_ignored,
        lines_without_message_are_ignored,
        errors_are_tool_errors_without_keys,
        server_exits_when_input_ends,
        server_that_stays_is_killed,
        drop_kills_server,
    ]
}

/// An agent that calls this tool, then answers.
fn agent(tools: &endstop::mcp::McpTools, name: &str) -> AgentBuilder {
    let turns = [Turn::call(name, &json!({"text": "hello"})), Turn::text("done")];
    tools.tools().fold(Agent::builder(ScriptedModel::new(turns)), AgentBuilder::shared_tool)
}

/// Returns a conversation as text.
fn told(outcome: &Outcome) -> String {
    serde_json::to_value(&outcome.messages).unwrap().to_string()
}

async fn tools_are_listed_and_called() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    assert_eq!(tools.protocol_version(), "2025-11-25");
    let echo = tool(&tools, "played__echo");
    assert_eq!(echo.description(), "Does echo.");
    assert_eq!(echo.schema()["properties"]["text"]["type"], "string");
    assert!(echo.parallel_safe() && echo.repeatable() && echo.touches_machine());
    let set = tool(&tools, "played__set");
    assert!(!set.parallel_safe() && set.repeatable());
    let hang = tool(&tools, "played__hang");
    assert!(!hang.parallel_safe() && !hang.repeatable());
    assert_eq!(
        call(&tools, "echo", "naïve \u{1F600} \" \n").await.content,
        "naïve \u{1F600} \" \n"
    );
    // In a run.
    let agent = agent(&tools, "played__echo").build().unwrap();
    let outcome = agent.run("go").unwrap().outcome().await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(told(&outcome).contains("hello"), "{}", told(&outcome));
    assert_eq!(played.messages("initialize").len(), 1);
    tools.close().await;
}

async fn pages_of_tools_are_one_list() {
    let played = Played::new("pages");
    let tools = played.server().connect().await.unwrap();
    let names: Vec<String> = tools.tools().map(|tool| tool.name().to_owned()).collect();
    assert_eq!(names, ["played__echo", "played__bare"]);
    let bare = tool(&tools, "played__bare");
    assert_eq!(bare.schema(), json!({"type": "object"}));
    assert_eq!(bare.description(), "Has a title");
    let only = played.server().only(["bare"]).connect().await.unwrap();
    assert_eq!(only.tools().count(), 1);
}

async fn large_schemas_are_left_out_by_name() {
    let names = |tools: &endstop::mcp::McpTools| -> Vec<String> {
        tools.tools().map(|tool| tool.name().to_owned()).collect()
    };
    let large = Played::new("large");
    let tools = large.server().connect().await.unwrap();
    assert_eq!(names(&tools), ["played__echo"]);
    let [problem] = tools.left_out() else { panic!("{:?}", tools.left_out()) };
    assert!(problem.starts_with("tool `large` is left out: its schema has 70"), "{problem}");
    assert!(problem.ends_with("but at most 65536 are allowed"), "{problem}");
    // A tool that was requested by name is an error; otherwise it is only left out.
    let error = refused(large.server().only(["large"])).await;
    assert_eq!(error.kind, McpErrorKind::Tools);
    assert!(error.to_string().contains("tool `large` is left out"), "{error}");
    let tools = large.server().only(["echo"]).connect().await.unwrap();
    assert!(names(&tools) == ["played__echo"] && tools.left_out().is_empty());

    let heavy = Played::new("heavy");
    let tools = heavy.server().connect().await.unwrap();
    let sum: usize = tools.tools().map(|tool| tool.schema().to_string().len()).sum();
    assert_eq!((names(&tools).len(), tools.left_out().len()), (17, 13));
    assert!(sum <= 1 << 20, "{sum}");
    assert!(tools.left_out()[0].contains("tool `heavy18` is left out"), "{:?}", tools.left_out());
    let tools = heavy.server().only(["heavy30"]).connect().await.unwrap();
    assert_eq!(names(&tools), ["played__heavy30"]);

    let error = refused(Played::new("large-name").server()).await;
    assert!(error.to_string().contains("its name has 100000 bytes"), "{error}");
    assert!(error.to_string().len() < 500, "{error}");
}

async fn server_gets_no_secrets() {
    let played = Played::new("good");
    let server = played.server().allow_variable("ENDSTOP_TEST_PASSWORD");
    let tools = server.connect().await.unwrap();
    let names = call(&tools, "environment", "").await.content;
    assert!(names.contains("PATH") && names.contains("ENDSTOP_TEST_PASSWORD"), "{names}");
    assert!(!names.contains("ENDSTOP_TEST_API_KEY"), "{names}");
    let web = McpServer::http("web", "http://127.0.0.1:9/mcp?key=hidden2")
        .header("Authorization", "Bearer hidden3");
    let shown = format!("{web:?} {:?}", web.connect().await.unwrap_err());
    assert!(shown.contains("Authorization") && !shown.contains("hidden"), "{shown}");
}

async fn refused(server: McpServer) -> McpError {
    let began = Instant::now();
    let error = server.connect().await.expect_err("it cannot be used");
    assert!(began.elapsed() < 2 * IN_TIME, "{error} after {:?}", began.elapsed());
    assert!(error.to_string().starts_with(&format!("MCP server `{}`: ", error.server)));
    error
}

async fn unusable_server_is_explained_error() {
    let soon = Duration::from_millis(700);
    // Long enough for the start of a server and its handshake on a busy machine.
    let later = Duration::from_secs(10);
    let folder = tempfile::tempdir().unwrap();
    let mut folders = Vec::new();
    let mut played = |mode| {
        let played = Played::new(mode);
        let server = played.server();
        folders.push(played);
        server
    };
    let cases = [
        (played("old"), McpErrorKind::Version, "speaks version 1999-01-01"),
        (
            played("exits"),
            McpErrorKind::Start,
            "exit status 3; its output: no licence for the key [redacted]",
        ),
        (played("deaf").ready_within(soon), McpErrorKind::Timeout, "not ready within 0.7 s"),
        (
            played("slow-list").ready_within(later),
            McpErrorKind::Timeout,
            "not list its tools within 10 s",
        ),
        (played("clash"), McpErrorKind::Tools, "`a.b` and `a/b` would both be named `played__a_b`"),
        (played("none"), McpErrorKind::Tools, "has no tools"),
        (played("endless"), McpErrorKind::Tools, "more than 1000 tools"),
        (played("good").only(["ecko"]), McpErrorKind::Tools, "did you mean `echo`"),
        (
            McpServer::command("x", [folder.path().join("absent").to_str().unwrap()]),
            McpErrorKind::Start,
            "/absent",
        ),
        (McpServer::command("x", [""; 0]), McpErrorKind::Config, "empty"),
        (McpServer::stdio("x", "true"), McpErrorKind::Start, "exit status 0"),
        (McpServer::stdio("x", "a\0b"), McpErrorKind::Start, "could not be started"),
        (McpServer::stdio("x", "cat").ready_within(soon), McpErrorKind::Protocol, ""),
        (McpServer::stdio("x", "yes").ready_within(later), McpErrorKind::Timeout, "its output: y"),
        (McpServer::stdio("a b", "true"), McpErrorKind::Config, "1 to 32 letters"),
        (McpServer::http("x", "no address"), McpErrorKind::Config, "no address"),
        (McpServer::http("x", "ftp://host/"), McpErrorKind::Config, "https://"),
        (McpServer::http("x", "http://me:hidden@host/"), McpErrorKind::Config, "set a header"),
        (McpServer::http("x", "http://127.0.0.1:9/"), McpErrorKind::Start, "refused"),
        (
            McpServer::http("x", "http://127.0.0.1:9/").header("a b", "c"),
            McpErrorKind::Config,
            "`a b`",
        ),
        (
            McpServer::http("x", "http://127.0.0.1:9/").header("k", "hid\nden"),
            McpErrorKind::Config,
            "`k`",
        ),
    ];
    // At the same time, because most of the time is the wait for servers that do not answer.
    let asked =
        cases.map(|(server, kind, words)| async move { (refused(server).await, kind, words) });
    for (error, kind, words) in asked.into_iter().collect::<JoinSet<_>>().join_all().await {
        let text = error.to_string();
        assert!(text.contains(words), "{text} has not: {words}");
        assert!(!text.contains("sk-abc") && !text.contains("hidden"), "{text}");
        // A program that echoes its input is not a server; the kind of the error does not matter.
        if !words.is_empty() {
            assert_eq!(error.kind, kind, "{text}");
        }
    }
}

/// Runs an agent until the server was called, then calls `stop`. Returns the outcome and the time
/// that the run took from then.
async fn stopped(
    played: &Played,
    name: &str,
    limits: Limits,
    stop: impl FnOnce(&Agent),
) -> (Outcome, Duration) {
    let tools = played.server().connect().await.unwrap();
    let agent = agent(&tools, name).limits(limits).build().unwrap();
    let run = agent.run("go").unwrap();
    soon("it is called", || !played.messages("tools/call").is_empty());
    let began = Instant::now();
    stop(&agent);
    let outcome = run.outcome().await;
    let took = began.elapsed();
    agent.settled().await;
    tools.close().await;
    (outcome, took)
}

/// Limits with a grace period so long that waiting for the tool would fail the test.
fn without_grace() -> Limits {
    Limits { cancel_grace: Duration::from_secs(1000), ..Limits::default() }
}

async fn cancel_notifies_server_and_ends_call() {
    let played = Played::new("good");
    let (outcome, took) = stopped(&played, "played__hang", without_grace(), Agent::cancel).await;
    assert_eq!(outcome.termination, Termination::Cancelled);
    assert!(took < IN_TIME, "{took:?}");
    assert!(played.was_told(), "{}", played.heard());
}

async fn time_limit_notifies_server() {
    let played = Played::new("good");
    let limits = Limits { tool_timeout: Some(Duration::from_millis(300)), ..Limits::default() };
    let (outcome, took) = stopped(&played, "played__hang", limits, |_| ()).await;
    // The model gets the error and continues.
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(told(&outcome).contains("300"), "{}", told(&outcome));
    assert!(took < IN_TIME, "{took:?}");
    assert!(played.was_told(), "{}", played.heard());
    // A limit that the server's configuration sets.
    let tools = played.server().timeout(Duration::from_millis(200)).connect().await.unwrap();
    assert_eq!(tool(&tools, "played__hang").timeout(), Some(Duration::from_millis(200)));
}

async fn terminate_notifies_server() {
    let played = Played::new("good");
    let (outcome, took) = stopped(&played, "played__hang", without_grace(), Agent::terminate).await;
    assert_eq!(outcome.termination, Termination::Terminated);
    assert!(took < IN_TIME, "{took:?}");
    assert!(played.was_told(), "{}", played.heard());
}

async fn server_that_stops_reading_blocks_nothing() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    let mute = tool(&tools, "played__mute");
    let big = json!({"text": "x".repeat(3_000_000)}).as_object().unwrap().clone();
    for times in 0..3 {
        let limits = Limits { tool_timeout: Some(Duration::from_millis(300)), ..Limits::default() };
        let turns = [Turn::call("played__mute", &json!(big)), Turn::text("done")];
        let agent = Agent::builder(ScriptedModel::new(turns)).limits(limits);
        let agent = agent.shared_tool(mute.clone()).build().unwrap();
        let began = Instant::now();
        let outcome = agent.run("go").unwrap().outcome().await;
        assert_eq!(outcome.termination, Termination::Stop);
        assert!(began.elapsed() < IN_TIME, "{times}: {:?}", began.elapsed());
    }
    let began = Instant::now();
    tools.close().await;
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert!(!std::path::Path::new(&format!("/proc/{}", played.pid())).exists());
}

async fn killed_server_ends_all_calls() {
    let (played, mark) = (Played::new("good"), marker());
    let tools = played.with_child(mark).connect().await.unwrap();
    started(mark, 1).await;
    let calling = call(&tools, "hang", "");
    let kill = async {
        while played.messages("tools/call").is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let pid = played.pid().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        Instant::now()
    };
    let (output, killed) = tokio::join!(calling, kill);
    assert!(killed.elapsed() < IN_TIME, "{:?}", killed.elapsed());
    let words = "the MCP server `played` exited during the call";
    assert!(output.is_error() && output.content.starts_with(words), "{output:?}");
    assert_end_is_reported(&tools, "(killed by signal 9)").await;
    let began = Instant::now();
    let output = call(&tools, "echo", "hello").await;
    assert!(output.is_error() && output.content.contains("It is not restarted"), "{output:?}");
    assert!(began.elapsed() < IN_TIME);
    // The process that the server had started is dead too.
    gone(mark);
    tools.close().await;
}

async fn exit_status_of_server_is_reported() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    let output = call(&tools, "die", "").await;
    assert!(output.is_error() && output.content.contains("exited during the call"), "{output:?}");
    assert_end_is_reported(&tools, "(exit status 7); its output: out of luck").await;
}

/// Checks that calls report how the server ended. The first call after its end waits only a quarter
/// of a second for that, which is too short on a busy machine, so later calls are tried too.
async fn assert_end_is_reported(tools: &McpTools, words: &str) {
    let began = Instant::now();
    loop {
        let output = call(tools, "echo", "").await;
        assert!(output.is_error(), "{output:?}");
        if output.content.contains(words) {
            return;
        }
        assert!(began.elapsed() < IN_TIME, "{output:?}");
    }
}

/// Returns the peak memory of this process since `forget_peak`, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

async fn huge_answer_is_not_stored() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    call(&tools, "echo", "warm").await;
    forget_peak();
    let before = peak();
    let output = call(&tools, "huge", "").await;
    let more = peak().saturating_sub(before);
    println!("  100 MiB in one message: {more} KiB more at the peak");
    assert!(output.is_error() && output.content.contains("104857"), "{output:?}");
    assert!(more < 16 * 1024, "{more} KiB more at the peak");
    // The connection still works.
    assert_eq!(call(&tools, "echo", "still").await, ToolOutput::ok("still"));
}

async fn floods_are_bounded() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    call(&tools, "echo", "warm").await;
    forget_peak();
    let before = peak();
    let began = Instant::now();
    assert_eq!(call(&tools, "flood", "").await, ToolOutput::ok("flooded"));
    println!("  100 000 notifications and 20 MiB of complaints: {:?}", began.elapsed());
    assert_eq!(call(&tools, "beg", "").await, ToolOutput::ok("begged"));
    let more = peak().saturating_sub(before);
    println!("  and 50 000 requests: {more} KiB more at the peak");
    assert!(more < 16 * 1024, "{more} KiB more at the peak");
    assert_eq!(call(&tools, "echo", "still").await, ToolOutput::ok("still"));
}

async fn endless_flood_blocks_nothing() {
    let played = Played::new("good");
    let limits = Limits { tool_timeout: Some(Duration::from_millis(300)), ..Limits::default() };
    let (outcome, took) = stopped(&played, "played__spout", limits, |_| ()).await;
    assert_eq!(outcome.termination, Termination::Stop);
    assert!(took < IN_TIME, "{took:?}");
    assert!(!std::path::Path::new(&format!("/proc/{}", played.pid())).exists());
}

async fn requests_of_server_are_refused() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    let output = call(&tools, "ask", "").await;
    let answers = "sampling/createMessage: -32601 null\n\
        elicitation/create: null \"decline\"\n\
        roots/list: -32601 null";
    assert_eq!(output, ToolOutput::ok(answers));
}

async fn unrequested_answers_are_ignored() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    assert_eq!(call(&tools, "lie", "").await, ToolOutput::ok("the first"));
    assert_eq!(call(&tools, "echo", "mine").await, ToolOutput::ok("mine"));
}

async fn lines_without_message_are_ignored() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    let output = call(&tools, "junk", "").await;
    assert!(
        output.is_error() && output.content.contains("not the result of a tool call"),
        "{output:?}"
    );
    assert_eq!(call(&tools, "echo", "mine").await, ToolOutput::ok("mine"));
}

async fn errors_are_tool_errors_without_keys() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    assert_eq!(call(&tools, "fail", "broken").await, ToolOutput::error("broken"));
    let output = call(&tools, "refuse", "").await;
    assert_eq!(output, ToolOutput::error("the server refused: not so: [redacted] (-32602)"));
}

async fn server_exits_when_input_ends() {
    let played = Played::new("good");
    let tools = played.server().connect().await.unwrap();
    let pid = played.pid();
    tools.close().await;
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    // The server exited by itself.
    assert!(played.heard().ends_with("the end of the input\n"), "{}", played.heard());
    let output = call(&tools, "echo", "").await;
    assert!(output.is_error() && output.content.contains("exit status 0"), "{output:?}");
    tools.close().await;
}

async fn server_that_stays_is_killed() {
    let (played, mark) = (Played::new("stays"), marker());
    let tools = played.with_child(mark).connect().await.unwrap();
    let began = Instant::now();
    tools.close().await;
    assert!(began.elapsed() < IN_TIME, "{:?}", began.elapsed());
    assert!(!std::path::Path::new(&format!("/proc/{}", played.pid())).exists());
    gone(mark);
}

async fn drop_kills_server() {
    let (played, mark) = (Played::new("stays"), marker());
    let tools = played.with_child(mark).connect().await.unwrap();
    started(mark, 1).await;
    let echo = tool(&tools, "played__echo");
    drop(tools);
    // A tool keeps its server alive.
    assert_eq!(alive(mark).len(), 1);
    drop(echo);
    gone(mark);
    let pid = played.pid();
    soon("it is gone", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
}
