//! Prompt caching in runs: marks and prefixes of a long run, the setting, the prices, and what the
//! outcome says about it.

use crate::support::{agent, over};
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, ScriptedModel, Server, Turn, cache_rules, strict};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::{
    Agent, AgentBuilder, BuildError, Caching, Limits, ModelParams, NanoUsd, Outcome, Price,
    RunInput, Termination, core::NanoUsdChange,
};
use serde_json::{Map, Value, json};
use std::collections::HashSet;

const TURNS: usize = 30;

/// Number of blocks before a mark among which a provider looks for an earlier entry.
const LOOKBACK: usize = 20;

fn claude(server: &Server, api: &str) -> AgentBuilder {
    let address = server.base_url().replace("/v1", "");
    let options =
        HttpProvider::builder("bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0").api(api);
    let env = move |name: &str| match name {
        "AWS_ENDPOINT_URL" => Some(address.clone()),
        "AWS_REGION" => Some("us-east-1".to_owned()),
        "AWS_BEARER_TOKEN_BEDROCK" => Some("t".to_owned()),
        _ => None,
    };
    Agent::builder(options.env(env).build().unwrap())
}

fn with_tools(builder: AgentBuilder) -> AgentBuilder {
    let read =
        tool_fn("read", "Reads a part of a file.", |asked: Map<String, Value>, _| async move {
            ToolOutput::ok(format!("{}: {}", asked["at"], "line of text ".repeat(40)))
        });
    let count = tool_fn("count", "Counts the lines of a file.", |_: Map<String, Value>, _| async {
        ToolOutput::ok("17 lines")
    });
    builder.tool(read).tool(count).system("You read files and answer briefly. ".repeat(20))
}

/// A run of 30 turns; every tenth turn has 24 calls, more than the provider looks back.
async fn long_run(api: &str) -> Vec<Value> {
    let turns = (1..TURNS).map(|turn| {
        let calls = if turn % 10 == 0 { 24 } else { 1 + turn % 2 };
        (0..calls).fold(Turn::text(format!("I look at part {turn}.")), |said, call| {
            said.and_call("read", &json!({"at": format!("{turn}.{call}")}))
        })
    });
    let server = Server::script(turns.chain([Turn::text("Done.")]));
    let server = server.unwrap();
    let builder =
        if api.starts_with("bedrock") { claude(&server, api) } else { over(&server, api) };
    let limits = Limits { max_turns: Some(40), ..Limits::default() };
    let agent = with_tools(builder).limits(limits).build().unwrap();
    let outcome = agent.run("Read it all.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{api}: {:?}", outcome.decided_by);
    server.requests().into_iter().map(|request| request.body).collect()
}

/// A part of a prompt, in the order in which a provider reads it.
struct Block {
    text: String,
    marked: bool,
}

/// Returns the parts of a request's prompt: tools, system, then the conversation.
fn prompt(body: &Value) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    let mut add = |place: &str, value: &Value| {
        let mut value = value.clone();
        if value.get("cachePoint").is_some() {
            return all.last_mut().unwrap().marked = true;
        }
        let mark = value.as_object_mut().and_then(|fields| fields.shift_remove("cache_control"));
        all.push(Block { text: format!("{place}{value}"), marked: mark.is_some() });
    };
    let lists = ["/tools", "/toolConfig/tools", "/system", "/systemInstruction/parts"];
    for path in lists {
        let list = body.pointer(path).and_then(Value::as_array);
        list.into_iter().flatten().for_each(|item| add(path, item));
    }
    add("instructions", &body["instructions"]);
    let history = ["messages", "contents", "input"].iter().find_map(|name| body[*name].as_array());
    for message in history.unwrap() {
        let role = message["role"].as_str().unwrap_or_default();
        let parts = ["content", "parts"].iter().find_map(|name| message[*name].as_array());
        // A message of Anthropic's formats and of Gemini may continue in the next request.
        match parts.filter(|_| message.as_object().unwrap().len() == 2) {
            Some(parts) => parts.iter().for_each(|part| add(role, part)),
            None => add(role, message),
        }
    }
    all
}

fn bytes(blocks: &[Block]) -> usize {
    blocks.iter().map(|block| block.text.len()).sum()
}

/// Returns the prefix of a prompt as one string.
fn prefix(blocks: &[Block]) -> String {
    blocks.iter().map(|block| block.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// A provider's cache: it stores the prefix that ends at each mark, and finds an earlier one at most
/// [`LOOKBACK`] blocks before a mark.
#[derive(Default)]
struct Cache(HashSet<String>);

impl Cache {
    /// Returns the number of leading blocks that are read from the cache, and under a mark.
    fn take(&mut self, blocks: &[Block]) -> (usize, usize) {
        let marks: Vec<usize> = (1..=blocks.len()).filter(|end| blocks[end - 1].marked).collect();
        let hit = |mark: usize| {
            let window = mark.saturating_sub(LOOKBACK - 1).max(1)..=mark;
            window.rev().find(|end| self.0.contains(&prefix(&blocks[..*end])))
        };
        let read = marks.iter().filter_map(|mark| hit(*mark)).max().unwrap_or(0);
        self.0.extend(marks.iter().map(|mark| prefix(&blocks[..*mark])));
        (read, marks.last().copied().unwrap_or(0))
    }
}

/// Share of all input in percent.
fn share(part: usize, all: usize) -> f64 {
    part as f64 * 100.0 / all as f64
}

#[tokio::test]
async fn long_run_reads_most_input_from_cache() {
    println!("{:<20} {:>10} {:>14} {:>16}", "format", "marked", "read", "unchanged prefix");
    for api in [
        "anthropic-messages",
        "bedrock-converse",
        "bedrock-invoke",
        "openai-chat",
        "openai-responses",
        "gemini",
        "cohere-v2",
        "ollama",
    ] {
        let requests = long_run(api).await;
        assert_eq!(requests.len(), TURNS, "{api}");
        let mut cache = Cache::default();
        let (mut all, mut marked, mut read, mut unchanged) = (0, 0, 0, 0);
        let mut before: Vec<Block> = Vec::new();
        for (at, body) in requests.iter().enumerate() {
            let rules = if api == "bedrock-invoke" { "anthropic-messages" } else { api };
            assert_eq!(cache_rules::problem(rules, body), None, "{api}, request {at}");
            if matches!(rules, "anthropic-messages" | "openai-chat") {
                assert_eq!(strict::problem(rules, body), None, "{api}, request {at}");
            }
            let blocks = prompt(body);
            let (hit, under) = cache.take(&blocks);
            // The whole previous prompt is a prefix of this one, without the marks.
            let same = |(then, now): &(&Block, &Block)| then.text == now.text;
            let common = before.iter().zip(&blocks).take_while(same).count();
            assert_eq!(common, before.len(), "{api}, request {at}");
            all += bytes(&blocks);
            marked += bytes(&blocks[..under]);
            read += bytes(&blocks[..hit]);
            unchanged += bytes(&blocks[..common]);
            before = blocks;
        }
        let [marked, read, unchanged] = [marked, read, unchanged].map(|part| share(part, all));
        println!("{api:<20} {marked:>9.1}% {read:>13.1}% {unchanged:>15.1}%");
        assert!(unchanged > 85.0, "{api}: {unchanged}");
        if matches!(api, "anthropic-messages" | "bedrock-converse" | "bedrock-invoke") {
            assert!(marked > 99.9, "{api}: {marked}");
            // The second mark in the conversation finds the previous entry after any turn.
            assert!((read - unchanged).abs() < 0.1, "{api}: {read} of {unchanged}");
        }
    }
}

fn marks_of(server: &Server) -> Vec<usize> {
    let count = |body: &Value| body.to_string().matches("\"cache_control\"").count();
    server.requests().iter().map(|request| count(&request.body)).collect()
}

#[tokio::test]
async fn run_overrides_caching_of_agent() {
    let server = Server::start(|request| Reply::turn(request, &Turn::text("fine"))).unwrap();
    let build = |builder: AgentBuilder| with_tools(builder).build().unwrap();
    build(over(&server, "anthropic-messages")).run("one").unwrap().await;
    let off = build(over(&server, "anthropic-messages").cache(Caching::Off));
    off.run("two").unwrap().await;
    let hour = ModelParams { cache: Some(Caching::OneHour), ..ModelParams::default() };
    off.run(RunInput::new("three").params(hour)).unwrap().await;
    assert_eq!(marks_of(&server), [3, 0, 3]);
    assert_eq!(server.requests()[2].body["system"][0]["cache_control"]["ttl"], "1h");
}

#[tokio::test]
async fn session_runs_share_the_prefix() {
    let server = Server::start(|request| Reply::turn(request, &Turn::text("fine"))).unwrap();
    let agent = with_tools(over(&server, "anthropic-messages")).build().unwrap();
    let session = agent.session();
    session.run("one").unwrap().await;
    session.run("two").unwrap().await;
    let requests = server.requests();
    let (first, second) = (prompt(&requests[0].body), prompt(&requests[1].body));
    let ends = |blocks: &[Block]| blocks.iter().map(|block| block.marked).collect::<Vec<_>>();
    // The second run marks the end of the first run's request, although it encodes anew.
    assert!(second[first.len() - 1].marked, "{:?}", ends(&second));
    assert!(prefix(&second).starts_with(&prefix(&first)));
}

#[tokio::test]
async fn unavailable_lifetime_refuses_the_build() {
    let server = Server::start(|request| Reply::turn(request, &Turn::text("fine"))).unwrap();
    for api in ["openai-chat", "openai-responses", "gemini", "cohere-v2", "ollama"] {
        let refused = over(&server, api).cache(Caching::OneHour).build();
        let Err(BuildError::Params(problem)) = refused else { panic!("{api}: {refused:?}") };
        assert!(problem.to_string().starts_with("invalid `cache`: expected off or auto"), "{api}");
        assert!(over(&server, api).cache(Caching::Off).build().is_ok(), "{api}");
    }
}

fn price() -> Price {
    Price {
        input: NanoUsd::from_usd(3.0),
        output: NanoUsd::from_usd(15.0),
        cached_input: Some(NanoUsd::from_usd(0.3)),
        cache_write: Some(NanoUsd::from_usd(3.75)),
        ..Price::default()
    }
}

async fn priced(builder: AgentBuilder) -> Outcome {
    with_tools(builder.price(price())).build().unwrap().run("Go.").unwrap().await
}

#[tokio::test]
async fn outcome_reports_use_of_cache() {
    let look = json!({"at": "1"});
    let turns = || {
        let first = Turn::call("read", &look).usage(10_000, 20).cached(0, 9_000);
        [first, Turn::text("Done.").usage(11_000, 10).cached(9_000, 1_500)]
    };
    let server = Server::script(turns()).unwrap();
    for builder in [agent(turns()), over(&server, "anthropic-messages")] {
        let outcome = priced(builder).await;
        let cache = outcome.cache.unwrap();
        assert_eq!((cache.read_tokens, cache.write_tokens), (9_000, 10_500));
        // 9000 tokens for 0.30 instead of 3 dollars per million, 10,500 for 3.75.
        assert_eq!(cache.saved, Some(NanoUsdChange(24_300_000 - 7_875_000)));
        let plain = price().cost(&endstop::Usage {
            input_tokens: Some(21_000),
            output_tokens: Some(30),
            ..endstop::Usage::default()
        });
        assert_eq!(outcome.cost.0 as i64, plain.0 as i64 - (24_300_000 - 7_875_000));
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(json["cache"]["saved_usd"], 0.016_425);
        assert_eq!(serde_json::from_value::<Outcome>(json).unwrap().cache, outcome.cache);
    }
}

#[tokio::test]
async fn uncached_outcome_has_no_cache_field() {
    let outcome = priced(agent([Turn::text("Done.").usage(100, 10).cached(0, 0)])).await;
    assert_eq!(outcome.cache, None);
    assert!(serde_json::to_value(&outcome).unwrap().get("cache").is_none());
    // Without a price, only the tokens are known.
    let turn = Turn::text("Done.").usage(100, 10).cached(50, 0);
    let outcome = agent([turn]).build().unwrap().run("Go.").unwrap().await;
    let cache = outcome.cache.unwrap();
    assert_eq!((cache.read_tokens, cache.saved), (50, None));
}

#[tokio::test]
async fn ceiling_reserves_the_dearest_write() {
    // The prompt is quoted by its bytes; an entry for an hour costs 6 dollars per million tokens.
    let run = |caching: Caching, dollars: f64| async move {
        let model = ScriptedModel::new([Turn::text("Done.").usage(100, 10)]).price(price());
        let agent = Agent::builder(model).cache(caching).max_output_tokens(256);
        let limits = Limits { max_budget_usd: Some(dollars), ..Limits::default() };
        let agent = agent.limits(limits).build().unwrap();
        agent.run("x".repeat(100_000)).unwrap().await.termination
    };
    // 100,000 bytes for at most 0.375 dollars, or 0.60 for an hour.
    assert_eq!(run(Caching::Auto, 0.45).await, Termination::Stop);
    assert_eq!(run(Caching::OneHour, 0.45).await, Termination::ErrorMaxBudgetUsd);
    assert_eq!(run(Caching::OneHour, 0.65).await, Termination::Stop);
}
