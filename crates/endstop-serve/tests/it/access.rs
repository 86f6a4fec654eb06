//! Access: tokens, agents of tokens, other websites, and addresses that others can reach.

use crate::support::{Lab, Scripted, Setup};
use endstop::journal::SqliteJournal;
use endstop_serve::{Agents, ServeOptions, Server, Tokens};
use serde_json::json;
use tempfile::TempDir;

const ALL: &str = "token-of-everything";
const ECHO: &str = "token-of-the-echo-agent";

async fn lab() -> Lab {
    setup().start().await
}

fn setup() -> Setup {
    let file = "[tokens.all]\ntoken = \"$ALL\"\n[tokens.echo]\ntoken = \"token-of-the-echo-agent\"\n\
                agents = [\"echo\"]\n[tokens.none]\n\
                sha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\n\
                agents = []\n";
    let tokens = Tokens::parse(file, |name| (name == "ALL").then(|| ALL.to_owned())).unwrap();
    let agents = vec![("echo", Scripted::echo()), ("other", Scripted::echo())];
    Setup { tokens, ..Setup::of(agents) }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_token_are_refused() {
    let lab = lab().await;
    let body = json!({"agent": "echo", "task": "Hi."});
    for headers in [
        String::new(),
        bearer("wrong-token-wrong-token"),
        bearer(""),
        bearer(&ALL[1..]),
        format!("authorization: Basic {ALL}\r\n"),
        format!("authorization: {ALL}\r\n"),
        format!("{}{}", bearer(ALL), bearer(ALL)),
        format!("x-endstop-token: {ALL}\r\n"),
        format!("cookie: token={ALL}\r\n"),
    ] {
        for path in ["/v1/runs", "/v1/agents", "/metrics", "/v1/openapi.json", "/v1/runs/x/events"]
        {
            let answer = lab.ask(&format!("GET {path}"), &headers, "").await;
            assert_eq!((answer.status, answer.code().as_str()), (401, "unauthorized"), "{headers}");
            assert!(answer.head.contains("www-authenticate: bearer"), "{answer:?}");
            assert!(!answer.body.contains(ALL), "{answer:?}");
        }
        assert_eq!(lab.post_with("/v1/runs", &headers, &body).await.status, 401);
    }
    let started = lab.post_with("/v1/runs", &bearer(ALL), &body).await;
    assert_eq!(started.status, 201, "{started:?}");
    // The page itself has nothing of a run, so it needs no token.
    assert_eq!(lab.get("/").await.status, 200);
    assert_eq!(lab.get("/healthz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_bound_to_agents() {
    let lab = lab().await;
    let other = json!({"agent": "other", "task": "Hi."});
    let refused = lab.post_with("/v1/runs", &bearer(ECHO), &other).await;
    assert_eq!((refused.status, refused.code().as_str()), (404, "unknown_agent"));
    let unknown = json!({"agent": "nonsense", "task": "Hi."});
    let unknown = lab.post_with("/v1/runs", &bearer(ECHO), &unknown).await;
    // An agent of another token looks like one that does not exist.
    assert_eq!(unknown.body, refused.body);
    let theirs = lab.post_with("/v1/runs", &bearer(ALL), &other).await.json();
    let theirs = theirs["run_id"].as_str().unwrap();
    let own = json!({"agent": "echo", "task": "Hi."});
    let own = lab.post_with("/v1/runs", &bearer(ECHO), &own).await.json();
    let own = own["run_id"].as_str().unwrap();
    for (id, expected) in [(theirs, 404), (own, 200)] {
        for path in [format!("/v1/runs/{id}"), format!("/v1/runs/{id}/events")] {
            let answer = lab.ask(&format!("GET {path}"), &bearer(ECHO), "").await;
            assert_eq!(answer.status, expected, "{path}");
        }
    }
    let (empty, text, limits) = (json!({}), json!({"text": "x"}), json!({"limits": {}}));
    let turn = json!({"turn": 0});
    let bodies = [
        ("cancel", &empty),
        ("terminate", &empty),
        ("say", &text),
        ("limits", &limits),
        ("branch", &turn),
    ];
    for (what, body) in bodies {
        let path = format!("/v1/runs/{theirs}/{what}");
        assert_eq!(lab.post_with(&path, &bearer(ECHO), body).await.status, 404, "{path}");
    }
    let answer = json!({"request_id": 1, "decision": "allow"});
    let path = format!("/v1/runs/{theirs}/answer");
    assert_eq!(lab.post_with(&path, &bearer(ECHO), &answer).await.status, 404);
    let list = async |token: &str, query: &str| {
        let answer = lab.ask(&format!("GET /v1/runs{query}"), &bearer(token), "").await.json();
        answer["runs"].as_array().unwrap().len()
    };
    assert_eq!((list(ALL, "").await, list(ECHO, "").await), (2, 1));
    assert_eq!(list(ECHO, "?agent=other").await, 0);
    let agents = lab.ask("GET /v1/agents", &bearer(ECHO), "").await.json();
    assert_eq!(agents["agents"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_of_bound_token_are_those_of_its_agents() {
    let lab = lab().await;
    for agent in ["echo", "other"] {
        let body = json!({"agent": agent, "task": "Hi."});
        let run = lab.post_with("/v1/runs", &bearer(ALL), &body).await.json();
        let line = format!("GET /v1/runs/{}", run["run_id"].as_str().unwrap());
        while lab.ask(&line, &bearer(ALL), "").await.json()["state"] != "ended" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    let all = lab.ask("GET /metrics", &bearer(ALL), "").await.body;
    let bound = lab.ask("GET /metrics", &bearer(ECHO), "").await.body;
    for (text, has_others) in [(&all, true), (&bound, false)] {
        for line in ["runs_started_total{agent=\"echo\"} 1", "cost_usd_total{agent=\"echo\"}"] {
            assert!(text.contains(line), "{text}");
        }
        for word in ["other", "runs_running", "runs_queued", "event_readers", "refused_total"] {
            assert_eq!(text.contains(word), has_others, "{word}: {text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_shut_out_no_client() {
    use tokio::io::AsyncWriteExt as _;
    let mut setup = setup();
    setup.options.max_connections = 8;
    let lab = setup.start().await;
    let mut open = Vec::new();
    for number in 0..40 {
        let mut conn = tokio::net::TcpStream::connect(lab.address).await.unwrap();
        // The page is for anyone, and so no sign of a client.
        let sent: &[u8] = if number % 2 == 0 {
            b"GET /v1/ru"
        } else {
            b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
        };
        conn.write_all(sent).await.unwrap();
        open.push(conn);
    }
    for _ in 0..4 {
        // Before the 30 seconds of the others are over.
        let token = bearer(ECHO);
        let answer = lab.ask("GET /v1/agents", &token, "");
        let answer = tokio::time::timeout(std::time::Duration::from_secs(10), answer).await;
        assert_eq!(answer.expect("an answer").status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_belong_to_tokens() {
    let lab = lab().await;
    let body = json!({"agent": "echo", "task": "Hi."});
    let with = |token| format!("{}idempotency-key: same\r\n", bearer(token));
    let one = lab.post_with("/v1/runs", &with(ALL), &body).await;
    let two = lab.post_with("/v1/runs", &with(ECHO), &body).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.json()["run_id"], two.json()["run_id"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_in_urls_are_refused() {
    let lab = lab().await;
    for path in [
        format!("/v1/runs?token={ALL}"),
        format!("/v1/runs?access_token={ALL}"),
        format!("/v1/runs?category={ALL}"),
        format!("/?x={ALL}"),
        "/v1/runs?ToKeN=x".to_owned(),
        "/v1/runs?%61pi_key=x".to_owned(),
    ] {
        let answer = lab.ask(&format!("GET {path}"), &bearer(ALL), "").await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "token_in_url"), "{path}");
        assert!(!answer.body.contains(ALL), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_websites_are_refused() {
    let lab = Lab::of("echo", Scripted::echo()).await;
    let address = lab.address;
    let body = json!({"agent": "echo", "task": "Hi."});
    for (headers, code) in [
        ("origin: http://evil.example\r\n", "cross_origin"),
        ("origin: null\r\n", "cross_origin"),
        ("origin: http://localhost:1\r\n", "cross_origin"),
        ("sec-fetch-site: cross-site\r\n", "cross_origin"),
        ("sec-fetch-site: same-site\r\n", "cross_origin"),
    ] {
        let answer = lab.post_with("/v1/runs", headers, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, code), "{headers}");
        assert!(!answer.head.contains("access-control"), "{answer:?}");
    }
    // A name of another website that resolves to this address.
    let rebound = format!(
        "POST /v1/runs HTTP/1.1\r\nhost: evil.example:{}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 2\r\n\r\n{{}}",
        address.port()
    );
    let answer = lab.raw(rebound).await;
    assert_eq!((answer.status, answer.code().as_str()), (421, "unknown_host"));
    // A form of another website cannot send JSON, and no preflight is answered.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let headers = format!("content-type: {kind}\r\n");
        let answer = lab.ask("POST /v1/runs", &headers, &body.to_string()).await;
        assert_eq!((answer.status, answer.code().as_str()), (415, "not_json"), "{kind}");
    }
    let preflight =
        lab.ask("OPTIONS /v1/runs", "access-control-request-method: POST\r\n", "").await;
    assert_eq!(preflight.status, 405);
    assert!(!preflight.head.contains("access-control"), "{preflight:?}");
    assert_eq!(lab.get("/v1/runs").await.json()["runs"], json!([]));
    // The same origin is accepted.
    let own = format!("origin: http://{address}\r\nsec-fetch-site: same-origin\r\n");
    assert_eq!(lab.post_with("/v1/runs", &own, &body).await.status, 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_address_needs_a_token() {
    let dir = TempDir::new().unwrap();
    let open = async |tokens| {
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let journal = SqliteJournal::open(dir.path().join("journal.db")).unwrap();
        let options = ServeOptions::default();
        Server::open(listener, journal, Agents::default(), tokens, options, |_| {})
    };
    let refused = open(Tokens::default()).await.unwrap_err();
    assert!(refused.to_string().contains("a token is required"), "{refused}");
    assert!(open(Tokens::default().with("all", ALL).unwrap()).await.is_ok());
}

#[test]
fn tokens_files_name_their_mistakes() {
    let secret = "a-secret-that-is-long-enough";
    for (file, part) in [
        ("[tokens.a]\ntoken = \"short\"\n", "token `a`: expected 16"),
        ("[tokens.a]\ntoken = \"$MISSING\"\n", "token `a`: its variable is not set"),
        ("[tokens.a]\nsha256 = \"00\"\n", "token `a`: `sha256`: expected 64 hex digits"),
        ("[tokens.a]\nagents = []\n", "token `a`: expected either `token` or `sha256`"),
        ("[tokens.a]\ntoken = \"a-secret-that-is-long-enough\"\nnonsense = 1\n", "line 3"),
        ("[tokens.a\ntoken = \"a-secret-that-is-long-enough\"\n", "line 1"),
        ("tokens = \"a-secret-that-is-long-enough\"\n", "line 1"),
    ] {
        let error = Tokens::parse(file, |_| None).unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains(secret), "{file}: {error}");
    }
    let debug = format!("{:?}", Tokens::default().with("a", secret).unwrap());
    assert!(!debug.contains(secret), "{debug}");
}
