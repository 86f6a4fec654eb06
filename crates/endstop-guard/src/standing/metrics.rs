//! Metrics in Prometheus's text format (version 0.0.4).
//!
//! Labels are the profiles of the file, the closed list of endings, and the bounds of one
//! histogram. Nothing that a client sends becomes a label.

use super::guard::Standing;
use crate::run::{BUCKETS_MS, Tally};
use std::fmt::Write;

/// A counter or a gauge, and its value in a tally.
type Row = (&'static str, &'static str, &'static str, fn(&Tally, usize) -> f64);

#[expect(clippy::cast_precision_loss, reason = "Prometheus has only this type of number")]
const ROWS: &[Row] = &[
    ("runs_started_total", "counter", "Runs that started.", |tally, _| tally.runs as f64),
    ("calls_total", "counter", "Model calls that were forwarded.", |tally, _| tally.calls as f64),
    ("calls_in_flight", "gauge", "Model calls in flight.", |_, in_flight| in_flight as f64),
    ("refusals_total", "counter", "Calls that were refused.", |tally, _| tally.refusals as f64),
    ("final_texts_total", "counter", "Calls answered with the reason of the end.", |tally, _| {
        tally.finals as f64
    }),
    ("input_tokens_total", "counter", "Prompt tokens, cached ones too.", |tally, _| {
        tally.input_tokens as f64
    }),
    ("output_tokens_total", "counter", "Generated tokens.", |tally, _| tally.output_tokens as f64),
    ("cost_usd_total", "counter", "Cost in US dollars.", |tally, _| tally.nano_usd as f64 / 1e9),
];

/// Writes the metrics of a standing proxy.
pub fn render(standing: &Standing) -> String {
    let tallies = standing.tallies();
    let mut text = String::new();
    for (name, kind, help, value) in ROWS {
        head(&mut text, name, kind, help);
        for (profile, tally, in_flight) in &tallies {
            let value = value(tally, *in_flight);
            line(&mut text, name, &format!("profile=\"{profile}\""), value);
        }
    }
    head(&mut text, "runs_ended_total", "counter", "Runs that ended, by their ending.");
    for (profile, tally, _) in &tallies {
        for (ending, count) in &tally.endings {
            let labels = format!("profile=\"{profile}\",termination=\"{ending}\"");
            line(&mut text, "runs_ended_total", &labels, *count);
        }
    }
    head(&mut text, "first_byte_seconds", "histogram", "Time to the first byte of a response.");
    for (profile, tally, _) in &tallies {
        histogram(&mut text, profile, tally);
    }
    head(&mut text, "unauthorised_total", "counter", "Requests without a valid token or profile.");
    // Writing to a string cannot fail.
    let _ = writeln!(text, "endstop_guard_unauthorised_total {}", standing.strangers());
    text
}

fn histogram(text: &mut String, profile: &str, tally: &Tally) {
    let mut sum = 0;
    for (at, count) in tally.first_bytes.iter().enumerate() {
        // Prometheus's buckets are cumulative.
        sum += count;
        let bound = match BUCKETS_MS.get(at) {
            #[expect(clippy::cast_precision_loss, reason = "the bounds are small")]
            Some(ms) => (*ms as f64 / 1000.0).to_string(),
            None => "+Inf".to_owned(),
        };
        let labels = format!("profile=\"{profile}\",le=\"{bound}\"");
        line(text, "first_byte_seconds_bucket", &labels, sum);
    }
    let labels = format!("profile=\"{profile}\"");
    line(text, "first_byte_seconds_sum", &labels, tally.first_bytes_sum.as_secs_f64());
    line(text, "first_byte_seconds_count", &labels, sum);
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ =
        writeln!(text, "# HELP endstop_guard_{name} {help}\n# TYPE endstop_guard_{name} {kind}");
}

fn line(text: &mut String, name: &str, labels: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "endstop_guard_{name}{{{labels}}} {value}");
}
