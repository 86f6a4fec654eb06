//! Signs in a response that its bill is not the cost of its tokens at the list price: a service tier,
//! and work that the provider bills apart.
//!
//! ```text
//! "service_tier":"flex"                 at most the list price, unless the tier's price is known
//! "service_tier":"priority"             more than the list price, unless the tier's price is known
//! "server_tool_use":{"web_search_requests":2}   a fee for each search
//! ```
//!
//! Sources: <https://developers.openai.com/api/docs/guides/priority-processing>,
//! <https://platform.claude.com/docs/en/api/service-tiers>,
//! <https://ai.google.dev/gemini-api/docs/optimization>,
//! <https://docs.aws.amazon.com/bedrock/latest/userguide/service-tiers-inference.html>.

use crate::headers::Headers;
use endstop_core::Billing;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The longest name of a service tier that is stored.
const NAME_CAP: usize = 32;

/// Headers that report the service tier, for bodies that do not.
const TIER_HEADERS: &[&str] = &["x-gemini-service-tier", "x-amzn-bedrock-service-tier"];

/// What a response reports about its bill in addition to the tokens.
#[derive(Debug, Default)]
pub(crate) struct Bill {
    /// The service tier, unless it is the ordinary one.
    tier: Option<String>,
    /// `true` if the body reports a service tier.
    in_body: bool,
    /// Parts of the bill that the tokens do not show.
    apart: Vec<&'static str>,
}

impl Bill {
    /// Stores the service tier that the response reports, if it reports one. The last report counts,
    /// because the first event of a stream may repeat the request's.
    pub(crate) fn tier(&mut self, reported: Option<&str>) {
        if let Some(name) = reported {
            self.in_body = true;
            self.tier = unusual(name);
        }
    }

    /// Records that the bill has a part that the tokens do not show.
    pub(crate) fn apart(&mut self, what: &'static str) {
        if !self.apart.contains(&what) {
            self.apart.push(what);
        }
    }

    /// Returns the service tier, and the billing of the turn without it.
    pub(super) fn finish(mut self, headers: &Headers) -> (Option<ServiceTier>, Billing) {
        if !self.in_body {
            self.tier(TIER_HEADERS.iter().find_map(|name| headers.get(name)));
        }
        let rest = if self.apart.is_empty() { Billing::ByTokens } else { Billing::More };
        (self.tier.map(|name| ServiceTier { name, rest }), rest)
    }

    /// Adds the reasons to what is known about the end of the turn.
    pub(super) fn note(&self, facts: &mut Map<String, Value>) {
        if let Some(tier) = &self.tier {
            facts.insert("service_tier".to_owned(), Value::from(tier.as_str()));
        }
        if !self.apart.is_empty() {
            facts.insert("billed_apart".to_owned(), Value::from(self.apart.clone()));
        }
    }
}

/// A service tier other than the ordinary one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceTier {
    /// Name in lower case, as the provider's API spells it, for example `priority`.
    pub name: String,
    /// The billing of the turn if the tier's price is known.
    #[serde(default)]
    pub(super) rest: Billing,
}

impl ServiceTier {
    /// Returns the relation of the bill to the ordinary price.
    pub fn billing(&self) -> Billing {
        match self.name.as_str() {
            // Each provider that has these tiers gives a discount, or charges the ordinary price.
            "flex" | "batch" => Billing::AtMost.max(self.rest),
            // Others charge more, or a price by contract.
            _ => Billing::More,
        }
    }
}

/// Returns the name of a service tier, unless it is the ordinary one.
fn unusual(name: &str) -> Option<String> {
    let lower = name.to_ascii_lowercase();
    // Gemini and Vertex spell them `SERVICE_TIER_FLEX` and `ON_DEMAND_FLEX`.
    let short = lower.strip_prefix("service_tier_").or_else(|| lower.strip_prefix("on_demand_"));
    match short.unwrap_or(&lower) {
        // Vertex' `trafficType` is a number in some clients' recordings: 0 is unspecified, 1 on demand.
        ""
        | "default"
        | "auto"
        | "standard"
        | "on_demand"
        | "unspecified"
        | "traffic_type_unspecified"
        | "0"
        | "1" => None,
        other => Some(other.chars().take(NAME_CAP).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_tiers_have_no_name() {
        for name in
            ["auto", "default", "standard", "on_demand", "ON_DEMAND", "1", "SERVICE_TIER_STANDARD"]
        {
            assert_eq!(unusual(name), None, "{name}");
        }
        for (name, short) in [
            ("priority", "priority"),
            ("ON_DEMAND_PRIORITY", "priority"),
            ("SERVICE_TIER_FLEX", "flex"),
            ("PROVISIONED_THROUGHPUT", "provisioned_throughput"),
            ("scale", "scale"),
        ] {
            assert_eq!(unusual(name).as_deref(), Some(short));
        }
        assert_eq!(unusual(&"x".repeat(1_000)).unwrap().len(), NAME_CAP);
    }

    #[test]
    fn last_reported_tier_counts() {
        let mut bill = Bill::default();
        bill.tier(Some("priority"));
        bill.tier(None);
        bill.tier(Some("default"));
        // The header repeats the request's tier if the body reports another.
        let headers = Headers::from_iter([("x-gemini-service-tier", "priority")]);
        assert_eq!(bill.finish(&headers).0, None);
        let tier = Bill::default().finish(&headers).0.unwrap();
        assert_eq!((tier.name.as_str(), tier.billing()), ("priority", Billing::More));
    }

    #[test]
    fn discount_does_not_hide_a_fee() {
        let mut bill = Bill::default();
        bill.tier(Some("flex"));
        bill.apart("web_search");
        let (tier, rest) = bill.finish(&Headers::new());
        assert_eq!((tier.unwrap().billing(), rest), (Billing::More, Billing::More));
    }
}
