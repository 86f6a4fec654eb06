//! Tests which clients may use a standing proxy, and which profile each gets.

use super::{Lab, OTHER, TOKEN};
use crate::proxy::support::{Conn, run};
use endstop_guard::standing::{Profile, choose};
use proptest::prelude::*;

const FILE: &str = r#"
    [tokens]
    ci = "$TOKEN"
    web = "$OTHER"
    [upstream]
    openai = "UPSTREAM"
    [profile.default]
    limits = { max_turns = 1 }
    [profile.nightly]
    runs = ["nightly-*"]
    tokens = ["ci"]
    limits = { max_turns = 3 }
"#;

fn with(token: &str) -> String {
    format!("x-endstop-token: {token}\r\n")
}

#[test]
fn request_without_token_is_refused() {
    run(async {
        let lab = Lab::start(FILE).await;
        let wrong = with("guard-token-0123456780");
        let as_key = format!("authorization: Bearer {TOKEN}\r\n");
        for headers in ["", &wrong, &as_key, "x-endstop-token:\r\n"] {
            let (status, body) = lab.turn("a", 1, headers).await;
            assert_eq!(status, 401, "{headers}");
            assert!(body.contains("x-endstop-token") && !body.contains("0123456789"), "{body}");
        }
        // Neither a list of models nor an unknown path passes.
        assert_eq!(lab.send("/v1/models", "", "").await.0, 401);
        assert_eq!((lab.calls(), lab.standing.runs().len()), (0, 0));
        assert_eq!(lab.standing.unauthorised(), 5);
    });
}

#[test]
fn connection_without_token_is_not_a_clients() {
    run(async {
        let lab = Lab::with(FILE, |options| options.connections = 4).await;
        let address = lab.address;
        let mut others = Vec::new();
        for _ in 0..12 {
            let mut conn = Conn::to(address).await;
            conn.send("GET /v1/models HTTP/1.1\r\nhost: x\r\nx-endstop-token: wrong\r\n\r\n").await;
            assert!(conn.message().await.0.contains(" 401 "));
            // Refused, and still connected.
            others.push(conn);
        }
        assert_eq!(lab.turn("a", 1, &with(TOKEN)).await.0, 200);
    });
}

#[test]
fn token_is_not_forwarded() {
    run(async {
        let lab = Lab::start(FILE).await;
        let bearer = format!("Proxy-Authorization: Bearer {TOKEN}\r\n");
        for (token, name) in [(with(TOKEN), "r1"), (bearer, "r2")] {
            let headers = format!(
                "{token}authorization: Bearer provider-key\r\nx-endstop-run: {name}\r\nx-endstop-profile: default\r\n"
            );
            let (status, _) = lab.send("/v1/chat/completions", &headers, &super::chat(1)).await;
            let head = lab.heads.lock().unwrap().pop();
            assert!(lab.standing.runs().iter().any(|(_, run)| run.id() == name));
            assert_eq!(status, 200);
            let head = head.unwrap().to_ascii_lowercase();
            assert!(head.contains("bearer provider-key"), "{head}");
            assert!(!head.contains("endstop") && !head.contains("proxy-auth"), "{head}");
            assert!(!head.contains("0123456789"), "{head}");
        }
    });
}

#[test]
fn profile_follows_run_name_and_token() {
    run(async {
        let lab = Lab::start(FILE).await;
        for (name, token, turns) in
            [("nightly-1", TOKEN, 3), ("nightly-2", OTHER, 1), ("x", TOKEN, 1)]
        {
            for turn in 1..=turns {
                let (status, body) = lab.turn(name, turn, &with(token)).await;
                assert_eq!(status, 200, "{name} {turn}: {body}");
            }
            let (status, body) = lab.turn(name, turns + 1, &with(token)).await;
            assert_eq!(status, 400, "{name}: {body}");
            assert!(body.contains("error_max_turns") && body.contains(name), "{body}");
        }
    });
}

#[test]
fn client_cannot_ask_for_looser_profile() {
    run(async {
        let lab = Lab::start(FILE).await;
        for (name, token, profile) in
            [("nightly-1", OTHER, "nightly"), ("x", TOKEN, "nightly"), ("x", TOKEN, "no such")]
        {
            let headers = format!("{}x-endstop-profile: {profile}\r\n", with(token));
            let (status, body) = lab.turn(name, 1, &headers).await;
            assert_eq!(status, 400, "{body}");
            assert!(body.contains("may not use the profile"), "{body}");
        }
        // A tighter one is the client's choice.
        let headers = format!("{}x-endstop-profile: default\r\n", with(TOKEN));
        assert_eq!(lab.turn("nightly-1", 1, &headers).await.0, 200);
        assert_eq!(lab.standing.runs()[0].0, "default");
    });
}

#[test]
fn profiles_do_not_share_runs() {
    run(async {
        let lab = Lab::start(FILE).await;
        assert_eq!(lab.turn("nightly-1", 1, &with(TOKEN)).await.0, 200);
        // The same name with another token is another run, so it cannot end the first one.
        assert_eq!(lab.turn("nightly-1", 1, &with(OTHER)).await.0, 200);
        assert_eq!(lab.turn("nightly-1", 2, &with(OTHER)).await.0, 400);
        assert_eq!(lab.turn("nightly-1", 2, &with(TOKEN)).await.0, 200);
        let ended: Vec<bool> =
            lab.standing.runs().iter().map(|(_, run)| run.outcome().is_some()).collect();
        assert_eq!(ended, [true, false]);
    });
}

proptest! {
    /// A client never gets a profile that its run name or its token may not use.
    #[test]
    fn chosen_profile_is_allowed(
        name in proptest::option::of("[ab]{1,3}-[ab]{0,2}"),
        token in proptest::option::of("[xy]"),
        asked in proptest::option::of("[pqr]"),
        patterns in proptest::collection::vec("[ab*]{1,2}\\*?", 3),
        tokens in proptest::collection::vec(proptest::collection::vec("[xy]", 0..2), 3),
    ) {
        let profiles: Vec<Profile> = ["p", "q", "r"].iter().zip(patterns).zip(tokens)
            .map(|((profile, pattern), tokens)| Profile {
                tokens,
                ..Profile::new(profile, [pattern.as_str()])
            })
            .collect();
        if let Ok(at) = choose(&profiles, name.as_deref(), token.as_deref(), asked.as_deref()) {
            let profile = &profiles[at];
            let listed = token.as_ref().is_some_and(|token| profile.tokens.contains(token));
            prop_assert!(profile.tokens.is_empty() || listed);
            let fits = match &name {
                None => profile.runs[0] == "*",
                Some(name) => reference(profile.runs[0].as_bytes(), name.as_bytes()),
            };
            prop_assert!(fits, "{:?} {:?}", profile.runs, name);
            prop_assert!(asked.is_none_or(|asked| asked == profile.name));
        }
    }
}

/// The meaning of a pattern, one character at a time.
fn reference(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) if reference(rest, name) => true,
        (Some((b'*', _)), Some((_, name))) => reference(pattern, name),
        (Some((one, pattern)), Some((other, name))) => one == other && reference(pattern, name),
        _ => false,
    }
}
