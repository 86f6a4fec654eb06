//! The meter of a call whose output cap cannot be lowered: a guest that only observes.
//!
//! Such a call is admitted while the estimated cost of its prompt is below what is left. Its output
//! is counted as it streams, and the call is aborted when the estimate reaches the ceiling. Reasoning
//! that is not streamed is not seen, so the call may cost more; that amount is reported as overrun.

use super::ledger::{Ceiling, Granted, LEAST_OUTPUT};
use super::quote::{USUAL_SHARED_OUTPUT, in_shared};
use crate::kernel::context::RunContext;
use crate::kernel::event::BudgetAccount;
use crate::kernel::outcome::WouldFit;
use crate::kernel::outcome::decided_by::Layer;
use crate::kernel::outcome::ending::{Ending, Flow};
use crate::limits::TokensCounted;
use crate::usage::{NanoUsd, Usage};
use std::ops::ControlFlow::{Break, Continue};

/// Bytes of visible output that count as one token.
const BYTES_PER_TOKEN: u64 = 4;

/// Counts the output of a call, up to the ceiling that aborts it.
#[derive(Debug)]
pub(crate) struct Meter {
    streamed: u64,
    /// The number of streamed bytes at which the call is aborted.
    stop_at: u64,
    /// Estimated tokens of the prompt.
    prompt: u64,
    /// The ceiling that allows the least output.
    ceiling: Ceiling,
    /// The amount that was left below it.
    left: Granted,
    /// The tokens that the ceiling counts.
    counts: TokensCounted,
}

/// The terms of a call that a guest may make.
pub(crate) struct Terms {
    /// The amount that was left; more than this is overrun.
    pub(crate) quote: Option<NanoUsd>,
    pub(crate) meter: Option<Box<Meter>>,
}

impl Meter {
    /// Counts streamed output. Returns the ending of the run if that reaches the ceiling.
    pub(crate) fn add(&mut self, bytes: u64) -> Option<Box<Ending>> {
        self.streamed = self.streamed.saturating_add(bytes);
        if self.streamed < self.stop_at {
            return None;
        }
        let (output, prompt) = (self.streamed / BYTES_PER_TOKEN, self.prompt);
        let counted = match self.counts {
            TokensCounted::Output => String::new(),
            _ => format!("a prompt of about {prompt} tokens and "),
        };
        let evidence = format!(
            "the call was aborted: {counted}about {output} tokens of output use up {}{}",
            amount_left(self.left, self.counts),
            if is_shared(self.ceiling) { " in the shared budget" } else { "" }
        );
        let ceiling = self.ceiling;
        Some(Ending::new(ceiling.termination(), Layer::Limit, ceiling.decision(), evidence))
    }
}

/// The estimated size and cost of the next prompt. The cost is zero if no price is known.
fn prompt(context: &mut RunContext) -> (u64, NanoUsd) {
    let usage = context.prompt.request_usage();
    let tokens = context.prompt_estimate();
    let usage = usage.unwrap_or(Usage { input_tokens: Some(tokens), ..Usage::default() });
    (tokens, context.ledger.price.map(|price| price.cost(&usage)).unwrap_or_default())
}

/// The amount to reserve from a shared budget, and the least that is useful.
pub(crate) fn reservation(context: &mut RunContext) -> (Granted, Granted) {
    let (tokens, cost) = prompt(context);
    let output = context.output_cap.unwrap_or(USUAL_SHARED_OUTPUT).min(USUAL_SHARED_OUTPUT);
    let price = context.ledger.price.map(|price| price.up_to_prompt(tokens));
    let more = price.map(|price| price.worst(0, output)).unwrap_or_default();
    let want = Granted { usd: cost + more, tokens: Some(tokens.saturating_add(output)) };
    (want, Granted { usd: cost, tokens: Some(tokens) })
}

/// Admits the next call, or ends the run because its prompt alone uses up what is left. `granted` is
/// the answer of a shared budget, and `refused_by` its account if it refused.
pub(crate) fn admit(
    granted: Option<Granted>,
    refused_by: Option<BudgetAccount>,
    context: &mut RunContext,
) -> Flow<Terms> {
    let (tokens, cost) = prompt(context);
    let wanted = granted.map(|granted| (granted, reservation(context).0));
    if !context.settings.reserve {
        return Continue(Terms { quote: None, meter: None });
    }
    let ledger = &context.ledger;
    let usd = |usd: NanoUsd| Granted { usd, tokens: None };
    let some = |tokens: u64| Granted { usd: NanoUsd::ZERO, tokens: Some(tokens) };
    let own_usd = ledger.max_usd.filter(|_| ledger.price.is_some());
    let own_usd = own_usd.map(|max| max.saturating_sub(ledger.committed()));
    let own_tokens = ledger.max_tokens.map(|max| max.saturating_sub(ledger.committed_tokens()));
    // A grant in full does not bound the call: the budget has more, and the rest is settled later.
    let short_usd = wanted.filter(|(granted, want)| granted.usd < want.usd);
    let short_tokens =
        wanted.and_then(|(granted, want)| granted.tokens.filter(|got| Some(*got) < want.tokens));
    let ceilings = [
        own_usd.map(|left| (Ceiling::Usd, usd(left))),
        own_tokens.map(|left| (Ceiling::Tokens, some(left))),
        short_usd.map(|(granted, _)| (Ceiling::SharedUsd, usd(granted.usd))),
        short_tokens.map(|left| (Ceiling::SharedTokens, some(left))),
    ];
    let mut least: Option<(u64, Ceiling, Granted)> = None;
    for (ceiling, left) in ceilings.into_iter().flatten() {
        let counts = counts_of(ceiling, context);
        let output = match (left.tokens, ledger.price) {
            (Some(left), _) => left.checked_sub(counts.of_prompt(tokens)),
            (None, Some(price)) if left.usd >= cost => {
                price.up_to_prompt(tokens).affordable(0, left.usd.saturating_sub(cost))
            }
            (None, _) => None,
        };
        // A call without room for output would pay for its prompt and return nothing.
        let Some(output) = output.filter(|output| *output > 0) else {
            return Break(does_not_fit((ceiling, left), (tokens, cost), refused_by, context));
        };
        if least.as_ref().is_none_or(|(least, ..)| output < *least) {
            least = Some((output, ceiling, left));
        }
    }
    // A client that caps its own output below that cannot reach the ceiling.
    let cap = context.output_cap.unwrap_or(u64::MAX);
    let meter = least.filter(|(output, ..)| *output < cap).map(|(output, ceiling, left)| {
        let stop_at = output.saturating_mul(BYTES_PER_TOKEN);
        let counts = counts_of(ceiling, context);
        Box::new(Meter { streamed: 0, stop_at, prompt: tokens, ceiling, left, counts })
    });
    let quote = own_usd.into_iter().chain(short_usd.map(|(granted, _)| granted.usd)).min();
    Continue(Terms { quote, meter })
}

/// The tokens that a ceiling counts: only the run's own token ceiling has a choice.
fn counts_of(ceiling: Ceiling, context: &RunContext) -> TokensCounted {
    if ceiling == Ceiling::Tokens { context.ledger.counts } else { TokensCounted::All }
}

fn is_shared(ceiling: Ceiling) -> bool {
    matches!(ceiling, Ceiling::SharedUsd | Ceiling::SharedTokens)
}

/// The amount that was left below a ceiling, for messages.
fn amount_left(left: Granted, counts: TokensCounted) -> String {
    match left.tokens {
        Some(tokens) => format!("the {tokens} {}tokens that were left", counts.qualifier()),
        None => format!("the {} that was left", left.usd),
    }
}

/// Builds the ending for a call whose prompt alone does not fit.
fn does_not_fit(
    (ceiling, left): (Ceiling, Granted),
    (tokens, cost): (u64, NanoUsd),
    refused_by: Option<BudgetAccount>,
    context: &RunContext,
) -> Box<Ending> {
    let of_prompt = match ceiling {
        Ceiling::Usd | Ceiling::SharedUsd => format!("about {tokens} tokens, about {cost},"),
        Ceiling::Tokens | Ceiling::SharedTokens => format!("about {tokens} tokens"),
    };
    let evidence = format!(
        "the next call does not fit: its prompt of {of_prompt} uses up {}{}",
        amount_left(left, counts_of(ceiling, context)),
        if is_shared(ceiling) { in_shared(ceiling, left, refused_by) } else { String::new() }
    );
    let mut fits = WouldFit::default();
    let price = context.ledger.price.map(|price| price.up_to_prompt(tokens));
    let output = price.map(|price| price.worst(0, LEAST_OUTPUT)).unwrap_or_default();
    match ceiling {
        Ceiling::Usd => fits.max_budget = Some(context.ledger.committed() + cost + output),
        Ceiling::Tokens => {
            let of_prompt = context.ledger.counts.of_prompt(tokens);
            let all = context.ledger.committed_tokens().saturating_add(of_prompt);
            fits.max_tokens = Some(all.saturating_add(LEAST_OUTPUT));
        }
        // A shared ceiling is not this run's to raise.
        Ceiling::SharedUsd | Ceiling::SharedTokens => {}
    }
    let mut ending = Ending::new(ceiling.termination(), Layer::Limit, ceiling.decision(), evidence);
    ending.would_fit = Some(fits);
    ending
}
