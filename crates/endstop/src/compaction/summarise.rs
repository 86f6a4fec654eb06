//! Replaces old turns by a summary that a model writes.
//!
//! ```
//! use endstop::compaction::Summarise;
//! use endstop::testkit::ScriptedModel;
//! // With the loop's own model, or with a cheaper one.
//! let (own, cheap) = (Summarise::default(), Summarise::by(ScriptedModel::new([])));
//! # let _ = (own, cheap);
//! ```
//!
//! The prompt is bounded, and the call has a time limit and an output cap. Its cost counts towards
//! the run's ceilings, even if the run is stopped during the call.

use super::compactor::{CompactionFuture, Compactor};
use super::messages::{bytes, fresh_id};
use super::request::CompactionRequest;
use super::turns::{old, pieces};
use crate::budget::{Amount, SharedBudget};
use crate::provider::{
    Caching, CallEvent, CallSpec, ModelParams, Provider, Response, SessionSpec, detect,
};
use endstop_core::{
    Billing, Compaction, Message, MessageId, NanoUsd, Part, Price, Role, SignalReason, Unreported,
    Usage,
};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

const INSTRUCTIONS: &str = "You summarise a part of the conversation of an agent that works on a task. \
The agent will continue without this part, so write down everything it needs from it: findings, \
decisions, changes and attempts, with exact names, paths, values and errors; what failed and why; \
what is left to do. Write facts, no advice, in as few words as you can. Do not call tools and do \
not work on the task.";

/// Maximum bytes of one text, argument object or result in the prompt; longer ones are truncated.
const MOST_OF_ONE: usize = 4096;

/// The old turns must be at least this fraction (1/8) of the conversation, or no call is made.
const LEAST: u64 = 8;

/// Replaces old turns by a summary that a model writes. The task, pinned messages, the newest turns
/// and everything that the model has not answered yet stay.
#[derive(Clone)]
pub struct Summarise {
    provider: Option<Arc<dyn Provider>>,
    keep: usize,
    most_prompt: usize,
    most_output: u64,
    timeout: Duration,
}

impl Default for Summarise {
    /// Uses the loop's own model and keeps the newest two turns. Limits: 128 KiB of the
    /// conversation in the prompt, 2048 tokens for the summary, two minutes for the call.
    fn default() -> Summarise {
        Summarise {
            provider: None,
            keep: 2,
            most_prompt: 128 << 10,
            most_output: 2048,
            timeout: Duration::from_secs(120),
        }
    }
}

impl Summarise {
    /// Uses this model.
    pub fn by(provider: impl Provider + 'static) -> Summarise {
        Summarise { provider: Some(Arc::new(provider)), ..Summarise::default() }
    }

    /// Sets the number of newest turns that stay.
    #[must_use]
    pub fn keep(mut self, turns: usize) -> Summarise {
        self.keep = turns;
        self
    }

    /// Sets the maximum bytes of conversation in the prompt; older messages are omitted.
    #[must_use]
    pub fn max_prompt_bytes(mut self, bytes: usize) -> Summarise {
        self.most_prompt = bytes;
        self
    }

    /// Sets the output cap of the call, in tokens. A summary that reaches the cap is rejected.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u64) -> Summarise {
        self.most_output = tokens;
        self
    }

    /// Sets the time limit of the call.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Summarise {
        self.timeout = timeout;
        self
    }

    async fn summarise(&self, request: &CompactionRequest) -> Result<Vec<Message>, String> {
        let messages = &request.messages;
        let pieces = pieces(messages, request.task);
        let keep = if request.forced { 1 } else { self.keep };
        let gone: Vec<_> = old(&pieces, keep).map(|piece| piece.range.clone()).collect();
        let Some(first) = gone.first().map(|range| range.start) else {
            return Err("there are no old turns to summarise".to_owned());
        };
        let old: Vec<&Message> = gone.iter().flat_map(|range| &messages[range.clone()]).collect();
        let replaced: u64 = old.iter().map(|message| message.byte_len()).sum();
        // Check the gain before the call, because the call costs money.
        if replaced < request.bytes() / LEAST {
            return Err("the old turns are too short to be worth a summary".to_owned());
        }
        let task = messages.iter().find(|message| request.task == Some(message.id));
        let prompt = prompt(task, &old, self.most_prompt);
        let summary = self.ask(request, prompt).await?;
        let text = format!("[A summary of the earlier part of this conversation]\n{summary}");
        let summary = Message::text(fresh_id(messages), Role::User, text);
        // A model may write more than it was given.
        if summary.byte_len() >= replaced {
            let is = summary.byte_len();
            return Err(format!("the summary is not shorter: {replaced} bytes became {is}"));
        }
        let mut short = Vec::with_capacity(messages.len());
        for (at, message) in messages.iter().enumerate() {
            if at == first {
                short.push(summary.clone());
            }
            if !gone.iter().any(|range| range.contains(&at)) {
                short.push(message.clone());
            }
        }
        debug_assert!(bytes(&short) < bytes(messages));
        Ok(short)
    }

    /// Calls the model. Its cost is reported even if the call fails.
    async fn ask(&self, request: &CompactionRequest, prompt: String) -> Result<String, String> {
        let own = request.means.as_ref().map(|means| (&means.provider, means.price));
        let (provider, price) = match (&self.provider, own) {
            (Some(provider), _) => (provider, provider.price()),
            (None, Some((provider, price))) => (provider, price),
            (None, None) => return Err("there is no model to write a summary".to_owned()),
        };
        // Every token has at least one byte, so bytes are a safe upper bound for tokens. 64 covers
        // the format's own overhead.
        let prompt_bound = (prompt.len() + INSTRUCTIONS.len() + 64) as u64;
        let left = request.tokens_left();
        if left.is_some_and(|left| left < prompt_bound + self.most_output) {
            return Err("the rest of the ceiling on tokens is too small for a summary".to_owned());
        }
        // Reserve the worst case before the call, so that it cannot exceed a shared ceiling.
        let mut books = Books::open(request, price, prompt_bound, self.most_output)?;
        // Another model's server must not receive the headers of the run's.
        let params = match (&self.provider, &request.means) {
            (None, Some(means)) => means.params.clone(),
            _ => ModelParams::default(),
        };
        // The prompt of a summary is sent once, so that a cache entry would never be read.
        let params = ModelParams { cache: Some(Caching::Off), ..params };
        let spec = SessionSpec {
            system: Some(INSTRUCTIONS.to_owned()),
            context_window: provider.context_window(),
            streaming: true,
            params,
            ..SessionSpec::default()
        };
        let asked = [Message::text(MessageId(1), Role::User, prompt)];
        let mut session = provider.open(spec);
        let heard = request.start_future(async {
            let mut call = session.call(CallSpec {
                messages: &asked,
                epoch: 0,
                output_cap: Some(self.most_output),
                details: false,
                trace_parent: None,
            });
            loop {
                match std::future::poll_fn(|cx| call.as_mut().poll_next(cx)).await {
                    Some(CallEvent::Ended(response)) => return Ok(response),
                    Some(CallEvent::Failed(error, partial)) => {
                        return Err((error.to_string(), partial));
                    }
                    Some(streamed) => books.hears(&streamed),
                    None => return Err(("the stream closed without its end".to_owned(), None)),
                }
            }
        });
        // On a timeout the pending call is dropped, and `Drop` of `books` charges it.
        let response = match tokio::time::timeout(self.timeout, heard).await {
            Err(_) => return Err(format!("no summary within {:?}", self.timeout)),
            Ok(None) => {
                books.failed(None);
                return Err("the run was stopped".to_owned());
            }
            Ok(Some(Err((problem, partial)))) => {
                books.failed(partial.as_deref());
                return Err(format!("the summary call failed: {problem}"));
            }
            Ok(Some(Ok(response))) => response,
        };
        books.ended(&response);
        let signal = detect(&**provider, &response, false);
        // A truncated summary would silently lose facts, so only complete answers are accepted.
        let whole =
            matches!(signal.reason, SignalReason::NaturalCompletion | SignalReason::StopSequence);
        if !whole {
            return Err(format!("the summary is incomplete: {}", signal.reason));
        }
        let parts = response.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let text = parts.collect::<String>().trim().to_owned();
        if text.is_empty() { Err("the summary is empty".to_owned()) } else { Ok(text) }
    }
}

impl Compactor for Summarise {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            match self.summarise(&request).await {
                Ok(messages) => Compaction::done("summarise", messages),
                Err(why) => Compaction::Failed(why),
            }
        })
    }
}

/// The accounting of one call: reserves before it and reports after it. Dropping it reports as
/// well, so a cancelled call is still charged.
struct Books<'a> {
    request: &'a CompactionRequest,
    price: Option<Price>,
    held: Option<(SharedBudget, Amount)>,
    /// The maximum that the call can cost and use.
    most: Amount,
    prompt_bound: u64,
    /// Characters generated so far.
    generated: u64,
    open: bool,
}

impl<'a> Books<'a> {
    fn open(
        request: &'a CompactionRequest,
        price: Option<Price>,
        prompt_bound: u64,
        most_output: u64,
    ) -> Result<Books<'a>, String> {
        let most = Amount {
            usd: price.unwrap_or_default().worst(prompt_bound, most_output),
            tokens: prompt_bound.saturating_add(most_output),
        };
        let held = match request.budget() {
            None => None,
            Some(budget) if price.is_none() && budget.bounds_cost() => {
                return Err(
                    "there is a ceiling on cost, but the price of the summary model is unknown"
                        .to_owned(),
                );
            }
            Some(budget) => {
                let granted = budget.reserve_amount(most, most).map_err(|left| {
                    let of = if left.usd < most.usd { "cost" } else { "tokens" };
                    format!("the rest of the ceiling on {of} is too small for a summary")
                })?;
                Some((budget, granted))
            }
        };
        Ok(Books { request, price, held, most, prompt_bound, generated: 0, open: true })
    }

    fn hears(&mut self, streamed: &CallEvent) {
        self.generated += match streamed {
            CallEvent::Delta(delta) => delta.chars(),
            CallEvent::Reasoning(text)
            | CallEvent::Refusal(text)
            | CallEvent::ToolCallStarted { name: text, .. }
            | CallEvent::ToolArguments { json: text, .. } => text.chars().count() as u64,
            CallEvent::Windows(_) | CallEvent::Ended(_) | CallEvent::Failed(..) => 0,
        };
    }

    fn ended(&mut self, response: &Response) {
        let mut usage = response.usage.clone();
        let counted = usage.input_tokens.is_some() && usage.generated_tokens().is_some();
        if !counted {
            let said: usize = response
                .parts
                .iter()
                .map(|part| match part {
                    Part::Text { text } | Part::Reasoning { text } => text.chars().count(),
                    _ => 0,
                })
                .sum();
            // A provider may deliver text in the response that was not streamed, or the reverse.
            self.generated = self.generated.max(said as u64);
            usage = self.estimate();
        }
        self.book(&usage, response.cost, counted);
    }

    /// Charges a failed call. Providers do not bill a refused request, but they bill one that had
    /// started to answer.
    fn failed(&mut self, partial: Option<&Response>) {
        match partial {
            Some(partial) => self.ended(partial),
            None if self.generated > 0 => self.book(&self.estimate(), None, false),
            None => self.book(&Usage::default(), Some(NanoUsd::ZERO), true),
        }
    }

    /// Estimates tokens as one per four characters.
    fn estimate(&self) -> Usage {
        Usage {
            input_tokens: Some(self.prompt_bound.div_ceil(4)),
            output_tokens: Some(self.generated.div_ceil(4)),
            estimated: true,
            ..Usage::default()
        }
    }

    /// Books the known usage. If the provider did not count the call, books the rest of the
    /// reservation as unreported, because it may have been generated.
    fn book(&mut self, usage: &Usage, cost: Option<NanoUsd>, counted: bool) {
        // A call is booked only once: at its end or when it is dropped.
        if !std::mem::take(&mut self.open) {
            return;
        }
        let known = cost.or_else(|| self.price.map(|price| price.cost(usage)));
        let spent = known.unwrap_or_default();
        let (tokens, most) = (usage.total_tokens(), self.most);
        let unreported = Unreported {
            cost: match (cost, self.price) {
                _ if usage.billing == Billing::More => None,
                (None, None) => (tokens == 0).then_some(NanoUsd::ZERO),
                (None, Some(_)) if !counted => Some(most.usd.saturating_sub(spent)),
                _ => Some(NanoUsd::ZERO),
            },
            tokens: Some(if counted { 0 } else { most.tokens.saturating_sub(tokens) }),
        };
        if let Some((budget, held)) = self.held.take() {
            let usd = spent + unreported.cost.unwrap_or_default();
            let tokens = tokens.saturating_add(unreported.tokens.unwrap_or(0));
            budget.settle_amount(held, Amount { usd, tokens });
        }
        let unknown = unreported.cost != Some(NanoUsd::ZERO) || usage.billing != Billing::ByTokens;
        self.request.spend_at_most(usage, spent, unknown, unreported);
    }
}

impl Drop for Books<'_> {
    /// Charges the part of a cancelled call that was received.
    fn drop(&mut self) {
        if self.open {
            self.book(&self.estimate(), None, false);
        }
    }
}

/// Returns the prompt: the task and the newest of the old messages, in at most `most` bytes.
fn prompt(task: Option<&Message>, old: &[&Message], most: usize) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut length = 0;
    for message in old.iter().rev() {
        let text = transcript(message);
        length += text.len();
        if length > most {
            told.push("[earlier messages omitted]\n".to_owned());
            break;
        }
        told.push(text);
    }
    told.reverse();
    let task = task.map(Message::plain_text).unwrap_or_default();
    format!(
        "The task:\n{}\n\nThe part of the conversation to summarise:\n{}\nSummarise this part.",
        excerpt(&task),
        told.concat()
    )
}

fn transcript(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.parts {
        // Writing to a `String` cannot fail.
        let _ = match part {
            Part::Text { text: said } if message.role == Role::Assistant => {
                writeln!(text, "The agent: {}", excerpt(said))
            }
            Part::Text { text: said } => writeln!(text, "The user: {}", excerpt(said)),
            Part::ToolCall(call) => {
                writeln!(text, "The agent calls {} {}", call.name, excerpt(&call.arguments))
            }
            Part::ToolResult(result) => {
                let (name, status) = (&result.name, result.status.as_str());
                writeln!(text, "Output of {name} ({status}): {}", excerpt(&result.content))
            }
            Part::Refusal { text: said } => writeln!(text, "The agent refused: {}", excerpt(said)),
            Part::Image(_) => writeln!(text, "[an image]"),
            Part::Document(_) => writeln!(text, "[a document]"),
            _ => Ok(()),
        };
    }
    text
}

fn excerpt(text: &str) -> String {
    if text.len() <= MOST_OF_ONE {
        return text.to_owned();
    }
    let cut = (0..=MOST_OF_ONE).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} [… {} bytes more]", &text[..cut], text.len() - cut)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compaction::request::Means;
    use crate::compaction::test_support::{conversation, says, valid};
    use crate::testkit::{ScriptedModel, Turn};
    use crate::tool::ToolContext;

    fn request(model: ScriptedModel, ceiling: Option<f64>) -> CompactionRequest {
        let mut request = CompactionRequest::new(conversation(6, 2_000));
        let context = ToolContext::detached("compaction");
        if let Some(ceiling) = ceiling {
            context.bind(SharedBudget::new(NanoUsd::from_usd(ceiling)));
        }
        let price = Provider::price(&model);
        request.means = Some(Means {
            provider: Arc::new(model),
            price,
            params: ModelParams::default(),
            tokens_left: None,
            context,
        });
        request
    }

    fn price() -> Price {
        Price { input: NanoUsd::from_usd(1.0), output: NanoUsd::from_usd(10.0), ..Price::default() }
    }

    fn spent(request: &CompactionRequest) -> Option<(u64, NanoUsd, bool)> {
        let spent = request.means.as_ref().unwrap().context.take_spent()?;
        Some((spent.usage.total_tokens(), spent.cost, spent.usage.estimated))
    }

    #[tokio::test]
    async fn summary_replaces_old_turns_and_costs() {
        let model =
            ScriptedModel::new([Turn::text("It was all x.").usage(1_000, 10)]).price(price());
        let request = request(model, Some(1.0));
        let short = Summarise::default().summarise(&request).await.unwrap();
        valid(&request, &short);
        let said = says(&short[1]);
        assert_eq!(said, "[A summary of the earlier part of this conversation]\nIt was all x.");
        assert_eq!(short[2..], request.messages[9..], "two turns stay");
        let cost = NanoUsd::from_usd(0.0011);
        assert_eq!(spent(&request), Some((1_010, cost, false)));
        let budget = request.budget().unwrap();
        assert_eq!((budget.spent(), budget.reserved()), (cost, NanoUsd::ZERO));
    }

    #[tokio::test]
    async fn rejected_summary_is_still_charged() {
        let long = "x ".repeat(8_000);
        for (turn, why) in [
            (Turn::text(&long).usage(1_000, 10), "the summary is not shorter"),
            (Turn::text("").usage(1_000, 10), "the summary is empty"),
            (Turn::text("It was").finish("length").usage(1_000, 10), "the summary is incomplete"),
            (
                Turn::call("look", &serde_json::json!({})).usage(1_000, 10),
                "the summary is incomplete",
            ),
        ] {
            let request = request(ScriptedModel::new([turn]).price(price()), None);
            let failed = Summarise::default().summarise(&request).await.unwrap_err();
            assert!(failed.starts_with(why), "{failed}");
            assert_eq!(spent(&request).unwrap().0, 1_010, "{why}");
        }
        let request = request(ScriptedModel::new([Turn::error(500, "oops")]), None);
        let failed = Summarise::default().summarise(&request).await.unwrap_err();
        assert!(failed.contains("oops"), "{failed}");
    }

    #[tokio::test]
    async fn small_gain_makes_no_call() {
        let model = ScriptedModel::new([Turn::text("never")]);
        let mut request = request(model.clone(), None);
        request.messages = conversation(3, 20_000);
        request.messages[2] = crate::compaction::test_support::turn(1, 10, false).1;
        let failed = Summarise::default().summarise(&request).await.unwrap_err();
        assert_eq!(
            (failed.as_str(), model.turns_left()),
            ("the old turns are too short to be worth a summary", 1)
        );
    }

    #[tokio::test]
    async fn exhausted_ceiling_makes_no_call() {
        let model = ScriptedModel::new([Turn::text("never")]).price(price());
        let mut request = request(model.clone(), Some(0.01));
        let failed = Summarise::default().summarise(&request).await.unwrap_err();
        assert!(failed.contains("ceiling on cost"), "{failed}");
        assert_eq!(request.budget().unwrap().committed(), NanoUsd::ZERO);
        let means = request.means.as_mut().unwrap();
        (means.tokens_left, means.context) = (Some(3_000), ToolContext::detached("compaction"));
        let failed = Summarise::default().summarise(&request).await.unwrap_err();
        assert!(failed.contains("ceiling on tokens"), "{failed}");
        assert_eq!((model.turns_left(), spent(&request)), (1, None));
    }

    #[tokio::test(start_paused = true)]
    async fn timed_out_summary_is_charged() {
        let slow = Turn::pieces(&["so much ", "of it"]).pace(Duration::from_secs(1_000));
        let request = request(ScriptedModel::new([slow]).price(price()), Some(1.0));
        let failed = Summarise::default().summarise(&request).await.unwrap_err();
        assert_eq!(failed, "no summary within 120s");
        let (tokens, cost, estimated) = spent(&request).unwrap();
        assert!(estimated && tokens > 500 && cost > NanoUsd::ZERO, "{tokens} {cost}");
        // More may have been generated than was received, so the ceiling counts the whole
        // reservation.
        let budget = request.budget().unwrap();
        assert!(budget.spent() > cost, "{}", budget.spent());
        assert_eq!(budget.reserved(), NanoUsd::ZERO);
    }

    #[test]
    fn prompt_text_is_fixed() {
        let messages = conversation(2, 3);
        let old: Vec<&Message> = messages[1..3].iter().collect();
        let expected = "The task:\nRead all of it.\n\n\
            The part of the conversation to summarise:\n\
            The agent: I look at 1.\nThe agent calls look {}\nOutput of look (ok): xxx\n\n\
            Summarise this part.";
        assert_eq!(prompt(messages.first(), &old, 20_000), expected);
    }

    #[test]
    fn prompt_is_bounded_and_keeps_newest() {
        let messages = conversation(100, 10_000);
        let old: Vec<&Message> = messages[1..].iter().collect();
        let prompt = prompt(messages.first(), &old, 20_000);
        assert!(prompt.len() < 22_000, "{}", prompt.len());
        assert!(prompt.contains("Read all of it.") && prompt.contains("I look at 100."));
        assert!(prompt.contains("[earlier messages omitted]") && !prompt.contains("I look at 50."));
        assert!(prompt.contains("[… 5904 bytes more]"));
    }
}
