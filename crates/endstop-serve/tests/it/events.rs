//! Event streams: resuming, slow and idle readers, and the numbers.

use crate::support::{Lab, Scripted, Setup, in_time, numbered};
use endstop::testkit::Turn;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An agent that streams text in chunks, and calls a tool five times.
fn busy() -> Scripted {
    let agent = Scripted::new(|_| {
        let call = |n| Turn::pieces(&["Let ", "me ", "see."]).and_call("wait", &json!({"n": n}));
        let mut turns: Vec<Turn> = (0..5).map(call).collect();
        turns.push(Turn::pieces(&["All ", "done."]));
        turns
    });
    agent.permits.add_permits(1000);
    agent
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_resumes_after_every_number() {
    let lab = Lab::of("busy", busy()).await;
    let id = lab.start("busy", "Go.").await;
    let live = lab.events(&id, 0).await;
    let all = numbered(&live);
    let numbers: Vec<u64> = all.iter().filter_map(|event| event.number).collect();
    assert_eq!(numbers, (1..=all.len() as u64).collect::<Vec<u64>>());
    // The run has ended, so these come from the journal: the same events under the same numbers.
    for after in 0..all.len() {
        let rest = lab.events(&id, after as u64).await;
        assert_eq!(rest, all[after..], "after {after}");
    }
    let last = format!("last-event-id: {}\r\n", all.len());
    let done = lab.ask(&format!("GET /v1/runs/{id}/events"), &last, "").await;
    assert_eq!(done.status, 204);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_reader_gets_live_run() {
    let agent = Scripted::waiting();
    let permits = agent.permits.clone();
    let lab = Lab::of("waiting", agent).await;
    let id = lab.start("waiting", "Go.").await;
    lab.event(&id, "tool_started").await;
    let mut reader = lab.reader(&id, 2).await;
    assert_eq!(reader.next().await.unwrap().number, Some(3));
    permits.add_permits(1);
    let mut last = None;
    while let Some(event) = reader.next().await {
        last = Some(event);
    }
    assert_eq!(last.unwrap().kind, "finished");
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_event_numbers_are_refused() {
    let lab = Lab::of("busy", busy()).await;
    let id = lab.start("busy", "Go.").await;
    lab.ended(&id).await;
    for last in ["x", "-1", "1.5", "99999999999999999999999"] {
        let path = format!("GET /v1/runs/{id}/events");
        let answer = lab.ask(&path, &format!("last-event-id: {last}\r\n"), "").await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "invalid_request"), "{last}");
    }
    // A number that no event has: nothing follows it.
    let beyond = lab.ask(&format!("GET /v1/runs/{id}/events?after=1000000"), "", "").await;
    assert_eq!(beyond.status, 204);
    assert_eq!(lab.get("/v1/runs/none/events").await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_reader_delays_nobody() {
    // Far more than the buffers of a connection hold.
    let large = "x".repeat(200_000);
    let agent = Scripted::new(move |_| {
        // Each call differs, so that the run is not stopped as one without progress.
        let call = |n| Turn::text(format!("{n}{large}")).and_call("wait", &json!({"n": n}));
        let mut turns: Vec<Turn> = (0..12).map(call).collect();
        turns.push(Turn::text("Done."));
        turns
    });
    agent.permits.add_permits(1000);
    let lab = Lab::of("large", agent).await;
    let id = lab.start("large", "Go.").await;
    let address = lab.address;
    // These readers read one byte each and then nothing.
    let mut slow = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.read_u8().await.unwrap();
        slow.push(stream);
    }
    let events = lab.events(&id, 0).await;
    assert_eq!(events.last().unwrap().kind, "finished");
    let run = lab.ended(&id).await;
    assert_eq!((&run["termination"], &run["turns"]), (&json!("stop"), &json!(13)));
    // A slow reader that continues gets every numbered event: those that the run no longer keeps in
    // memory come from the journal.
    let mut stream = slow.pop().unwrap();
    let mut text = Vec::new();
    let reading = async {
        let mut buffer = vec![0; 1 << 16];
        while !text.ends_with(b"0\r\n\r\n") {
            let count = stream.read(&mut buffer).await.unwrap();
            assert!(count > 0, "the stream was cut");
            text.extend_from_slice(&buffer[..count]);
        }
    };
    in_time(reading).await;
    let text = String::from_utf8_lossy(&text);
    for number in 1..=numbered(&events).len() {
        assert!(text.contains(&format!("id: {number}\n")), "{number} is missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_readers_are_kept_alive() {
    let mut setup = Setup::of(vec![("waiting", Scripted::waiting())]);
    setup.options.keep_alive = Duration::from_millis(20);
    let lab = setup.start().await;
    let id = lab.start("waiting", "Go.").await;
    let address = lab.address;
    let mut readers = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET /v1/runs/{id}/events HTTP/1.1\r\nhost: {address}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        readers.push(stream);
    }
    for stream in &mut readers {
        let mut text = String::new();
        while !text.contains(": keep-alive") {
            let mut buffer = [0; 4096];
            let count = in_time(stream.read(&mut buffer)).await.unwrap();
            assert!(count > 0, "the stream was cut");
            text.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    }
    assert!(lab.get("/metrics").await.body.contains("endstop_serve_event_readers 200"));
    drop(readers);
    // The server notices each closed connection when it writes the next comment.
    let gone = async {
        while !lab.get("/metrics").await.body.contains("endstop_serve_event_readers 0") {
            tokio::task::yield_now().await;
        }
    };
    in_time(gone).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn model_text_cannot_forge_events() {
    let forged = "x\n\nid: 99\nevent: finished\ndata: {}\n\n\r\n\r\n<script>";
    let lab = Lab::of("echo", Scripted::echo()).await;
    let id = lab.start("echo", forged).await;
    let events = lab.events(&id, 0).await;
    let numbers: Vec<u64> = events.iter().filter_map(|event| event.number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    let finished: Vec<_> = events.iter().filter(|event| event.kind == "finished").collect();
    assert_eq!(finished.len(), 1);
    assert_eq!(finished[0].data["outcome"]["last_text"], forged);
}
