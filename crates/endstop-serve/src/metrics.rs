//! The counters of a server, in Prometheus's text format (version 0.0.4).
//!
//! Labels are the names of the configured agents, the closed list of endings, and the codes of
//! refusals. Nothing that a client or a model sends becomes a label.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The counters of a server.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    started: BTreeMap<String, u64>,
    ended: BTreeMap<(String, String), u64>,
    cost_usd: BTreeMap<String, f64>,
    refused: BTreeMap<&'static str, u64>,
}

/// The gauges at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) running: usize,
    pub(crate) queued: usize,
    pub(crate) parked: usize,
    pub(crate) readers: usize,
    pub(crate) draining: bool,
}

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a run that starts or is resumed.
    pub(crate) fn started(&self, agent: &str) {
        *self.counts().started.entry(agent.to_owned()).or_default() += 1;
    }

    /// Counts an ending.
    pub(crate) fn ended(&self, agent: &str, termination: &str, cost_usd: f64) {
        let mut counts = self.counts();
        *counts.ended.entry((agent.to_owned(), termination.to_owned())).or_default() += 1;
        *counts.cost_usd.entry(agent.to_owned()).or_default() += cost_usd;
    }

    /// Counts a refused request, by the code of its error.
    pub(crate) fn refused(&self, code: &'static str) {
        *self.counts().refused.entry(code).or_default() += 1;
    }

    /// Writes all counters and gauges.
    pub(crate) fn render(&self, gauges: Gauges) -> String {
        let counts = self.counts();
        let mut text = String::new();
        head(&mut text, "runs_started_total", "counter", "Runs that started or were resumed.");
        for (agent, count) in &counts.started {
            line(&mut text, "runs_started_total", &[("agent", agent)], count);
        }
        head(&mut text, "runs_ended_total", "counter", "Runs that ended, by their ending.");
        for ((agent, termination), count) in &counts.ended {
            let labels = [("agent", agent.as_str()), ("termination", termination)];
            line(&mut text, "runs_ended_total", &labels, count);
        }
        head(&mut text, "cost_usd_total", "counter", "Cost of ended runs in US dollars.");
        for (agent, cost) in &counts.cost_usd {
            line(&mut text, "cost_usd_total", &[("agent", agent)], cost);
        }
        head(&mut text, "refused_total", "counter", "Refused requests, by the code of the error.");
        for (code, count) in &counts.refused {
            line(&mut text, "refused_total", &[("code", code)], count);
        }
        let gauge = [
            ("runs_running", "Runs that work.", gauges.running),
            ("runs_queued", "Runs that wait for a free place.", gauges.queued),
            ("runs_parked", "Runs that wait for a decision, without a place.", gauges.parked),
            ("event_readers", "Open event streams.", gauges.readers),
            ("draining", "1 after a shutdown began.", usize::from(gauges.draining)),
        ];
        for (name, help, value) in gauge {
            head(&mut text, name, "gauge", help);
            line(&mut text, name, &[], value);
        }
        text
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string cannot fail.
    let _ =
        writeln!(text, "# HELP endstop_serve_{name} {help}\n# TYPE endstop_serve_{name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
    let labels: Vec<String> =
        labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "endstop_serve_{name}{labels} {value}");
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
