//! The clients that a proxy serves: other users, web pages, and programs without the secret path.

use super::framing::{OK, answering};
use super::support::{Conn, Event, Gate, Running, Seen, header, run};
use endstop_guard::proxy::{Access, Notice, ProxyOptions, SecretPath};
use tokio::sync::mpsc::UnboundedReceiver;

struct Lab {
    proxy: Running,
    seen: Seen,
    upstream: UnboundedReceiver<(String, Vec<u8>)>,
}

impl Lab {
    async fn start(access: Access) -> Lab {
        Lab::answering(access, OK).await
    }

    async fn answering(access: Access, answer: &'static str) -> Lab {
        let (address, upstream) = answering(answer).await;
        let (gate, seen) = Gate::new(address);
        let proxy = gate.start_with(ProxyOptions { access, ..ProxyOptions::default() }).await;
        Lab { proxy, seen, upstream }
    }

    /// Sends a request, and returns the status and the whole answer.
    async fn send(&self, request: &str) -> (u16, String) {
        let mut client = self.proxy.client().await;
        client.send(request).await;
        let (head, body) = client.message().await;
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, head + &String::from_utf8_lossy(&body.unwrap_or_default()))
    }

    /// Asserts that a request is refused before the gatekeeper hears of it.
    async fn refuses(&mut self, request: &str, status: u16) -> String {
        let (got, answer) = self.send(request).await;
        assert_eq!(got, status, "{request}\n{answer}");
        match self.seen.events.try_recv() {
            Ok(Event::Notice(Notice::Stranger { status, .. })) => assert_eq!(status, got),
            other => panic!("{request}: {other:?}"),
        }
        assert!(self.seen.events.try_recv().is_err(), "{request}");
        assert!(self.upstream.try_recv().is_err(), "{request}");
        answer
    }

    /// Asserts that a request is served, and returns its head at the upstream.
    async fn serves(&mut self, request: &str) -> String {
        let (status, answer) = self.send(request).await;
        assert_eq!(status, 200, "{request}\n{answer}");
        while self.seen.events.try_recv().is_ok() {}
        self.upstream.recv().await.expect("a request").0
    }
}

fn path() -> SecretPath {
    SecretPath::new([0x5c; 16], "/run/r1")
}

fn secret() -> Access {
    Access::Path { path: path(), is_visible: false }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

#[test]
fn request_without_secret_path_is_unknown() {
    run(async {
        let mut lab = Lab::start(secret()).await;
        let path = path();
        let p = path.as_str();
        for target in [
            "/v1/models".to_owned(),
            "/".to_owned(),
            "/run/r1/v1/models".to_owned(),
            format!("/{}/run/r2/v1/models", path.secret()),
            format!("/{}/v1/models", path.secret()),
            format!("{}/v1/models", SecretPath::new([0x5d; 16], "/run/r1").as_str()),
            format!("{}/v1/models", p.to_uppercase()),
            format!("{}/v1/models", p.replacen("5c", "%35c", 1)),
            format!("{}/v1/models", p.replace("/run", "//run")),
            format!("{p}1/v1/models"),
            format!("/v1/models?base={p}"),
        ] {
            let answer = lab.refuses(&get(&target), 404).await;
            assert!(answer.contains("keep the whole path"), "{answer}");
            assert!(!answer.contains("5c5c"), "{answer}");
        }
        let head = lab.serves(&get(&format!("{p}/v1/models?limit=1"))).await;
        assert!(head.starts_with("GET /v1/models?limit=1 HTTP/1.1\r\n"), "{head}");
    });
}

#[test]
fn secret_path_stays_here() {
    run(async {
        let redirect = "HTTP/1.1 307 Temporary Redirect\r\nLocation: /v1/elsewhere\r\nContent-Length: 0\r\n\r\n";
        let mut lab = Lab::answering(secret(), redirect).await;
        let path = path();
        let p = path.as_str();
        // As a client does that was redirected.
        let from = format!("Referer: http://localhost{p}/v1/models\r\nX-Seen: {p}\r\nX-Own: a\r\n");
        let (status, answer) =
            lab.send(&format!("GET {p}/v1/models HTTP/1.1\r\nHost: localhost\r\n{from}\r\n")).await;
        assert_eq!(status, 307);
        // The address is that of the upstream, and its path alone is not served.
        assert_eq!(header(&answer, "location").as_deref(), Some("/v1/elsewhere"));
        assert!(!answer.contains(path.secret()), "{answer}");
        let (head, _) = lab.upstream.recv().await.expect("a request");
        assert!(!head.contains(path.secret()) && head.contains("X-Own: a\r\n"), "{head}");
        while let Ok(event) = lab.seen.events.try_recv() {
            assert!(!format!("{event:?}").contains(path.secret()), "{event:?}");
            if let Event::Request(head, _) = event {
                assert_eq!(&*head.redacted_target(), "/v1/models");
            }
        }
        lab.refuses(&get("/v1/elsewhere"), 404).await;
        // A request that is not served shows its target without the path.
        let (status, _) = lab.send(&get(&format!("{p}/v1/../models"))).await;
        assert_eq!(status, 400);
        match lab.seen.events.try_recv() {
            Ok(Event::Notice(Notice::Refused { target, .. })) => {
                assert_eq!(&*target, "/v1/../models");
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn requests_of_web_pages_are_refused() {
    run(async {
        for access in [secret(), Access::SameUser] {
            let at =
                if access == Access::SameUser { String::new() } else { path().as_str().into() };
            let mut lab = Lab::start(access).await;
            let address = lab.proxy.address;
            let with = |headers: &str| format!("GET {at}/v1/models HTTP/1.1\r\n{headers}\r\n");
            for (headers, status) in [
                ("Host: evil.example\r\n", 421),
                ("Host: 127.0.0.1.evil.example\r\n", 421),
                ("Host: 0.0.0.0\r\n", 421),
                ("Host: localhost\r\nOrigin: http://evil.example\r\n", 403),
                ("Host: localhost\r\nOrigin: null\r\n", 403),
                ("Host: localhost\r\nOrigin: http://localhost:1\r\n", 403),
                ("Host: localhost\r\nSec-Fetch-Site: cross-site\r\n", 403),
                ("Host: localhost\r\nSec-Fetch-Site: same-site\r\n", 403),
                ("Host: localhost\r\nHost: localhost\r\n", 400),
                ("", 400),
            ] {
                lab.refuses(&with(headers), status).await;
            }
            lab.refuses(&format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n\r\n"), 405)
                .await;
            let absolute = |host: &str| {
                format!("GET http://{host}{at}/v1/models HTTP/1.1\r\nHost: {host}\r\n\r\n")
            };
            lab.refuses(&absolute("evil.example"), 421).await;
            lab.serves(&absolute(&address.to_string())).await;
            for headers in [
                "Host: localhost\r\n".to_owned(),
                "Host: [::1]:80\r\n".to_owned(),
                format!("Host: {address}\r\nOrigin: http://{address}\r\n"),
                // As the `fetch` of Node sends it.
                format!("Host: {address}\r\nSec-Fetch-Mode: cors\r\n"),
            ] {
                lab.serves(&with(&headers)).await;
            }
            // A request with HTTP/1.0 needs a name as well.
            lab.refuses(&format!("GET {at}/v1/models HTTP/1.0\r\n\r\n"), 400).await;
            lab.serves(&format!("GET {at}/v1/models HTTP/1.0\r\nHost: localhost\r\n\r\n")).await;
        }
    });
}

/// A client of another user, who is `nobody`.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "the notice of a test that is skipped")]
fn as_nobody(address: std::net::SocketAddr, host: &str, request: &str) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can start a client of another user");
        return None;
    }
    let script = "exec 3<>\"/dev/tcp/$1/$2\"; printf %s \"$3\" >&3; timeout 20 cat <&3";
    let mut client = std::process::Command::new("bash");
    std::os::unix::process::CommandExt::uid(&mut client, 65_534);
    let output = client
        .current_dir("/")
        .args(["-c", script, "sh", host, &address.port().to_string(), request])
        .output()
        .expect("bash");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(target_os = "linux")]
#[test]
fn other_users_are_refused() {
    run(async {
        let request = |at: &str| {
            format!("GET {at}/v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        };
        let path = path();
        for (access, at, status) in [
            (Access::SameUser, "", 403),
            (Access::Path { path: path.clone(), is_visible: true }, path.as_str(), 403),
            // Who knows a path that is not visible was given it.
            (secret(), path.as_str(), 200),
            (Access::Gatekeeper, "", 200),
        ] {
            let shown = format!("{access:?}");
            let lab = Lab::start(access).await;
            let (address, other) = (lab.proxy.address, request(at));
            // The last form is an IPv4 address in a socket for IPv6.
            for host in ["127.0.0.1", "::ffff:127.0.0.1"] {
                let other = other.clone();
                let answer = tokio::task::spawn_blocking(move || as_nobody(address, host, &other));
                let Some(answer) = answer.await.expect("an answer") else { return };
                assert!(answer.contains(&format!(" {status} ")), "{shown} {host}: {answer}");
            }
            assert_eq!(lab.send(&request(at)).await.0, 200, "{shown}");
        }
    });
}

/// Opens connections that send half of a head.
async fn half_open(lab: &Lab, count: usize) -> Vec<Conn> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut conn = Conn::to(lab.proxy.address).await;
        conn.send("GET /v1/models HTTP/1.1\r\nHost: loc").await;
        open.push(conn);
    }
    open
}

#[test]
fn connection_without_served_request_has_little_time() {
    run(async {
        let (address, _upstream) = answering(OK).await;
        let (gate, seen) = Gate::new(address);
        let first_request_time = std::time::Duration::from_millis(300);
        let options =
            ProxyOptions { access: secret(), first_request_time, ..ProxyOptions::default() };
        let proxy = gate.start_with(options).await;
        let lab = Lab { proxy, seen, upstream: answering(OK).await.1 };
        let mut served = lab.proxy.client().await;
        let request = get(&format!("{}/v1/models", path().as_str()));
        served.send(&request).await;
        assert!(served.head().await.contains(" 200 "));
        served.exact(2).await.expect("a body");
        let mut half = half_open(&lab, 1).await;
        half.push(lab.proxy.client().await);
        let mut refused = lab.proxy.client().await;
        refused.send(get("/v1/models")).await;
        assert!(refused.message().await.0.contains(" 404 "));
        half.push(refused);
        for mut conn in half {
            let (rest, _) = conn.rest().await;
            // Perhaps with an answer that the head came too late, but not with another one.
            assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
        }
        // The agent's tool took longer than that.
        served.send(&request).await;
        assert!(served.head().await.contains(" 200 "));
    });
}

#[test]
fn half_open_connections_shut_out_no_client() {
    run(async {
        let (address, upstream) = answering(OK).await;
        let (gate, seen) = Gate::new(address);
        let options = ProxyOptions { access: secret(), connections: 8, ..ProxyOptions::default() };
        let proxy = gate.start_with(options).await;
        let mut lab = Lab { proxy, seen, upstream };
        let request = get(&format!("{}/v1/models", path().as_str()));
        let mut client = lab.proxy.client().await;
        client.send(&request).await;
        assert!(client.head().await.contains(" 200 "));
        client.exact(2).await.expect("a body");
        // Their time is not over when the next clients come.
        let _open = half_open(&lab, 40).await;
        for _ in 0..4 {
            lab.serves(&request).await;
        }
        // A client that was served before has kept its connection.
        client.send(&request).await;
        assert!(client.head().await.contains(" 200 "));
    });
}

#[test]
fn own_headers_are_given_once() {
    run(async {
        let mut lab = Lab::start(Access::Gatekeeper).await;
        let with = |headers: &str| format!("GET /v1/models HTTP/1.1\r\nHost: x\r\n{headers}\r\n");
        for headers in [
            "x-endstop-run: a\r\nx-endstop-run: b\r\n",
            "x-endstop-run: a\r\nX-Endstop-Run: a\r\n",
            "x-endstop-token: a\r\nx-other: c\r\nx-endstop-token: b\r\n",
            "x-endstop-profile: a\r\nx-endstop-profile: a\r\nx-endstop-profile: a\r\n",
            "x-endstop-new: a\r\nx-endstop-new:\r\n",
        ] {
            let (status, answer) = lab.send(&with(headers)).await;
            assert_eq!(status, 400, "{headers}");
            assert!(answer.contains("more than once"), "{answer}");
            assert!(lab.upstream.try_recv().is_err(), "{headers}");
        }
        for headers in [
            "x-endstop-run: a\r\nx-endstop-profile: b\r\nx-endstop-token: c\r\n",
            "x-endstop-run: a, b\r\n",
            "x-endstopp: a\r\nx-endstopp: b\r\n",
            "anthropic-beta: a\r\nanthropic-beta: b\r\n",
        ] {
            lab.serves(&with(headers)).await;
        }
    });
}

#[cfg(target_os = "linux")]
#[test]
fn each_request_of_a_connection_is_checked() {
    run(async {
        let lab = Lab::start(secret()).await;
        let (path, mut client) = (path(), Conn::to(lab.proxy.address).await);
        for (at, status) in [(path.as_str(), " 200 "), ("", " 404 "), (path.as_str(), " 200 ")] {
            client.send(get(&format!("{at}/v1/models"))).await;
            let (head, _) = client.message().await;
            assert!(head.contains(status), "{at}: {head}");
        }
    });
}
