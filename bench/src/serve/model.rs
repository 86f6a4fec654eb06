//! The scripted model's server. The task of a run chooses its script: `fast` has no pauses, `paced`
//! pauses for 20 ms before each chunk, `silent` sends one chunk and nothing more.

use crate::Result;
use crate::process::now_ns;
use serde_json::json;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// Number of turns of a run.
pub(crate) const TURNS: usize = 10;

/// Number of chunks of text in a turn.
pub(crate) const CHUNKS: usize = 12;

/// The first character of a chunk, before the time at which it was sent.
pub(crate) const MARK: char = '@';

/// Serves for ever, and writes its port first.
pub(crate) fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut output = std::io::stdout();
        writeln!(output, "{}", listener.local_addr()?.port())?;
        output.flush()?;
        let mut connections = JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            connections.spawn(answer(stream));
            // The set stores the results of ended tasks until they are taken.
            while connections.try_join_next().is_some() {}
        }
    })
}

/// Frames an event as a part of a chunked body.
fn event(data: &str) -> Vec<u8> {
    let text = format!("data: {data}\n\n");
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn has(body: &[u8], word: &str) -> bool {
    body.windows(word.len()).any(|part| part == word.as_bytes())
}

/// Answers the requests of a connection.
async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(64 << 10);
    loop {
        let (start, end) = loop {
            if let Some(at) = buffer.windows(4).position(|end| end == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&buffer[..at]).to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).unwrap_or("0");
                let length: usize =
                    length.lines().next().and_then(|length| length.parse().ok()).unwrap_or(0);
                break (at + 4, at + 4 + length);
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        while buffer.len() < end {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let body: Vec<u8> = buffer.drain(..end).skip(start).collect();
        // The request alone determines the turn, because a run may change its connection.
        let done = body.windows(13).filter(|part| part == b"\"role\":\"tool\"").count();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n").await?;
        stream.write_all(b"transfer-encoding: chunked\r\n\r\n").await?;
        let (paced, silent) = (has(&body, "paced"), has(&body, "silent"));
        for _ in 0..CHUNKS {
            if paced {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let text = format!("{MARK}{} and some words. ", now_ns());
            let delta = json!({"choices": [{"index": 0, "delta": {"content": text}}]});
            stream.write_all(&event(&delta.to_string())).await?;
            if silent {
                std::future::pending::<()>().await;
            }
        }
        let finish = if done + 1 < TURNS {
            let function = json!({"name": "read_file", "arguments": r#"{"path":"note.txt"}"#});
            let call = json!({"index": 0, "id": format!("call_{done}"), "type": "function",
                "function": function});
            let delta = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
            stream.write_all(&event(&delta.to_string())).await?;
            "tool_calls"
        } else {
            "stop"
        };
        let last = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}],
            "usage": {"prompt_tokens": 100, "completion_tokens": 100}});
        let mut end = event(&last.to_string());
        end.extend(event("[DONE]"));
        end.extend(b"0\r\n\r\n");
        stream.write_all(&end).await?;
    }
}
