//! The settings file of a standing proxy.

use endstop::journal::Period;
use endstop_guard::proxy::UpstreamMap;
use endstop_guard::run::OnLimit;
use endstop_guard::standing::StandingFile;
use endstop_wire::WireFormat;
use endstop_wire::catalog::providers::public_base_url;
use std::time::Duration;

fn parse(text: &str) -> Result<StandingFile, String> {
    StandingFile::parse(text, |name| (name == "T").then(|| "0123456789abcdef".to_owned()))
}

#[test]
fn errors_name_line_key_and_choices() {
    for (text, expected) in [
        ("x = ", "line 1: not valid TOML"),
        ("\nidle_aftr = \"1m\"", "line 2: `idle_aftr`: unknown name"),
        ("idle_aftr = \"1m\"", "`idle_after`"),
        ("idle_after = \"0s\"", "line 1: `idle_after`: expected a time"),
        ("allow_http = 1", "line 1: `allow_http`: expected true or false"),
        ("[upstream]\nopenia = \"https://x\"", "line 2: `upstream.openia`: unknown name"),
        ("[upstream]\nopenai = \"x\"", "line 2: `upstream.openai`: invalid upstream URL"),
        ("[upstream]\nopenai = \"http://x\"", "without encryption"),
        ("[tokens]\na = \"short\"", "line 1: `tokens`: token `a`: expected 16 to 4096"),
        (
            "[tokens]\na = \"$MISSING\"",
            "line 2: `tokens.a`: the environment has no variable MISSING",
        ),
        (
            "[tokens]\na = \"0123456789abcdef\"\nb = \"0123456789abcdef\"",
            "token `b`: it has the same value as `a`",
        ),
        ("[profile]", "line 1: `profile`: expected 1 to 100 profiles"),
        (
            "[profile.a]\nruns = [\"x-*\"]\n[profile.b]\nruns = [\"y\", \"x-*\"]",
            "the profiles `a` and `b` have the same run `x-*` with the same tokens",
        ),
        ("[profile.a]", "line 1: `profile.a`: set `runs`"),
        ("[profile.a]\nruns = []", "`runs` is empty"),
        ("[profile.a]\nrun = []", "line 2: `profile.a.run`: unknown name"),
        ("[profile.\"a b\"]\nruns = [\"*\"]", "expected a name of letters"),
        ("[profile.default]\ntokens = [\"ci\"]", "unknown token `ci`; name it under [tokens]"),
        (
            "[profile.default]\non_limit = \"kill\"",
            "line 2: `profile.default.on_limit`: expected `final`",
        ),
        (
            "[profile.default]\nlimits = { max_turn = 1 }",
            "`profile.default.limits.max_turn`: unknown name",
        ),
        (
            "[profile.default]\nlimits = { max_turns = 9, stall_timeout = \"9s\" }",
            "line 2: `profile.default.limits.stall_timeout`: has no effect",
        ),
        (
            "[profile.default]\nlimits = { max_budget_usd = nan }",
            "line 2: `max_budget_usd`: expected a finite",
        ),
        (
            "[profile.default]\nspend = { max_usd = 1 }",
            "`profile.default.spend.max_usd`: unknown name",
        ),
        (
            "[profile.default]\nspend = { max_tokens_per_week = 1.5 }",
            "`profile.default.spend.max_tokens_per_week`: expected a whole number of tokens",
        ),
        (
            "[profile.default]\nmax_calls = { bash = -1 }",
            "line 2: `profile.default.max_calls`: `bash`: expected a whole number of calls",
        ),
        ("[profile.default]\nprice = \"free\"", "line 2: `profile.default.price`"),
        ("[profile.default]\npolicy = \"none such\"", "line 2: `profile.default.policy`"),
        ("[profile.default]\nwatch = [\"no such\"]", "line 2: `profile.default.watch`"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}\n  expected: {expected}\n  found: {error}");
    }
}

#[test]
fn error_never_shows_token() {
    for text in
        ["[tokens]\na = \"hush hush hush hush\"", "[tokens]\na = \"hush\" x", "tokens = \"hush\""]
    {
        let error = parse(text).unwrap_err();
        assert!(!error.contains("hush"), "{error}");
    }
    let file = parse("[tokens]\na = \"$T\"").unwrap();
    assert!(!format!("{file:?}").contains("0123456789abcdef"));
}

#[test]
fn whole_file_is_read() {
    let file = parse(
        r#"
        idle_after = "90s"
        [tokens]
        ci = "$T"
        [upstream]
        ollama = "http://127.0.0.1:11434"
        anthropic = "https://gateway.example/anthropic"
        [profile.default]
        on_limit = "final"
        [profile.nightly]
        runs = ["nightly-*"]
        tokens = ["ci"]
        cap_output = true
        price = "in=3,out=15"
        watch = [{ mode = "stop", rule = "stuck" }]
        policy = "final_pattern"
        limits = { max_turns = 5, timeout = "1h" }
        max_calls = { bash = 7 }
        spend = { max_usd_per_day = 100.0, max_tokens_per_month = 5 }
        "#,
    )
    .unwrap();
    assert_eq!(file.idle_after, Duration::from_secs(90));
    let [default, nightly] = &file.profiles[..] else { panic!("two profiles") };
    assert_eq!((default.name.as_str(), default.settings.on_limit), ("default", OnLimit::Final));
    assert_eq!(default.runs, ["*"]);
    assert_eq!(nightly.settings.on_limit, OnLimit::Refuse);
    assert!(nightly.settings.cap_output && nightly.settings.policy.is_some());
    assert_eq!(nightly.settings.limits.max_turns, Some(5));
    assert_eq!(nightly.spend.usd(Period::Day), Some(100.0));
    assert_eq!(nightly.spend.tokens(Period::Month), Some(5));
    let [tool] = &nightly.settings.tools[..] else { panic!("one tool") };
    assert_eq!((tool.name.as_str(), tool.max_calls), ("bash", Some(7)));
    let host =
        |map: &UpstreamMap, format| map.url(Some(format), "/v1/x", None).map(|url| url.to_string());
    assert!(host(&file.upstreams, WireFormat::Anthropic).unwrap().contains("gateway.example"));
    assert!(host(&file.upstreams, WireFormat::OpenAiChat).is_err(), "it is not in the file");
}

#[test]
fn default_has_each_provider_with_one_address() {
    let map = StandingFile::default().upstreams;
    for format in WireFormat::ALL {
        let url = map.url(Some(*format), "/v1/x", None);
        assert_eq!(url.is_ok(), public_base_url(*format).is_some(), "{format:?}");
    }
    assert!(map.url(Some(WireFormat::CohereV2), "/v2/chat", None).is_ok());
    assert!(map.url(Some(WireFormat::BedrockConverse), "/v1/x", None).is_err());
    assert!(map.url(None, "/v1/x", None).is_err());
}
