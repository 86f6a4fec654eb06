//! Metrics over HTTP.

use super::{Lab, TOKEN};
use crate::proxy::support::{Conn, background, run};
use endstop_guard::run::{BUCKETS_MS, Meter};
use endstop_guard::standing::serve_metrics;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpListener;

async fn serve(lab: &Lab, protected: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    background(serve_metrics(lab.standing.clone(), listener, protected));
    address
}

async fn get(address: SocketAddr, target: &str, headers: &str) -> (String, String) {
    let mut conn = Conn::to(address).await;
    let host = if headers.contains("host:") { "" } else { "host: localhost\r\n" };
    conn.send(format!("GET {target} HTTP/1.1\r\n{host}{headers}\r\n")).await;
    let (head, body) = conn.message().await;
    (head, String::from_utf8(body.unwrap()).unwrap())
}

#[test]
fn metrics_count_calls_refusals_and_cost() {
    run(async {
        let lab = Lab::start(
            "[upstream]\nopenai = \"UPSTREAM\"\n[profile.default]\nprice = \"in=1,out=1\"\n\
             limits = { max_turns = 2 }\n[profile.other]\nruns = [\"other-*\"]\n",
        )
        .await;
        for (turn, status) in [(1, 200), (2, 200), (3, 400), (3, 400)] {
            assert_eq!(lab.turn("a", turn, "").await.0, status);
        }
        // A name with a quote or a newline never becomes a label, and not even a run.
        assert_eq!(lab.turn("a%22%0a", 1, "").await.0, 400);
        let (head, text) = get(serve(&lab, false).await, "/metrics", "").await;
        assert!(head.contains("200 OK") && head.contains("text/plain; version=0.0.4"), "{head}");
        for line in [
            "endstop_guard_runs_started_total{profile=\"default\"} 1",
            "endstop_guard_runs_started_total{profile=\"other\"} 0",
            "endstop_guard_calls_total{profile=\"default\"} 2",
            "endstop_guard_calls_in_flight{profile=\"default\"} 0",
            "endstop_guard_refusals_total{profile=\"default\"} 3",
            "endstop_guard_input_tokens_total{profile=\"default\"} 2000",
            "endstop_guard_output_tokens_total{profile=\"default\"} 200",
            "endstop_guard_cost_usd_total{profile=\"default\"} 0.0022",
            "endstop_guard_runs_ended_total{profile=\"default\",termination=\"error_max_turns\"} 1",
            "endstop_guard_first_byte_seconds_bucket{profile=\"default\",le=\"+Inf\"} 2",
            "endstop_guard_first_byte_seconds_count{profile=\"default\"} 2",
            "# TYPE endstop_guard_first_byte_seconds histogram",
        ] {
            assert!(text.lines().any(|known| known == line), "no {line} in:\n{text}");
        }
    });
}

#[test]
fn protected_metrics_require_token() {
    run(async {
        let file = "[tokens]\nci = \"$TOKEN\"\n[upstream]\nopenai = \"UPSTREAM\"\n";
        let lab = Lab::start(file).await;
        let address = serve(&lab, true).await;
        assert!(get(address, "/metrics", "").await.0.contains(" 401 "));
        let wrong = "authorization: Bearer guard-token-012345678\r\n";
        assert!(get(address, "/metrics", wrong).await.0.contains(" 401 "));
        let right = format!("authorization: Bearer {TOKEN}\r\n");
        assert!(get(address, "/metrics", &right).await.0.contains(" 200 "));
        assert!(get(address, "/else", &right).await.0.contains(" 404 "));
    });
}

#[test]
fn metrics_are_not_for_web_pages() {
    run(async {
        let lab = Lab::start("[upstream]\nopenai = \"UPSTREAM\"\n").await;
        let open = serve(&lab, false).await;
        for (headers, status) in [
            ("host: localhost:4001\r\n", "200"),
            ("host: [::1]\r\n", "200"),
            ("host: evil.example\r\n", "421"),
            ("host: host.docker.internal\r\n", "421"),
            ("host: a\r\nhost: b\r\n", "400"),
            ("origin: http://evil.example\r\n", "403"),
            ("sec-fetch-site: cross-site\r\n", "403"),
            ("sec-fetch-site: none\r\n", "200"),
        ] {
            let (head, body) = get(open, "/metrics", headers).await;
            assert!(head.contains(&format!(" {status} ")), "{headers}: {head}");
            assert_eq!(body.contains("endstop_guard"), status == "200", "{headers}");
        }
        // With a token, a client may use another name of this machine.
        let file = "[tokens]\nci = \"$TOKEN\"\n[upstream]\nopenai = \"UPSTREAM\"\n";
        let lab = Lab::start(file).await;
        let (host, token) = ("host: guard.example\r\n", format!("x-endstop-token: {TOKEN}\r\n"));
        for (protected, headers, status) in [
            (false, format!("{host}{token}"), "200"),
            (true, format!("{host}{token}"), "200"),
            (false, host.to_owned(), "421"),
            (true, host.to_owned(), "401"),
            (true, format!("{token}origin: http://evil.example\r\n"), "403"),
        ] {
            let head = get(serve(&lab, protected).await, "/metrics", &headers).await.0;
            assert!(head.contains(&format!(" {status} ")), "{protected} {headers}: {head}");
        }
    });
}

#[test]
fn half_open_scrapes_shut_out_no_scraper() {
    run(async {
        let lab = Lab::start("[upstream]\nopenai = \"UPSTREAM\"\n").await;
        let address = serve(&lab, false).await;
        let mut open = Vec::new();
        for _ in 0..64 {
            let mut conn = Conn::to(address).await;
            conn.send("GET /met").await;
            open.push(conn);
        }
        let answer =
            tokio::time::timeout(Duration::from_secs(5), get(address, "/metrics", "")).await;
        assert!(answer.expect("an answer before their time is over").0.contains(" 200 "));
    });
}

#[test]
fn histogram_bounds_are_inclusive() {
    let meter = Meter::default();
    for ms in BUCKETS_MS {
        meter.first_byte(Duration::from_millis(ms));
    }
    meter.first_byte(Duration::from_secs(61));
    assert_eq!(meter.read().first_bytes, [1; BUCKETS_MS.len() + 1]);
}
