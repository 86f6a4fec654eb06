//! Memory of suspended requests without the loop: item `g`, the HTTP client's share of item `f`.

use crate::measure::memory;
use crate::mock::{self, ask};
use crate::{Measured, Words};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Measures item `g`: this many streamed responses that hang after their first chunks.
pub(crate) async fn suspended(words: &Words) -> Measured {
    let count = words.number(0, 1000);
    ask("/reset").await?;
    let client = crate::replay::client()?;
    let url: reqwest::Url = format!("{}/chat/completions", mock::base()).parse()?;
    let body = json!({"model": "hang-10", "stream": true, "messages": [{"role": "user", "content": "go"}]});
    let body = body.to_string();
    let base = memory("VmRSS");
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..count {
        let request = client.post(url.clone()).header("content-type", "application/json");
        let sending = request.header("authorization", "Bearer x").body(body.clone()).send();
        tasks.spawn(async move {
            let mut response = sending.await?;
            while response.chunk().await?.is_some() {}
            Ok::<(), reqwest::Error>(())
        });
    }
    let mut hanging = 0;
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
