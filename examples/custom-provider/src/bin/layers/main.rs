//! Layers around a provider: a log of its calls, a cache of its answers, and a second provider that
//! is called if the first one fails.
//!
//! A layer implements [`ProviderLayer`](endstop::provider::layer::ProviderLayer), which forwards each
//! method that the layer does not change. Run the example with
//! `cargo run -p custom-provider --bin layers`.
#![allow(clippy::print_stdout, reason = "the example prints its results")]

mod cache;
mod fallback;
mod log;
#[cfg(test)]
mod tests;

use cache::Cache;
use endstop::provider::layer::ProviderExt as _;
use endstop::testkit::{ScriptedModel, Turn};
use endstop::{Agent, Price};
use fallback::Fallback;
use log::{Ended, Log};
use std::error::Error;
use std::time::Duration;

fn print(took: Duration, ended: Ended) {
    match ended {
        Ended::Response(Some(signal)) => println!("call: {took:?}, {}", signal.reason),
        Ended::Response(None) => println!("call: {took:?}, unknown reason"),
        Ended::Failed(error) => println!("call: {took:?}, {error}"),
        Ended::Aborted => println!("call: {took:?}, aborted"),
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let first = ScriptedModel::new([Turn::error(529, "overloaded")])
        .price(Price::usd_per_million_tokens(3.0, 15.0));
    let second = ScriptedModel::new([Turn::text("Paris.").usage(1000, 10)])
        .price(Price::usd_per_million_tokens(1.0, 5.0));
    // The layer added last sees a call first: the cache is asked before either provider, and each
    // provider has a log of its own.
    let model = first
        .layer(Log(print))
        .layer(Fallback::to(second.layer(Log(print))))
        .layer(Cache::default());
    let agent = Agent::builder(model).build()?;
    for _ in 0..2 {
        let outcome = agent.run("What is the capital of France?")?.outcome().await;
        println!("{}: {} USD", outcome.termination, outcome.cost.to_usd());
    }
    Ok(())
}
