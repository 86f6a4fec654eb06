//! Variables that are set for every program.
//!
//! ```text
//! variables::set(&mut plan); // OPENAI_BASE_URL=http://127.0.0.1:4000/v1 …
//! ```

use super::plan::Plan;
use super::wiring::{Source, Warning};
use endstop_wire::WireFormat::{
    self, Anthropic, CohereV1, CohereV2, Gemini, OpenAiChat, OpenAiResponses,
};

/// Variables of base URLs, with the path that their clients expect after the host. Of two for the
/// same formats, the first one names the upstream.
const BASE_URLS: [(&str, &str, &[WireFormat]); 6] = [
    ("OPENAI_BASE_URL", "/v1", &[OpenAiChat, OpenAiResponses]),
    ("OPENAI_API_BASE", "/v1", &[OpenAiChat, OpenAiResponses]),
    ("ANTHROPIC_BASE_URL", "", &[Anthropic]),
    ("ANTHROPIC_API_BASE", "", &[Anthropic]),
    ("GOOGLE_GEMINI_BASE_URL", "", &[Gemini]),
    ("CO_API_URL", "", &[CohereV1, CohereV2]),
];

/// Variables that make a client believe that it was started by another one.
const CLEARED: [&str; 1] = ["CLAUDECODE"];

/// Hosts that must not be called through an outgoing proxy.
const LOOPBACK: [&str; 2] = ["127.0.0.1", "localhost"];

/// Sets the variables, and takes the upstreams from those that were set before.
pub(super) fn set(plan: &mut Plan<'_>) {
    let mut named: Vec<(&[WireFormat], String, Source)> = Vec::new();
    for (name, path, formats) in BASE_URLS {
        if let Some(base) = plan.var(name).map(str::to_owned) {
            let source = Source::Variable(name.to_owned());
            // A second variable for the same formats is an alias, and may differ by mistake.
            match named.iter().find(|(known, ..)| *known == formats).cloned() {
                None => {
                    plan.upstream(formats, &base, source.clone());
                    named.push((formats, base, source));
                }
                Some((_, used_base, used)) if used_base != base => {
                    plan.warn(Warning::Conflict { used, ignored: source });
                }
                Some(_) => {}
            }
        }
        let url = plan.url(path);
        plan.set(name, url);
    }
    for name in ["NO_PROXY", "no_proxy"] {
        let hosts = no_proxy(plan);
        plan.set(name, hosts);
    }
    for name in CLEARED {
        if plan.var(name).is_some() {
            plan.wiring.cleared.push(name.to_owned());
        }
    }
}

/// Returns the hosts that are called directly: those of the user, and the proxy. Both spellings of
/// the variable get the same value, because clients differ in which one they prefer.
pub(super) fn no_proxy(plan: &Plan<'_>) -> String {
    let before = plan.var("NO_PROXY").or_else(|| plan.var("no_proxy")).unwrap_or_default();
    let mut hosts: Vec<&str> = before.split(',').map(str::trim).filter(|h| !h.is_empty()).collect();
    let proxy = plan.request.proxy.split("://").nth(1).unwrap_or_default();
    let proxy = proxy.split('/').next().unwrap_or_default();
    // A port in the list is not understood by all clients.
    let proxy = if proxy.starts_with('[') { "::1" } else { proxy.split(':').next().unwrap_or("") };
    for host in LOOPBACK.into_iter().chain([proxy]) {
        if !host.is_empty() && !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    hosts.join(",")
}
