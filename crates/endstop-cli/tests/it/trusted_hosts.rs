//! The hosts to which a key may be sent: other machines over `http://`, proxies, and a query in the
//! base URL.

use crate::cli::{Cli, Done, OPENAI_KEY, Started, agent_args, playing};
use endstop::testkit::{Server, Turn};

fn run_with(cli: &Cli, args: &[&str], environment: &[(&str, &str)]) -> Done {
    let mut command = cli.command(args);
    command.envs(environment.iter().copied());
    Started::new(command, "").finish()
}

/// A proxy at which no process listens.
const DEAD: &str = "http://127.0.0.1:1";

#[test]
fn loopback_uses_no_proxy() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    for variable in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "https_proxy"] {
        for host in ["127.0.0.1", "localhost"] {
            let url = server.base_url().replace("127.0.0.1", host);
            let args = ["run", "Hi.", "--model", "x", "--base-url", &url];
            run_with(&cli, &args, &[(variable, DEAD)]).exits(0);
        }
        run_with(&cli, &["demo", "filtered"], &[(variable, DEAD)]).exits(30);
    }
    let ollama = server.base_url().replace("/v1", "");
    let args = ["run", "Hi.", "--model", "ollama/x"];
    let variables = [("OLLAMA_HOST", ollama.as_str()), ("http_proxy", DEAD)];
    run_with(&cli, &args, &variables);
    assert!(server.requests().iter().any(|request| request.path == "/api/chat"));
    // Requests to an MCP server use none either.
    let flag = format!("x={}/mcp", server.base_url());
    let args = ["run", "Hi.", "--model", "x", "--base-url", &server.base_url(), "--mcp", &flag];
    run_with(&cli, &args, &[("http_proxy", DEAD)]).exits(2);
    assert!(server.requests().iter().any(|request| request.path == "/v1/mcp"));
}

#[test]
fn other_hosts_use_the_proxy() {
    let cli = Cli::new();
    let proxy: Server = playing([Turn::text("Yes.")]);
    let address = proxy.base_url().replace("/v1", "");
    let url = "http://192.0.2.1/v1";
    let args = ["run", "Hi.", "--model", "x", "--base-url", url, "--allow-http"];
    run_with(&cli, &args, &[("http_proxy", &address)]).exits(0);
    assert_eq!(proxy.requests()[0].path, "http://192.0.2.1/v1/chat/completions");
}

#[test]
fn keys_are_not_sent_unencrypted() {
    let cli = Cli::new();
    // The proxy sees every request that would leave this machine.
    let proxy: Server = playing([Turn::text("Yes.")]);
    let address = proxy.base_url().replace("/v1", "");
    let proxied = ("http_proxy", address.as_str());
    let refused = |args: &[&str], variables: &[(&str, &str)], says: &str| {
        let done = run_with(&cli, args, &[variables, &[proxied]].concat());
        done.exits(2).notes(&[says, "unencrypted", "--allow-http"]);
        assert_eq!(proxy.requests().len(), 0, "{args:?}");
    };
    for host in ["192.0.2.1", "host.example", "localhost.example.com", "[2001:db8::1]:8080"] {
        let url = format!("http://{host}/v1");
        refused(&["run", "Hi.", "--model", "x", "--base-url", &url], &[], "OpenAI");
        let args = ["run", "Hi.", "--model", "openai/x"];
        refused(&args, &[("OPENAI_BASE_URL", &url)], "unset OPENAI_API_KEY");
    }
    let url = "http://me:pw@192.0.2.1/v1";
    refused(&["run", "Hi.", "--model", "ollama/x", "--base-url", url], &[], "192.0.2.1");
    refused(
        &["run", "Hi.", "--model", "ollama/x"],
        &[("OLLAMA_HOST", "192.0.2.1"), ("OLLAMA_API_KEY", "abc")],
        "unset OLLAMA_API_KEY",
    );
    // Without a key there is nothing to protect.
    let plain = ["run", "Hi.", "--model", "ollama/x", "--api", "openai-chat"];
    run_with(&cli, &plain, &[("OLLAMA_HOST", "192.0.2.1"), proxied]).exits(0);
    // With the user's consent it is sent.
    let allowed = ["run", "Hi.", "--model", "x", "--base-url", "http://192.0.2.1/v1"];
    run_with(&cli, &[&allowed[..], &["--allow-http"]].concat(), &[proxied]).exits(0);
    let sent = proxy.requests().pop().unwrap();
    assert_eq!(sent.headers["authorization"], format!("Bearer {OPENAI_KEY}"));
}

#[test]
fn mcp_headers_are_not_sent_unencrypted() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    let address = server.base_url().replace("/v1", "");
    for (toml, says) in [
        (
            "url = \"http://192.0.2.1/mcp\"\nheaders = { Authorization = \"Bearer x\" }",
            "its headers",
        ),
        ("url = \"http://192.0.2.1/mcp\"\nheaders = { X-A = \"$OPENAI_API_KEY\" }", "its headers"),
        ("url = \"http://192.0.2.1/mcp?q=$OPENAI_API_KEY\"", "its variables"),
        ("url = \"http://192.0.2.1/$OPENAI_API_KEY\"", "its variables"),
    ] {
        cli.write("c.toml", format!("[mcp.x]\n{toml}\n"));
        let args = agent_args(&server, "openai-chat", &["Hi.", "--config", "c.toml"]);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let done = run_with(&cli, &args, &[("http_proxy", &address)]).exits(2);
        done.notes(&[says, "unencrypted", "--allow-http"]);
        assert_eq!(server.requests().len(), 0, "{toml}");
    }
}

#[test]
fn base_url_query_follows_the_path() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    for (base, path) in [
        ("/v1?api_key=x1", "/v1/chat/completions?api_key=x1"),
        ("/v1/?a=b/c&d=e", "/v1/chat/completions?a=b/c&d=e"),
        ("?tenant=7", "/chat/completions?tenant=7"),
        ("/v1?", "/v1/chat/completions"),
    ] {
        let url = server.base_url().replace("/v1", base);
        run_with(&cli, &["run", "Hi.", "--model", "x", "--base-url", &url], &[]).exits(0);
        assert_eq!(server.requests().pop().unwrap().path, path);
    }
    // A base URL with its own query.
    let url = server.base_url().replace("/v1", "?key=x1");
    let args = ["run", "Hi.", "--model", "gemini/x", "--base-url", &url, "--api", "gemini"];
    run_with(&cli, &args, &[("GEMINI_API_KEY", "abc")]);
    let path = server.requests().pop().unwrap().path;
    assert_eq!(path, "/v1beta/models/x:streamGenerateContent?alt=sse&key=x1");
    let url = format!("{}#top", server.base_url());
    let args = ["run", "Hi.", "--model", "x", "--base-url", &url];
    run_with(&cli, &args, &[]).exits(2).notes(&["--base-url", "fragment"]);
}
