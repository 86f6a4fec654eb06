//! A server that speaks HTTP/2 over TLS, as those of the providers do, and closes the connection:
//! between two answers, at the second request, or during an answer.

use crate::cli::{Cli, Done, FORMATS, Started};
use bytes::Bytes;
use endstop::testkit::{Turn, sse};
use h2::Reason;
use h2::server::SendResponse;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// The time at which the first connection is closed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Goes {
    Never,
    Answered,
    AskedAgain(Reason),
    WithinAnAnswer(Reason),
}

/// The requests and connections that a server has seen.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    requests: AtomicUsize,
    protocols: Mutex<Vec<Option<Vec<u8>>>>,
}

struct Server {
    port: u16,
    certificate: String,
    seen: Arc<Seen>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server that answers first with a tool call, then with text, in this format.
    fn start(api: &'static str, goes: Goes) -> Server {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(Notify::new()));
        let (counted, stopped) = (Arc::clone(&seen), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let mut connections = tokio::task::JoinSet::new();
                loop {
                    let stream = tokio::select! {
                        () = stopped.notified() => return,
                        accepted = listener.accept() => accepted.unwrap().0,
                    };
                    let (acceptor, seen) = (acceptor.clone(), Arc::clone(&counted));
                    connections
                        .spawn(async move { serve(&acceptor, stream, api, goes, &seen).await });
                }
            });
        });
        Server { port, certificate: cert.pem(), seen, stop, thread: Some(thread) }
    }

    fn run(&self, api: &str) -> Done {
        let cli = Cli::new();
        let trusted = cli.write("trusted.pem", &self.certificate);
        let url = format!("https://127.0.0.1:{}/v1", self.port);
        let args =
            ["run", "Hi.", "--model", "scripted", "--api", api, "--base-url", &url, "--json"];
        let mut command = cli.command(args);
        command.env("SSL_CERT_FILE", trusted);
        Started::new(command, "").finish()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.notify_one();
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking());
    }
}

async fn serve(acceptor: &TlsAcceptor, stream: TcpStream, api: &str, goes: Goes, seen: &Seen) {
    let first = seen.connections.fetch_add(1, Ordering::SeqCst) == 0;
    let tls = acceptor.accept(stream).await.unwrap();
    seen.protocols.lock().unwrap().push(tls.get_ref().1.alpn_protocol().map(<[u8]>::to_vec));
    let mut connection = h2::server::handshake(tls).await.unwrap();
    // `accept` also drives the connection: nothing is sent or received unless it is polled.
    while let Some(Ok((request, respond))) = connection.accept().await {
        let number = seen.requests.fetch_add(1, Ordering::SeqCst) + 1;
        match goes {
            Goes::AskedAgain(reason) if first && number == 2 => {
                connection.abrupt_shutdown(reason);
                drop(respond);
                continue;
            }
            Goes::WithinAnAnswer(reason) if first && number == 2 => {
                let turn = said(api, &Turn::text("cut off"));
                answer(respond, &turn[..turn.len() / 2], false);
                connection.abrupt_shutdown(reason);
                continue;
            }
            _ => {}
        }
        let turn = match number {
            1 => Turn::call("nothing", &json!({})).usage(5, 3),
            _ => Turn::text("done").usage(7, 2),
        };
        answer(respond, &said(api, &turn), true);
        if first && goes == Goes::Answered {
            connection.graceful_shutdown();
        }
        drop(request);
    }
}

fn answer(mut respond: SendResponse<Bytes>, text: &str, whole: bool) {
    let head = http::Response::builder().header("content-type", "text/event-stream");
    let mut body = respond.send_response(head.body(()).unwrap(), false).unwrap();
    body.send_data(Bytes::from(text.to_owned()), whole).unwrap();
}

fn said(api: &str, turn: &Turn) -> String {
    let events = match api {
        "openai-chat" => sse::openai(turn),
        "anthropic-messages" => sse::anthropic(turn),
        _ => sse::openai_responses(turn),
    };
    events.concat()
}

#[test]
fn authority_of_flag_is_trusted() {
    let server = Server::start("openai-chat", Goes::Never);
    let cli = Cli::new();
    cli.write("ca.pem", &server.certificate);
    cli.write("c.toml", "[http]\nca_file = \"ca.pem\"\n");
    let url = format!("https://127.0.0.1:{}/v1", server.port);
    for more in [["--ca-file", "ca.pem"], ["--config", "c.toml"]] {
        let args = ["run", "Hi.", "--model", "scripted", "--base-url", &url, "--json"];
        let outcome = cli.run(args.iter().chain(&more)).exits(0).outcome();
        assert_eq!(outcome["last_text"], "done", "{outcome}");
    }
}

#[test]
fn closed_connection_costs_no_turn() {
    let cases = [
        (Goes::Never, 1, 2),
        (Goes::Answered, 2, 2),
        (Goes::AskedAgain(Reason::NO_ERROR), 2, 3),
        (Goes::AskedAgain(Reason::ENHANCE_YOUR_CALM), 2, 3),
        (Goes::WithinAnAnswer(Reason::NO_ERROR), 2, 3),
        (Goes::WithinAnAnswer(Reason::INTERNAL_ERROR), 2, 3),
    ];
    for ((goes, connections, calls), api) in cases.into_iter().zip(FORMATS.into_iter().cycle()) {
        let server = Server::start(api, goes);
        let outcome = server.run(api).exits(0).outcome();
        let case = format!("{api} {goes:?}: {outcome}");
        assert_eq!(outcome["termination"], "stop", "{case}");
        assert_eq!(outcome["last_text"], "done", "{case}");
        assert_eq!((&outcome["turns"], &outcome["tool_calls"]), (&json!(2), &json!(1)), "{case}");
        assert_eq!(outcome["model_calls"], calls, "{case}");
        assert_eq!(server.seen.requests.load(Ordering::SeqCst), calls, "{case}");
        assert_eq!(server.seen.connections.load(Ordering::SeqCst), connections, "{case}");
        let protocols = server.seen.protocols.lock().unwrap().clone();
        assert!(protocols.iter().all(|protocol| protocol.as_deref() == Some(b"h2")));
        // An answer that was cut is paid for, as far as its cost is known.
        if !matches!(goes, Goes::WithinAnAnswer(_)) {
            let usage = &outcome["usage"];
            let tokens = (&usage["input_tokens"], &usage["output_tokens"], &usage["estimated"]);
            assert_eq!(tokens, (&json!(12), &json!(5), &json!(false)), "{case}");
        }
    }
}
