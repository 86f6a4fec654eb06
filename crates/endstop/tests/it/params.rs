//! Request parameters: of an agent and of a run, in the requests, in the journal, and refused when
//! the agent is built.

use crate::support::over;
use endstop::provider::http::HttpProvider;
use endstop::provider::{CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec};
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::wire::endpoint::Secret;
use endstop::{
    Agent, AgentBuilder, BuildError, ModelParams, RunInput, StartError, Termination, Thinking,
    ToolChoice,
};
use serde_json::{Map, Value, json};

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers.get(name).map(String::as_str)
}

fn server() -> Server {
    Server::start(|request| Reply::turn(request, &Turn::text("fine"))).unwrap()
}

fn with_header(name: &str, value: &str) -> ModelParams {
    ModelParams { headers: vec![(name.into(), Secret::new(value))], ..ModelParams::default() }
}

fn acting(builder: AgentBuilder) -> AgentBuilder {
    builder
        .tool(tool_fn("act", "Acts.", |_: Map<String, Value>, _| async { ToolOutput::ok("done") }))
}

fn refused(builder: AgentBuilder) -> String {
    match builder.build() {
        Err(error @ BuildError::Params(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn agent_and_run_parameters_reach_request() {
    let server = server();
    let params = ModelParams {
        temperature: Some(0.25),
        seed: Some(7),
        tool_choice: Some(ToolChoice::Tool("act".to_owned())),
        ..with_header("X-Team", "blue")
    };
    let agent = acting(over(&server, "openai-chat")).params(params).build().unwrap();
    agent.run("one").unwrap().await;
    let own = ModelParams { temperature: Some(0.75), ..with_header("x-team", "red") };
    agent.run(RunInput::new("two").params(own)).unwrap().await;
    agent.run("three").unwrap().await;
    let requests = server.requests();
    let bodies: Vec<&Value> = requests.iter().map(|request| &request.body).collect();
    assert_eq!(
        [&bodies[0]["temperature"], &bodies[1]["temperature"], &bodies[2]["temperature"]],
        [0.25, 0.75, 0.25]
    );
    for body in bodies {
        assert_eq!(body["seed"], 7);
        assert_eq!(body["tool_choice"], json!({"type": "function", "function": {"name": "act"}}));
    }
    let teams: Vec<&str> =
        requests.iter().map(|request| header(request, "x-team").unwrap()).collect();
    assert_eq!(teams, ["blue", "red", "blue"]);
}

#[tokio::test]
async fn unsupported_parameter_refuses_the_build() {
    let server = server();
    let seed = ModelParams { seed: Some(1), ..ModelParams::default() };
    let problem = refused(over(&server, "anthropic-messages").params(seed.clone()));
    assert!(problem.starts_with("`seed` is not a parameter of anthropic-messages; "), "{problem}");
    // Also a parameter of a single run.
    let agent = over(&server, "anthropic-messages").build().unwrap();
    let problem = agent.run(RunInput::new("go").params(seed)).unwrap_err();
    assert!(matches!(problem, StartError::Params(_)), "{problem}");
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn contradictions_refuse_the_build() {
    let server = server();
    let unknown =
        ModelParams { tool_choice: Some(ToolChoice::Tool("fly".into())), ..Default::default() };
    let problem = refused(acting(over(&server, "openai-chat")).params(unknown));
    assert!(problem.contains("unknown tool `fly`") && problem.contains("act, finish"), "{problem}");
    let thinks = || ModelParams { thinking: Some(Thinking::Budget(2000)), ..Default::default() };
    let forced = ModelParams { tool_choice: Some(ToolChoice::Required), ..thinks() };
    let problem = refused(acting(over(&server, "anthropic-messages")).params(forced));
    assert!(problem.contains("contradicts `thinking`"), "{problem}");
    let capped = over(&server, "anthropic-messages").params(thinks()).max_output_tokens(2000);
    assert!(refused(capped).contains("thinking budget of 2000 tokens"));
    for (name, value, expected) in [
        ("x team", "a", "expected a header name"),
        ("x-team", "a\r\nb: c", "not allowed in a header"),
        ("Content-Length", "1", "the client sets this header itself"),
    ] {
        let problem = refused(over(&server, "openai-chat").params(with_header(name, value)));
        assert!(problem.contains(expected), "{problem}");
    }
    let twice = ModelParams {
        headers: vec![
            ("authorization".into(), Secret::new("Bearer one")),
            ("Authorization".into(), Secret::new("Bearer two")),
        ],
        ..ModelParams::default()
    };
    let problem = refused(over(&server, "openai-chat").params(twice));
    assert!(problem.contains("`authorization` is given twice"), "{problem}");
    assert!(!problem.contains("Bearer"), "{problem}");
}

#[tokio::test]
async fn second_credential_is_refused() {
    let server = server();
    let with_key = |base_url: String| {
        let options =
            HttpProvider::builder("openai/gpt-4.1-mini").base_url(base_url).allow_http(true);
        let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk-own".to_owned());
        Agent::builder(options.env(key).build().unwrap())
    };
    for name in ["authorization", "X-Api-Key", "api-key"] {
        let agent = with_key(server.base_url()).params(with_header(name, "hush-hush"));
        let problem = refused(agent);
        assert!(problem.contains("contradicts the key"), "{problem}");
        assert!(!problem.contains("hush"), "{problem}");
    }
    // A server without a key takes one as a header.
    let agent = over(&server, "openai-chat").params(with_header("Authorization", "Bearer x"));
    assert_eq!(agent.build().unwrap().run("go").unwrap().await.termination, Termination::Stop);
    assert_eq!(header(&server.requests()[0], "authorization"), Some("Bearer x"));
}

#[test]
fn headers_are_not_sent_unencrypted() {
    let builder = crate::support::at("http://model.example/v1", "openai-chat");
    let problem = refused(builder.params(with_header("x-team", "hush-hush")));
    assert!(problem.contains("unencrypted") && problem.contains("model.example"), "{problem}");
}

/// A provider that ignores parameters.
struct Plain;

impl Provider for Plain {
    fn name(&self) -> &str {
        "plain"
    }
    fn model(&self) -> &str {
        "plain"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(Plain)
    }
    fn is_terminal(&self, _: &Response) -> bool {
        true
    }
}

impl ModelSession for Plain {
    fn call(&mut self, _: CallSpec<'_>) -> CallStream {
        unreachable!("no run starts")
    }
}

#[test]
fn provider_without_parameters_refuses_them() {
    let params = ModelParams { temperature: Some(1.0), ..ModelParams::default() };
    let problem = refused(Agent::builder(Plain).params(params));
    assert!(problem.starts_with("`temperature` is not a parameter of the provider `plain`"));
    assert!(Agent::builder(Plain).build().is_ok());
}

#[cfg(feature = "journal")]
#[tokio::test]
async fn journal_has_parameters_without_header_values() {
    use endstop::Resume;
    use endstop::journal::SqliteJournal;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal.db");
    let journal = SqliteJournal::open(&file).unwrap();
    // The server returns the header's value, as some do in their errors.
    let server = Server::start(|request| {
        let team = header(request, "x-team").unwrap_or("no team");
        Reply::turn(request, &Turn::text(format!("you are {team}")).finish("length"))
    })
    .unwrap();
    let agent = |params: ModelParams| {
        over(&server, "openai-chat").journal(journal.clone()).params(params).build().unwrap()
    };
    let params =
        || ModelParams { temperature: Some(0.5), ..with_header("X-Team", "hush-hush-4711") };
    let outcome = agent(params()).run("who am I?").unwrap().await;
    assert_eq!(outcome.termination, Termination::ErrorOutputTruncated);
    let id = outcome.run_id.unwrap();
    let recorded = journal.load(&id).unwrap();
    assert_eq!(recorded.header.params, Some(json!({"temperature": 0.5, "headers": ["x-team"]})));
    // Other parameters are reported like any other changed configuration.
    let other = ModelParams { temperature: Some(0.9), ..params() };
    match agent(other).resume(Resume::new(&id).accept_redacted()) {
        Err(StartError::Changed(changes)) => {
            assert_eq!(changes.len(), 1, "{changes:?}");
            assert_eq!(changes[0].what, "parameters");
        }
        other => panic!("{other:?}"),
    }
    let same = agent(params()).resume(Resume::new(&id).accept_redacted());
    assert!(!matches!(same, Err(StartError::Changed(_))), "{same:?}");
    drop(same);
    // Parameters of the resumed run replace the agent's.
    let other = ModelParams { temperature: Some(0.9), ..params() };
    let own = ModelParams { temperature: Some(0.5), ..ModelParams::default() };
    let same = agent(other).resume(Resume::new(&id).params(own).accept_redacted());
    assert!(!matches!(same, Err(StartError::Changed(_))), "{same:?}");
    drop(same);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
        assert!(!bytes.windows(14).any(|window| window == b"hush-hush-4711"));
    }
}

#[tokio::test]
async fn recording_has_no_header_value() {
    use endstop::provider::record::Recorder;
    let server = server();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.jsonl");
    let options = HttpProvider::builder("script").api("openai-chat").base_url(server.base_url());
    let recorder = Recorder::create(&path).unwrap();
    let provider = options.env(|_| None).build().unwrap().record(&recorder).unwrap();
    let params = with_header("X-Team", "hush-hush-4711");
    let agent = Agent::builder(provider).params(params).build().unwrap();
    recorder.ended(&agent.run("go").unwrap().await);
    assert_eq!(header(&server.requests()[0], "x-team"), Some("hush-hush-4711"));
    assert!(!std::fs::read_to_string(&path).unwrap().contains("hush"));
}
