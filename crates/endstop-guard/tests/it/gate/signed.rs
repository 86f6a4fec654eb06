//! Signed calls to Amazon Bedrock: checked with the keys of guard, and signed again.

use super::agents::call;
use super::support::{Bills, Guard, Manner, billing, price};
use crate::proxy::support::{background, run};
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use endstop_core::Limits;
use endstop_guard::clients::{DiskFiles, Files};
use endstop_guard::proxy::{Proxy, ProxyOptions, Upstream, UpstreamMap};
use endstop_guard::run::{AwsKeys, Gate, Settings};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::net::TcpListener;

const BODY: &str = r#"{"messages":[{"role":"user","content":[{"text":"run b; go"}]}]}"#;

/// Returns the lines of the headers that sign a request for a host.
fn signed(secret: &str, host: &str, path: &str, body: &str, at: SystemTime) -> String {
    let identity = Credentials::new("AKIDEXAMPLE", secret, None, None, "test").into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region("eu-west-3")
        .name("bedrock")
        .time(at)
        .settings(SigningSettings::default())
        .build()
        .expect("parameters");
    let url = format!("http://{host}{path}");
    let headers = [("content-type", "application/json")];
    let body = SignableBody::Bytes(body.as_bytes());
    let request = SignableRequest::new("POST", url, headers.into_iter(), body).expect("a request");
    let (instructions, _) = sign(request, &params.into()).expect("a signature").into_parts();
    instructions.headers().map(|(name, value)| format!("{name}: {value}\r\n")).collect()
}

/// Returns a signed request for a run.
fn request(secret: &str, host: &str) -> String {
    let path = "/run/b/model/m/converse";
    let headers = signed(secret, host, path, BODY, time());
    format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n{BODY}",
        BODY.len()
    )
}

/// The time of the signatures, which the upstream checks and guard does not.
fn time() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_440_938_160)
}

#[test]
fn calls_with_the_same_keys_are_signed_for_the_upstream() {
    run(async {
        let bills = Arc::new(Bills::default());
        let always = Arc::new(|_| Manner::Answer);
        let (upstream, stop) = billing(Arc::clone(&bills), always).await;
        let keys = AwsKeys::from_variables(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("right-secret".to_owned()),
            _ => None,
        });
        for cap_output in [false, true] {
            let limits = Limits { max_budget_usd: Some(0.5), ..Limits::default() };
            let settings = Settings {
                limits,
                aws: keys.clone(),
                price: Some(price()),
                cap_output,
                ..Settings::default()
            };
            let guard = Guard::start(settings, upstream).await;
            let host = guard.address.to_string();
            bills.bodies.lock().expect("a lock").clear();
            let (status, body) =
                call(guard.address, request("wrong-secret", &host).as_bytes()).await;
            let body = body.expect("a body");
            assert!(status == 400 && body.contains("AWS_ACCESS_KEY_ID"), "{body}");
            assert!(bills.bodies.lock().expect("a lock").is_empty(), "nothing was forwarded");
            let (status, body) =
                call(guard.address, request("right-secret", &host).as_bytes()).await;
            assert_eq!(status, 200, "{body:?}");
            let seen = bills.bodies.lock().expect("a lock").last().cloned().expect("a call");
            let (head, sent) = seen.split_once("\r\n\r\n").expect("a head");
            assert_eq!(sent.contains("maxTokens"), cap_output, "{sent}");
            let lines =
                signed("right-secret", &upstream.to_string(), "/model/m/converse", sent, time());
            for line in lines.lines() {
                assert!(head.lines().any(|one| one.eq_ignore_ascii_case(line)), "{line} in {head}");
            }
            guard.stop().await;
        }
        drop(stop);
    });
}

#[test]
fn keys_of_a_profile_sign_the_call() {
    run(async {
        let bills = Arc::new(Bills::default());
        let (upstream, stop) = billing(Arc::clone(&bills), Arc::new(|_| Manner::Answer)).await;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join(".aws")).expect("a folder");
        let file = "[other]\naws_access_key_id=AKIDOTHER\naws_secret_access_key=x\n\
            [work]\naws_access_key_id = AKIDEXAMPLE\naws_secret_access_key = of-profile\n";
        std::fs::write(folder.path().join(".aws/credentials"), file).expect("a file");
        let config = "[profile corp]\nsso_session = corp\n";
        std::fs::write(folder.path().join(".aws/config"), config).expect("a file");
        let keys_of = |profile: &'static str| {
            let home = folder.path().display().to_string();
            AwsKeys::of_machine(
                |name| match name {
                    "AWS_PROFILE" => Some(profile.to_owned()),
                    "HOME" => Some(home.clone()),
                    _ => None,
                },
                |path| DiskFiles.read(path),
            )
        };
        for (profile, status, words) in [
            ("work", 200, ""),
            ("other", 400, "not signed with the keys of guard"),
            ("corp", 400, "signs in with a browser"),
            ("missing", 400, "the profile `missing` has no keys"),
        ] {
            let settings = Settings { aws: keys_of(profile), ..Settings::default() };
            let guard = Guard::start(settings, upstream).await;
            let host = guard.address.to_string();
            let (got, body) = call(guard.address, request("of-profile", &host).as_bytes()).await;
            let body = body.expect("a body");
            assert!(got == status && body.contains(words), "{profile}: {got} {body}");
            assert!(!body.contains("AKID"), "{body}");
            guard.stop().await;
        }
        drop(stop);
    });
}

#[test]
fn signed_call_to_another_server_is_refused() {
    run(async {
        let keys = AwsKeys::from_variables(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIDEXAMPLE".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some("right-secret".to_owned()),
            _ => None,
        });
        let base = Upstream::parse("https://gateway.example/bedrock").expect("a URL");
        let settings = Settings { aws: keys, ..Settings::default() };
        let gate = Gate::new(settings, UpstreamMap::new(base), [7; 16], Arc::new(|_| {}));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        background(async move {
            let proxy = Proxy::new(gate, ProxyOptions::default());
            proxy.run(listener, std::future::pending()).await;
        });
        let (status, body) =
            call(address, request("right-secret", &address.to_string()).as_bytes()).await;
        let body = body.expect("a body");
        assert!(status == 400 && body.contains("`gateway.example` is not an address"), "{body}");
    });
}
