//! Runs each program as a process, against a scripted server on a real socket.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop_http::{Client, Decoded, Full};
use futures_util::{SinkExt, StreamExt, future::join_all};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio_tungstenite::tungstenite::Message;

/// Prepares a program that calls the server and no other.
fn program(path: &str, server: &Server) -> Command {
    let mut command = Command::new(path);
    for provider in ["OPENAI", "ANTHROPIC"] {
        command.env(format!("{provider}_API_KEY"), "test");
    }
    command
        .env("OPENAI_BASE_URL", server.base_url())
        .env("ANTHROPIC_BASE_URL", server.base_url().trim_end_matches("/v1"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Starts a service and returns it with the address that it prints.
async fn service(path: &str, server: &Server) -> (Child, String) {
    let mut child = program(path, server).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines.next_line().await.unwrap().unwrap();
    (child, address)
}

/// Runs a program to its end, and returns what it prints.
async fn output(mut command: Command, input: &str) -> String {
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).await.unwrap();
    let output = child.wait_with_output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the contents of all messages with this role.
fn said<'a>(request: &'a Request, role: &str) -> Vec<&'a str> {
    let messages = request.body["messages"].as_array().unwrap();
    let of_role = messages.iter().filter(|message| message["role"] == role);
    of_role.map(|message| message["content"].as_str().unwrap_or_default()).collect()
}

/// Sends a request to a service, and reads the answer.
fn post(
    client: &Client,
    address: &str,
    message: String,
) -> impl Future<Output = (http::response::Parts, String)> + use<> {
    let request = http::Request::post(address).body(Full::from(message)).unwrap();
    let sending = client.send(request);
    async move {
        let (head, mut body) = Decoded::new(sending.await.unwrap()).into_parts();
        let text = body.read(1 << 20).await.unwrap().unwrap();
        (head, String::from_utf8(text).unwrap())
    }
}

/// Repeats the messages of the user, so that a wrong history is visible in the answer.
fn echo() -> Server {
    Server::start(|request| Reply::turn(request, &Turn::text(said(request, "user").join(" | "))))
        .unwrap()
}

#[tokio::test]
async fn chat_service_keeps_100_users_apart() {
    let server = echo();
    let (_service, address) = service(env!("CARGO_BIN_EXE_chat_service"), &server).await;
    let client = Client::builder().build().unwrap();
    let post = |user: usize, message: String| {
        let sending = post(&client, &format!("{address}/user{user}"), message);
        async move { sending.await.1 }
    };
    let first = join_all((0..100).map(|user| post(user, format!("I am {user}.")))).await;
    let second = join_all((0..100).map(|user| post(user, "Who am I?".to_owned()))).await;
    for user in 0..100 {
        assert_eq!(first[user], format!("I am {user}."));
        assert_eq!(second[user], format!("I am {user}. | Who am I?"));
    }
}

#[tokio::test]
async fn chat_service_reports_a_cut_answer_as_an_error() {
    let server =
        Server::start(|request| Reply::turn(request, &Turn::text("one two").finish("length")))
            .unwrap();
    let (_service, address) = service(env!("CARGO_BIN_EXE_chat_service"), &server).await;
    let client = Client::builder().build().unwrap();
    let (head, text) = post(&client, &format!("{address}/ada"), "Count.".to_owned()).await;
    assert_eq!(head.status, 502);
    assert!(text.contains("error_output_truncated"));
}

#[tokio::test]
async fn cli_chat_continues_one_conversation() {
    let server = echo();
    let chat = program(env!("CARGO_BIN_EXE_cli_chat"), &server);
    let printed = output(chat, "One.\n\nTwo.\n").await;
    assert!(printed.starts_with("One.\n[") && printed.contains("]\nOne. | Two.\n["), "{printed}");
}

#[tokio::test]
async fn judged_says_its_ending_in_line_and_status() {
    let call = Turn::call("shell", &json!({"command": "echo 1"}));
    for (turn, status, ending) in [
        (Turn::text("Done."), 0, "stop"),
        (Turn::text("Half of").finish("length"), 20, "error_output_truncated"),
        (call, 20, "error_max_turns"),
    ] {
        let server = Server::start(move |request| Reply::turn(request, &turn)).unwrap();
        let mut judged = program(env!("CARGO_BIN_EXE_judged"), &server);
        let output = judged.args(["Go.", "max_turns=1"]).output().await.unwrap();
        assert_eq!(output.status.code(), Some(status), "{output:?}");
        let line = String::from_utf8(output.stdout).unwrap();
        let outcome: Value = serde_json::from_str(line.lines().next_back().unwrap()).unwrap();
        assert_eq!(outcome["termination"], ending);
    }
}

#[tokio::test]
async fn extract_prints_the_value_after_a_repair() {
    let wrong = json!({"sender": "Acme", "date": null, "items": [{"name": "Nut"}]});
    let right = json!({"sender": "Acme", "date": null, "items": [{"name": "Nut", "cents": 42}]});
    let server =
        Server::script([Turn::text(wrong.to_string()), Turn::text(right.to_string())]).unwrap();
    let extract = program(env!("CARGO_BIN_EXE_extract"), &server);
    assert!(output(extract, "Acme, 1 nut: 0.42").await.ends_with("42 cents in total\n"));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn research_runs_its_agents_under_one_budget() {
    let server = Server::start(|request| {
        let task = |part: &str| json!({"task": part});
        let turn = match (&request.body["tools"], said(request, "tool").len()) {
            (Value::Null, _) => Turn::text(format!("About {}.", said(request, "user")[0])),
            (_, 0) => Turn::call("research", &task("nuts")).and_call("research", &task("bolts")),
            _ => Turn::text(said(request, "tool").join(" ")),
        };
        Reply::turn(request, &turn)
    })
    .unwrap();
    let mut research = program(env!("CARGO_BIN_EXE_research"), &server);
    research.arg("Nuts or bolts?");
    let printed = output(research, "").await;
    assert!(printed.starts_with("About nuts. About bolts.\n["), "{printed}");
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test]
async fn approval_reaches_the_browser_and_its_answer_the_model() {
    let server = Server::start(|request| {
        let turn = match said(request, "tool").first() {
            None => Turn::call("shell", &json!({"command": "echo from the shell"})),
            Some(result) => Turn::text(format!("The result: {result}")),
        };
        Reply::turn(request, &turn)
    })
    .unwrap();
    let (_service, address) = service(env!("CARGO_BIN_EXE_approval_ws"), &server).await;
    for (answer, result) in [("yes", "from the shell"), ("no", "The user said no.")] {
        let address = address.replace("http:", "ws:");
        let (mut socket, _) = tokio_tungstenite::connect_async(address).await.unwrap();
        socket.send(Message::text("Say something.")).await.unwrap();
        let mut asked = 0;
        let mut last = Value::Null;
        while let Some(Ok(Message::Text(event))) = socket.next().await {
            last = serde_json::from_str(&event).unwrap();
            if last["type"] == "approval_requested" {
                asked += 1;
                socket.send(Message::text(answer)).await.unwrap();
            }
        }
        assert_eq!(asked, 1);
        assert!(last.to_string().contains(result), "{last}");
    }
}

#[tokio::test]
async fn image_tool_sends_the_image_to_the_model() {
    // The smallest PNG: one transparent pixel.
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("chart.png"), BASE64_STANDARD.decode(png).unwrap()).unwrap();
    let look = |file: &str| Turn::call("look", &json!({"file": file}));
    let server =
        Server::script([look("../chart.png"), look("chart.png"), Turn::text("A pixel.")]).unwrap();
    let mut image_tool = program(env!("CARGO_BIN_EXE_image_tool"), &server);
    image_tool.arg(folder.path());
    assert!(output(image_tool, "").await.starts_with("A pixel.\n["));
    let requests = server.requests();
    assert!(requests[1].body.to_string().contains("only names without a folder"));
    assert!(requests[2].body.to_string().contains(png));
}

#[tokio::test]
async fn first_program_is_that_of_the_book() {
    let server = echo();
    let first = program(env!("CARGO_BIN_EXE_first"), &server);
    assert!(output(first, "").await.starts_with("The sum is 42.\n["));
    assert!(server.requests().is_empty());
    let source = include_str!("../src/bin/first.rs");
    let (_, code) = source.split_once("\n\n").unwrap();
    let page = include_str!("../../../docs/src/start/first-program.md");
    assert!(page.contains(code), "docs/src/start/first-program.md differs from first.rs");
}

#[tokio::test]
async fn own_provider_answers() {
    let server = echo();
    let own = program(env!("CARGO_BIN_EXE_own_provider"), &server);
    assert_eq!(output(own, "").await, "neve ro ddo reveN\n");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn resume_goes_on_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal.db");
    let resume = |server: &Server| {
        let mut resume = program(env!("CARGO_BIN_EXE_resume"), server);
        resume.arg(&journal).arg("Count the files.").current_dir(folder.path());
        resume
    };
    let command = Turn::call("shell", &json!({"command": "echo once >> counted"}));
    let stalled = Turn::text("never").after(std::time::Duration::from_secs(600));
    let server = Server::script([command, stalled]).unwrap();
    let mut killed = resume(&server).spawn().unwrap();
    assert!(server.until(|server| server.requests().len() == 2).await);
    killed.kill().await.unwrap();

    let server = Server::script([Turn::text("One file.")]).unwrap();
    assert!(output(resume(&server), "").await.starts_with("One file.\n["));
    // The command that had ended before the kill was not repeated.
    assert_eq!(std::fs::read_to_string(folder.path().join("counted")).unwrap(), "once\n");
    assert_eq!(said(&server.requests()[0], "tool").len(), 1);
}

#[tokio::test]
async fn branch_leaves_the_original_as_it_was() {
    let server = echo();
    let branch = program(env!("CARGO_BIN_EXE_branch"), &server);
    let printed = output(branch, "").await;
    for question in ["What to eat there?", "What to see there?", "Another city, please."] {
        let line = format!("{question} Name a city for a weekend in May. | {question}\n");
        assert!(printed.contains(&line), "{printed}");
    }
    assert!(printed.ends_with("2 messages in the original\n"), "{printed}");
}

#[tokio::test]
async fn sse_streams_events_until_the_outcome() {
    let server = echo();
    let (_service, address) = service(env!("CARGO_BIN_EXE_sse"), &server).await;
    let client = Client::builder().build().unwrap();
    let (head, text) = post(&client, &address, "Hello there.".to_owned()).await;
    assert_eq!(head.headers["content-type"], "text/event-stream");
    let events: Vec<Value> = text
        .split("\n\n")
        .filter_map(|event| event.lines().find_map(|line| line.strip_prefix("data: ")))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let deltas = events.iter().filter(|event| event["type"] == "text_delta");
    assert_eq!(
        deltas.map(|event| event["text"].as_str().unwrap()).collect::<String>(),
        "Hello there."
    );
    assert_eq!(events.last().unwrap()["type"], "finished", "{text}");
}
