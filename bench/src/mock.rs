//! Client side of the scripted model server, and an agent that uses it. The name of a model selects
//! its script, for example `loop-50`.

use endstop::Agent;
use endstop::Limits;
use endstop::provider::http::HttpProvider;
use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

type Failure = Box<dyn std::error::Error>;

/// Returns the address of the server.
pub(crate) fn address() -> String {
    format!("127.0.0.1:{}", std::env::var("MOCK_PORT").unwrap_or_else(|_| "8099".to_owned()))
}

/// Returns the base URL of its API.
pub(crate) fn base() -> String {
    format!("http://{}/v1", address())
}

/// Returns the limits of all runs: the defaults, but without a limit on turns, because the script
/// decides their number.
pub(crate) fn limits() -> Limits {
    Limits { max_turns: None, max_unproductive_turns: None, ..Limits::default() }
}

/// Queries the state of the server, for example its statistics.
// A plain socket, so that the query does not use a connection of the provider under test.
pub(crate) async fn ask(path: &str) -> Result<Value, Failure> {
    let mut stream = TcpStream::connect(address()).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let (_, body) = text.split_once("\r\n\r\n").ok_or("no body")?;
    Ok(serde_json::from_str(body)?)
}

/// Returns a provider of this model, with its own connections.
pub(crate) fn provider(model: &str) -> Result<HttpProvider, Failure> {
    let options = HttpProvider::builder(format!("openai/{model}")).base_url(base());
    Ok(options.env(|name| (name == "OPENAI_API_KEY").then(|| "x".to_owned())).build()?)
}

/// Returns a loop over a provider, with the tool `echo`.
pub(crate) fn agent(provider: &HttpProvider, streaming: bool) -> Result<Agent, Failure> {
    let builder = Agent::builder(provider.clone())
        .limits(limits())
        .tool(Echo)
        // The floor client offers only `echo`; a further tool would make the requests longer.
        .finish_tool(false)
        .streaming(streaming);
    Ok(builder.build()?)
}

/// The tool `echo`, which returns its argument.
pub(crate) struct Echo;

impl Tool for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }
    fn description(&self) -> &'static str {
        "Echo the text."
    }
    fn schema(&self) -> Value {
        json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
    }
    fn call(&self, arguments: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(std::future::ready(echo(&arguments)))
    }
}

/// Runs the tool; item `k` calls it without a loop.
pub(crate) fn echo(arguments: &Map<String, Value>) -> ToolOutput {
    match arguments.get("text").and_then(Value::as_str) {
        Some(text) => ToolOutput::ok(text),
        None => ToolOutput::error("there is no `text`"),
    }
}
