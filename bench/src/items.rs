//! The items that drive complete runs over HTTP.

use crate::measure::{Watch, cpu, median, memory, now, quantile};
use crate::mock::{agent, ask, provider};
use crate::{Measured, Words};
use endstop::event::{AgentEvent, AgentEventKind};
use endstop::{Agent, Outcome, RunHandle, Termination};
use serde_json::{Map, Value, json};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// Runs once to the end; a run that does not end as `stop` is an error.
// A failed run would otherwise count as a fast one.
async fn run(agent: &Agent) -> Result<Outcome, String> {
    let outcome = agent.run("go").map_err(|error| error.to_string())?.outcome().await;
    if outcome.termination == Termination::Stop {
        Ok(outcome)
    } else {
        Err(format!("{}: {}", outcome.termination, outcome.decided_by.evidence))
    }
}

fn fields(value: Value) -> Map<String, Value> {
    if let Value::Object(map) = value { map } else { Map::new() }
}

/// Returns the values that `a`, `k` and `h` print.
pub(crate) fn by_turn(
    turns: usize,
    wall: &mut [f64],
    cpu: &mut [f64],
    more: Value,
) -> Map<String, Value> {
    let (reps, w, c) = (wall.len(), median(wall), median(cpu));
    let mut map = fields(json!({
        "turns": turns, "reps": reps, "wall_ms": w * 1e3, "cpu_ms": c * 1e3,
        "wall_us_turn": w * 1e6 / turns as f64, "cpu_us_turn": c * 1e6 / turns as f64,
    }));
    map.extend(fields(more));
    map
}

pub(crate) async fn turns(words: &Words) -> Measured {
    let (turns, reps) = (words.number(0, 50), words.number(1, 31));
    let streaming = words.has("stream");
    let agent = agent(&provider(&format!("loop-{turns}"))?, streaming)?;
    // A first run opens the connection and warms up the caches, as in a long-lived process.
    run(&agent).await?;
    let before = ask("/stats").await?["conns_total"].as_u64().unwrap_or(0);
    let (mut wall, mut used) = (Vec::new(), Vec::new());
    for _ in 0..reps {
        let watch = Watch::start();
        let outcome = run(&agent).await?;
        let (w, c) = watch.read();
        if outcome.last_text.as_deref() != Some("FINAL('done')") {
            return Err("another answer".into());
        }
        wall.push(w);
        used.push(c);
    }
    let after = ask("/stats").await?["conns_total"].as_u64().unwrap_or(0);
    // The query for the statistics is a connection itself.
    let connections = json!({"new_connections": (after - before).saturating_sub(1)});
    Ok(by_turn(turns, &mut wall, &mut used, connections))
}

pub(crate) async fn at_once(words: &Words) -> Measured {
    let (runs, turns, most) = (words.number(0, 1000), words.number(1, 10), words.number(2, 256));
    let agent = agent(&provider(&format!("loop-{turns}"))?, false)?;
    let base = memory("VmRSS");
    // `Rc` and `Cell` suffice because all tasks run on this thread.
    let next = Rc::new(Cell::new(0));
    let good = Rc::new(Cell::new(0));
    let watch = Watch::start();
    let local = tokio::task::LocalSet::new();
    // Each task makes one run after the other, so that `most` runs are always active.
    for _ in 0..most.min(runs) {
        let (next, good, agent) = (Rc::clone(&next), Rc::clone(&good), agent.clone());
        local.spawn_local(async move {
            while next.get() < runs {
                next.set(next.get() + 1);
                if run(&agent).await.is_ok() {
                    good.set(good.get() + 1);
                }
            }
        });
    }
    local.await;
    let (wall, used) = watch.read();
    Ok(fields(json!({
        "runs": runs, "turns": turns, "conc": most, "ok": good.get(), "wall_s": wall,
        "runs_s": runs as f64 / wall, "cpu_ms_run": used * 1e3 / runs as f64,
        "cpu_us_turn": used * 1e6 / (runs * turns) as f64,
        "peak_rss_mb": memory("VmHWM") / 1024.0, "base_rss_mb": base / 1024.0,
    })))
}

/// Returns the length of the text in an event.
fn text_in(event: &AgentEvent) -> usize {
    match &event.kind {
        AgentEventKind::TextDelta { text, .. } => text.len(),
        _ => 0,
    }
}

pub(crate) async fn tokens(words: &Words) -> Measured {
    let tokens = words.number(0, 200_000);
    run(&agent(&provider("stream-50")?, true)?).await?;
    // A new provider, so that opening its connection is part of the measurement.
    let agent = agent(&provider(&format!("stream-{tokens}"))?, true)?;
    let base = memory("VmRSS");
    let watch = Watch::start();
    let mut handle = agent.run("go")?;
    let (mut deltas, mut heard) = (0, 0);
    if words.has("events") {
        while let Some(event) = handle.next().await {
            let length = text_in(&event);
            heard += length;
            deltas += usize::from(length > 0);
        }
    }
    let outcome = handle.outcome().await;
    let (wall, used) = watch.read();
    let said = outcome.last_text.as_ref().map_or(0, String::len);
    let error = (outcome.termination != Termination::Stop).then(|| outcome.termination.to_string());
    Ok(fields(json!({
        "tokens": tokens, "deltas": deltas, "heard_chars": heard, "chars": said,
        // The server sends four characters per token.
        "lost_chars": 4 * tokens as i64 - said as i64, "err": error, "wall_s": wall,
        "tok_s": tokens as f64 / wall, "cpu_s": used, "cpu_us_tok": used * 1e6 / tokens as f64,
        "peak_rss_mb": memory("VmHWM") / 1024.0, "base_rss_mb": base / 1024.0,
    })))
}

/// Reads events until this many tokens of four characters have arrived.
async fn until(handle: &mut RunHandle, tokens: usize) -> usize {
    let mut seen = 0;
    while seen < 4 * tokens {
        match handle.next().await {
            Some(event) => seen += text_in(&event),
            None => break,
        }
    }
    seen / 4
}

pub(crate) async fn cancel(words: &Words) -> Measured {
    let model = words.text(0, "slow-20000-1");
    let (tokens, reps) = (words.number(1, 50), words.number(2, 7));
    let agent = agent(&provider(model)?, true)?;
    let (mut closed, mut wasted, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..reps {
        ask("/reset").await?;
        let mut handle = agent.run("go")?;
        let seen = until(&mut handle, tokens).await;
        let asked = now();
        handle.cancel();
        let outcome = handle.outcome().await;
        ended.push((now() - asked) as f64 / 1e6);
        if outcome.termination != Termination::Cancelled {
            return Err(format!("the run ended as {}", outcome.termination).into());
        }
        // The server reports a disconnect with its own clock reading, so that polling is harmless.
        for _ in 0..30 {
            let stats = ask("/stats").await?;
            if let Some(gone) = stats["disconnects"].get(0) {
                let at = gone["at_ns"].as_u64().unwrap_or(0);
                closed.push((at as f64 - asked as f64) / 1e6);
                wasted.push(gone["tokens"].as_f64().unwrap_or(0.0) - seen as f64);
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let open = ask("/stats").await?["streams_open"].clone();
    Ok(fields(json!({
        "model": model, "k": tokens, "reps": reps, "closed": closed.len(),
        "close_ms_p99": quantile(&mut closed, 0.99), "close_ms_max": quantile(&mut closed, 1.0),
        "close_ms": median(&mut closed), "wasted": median(&mut wasted),
        "run_end_ms": median(&mut ended), "still_open": open, "end": "cancelled",
    })))
}

pub(crate) async fn cold() -> Measured {
    run(&agent(&provider("loop-1")?, false)?).await?;
    // `run.py` passes the time just before it started this process, which only the parent knows.
    let spawned: u64 = std::env::var("SPAWN_NS").ok().and_then(|at| at.parse().ok()).unwrap_or(0);
    Ok(fields(json!({
        "spawn_to_first_ms": (now() - spawned) as f64 / 1e6, "cpu_ms": cpu() * 1e3,
        "rss_mb": memory("VmRSS") / 1024.0,
    })))
}

pub(crate) async fn suspended(words: &Words) -> Measured {
    let runs = words.number(0, 1000);
    ask("/reset").await?;
    // The first requests load what the process keeps, which is not memory of a run.
    let first = agent(&provider("stream-20")?, true)?;
    for _ in 0..3 {
        run(&first).await?;
    }
    // One agent, because it is what its runs have in common.
    let agent = agent(&provider("hang-10")?, true)?;
    let base = memory("VmRSS");
    let watch = Watch::start();
    let mut handles = tokio::task::JoinSet::new();
    for _ in 0..runs {
        let mut handle = agent.run("go")?;
        handles.spawn(async move { while handle.next().await.is_some() {} });
    }
    let mut hanging = 0;
    for _ in 0..300 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        hanging = ask("/stats").await?["hanging"].as_u64().unwrap_or(0);
        if hanging as usize >= runs {
            break;
        }
    }
    // Lets the clients read everything that has already arrived.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (_, starting) = watch.read();
    let rss = memory("VmRSS");
    // Processor time in a second without events: suspended runs must not poll.
    let quiet = Watch::start();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (wall, idle) = quiet.read();
    let asked = now();
    agent.cancel();
    let called = now();
    handles.join_all().await;
    let ended = now();
    // Outcomes come before the sockets close, so the server is given time to notice.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let stats = ask("/stats").await?;
    let gone = stats["disconnects"].as_array().cloned().unwrap_or_default();
    let last = gone.iter().filter_map(|one| one["at_ns"].as_u64()).max().unwrap_or(asked);
    let ms = |at: u64| (at as f64 - asked as f64) / 1e6;
    Ok(fields(json!({
        "runs": runs, "hanging": hanging, "base_rss_mb": base / 1024.0, "rss_mb": rss / 1024.0,
        "kb_per_run": (rss - base) / hanging as f64, "start_cpu_ms_run": starting * 1e3 / runs as f64,
        "idle_cpu_frac": idle / wall, "cancel_calls_ms": ms(called), "all_ended_ms": ms(ended),
        "closed": gone.len(), "last_close_ms": ms(last), "still_open": stats["hanging"],
    })))
}
