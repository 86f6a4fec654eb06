//! The connection of an HTTP provider: keys, headers, proxies, authorities, clients and connect
//! timeouts given as values, and the settings that are refused.

use base64::Engine as _;
use endstop::provider::http::{
    CertificateError, Client, HeaderError, HttpError, HttpProvider, HttpProviderBuilder,
};
use endstop::provider::record::Recorder;
use endstop::provider::{
    CallEvent, CallSpec, ErrorClass, ModelError, Provider, Secret, SessionSpec,
};
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::{Agent, Limits, Message, MessageId, Outcome, Role, Termination};
use http::HeaderValue;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The host of the server, which only the proxy can reach.
const HOST: &str = "model.test";

fn server() -> Server {
    Server::start(|request| Reply::turn(request, &Turn::text("fine"))).unwrap()
}

/// A builder for a compatible server, which reads no variable.
fn at(base_url: &str) -> HttpProviderBuilder {
    HttpProvider::builder("script").api("openai-chat").base_url(base_url).env(|_| None)
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    request.headers.get(name).map(String::as_str)
}

async fn run(builder: &HttpProviderBuilder) -> Outcome {
    let limits = Limits { max_retries: Some(0), ..Limits::default() };
    let agent = Agent::builder(builder.build().unwrap()).limits(limits).build().unwrap();
    agent.run("Go on.").unwrap().await
}

/// Returns the error of one call, without retries.
async fn failed(provider: &HttpProvider) -> ModelError {
    let messages = [Message::text(MessageId(1), Role::User, "Go on.")];
    let mut session = provider.open(SessionSpec { streaming: true, ..SessionSpec::default() });
    let mut call = session.call(CallSpec {
        messages: &messages,
        epoch: 0,
        output_cap: None,
        details: false,
        trace_parent: None,
    });
    match std::future::poll_fn(|cx| call.as_mut().poll_next(cx)).await {
        Some(CallEvent::Failed(error, None)) => error,
        other => panic!("{other:?}"),
    }
}

/// Accepts connections and hands each to a task.
#[expect(clippy::disallowed_methods, reason = "no run has these tasks")]
async fn listen<F: Future<Output = ()> + Send + 'static>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream));
        }
    });
    port
}

fn port_of(server: &Server) -> u16 {
    url::Url::parse(&server.base_url()).unwrap().port().unwrap()
}

/// A server behind TLS, whose certificate an own authority has signed. Returns the port and the
/// authority's certificate.
async fn with_tls(server: &Server, names: &[&str]) -> (u16, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let behind = port_of(server);
    let port = listen(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            // A client that does not trust the authority hangs up during the handshake.
            let Ok(mut tls) = acceptor.accept(stream).await else { return };
            let mut behind = TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
            let _ = copy_bidirectional(&mut tls, &mut behind).await;
        }
    })
    .await;
    (port, authority.as_ref().pem())
}

/// A proxy that tunnels every `CONNECT` to this port. Returns its own port and the heads that it
/// received.
async fn tunnel(to: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let port = listen(move |mut stream| {
        let seen = Arc::clone(&seen);
        async move {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            seen.lock().unwrap().push(String::from_utf8(head).unwrap());
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let mut behind = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut behind).await;
        }
    })
    .await;
    (port, heads)
}

#[tokio::test]
async fn key_and_headers_arrive_as_given() {
    let server = server();
    let provider = |model: &str| {
        HttpProvider::builder(model)
            .base_url(server.base_url())
            // The value takes precedence over the environment.
            .env(|name| name.ends_with("_API_KEY").then(|| "of-env".to_owned()))
            .api_key(" sk-value-4711\n")
            .header("X-Team", "blue-4711")
            .user_agent("my-service/1.2")
    };
    for (model, name, value) in [
        ("openai/m", "authorization", "Bearer sk-value-4711"),
        ("anthropic/m", "x-api-key", "sk-value-4711"),
        ("gemini/m", "x-goog-api-key", "sk-value-4711"),
    ] {
        let builder = provider(model);
        let outcome = run(&builder).await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        let request = server.requests().pop().unwrap();
        assert_eq!(header(&request, name), Some(value));
        assert_eq!(header(&request, "x-team"), Some("blue-4711"));
        assert_eq!(header(&request, "user-agent"), Some("my-service/1.2"));
        let shown = format!("{builder:?} {:?}", builder.build().unwrap());
        assert!(!shown.contains("4711") && !shown.contains("of-env"), "{shown}");
    }
    // Without these settings.
    run(&at(&server.base_url())).await;
    let request = server.requests().pop().unwrap();
    let agent = header(&request, "user-agent").unwrap();
    assert_eq!(agent, concat!("endstop/", env!("CARGO_PKG_VERSION")));
    assert_eq!(header(&request, "authorization"), None);
}

#[tokio::test]
async fn user_in_address_becomes_a_header() {
    let server = server();
    let url = server.base_url().replace("http://", "http://me:p%40ss@");
    assert_eq!(run(&at(&url)).await.termination, Termination::Stop);
    let request = server.requests().pop().unwrap();
    let sent = base64::engine::general_purpose::STANDARD.encode("me:p@ss");
    assert_eq!(header(&request, "authorization"), Some(&*format!("Basic {sent}")));
}

#[tokio::test]
async fn proxy_receives_unencrypted_requests_whole() {
    // The scripted server plays the proxy, and repeats the credentials that it received.
    let proxy = Server::start(|request| {
        let login = request.headers.get("proxy-authorization").cloned().unwrap_or_default();
        Reply::turn(request, &Turn::text(format!("{login} hush+hush-4711 hush%2Bhush-4711")))
    })
    .unwrap();
    let address = format!("http://me:hush%2Bhush-4711@127.0.0.1:{}", port_of(&proxy));
    let builder = at("http://model.test/v1").proxy(address);
    let shown = format!("{builder:?} {:?}", builder.build().unwrap());
    assert!(!shown.contains("4711") && shown.contains("127.0.0.1"), "{shown}");

    let dir = tempfile::tempdir().unwrap();
    let journal = endstop::journal::SqliteJournal::open(dir.path().join("journal.db")).unwrap();
    let agent = Agent::builder(builder.build().unwrap()).journal(journal).build().unwrap();
    let outcome = agent.run("Go on.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let request = proxy.requests().pop().unwrap();
    assert_eq!(
        (&*request.method, &*request.path),
        ("POST", "http://model.test/v1/chat/completions")
    );
    let login = base64::engine::general_purpose::STANDARD.encode("me:hush+hush-4711");
    assert_eq!(header(&request, "proxy-authorization"), Some(&*format!("Basic {login}")));
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(path).unwrap() } else { Vec::new() };
        for secret in [&login, "hush+hush-4711", "hush%2Bhush-4711"] {
            let found = bytes.windows(secret.len()).position(|part| part == secret.as_bytes());
            let place = found.map(|at| String::from_utf8_lossy(&bytes[at.saturating_sub(200)..at]));
            assert_eq!(place, None, "{secret}");
        }
    }
}

#[tokio::test]
async fn proxy_password_is_redacted_even_if_word() {
    let text = "a swordfish or s%77ordfish swims";
    let proxy = Server::start(move |request| Reply::turn(request, &Turn::text(text))).unwrap();
    // The same word in both spellings: as sent, and as the address has it.
    let address = format!("http://me:s%77ordfish@127.0.0.1:{}", port_of(&proxy));
    let provider = at("http://model.test/v1").proxy(address).build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let recorder = Recorder::create(dir.path().join("recording.jsonl")).unwrap();
    let provider = provider.record(&recorder).unwrap();
    let journal = endstop::journal::SqliteJournal::open(dir.path().join("journal.db")).unwrap();
    let agent = Agent::builder(provider).journal(journal).build().unwrap();
    let outcome = agent.run("Go on.").unwrap().await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    recorder.ended(&outcome);
    drop(agent);
    let mut answers = 0;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let written = String::from_utf8_lossy(&bytes);
        // The journal is one file or two. The recording has the answer in the chunks of its stream.
        answers += usize::from(written.matches("[redacted]").count() >= 2);
        for secret in ["swordfish", "s%77ordfish"] {
            assert!(!written.contains(secret), "{secret} in {}", path.display());
        }
    }
    assert!(answers >= 2, "the answer is in the journal and in the recording: {answers}");
}

#[tokio::test]
async fn proxy_tunnels_encrypted_requests() {
    let server = server();
    let (port, authority) = with_tls(&server, &[HOST]).await;
    let (proxy, heads) = tunnel(port).await;
    let builder = at(&format!("https://{HOST}/v1"))
        .api_key("sk-value-4711")
        .proxy(format!("http://me:hush@127.0.0.1:{proxy}"))
        .ca_certificate(authority);
    let outcome = run(&builder).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    let heads = heads.lock().unwrap().join("");
    assert!(heads.starts_with("CONNECT model.test:443 HTTP/1.1\r\n"), "{heads}");
    assert!(heads.to_lowercase().contains("proxy-authorization: basic "), "{heads}");
    // The proxy sees neither the key nor the path.
    assert!(!heads.contains("4711") && !heads.contains("/v1"), "{heads}");
    let request = server.requests().pop().unwrap();
    assert_eq!(header(&request, "authorization"), Some("Bearer sk-value-4711"));
    assert_eq!(header(&request, "proxy-authorization"), None);
}

#[tokio::test]
async fn unreachable_proxy_is_named_without_password() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let builder = at("http://model.test/v1").proxy(format!("http://me:hush@127.0.0.1:{port}"));
    let message = failed(&builder.build().unwrap()).await.message;
    assert!(message.contains(&format!("through the proxy http://127.0.0.1:{port}")), "{message}");
    assert!(!message.contains("hush"), "{message}");
}

#[tokio::test]
async fn local_server_is_called_without_remote_proxy() {
    let server = server();
    // Nothing listens there.
    let outcome = run(&at(&server.base_url()).proxy("http://192.0.2.1:9")).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    assert_eq!(server.requests().pop().unwrap().path, "/v1/chat/completions");
    // A proxy on this machine can reach it.
    let proxy = self::server();
    run(&at(&server.base_url()).proxy(proxy.base_url())).await;
    assert_eq!((server.requests().len(), proxy.requests().len()), (1, 1));
}

#[tokio::test]
async fn own_authority_must_be_given() {
    let server = server();
    let (port, authority) = with_tls(&server, &["127.0.0.1"]).await;
    let builder = at(&format!("https://127.0.0.1:{port}/v1")).api_key("sk-value-4711");
    let error = failed(&builder.build().unwrap()).await;
    assert!(error.message.contains("certificate"), "{error:?}");
    assert!(!error.message.contains("4711") && server.requests().is_empty(), "{error:?}");
    let outcome = run(&builder.clone().ca_certificate(&authority)).await;
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    // The authority of another server does not help.
    let (_, other) = with_tls(&server, &["127.0.0.1"]).await;
    let error = failed(&builder.ca_certificate(other).build().unwrap()).await;
    assert!(error.message.contains("certificate"), "{error:?}");
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn own_client_sends_the_requests() {
    // Counts the connections to the server.
    let server = server();
    let (to, opened) = (port_of(&server), Arc::new(Mutex::new(0)));
    let count = Arc::clone(&opened);
    let port = listen(move |mut stream| {
        *count.lock().unwrap() += 1;
        async move {
            let mut behind = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
            let _ = copy_bidirectional(&mut stream, &mut behind).await;
        }
    })
    .await;
    let name = HeaderValue::from_static("my-client/1");
    let client = Client::builder().no_proxy().user_agent(name).build().unwrap();
    let builder = at(&format!("http://127.0.0.1:{port}/v1")).client(client);
    let agent = || header(&server.requests().pop().unwrap(), "user-agent").map(str::to_owned);
    assert_eq!(run(&builder).await.termination, Termination::Stop);
    assert_eq!(agent().as_deref(), Some("my-client/1"));
    // Another provider, over the same connection.
    let builder = builder.user_agent("my-service/1.2");
    assert_eq!(run(&builder).await.termination, Termination::Stop);
    assert_eq!(agent().as_deref(), Some("my-service/1.2"));
    assert_eq!((server.requests().len(), *opened.lock().unwrap()), (2, 1));
}

/// A listener whose queue is full answers no further connection.
#[cfg(target_os = "linux")]
#[tokio::test(start_paused = true)]
async fn full_listener_ends_at_connect_timeout() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let _queued = std::net::TcpStream::connect(address).unwrap();
    let limit = Duration::from_secs(4);
    let provider = at(&format!("http://{address}/v1")).connect_timeout(limit).build().unwrap();
    // The clock is virtual: it jumps to the next timer, so that other timers would show.
    let began = tokio::time::Instant::now();
    let error = failed(&provider).await;
    assert_eq!(began.elapsed().as_secs(), limit.as_secs(), "{error:?}");
    assert_eq!(error.class, ErrorClass::Timeout);
    assert!(error.message.contains(&format!("could not be reached at http://{address}")));
}

fn refused(builder: &HttpProviderBuilder) -> HttpError {
    let error = builder.build().unwrap_err();
    let shown = format!("{error} {error:?} {builder:?}");
    assert!(!shown.contains("hush"), "{shown}");
    error
}

const BROKEN: &str = "-----BEGIN CERTIFICATE-----\nhush\n-----END CERTIFICATE-----\n";

#[test]
fn contradictions_are_refused() {
    let client = Client::builder().no_proxy().build().unwrap();
    let own = || at("https://h/v1").client(client.clone());
    for (builder, names) in [
        (own().proxy("http://me:hush@h"), ["proxy", "client"]),
        (own().no_proxy(), ["no_proxy", "client"]),
        (own().ca_certificate(BROKEN), ["ca_certificate", "client"]),
        (own().connect_timeout(Duration::from_secs(1)), ["connect_timeout", "client"]),
        (at("https://h/v1").proxy("http://me:hush@h").no_proxy(), ["proxy", "no_proxy"]),
    ] {
        let error = refused(&builder);
        let HttpError::Conflict { setting, other, fix } = &error else { panic!("{error:?}") };
        assert_eq!([*setting, *other], names);
        assert!(!fix.is_empty() && error.setting() == Some(names[0]));
    }
}

#[test]
fn invalid_settings_are_refused_by_name() {
    let base = || at("https://h/v1");
    for (builder, setting, part) in [
        (base().api_key(" \n"), "api_key", "empty"),
        (base().api_key("hush\nhush"), "api_key", "not allowed in a header"),
        (base().user_agent("a\nb"), "user_agent", "my-service/1.2"),
        (base().user_agent(" "), "user_agent", "my-service/1.2"),
        (base().connect_timeout(Duration::ZERO), "connect_timeout", "above zero"),
        (base().proxy("ftp://me:hush@h"), "proxy", "`ftp:` is not http or https"),
        (base().proxy("hush:hush@h:8080"), "proxy", "the scheme is missing"),
        (base().proxy("http://me:hush@"), "proxy", "expected http://"),
        (base().ca_certificate("hush"), "ca_certificate", "-----BEGIN CERTIFICATE-----"),
        (base().ca_certificate(BROKEN), "ca_certificate", "certificate"),
        (base().ca_certificate(BROKEN.replace("hush", "!")), "ca_certificate", "PEM"),
    ] {
        let error = refused(&builder);
        let text = error.to_string();
        assert_eq!(error.setting(), Some(setting), "{text}");
        assert!(text.starts_with(&format!("invalid `{setting}`")) && text.contains(part), "{text}");
    }
    let key = KeyPair::generate().unwrap().serialize_pem();
    let error = refused(&base().ca_certificate(key));
    assert!(matches!(error, HttpError::Certificate(CertificateError::Missing)), "{error:?}");
}

#[test]
fn headers_that_would_leak_are_refused() {
    let base = |key: Option<&str>| match key {
        Some(key) => at("https://h/v1").api_key(key),
        None => at("https://h/v1"),
    };
    let of = |builder: HttpProviderBuilder| match refused(&builder) {
        HttpError::Headers(error) => error,
        other => panic!("{other:?}"),
    };
    let hush = || Secret::new("hush");
    let twice = base(None).header("X-A", hush()).header("x-a", hush());
    assert!(matches!(of(twice), HeaderError::Twice { name } if name == "x-a"));
    let beside = base(Some("hush-key")).header("Authorization", "Bearer hush");
    assert!(matches!(of(beside), HeaderError::Credential { name, .. } if name == "authorization"));
    let two = base(None).header("authorization", hush()).header("x-api-key", hush());
    assert!(matches!(of(two), HeaderError::Twice { .. }));
    let agents = base(None).user_agent("a").header("User-Agent", hush());
    assert!(matches!(of(agents), HeaderError::Own { .. }));
    assert!(matches!(of(base(None).header("Host", hush())), HeaderError::Framing { .. }));
    assert!(matches!(of(base(None).header("x a", hush())), HeaderError::Name { .. }));
    assert!(matches!(of(base(None).header("x-a", "hush\nx")), HeaderError::Value { .. }));
    let open = at("http://model.test/v1").header("x-a", hush());
    assert!(matches!(of(open.clone()), HeaderError::Cleartext { host } if host == HOST));
    assert!(open.allow_http(true).build().is_ok());
    // A credential as a header is fine if it is the only one.
    assert!(base(None).header("authorization", hush()).build().is_ok());
}

#[test]
fn given_key_is_not_sent_unencrypted() {
    let builder = HttpProvider::builder("openai/m").base_url("http://model.test/v1");
    let error = refused(&builder.api_key("hush"));
    assert!(matches!(&error, HttpError::Cleartext { host, .. } if host == HOST), "{error:?}");
    // The key was not read from a variable, so unsetting one would not help.
    assert!(!error.to_string().contains("unset"), "{error}");
}

#[test]
fn options_and_builder_agree() {
    let options = HttpProvider::builder("openai/gpt-4.1-mini");
    let key = |name: &str| (name == "OPENAI_API_KEY").then(|| "sk".to_owned());
    let provider = options.env(key).build().unwrap();
    let built = HttpProvider::builder("openai/gpt-4.1-mini").env(key).build().unwrap();
    assert_eq!(format!("{provider:?}"), format!("{built:?}"));
    assert_eq!(built.context_window(), provider.context_window());
    let error = HttpProvider::builder("openai/m").env(|_| None).build().unwrap_err();
    assert!(matches!(error, HttpError::Resolve(_)), "{error:?}");
}
