//! Memory of suspended requests without the loop: item `g`, the HTTP client's share of item `f`.

use crate::measure::memory;
use crate::mock::{self, ask};
use crate::{Measured, Words};
use bytes::Bytes;
use endstop_http::{Decoded, Full};
use serde_json::{Map, Value, json};
use std::future::poll_fn;
use std::time::Duration;

/// Measures item `g`: this many streamed responses that hang after their first chunks.
pub(crate) async fn suspended(words: &Words) -> Measured {
    let count = words.number(0, 1000);
    ask("/reset").await?;
    let client = crate::replay::client()?;
    let url: http::Uri = format!("{}/chat/completions", mock::base()).parse()?;
    let ask_for = |model: &str| {
        let body = json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "go"}]});
        let body = Full::new(Bytes::from(body.to_string()));
        let sending = client.send(crate::replay::request(&url).body(body)?);
        Ok::<_, http::Error>(async move {
            let Ok(response) = sending.await else { return };
            let mut body = Decoded::new(response).into_body();
            while let Some(Ok(_)) = poll_fn(|cx| body.poll_data(cx)).await {}
        })
    };
    // As in item `f`.
    for _ in 0..3 {
        ask_for("stream-20")?.await;
    }
    let base = memory("VmRSS");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        tasks.spawn(ask_for("hang-10")?);
    }
    let mut hanging = 0;
    // Not an error after 15 s, because the figures are per request that hangs, and name their
    // number.
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        hanging = ask("/stats").await?["hanging"].as_u64().unwrap_or(0);
        if hanging as usize >= count {
            break;
        }
    }
    // Lets the client read everything that has already arrived.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let rss = memory("VmRSS");
    let values = json!({
        "requests": count, "hanging": hanging, "base_rss_mb": base / 1024.0,
        "rss_mb": rss / 1024.0, "kb_per_run": (rss - base) / hanging as f64,
    });
    Ok(if let Value::Object(values) = values { values } else { Map::new() })
}
