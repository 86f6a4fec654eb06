//! The counters of a server, in Prometheus's text format (version 0.0.4).
//!
//! Labels are the names of the configured agents, the closed list of endings, and the codes of
//! refusals. Nothing that a client or a model sends becomes a label.

use crate::backend::Totals;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The refused requests, by the code of their error.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<BTreeMap<&'static str, u64>>);

impl Refusals {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused request.
    pub(crate) fn refused(&self, code: &'static str) {
        *self.counts().entry(code).or_default() += 1;
    }
}

/// Writes the counters of agents and, if they are given, those of the server: the refused requests, and the
/// number of open event streams, with the gauges.
pub(crate) fn render(totals: &Totals, of_server: Option<(&Refusals, usize)>) -> String {
    let mut text = String::new();
    head(&mut text, "runs_started_total", "counter", "Runs that started or were resumed.");
    for (agent, count) in &totals.started {
        line(&mut text, "runs_started_total", &[("agent", agent)], count);
    }
    head(&mut text, "runs_ended_total", "counter", "Runs that ended, by their ending.");
    for ((agent, termination), count) in &totals.ended {
        let labels = [("agent", agent.as_str()), ("termination", termination)];
        line(&mut text, "runs_ended_total", &labels, count);
    }
    head(&mut text, "cost_usd_total", "counter", "Cost of ended runs in US dollars.");
    for (agent, cost) in &totals.cost_usd {
        line(&mut text, "cost_usd_total", &[("agent", agent)], cost);
    }
    let Some((refused, readers)) = of_server else { return text };
    head(&mut text, "refused_total", "counter", "Refused requests, by the code of the error.");
    for (code, count) in refused.counts().iter() {
        line(&mut text, "refused_total", &[("code", code)], count);
    }
    let gauge = [
        ("runs_running", "Runs that work.", totals.running),
        ("runs_queued", "Runs that wait for a free place.", totals.queued),
        ("runs_parked", "Runs that wait for a decision, without a place.", totals.parked),
        ("event_readers", "Open event streams.", readers),
        ("draining", "1 after a shutdown began.", usize::from(totals.draining)),
    ];
    for (name, help, value) in gauge {
        head(&mut text, name, "gauge", help);
        line(&mut text, name, &[], value);
    }
    text
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
