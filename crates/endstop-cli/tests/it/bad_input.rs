//! Bad input: exit status 2, and a message that names the value, its place and the fix. With
//! `--json` the same message is an object on standard output. Every run of the binary also checks
//! that it does not panic and shows no key.

use crate::cli::{ANTHROPIC_KEY, Cli, Done, OPENAI_KEY, Started, playing};
use endstop::testkit::{Server, Turn};
use serde_json::{Value, json};

const MODEL: [&str; 4] = ["run", "Hello.", "--model", "openai/gpt-4.1-mini"];

/// A case of bad input: the arguments, and parts of the message.
type Case<'a> = (&'a [&'a str], &'a [&'a str]);

fn run_with(cli: &Cli, args: &[&str], environment: &[(&str, &str)]) -> Done {
    let mut command = cli.command(args);
    command.env_remove("OPENAI_API_KEY").envs(environment.iter().copied());
    Started::new(command, "").finish()
}

/// Asserts that the command is refused with these words, as text and as JSON.
#[track_caller]
fn refused_with(cli: &Cli, args: &[&str], environment: &[(&str, &str)], says: &[&str]) {
    let text = run_with(cli, args, environment).exits(2).notes(says);
    assert_eq!(text.stdout, "", "{text:#?}");
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    let done = run_with(cli, &args, environment).exits(2).notes(says);
    let lines = done.lines();
    assert_eq!(lines.len(), 1, "{done:#?}");
    assert_eq!(lines[0]["type"], "error", "{done:#?}");
    let message = lines[0]["message"].as_str().unwrap();
    for text in says {
        assert!(message.contains(text), "no {text:?} in: {message}");
    }
}

#[track_caller]
fn refused(cli: &Cli, args: &[&str], says: &[&str]) {
    refused_with(cli, args, &[("OPENAI_API_KEY", OPENAI_KEY)], says);
}

/// Asserts that `endstop run` is refused without a request to the server.
#[track_caller]
fn refused_before_the_first_call(cli: &Cli, cases: &[Case<'_>]) {
    let server = playing([Turn::text("No request is expected.")]);
    let url = server.base_url();
    for (args, says) in cases {
        let base = ["run", "--model", "scripted", "--base-url", &url];
        let args: Vec<&str> = base.iter().chain(*args).copied().collect();
        refused(cli, &args, says);
    }
    never_called(&server);
}

fn never_called(server: &Server) {
    assert_eq!(server.requests().len(), 0);
    assert_eq!(server.open_connections(), 0);
}

#[test]
fn invalid_arguments_are_refused() {
    let cli = Cli::new();
    cli.write("body", "{}");
    let cases: [Case<'_>; 11] = [
        (&["fly"], &["'fly'", "--help"]),
        (&["simulate", "--nope"], &["'--nope'", "found"]),
        (&["run", "Hello.", "--max-turnz", "5"], &["'--max-turnz'", "'--max-turns'"]),
        (&["demo", "fixx"], &["demo `fixx`", "did you mean `fix`", "cut, budget, cancel"]),
        (&["providers", "opnai"], &["provider `opnai`", "did you mean `openai`", "anthropic, "]),
        (&["decide", "body"], &["--policy <SPEC>"]),
        (&["detect", "body"], &["--api is not given", "give one of openai-chat, "]),
        (&["detect", "--api", "telegraph", "body"], &["`telegraph`", "openai-chat, anthropic-m"]),
        (&["detect", "--api", "openai", "--status", "-1", "body"], &["--status", "100..=999"]),
        (&["detect", "--api", "openai", "--header", "age", "body"], &["--header", "name: value"]),
        // A key passed in the wrong place.
        (&["detect", "--api", "openai", "--header", OPENAI_KEY, "body"], &["[redacted]"]),
    ];
    for (args, says) in cases {
        refused(&cli, args, says);
    }
}

#[test]
fn invalid_models_and_addresses_are_refused() {
    let cli = Cli::new();
    let broken = format!("{OPENAI_KEY}\nX-More: header");
    let key = ("OPENAI_API_KEY", OPENAI_KEY);
    for (args, environment, says) in [
        (&["--model", "gpt-5"][..], key, &["`gpt-5`", "did you mean `openai/gpt-5`"][..]),
        (&["--model", "telegraph"], key, &["`telegraph`", "PROVIDER/MODEL", "anthropic, openai"]),
        (&["--model", "opnai/x"], key, &["`opnai`", "did you mean `openai`", "anthropic, openai"]),
        (&["--model", ""], key, &["PROVIDER/MODEL", "anthropic, openai"]),
        (&["--model", "openai/"], key, &["`openai`", "write openai/MODEL"]),
        (&["--model", OPENAI_KEY], key, &["[redacted]", "PROVIDER/MODEL"]),
        (&[], key, &["no model is configured", "--model PROVIDER/MODEL"]),
        (&["--model", "openai/x", "--api", "post"], key, &["api `post`", "anthropic-messages"]),
        (
            &["--model", "groq/x", "--api", "anthropic-messages"],
            key,
            &["Groq does not speak anthropic-messages", "openai-chat"],
        ),
        (&["--model", "openai/x"], ("OPENAI_API_KEY", ""), &["OpenAI", "set OPENAI_API_KEY"]),
        (&["--model", "groq/x"], key, &["Groq", "set GROQ_API_KEY"]),
        (
            &["--model", "openai/x"],
            ("OPENAI_API_KEY", &broken),
            &["`authorization`", "line break", "look at OPENAI_API_KEY"],
        ),
        (&["--model", "openai/x"], ("OPENAI_ORG_ID", "a\nb"), &["set OPENAI_API_KEY"]),
        (
            &["--model", "vertex/claude-x", "--api", "gemini"],
            key,
            &["`claude-x`", "uses anthropic-messages, not gemini"],
        ),
        (
            &["--model", "vertex/gemini-x"],
            ("GOOGLE_CLOUD_PROJECT", "mine"),
            &["no location for Google Vertex AI", "set GOOGLE_CLOUD_LOCATION"],
        ),
        (
            &["--model", "azure/x"],
            ("AZURE_OPENAI_API_KEY", "k"),
            &["no endpoint for Azure OpenAI", "set AZURE_OPENAI_ENDPOINT"],
        ),
        (&["--model", "ollama/x", "--base-url", "x"], key, &["--base-url", "`x`", "http://HOST"]),
        (&["--model", "x", "--base-url", ""], key, &["--base-url", "http://HOST"]),
        (&["--model", "x", "--base-url", "http://"], key, &["--base-url", "empty host"]),
        (
            &["--model", "x", "--base-url", "localhost:8080/v1"],
            key,
            &["--base-url", "`localhost:8080/v1`", "not http or https"],
        ),
        (&["--model", "x", "--base-url", "file:///etc/passwd"], key, &["not http or https"]),
    ] {
        let args: Vec<&str> = ["run", "Hello."].iter().chain(args).copied().collect();
        refused_with(&cli, &args, &[environment], says);
    }
    let variables = [key, ("OPENAI_BASE_URL", "localhost:1")];
    refused_with(
        &cli,
        &MODEL,
        &variables,
        &["invalid OPENAI_BASE_URL `localhost:1`", "http://HOST"],
    );
    refused_with(&cli, &MODEL, &[key, ("OPENAI_ORG_ID", "a\nb")], &["look at OPENAI_ORG_ID"]);
    // The password is not repeated.
    let address = ["--base-url", "http://me:hunter2@ho st/"];
    let args: Vec<&str> = MODEL.iter().chain(&address).copied().collect();
    assert!(!cli.run(args).exits(2).notes(&["--base-url"]).stderr.contains("hunter2"));
}

#[test]
fn invalid_limits_are_refused() {
    let whole: &[&str] = &["--max-turns", "a whole number from 0"];
    let dollars: &[&str] = &["--max-budget-usd", "US dollars, 0 or more"];
    let time: &[&str] = &["--timeout", "\"500ms\", \"90s\", \"10m\""];
    let cap: &[&str] = &["--max-output-tokens", "1 or more"];
    let cases: [Case<'_>; 24] = [
        (&["--max-turns", "-1"], whole),
        (&["--max-turns", "many"], whole),
        (&["--max-turns", "1.5"], whole),
        (&["--max-turns", "NaN"], whole),
        (&["--max-turns", "4294967296"], whole),
        (&["--max-budget-usd", "-0.01"], dollars),
        (&["--max-budget-usd", "NaN"], dollars),
        (&["--max-budget-usd", "inf"], dollars),
        (&["--max-budget-usd", "1e999"], dollars),
        (&["--max-budget-usd", "$2"], dollars),
        (&["--timeout=-5s"], time),
        (&["--timeout", "10 parsecs"], time),
        (&["--timeout", "nan"], time),
        (&["--timeout", "1e30"], time),
        (&["--cancel-grace", "off"], &["--cancel-grace", "set 0 to kill at once"]),
        (&["--tool-concurrency", "0"], &["--tool-concurrency", "at least 1"]),
        (&["--tool-concurrency", "off"], &["--tool-concurrency", "cannot be off"]),
        (&["--max-output-tokens", "-5"], cap),
        (&["--max-output-tokens", "0"], cap),
        (&["--context-window", "wide"], &["--context-window", "1 or more"]),
        (&["--price", "in=3"], &["--price", "`out` is missing"]),
        (&["--ask", "--tool", "shell"], &["--ask", "standard input is not a terminal"]),
        (&["--price", "in=NaN,out=1"], &["--price", "`in`", "such as 3 or 0.25"]),
        (&["--price", "in=1,output=1"], &["--price", "`output`", "in, out, cached, cache_write"]),
    ];
    refused_before_the_first_call(&Cli::new(), &cases);
}

#[test]
fn bad_settings_fail_before_first_call() {
    let cli = Cli::new();
    cli.write("cut.json", "{\"type\":\n");
    cli.write("wrong.json", r#"{"properties": {"n": {"type": "integre"}}}"#);
    cli.write("number.json", "5");
    cli.write("empty.json", "");
    let unknown_policy = &["--policy", "`nope`", "final_pattern, reward_threshold, confidence"][..];
    let cases: [Case<'_>; 23] = [
        // A ceiling that cannot be enforced, because the model has no known price.
        (&["Hi.", "--max-budget-usd", "1"], &["max_budget_usd", "`scripted`", "--price in="]),
        (&[""], &["the task is empty", "as an argument, or on standard input"]),
        (&[" \n"], &["the task is empty"]),
        (&[], &["the task is empty"]),
        (&["Hi.", "--tool", "shel"], &["--tool", "did you mean `shell`", "read_file, write_file"]),
        (&["Hi.", "--policy", "nope"], unknown_policy),
        (&["Hi.", "--policy", r#"{"any": ["nope"]}"#], unknown_policy),
        (&["Hi.", "--policy", "confidence={"], &["--policy", "`confidence`", "not valid JSON"]),
        (
            &["Hi.", "--policy", r#"confidence={"treshold": 1}"#],
            &["--policy", "`confidence`", "`treshold`", "confidence_threshold"],
        ),
        (&["Hi.", "--policy", "absent.toml"], &["absent.toml", "No such file"]),
        (&["Hi.", "--dir", "absent"], &["--dir absent", "not a folder"]),
        (&["Hi.", "--dir", "cut.json"], &["--dir cut.json", "not a folder"]),
        (&["Hi.", "--events", "absent/e.jsonl"], &["--events absent/e.jsonl", "No such file"]),
        (&["Hi.", "--events", "."], &["--events .", "directory"]),
        (&["Hi.", "--output-schema", "absent.json"], &["absent.json", "No such file"]),
        (&["Hi.", "--output-schema", "."], &[".: ", "directory"]),
        (&["Hi.", "--output-schema", "cut.json"], &["--output-schema cut.json", "line 2"]),
        (&["Hi.", "--output-schema", "wrong.json"], &["wrong.json", "`/properties/n/type`"]),
        (&["Hi.", "--output-schema", "number.json"], &["number.json", "\"boolean\", \"object\""]),
        (&["Hi.", "--output-schema", "empty.json"], &["empty.json", "line 1"]),
        (&["Hi.", "--compact", "elid"], &["--compact", "did you mean `elide`"]),
        (&["Hi.", "--config", "absent.toml"], &["absent.toml", "No such file"]),
        (&["Hi.", "--config", "."], &[".: ", "directory"]),
    ];
    refused_before_the_first_call(&cli, &cases);
    assert!(!cli.path("absent").exists());
}

#[test]
fn invalid_settings_are_refused() {
    let cli = Cli::new();
    let key_in_the_line = format!("# settings\nkey = {ANTHROPIC_KEY}\n");
    let text = ["expected a string"];
    let (limits, price) = ("[limits]", "`price`");
    for (toml, says) in [
        ("model = \"x\"\nsystem = \"unclosed\n", &["line 2", "not valid TOML"][..]),
        // The line number is given, but its text is not quoted.
        (&key_in_the_line, &["line 2", "not valid TOML"]),
        ("modle = \"x\"", &["`modle`", "did you mean `model`", "limits, policy"]),
        ("[limits]\nmax_turn = 1", &[limits, "`max_turn`", "`max_turns`", "max_budget_usd"]),
        ("[limits]\nmax_turns = -1", &[limits, "`max_turns`", "a whole number from 0"]),
        ("[limits]\nmax_turns = \"few\"", &[limits, "`max_turns`", "\"few\""]),
        // Not finite is not the same as off.
        ("[limits]\nmax_budget_usd = nan", &["`limits`", "`max_budget_usd`", "finite"]),
        ("[limits]\nmax_budget_usd = inf", &["`limits`", "`max_budget_usd`", "finite"]),
        ("[limits]\ntimeout = 10:00:00", &[limits, "`timeout`", "\"90s\""]),
        ("limits = 5", &["`limits`", "expected a table"]),
        ("[price]\ninn = 3\nout = 15", &["price", "`inn`", "in, out, cached, cache_write"]),
        ("[price]\nin = 3", &["price", "`out` is missing"]),
        ("[price]\nin = nan\nout = 1", &[price, "`in`", "finite"]),
        ("[price]\nin = \"3\"\nout = 1", &[price, "in=3,out=15"]),
        ("price = 5", &[price, "in=3,out=15"]),
        ("price = \"in=3\"", &["price", "`out` is missing"]),
        ("tools = \"shell\"", &["`tools`", "expected a list of tool names"]),
        ("tools = [\"shel\"]", &["`tools`", "`shel`", "shell, read_file, write_file"]),
        ("model = 5", &["`model`", text[0]]),
        ("dir = true", &["`dir`", text[0]]),
        ("stream = \"yes\"", &["`stream`", "expected true or false"]),
        ("max_output_tokens = \"9\"", &["`max_output_tokens`", "1 or more"]),
        ("context_window = 0", &["`context_window`", "1 or more"]),
        (
            "compaction = \"shrink\"",
            &["[compaction]", "`shrink`", "on, off, elide, drop, summarise"],
        ),
        ("[compaction]\nat = 60", &["[compaction]", "`at`", "between 0 and 1"]),
        ("policy = 5", &["[policy]", "a name or an object", "final_pattern, "]),
        ("max_turns = 5", &["`max_turns`", "belongs to the table [limits]"]),
        ("policy = \"final_patern\"", &["[policy]", "did you mean `final_pattern`"]),
        ("[policy]\ncycl = {}", &["[policy]", "did you mean `cycle`"]),
        ("[policy]\ncomposite = [\"stuck\"]", &["[policy]", "{\"policies\": ["]),
        ("watch = \"stop:cycle\"", &["[watch]", "{ cycle = \"stop\" }"]),
        ("watch = [\"stop:cycle\"]", &["[watch]", "{ mode = \"stop\", rule = \"cycle\" }"]),
        ("[watch]\nstop = [\"stuck\"]", &["[watch]", "`stop`", "stuck = \"stop\""]),
        ("[watch]\nhalt = \"stuck\"", &["[watch]", "`halt`", "stuck = \"stop\""]),
        ("[watch]\ncycl = \"stop\"", &["[watch]", "did you mean `cycle`"]),
        ("[policy]\nany = [\"nope\"]", &["[policy]", "`nope`", "final_pattern, "]),
    ] {
        cli.write("endstop.toml", toml);
        refused(&cli, &MODEL, &[says, &["endstop.toml: "]].concat());
    }
    cli.write("endstop.toml", b"model = \"\xff\"");
    refused(&cli, &MODEL, &["endstop.toml: not UTF-8"]);
    std::fs::remove_file(cli.path("endstop.toml")).unwrap();
    std::fs::create_dir(cli.path("endstop.toml")).unwrap();
    refused(&cli, &MODEL, &["endstop.toml: ", "directory"]);
}

#[test]
fn price_setting_accepts_string_or_table() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.").usage(1_000, 100)]);
    for price in ["price = \"in=3,out=0.0000005\"", "[price]\nin = 3\nout = 0.0000005"] {
        cli.write("price.toml", price);
        let args = ["Is it?", "--max-budget-usd", "1", "--json", "--config", "price.toml"];
        let outcome = cli.agent(&server, "openai-chat", &args).exits(0).outcome();
        assert!((outcome["cost_usd"].as_f64().unwrap() - 0.003).abs() < 1e-9, "{outcome}");
    }
}

#[test]
fn unreadable_files_are_refused() {
    let cli = Cli::new();
    cli.write("empty", "");
    cli.write("latin", b"{\"turns\": [{\"text\": \"gr\xfc\xdfe\"}]}");
    std::fs::create_dir(cli.path("folder")).unwrap();
    for command in [
        &["simulate"][..],
        &["simulate", "--jsonl"],
        &["detect", "--api", "openai-chat"],
        &["detect", "--jsonl"],
        &["decide", "--policy", "final_pattern"],
        &["explain"],
    ] {
        for (file, says) in [("absent", "No such file"), ("folder", "directory")] {
            refused(&cli, &[command, &[file]].concat(), &[&format!("{file}: "), says]);
        }
    }
    refused(&cli, &["simulate", "empty"], &["empty: not valid JSON", "line 1"]);
    refused(&cli, &["simulate", "latin"], &["latin: not UTF-8", "index 23"]);
    refused(&cli, &["explain", "latin"], &["latin: line 1: not UTF-8", "byte 24"]);
    refused(&cli, &["explain", "empty"], &["empty: no events found", "--events"]);
    // Empty input is a valid stream.
    for command in [
        &["simulate", "--jsonl", "empty"][..],
        &["detect", "--jsonl", "empty"],
        &["decide", "--policy", "final_pattern", "empty"],
    ] {
        assert_eq!(cli.run(command).exits(0).stdout, "");
    }
}

/// Invalid scenarios, with parts of their messages.
fn bad_scenarios() -> Vec<(Value, Vec<&'static str>)> {
    let answer = json!([{"text": "Yes."}]);
    vec![
        (json!([]), vec!["a scenario is an object", "`turns`"]),
        (
            json!({"limits": {"verify_rounds": 2}, "turns": []}),
            vec!["limits.verify_rounds", "no effect without a verifier", "`verdicts`"],
        ),
        (json!({}), vec!["missing field `turns`"]),
        (json!({"turns": 5}), vec!["`turns`", "expected a sequence"]),
        (json!({"turns": [{"text": 5}]}), vec!["`turns[0].text`", "expected a string"]),
        (json!({"turns": [{"texts": "a"}]}), vec!["`turns[0].texts`", "`text`, `tool_calls`"]),
        (json!({"turns": [], "turn": 1}), vec!["`turn`", "`limits`, `policy`"]),
        (json!({"turns": [{"error": "odd"}]}), vec!["`turns[0].error`", "`rate_limited`"]),
        (json!({"turns": [{"cost": -1}]}), vec!["`turns[0].cost`", "0 or more"]),
        (json!({"turns": [{"tool_calls": [{"id": "1"}]}]}), vec!["tool_calls[0]", "`name`"]),
        (
            json!({"turns": answer, "limits": {"max_turnz": 1}}),
            vec!["`limits.max_turnz`", "did you mean `max_turns`"],
        ),
        (json!({"turns": answer, "limits": {"timeout": "soon"}}), vec!["`limits.timeout`", "90s"]),
        (json!({"turns": answer, "policy": "nope"}), vec!["`policy`", "`nope`", "confidence"]),
        (
            json!({"turns": answer, "output_schema": {"type": "text"}}),
            vec!["`output_schema`", "`/type`"],
        ),
        (
            json!({"turns": answer, "at": [{"ms": 1, "do": "stop"}]}),
            vec!["`at[0].do`", "`cancel` or `terminate`"],
        ),
    ]
}

#[test]
fn invalid_scenarios_are_refused() {
    let cli = Cli::new();
    for (scenario, says) in bad_scenarios() {
        cli.write("scenario.json", scenario.to_string());
        refused(&cli, &["simulate", "scenario.json"], &[&says[..], &["scenario.json: "]].concat());
    }
    cli.write("scenario.json", "{\"turns\": [\n  {\"text\": oops}\n]}");
    refused(&cli, &["simulate", "scenario.json"], &["scenario.json: not valid JSON", "line 2"]);
    cli.write("scenario.json", "[".repeat(100_000));
    refused(&cli, &["simulate", "scenario.json"], &["scenario.json: ", "recursion limit"]);
}

#[test]
fn endless_scenario_is_refused() {
    let cli = Cli::new();
    let round = json!({"tool_calls": [{"id": "1", "name": "look"}]});
    let forever = json!({"max_turns": null, "max_consecutive_mistakes": null,
                         "max_unproductive_turns": null});
    let scenario = json!({"turns": [round], "repeat_last": true, "limits": forever});
    cli.write("scenario.json", scenario.to_string());
    let says = ["scenario.json: ", "`repeat_last`", "limits.max_turns"];
    refused(&cli, &["simulate", "scenario.json"], &says);
}

#[test]
fn huge_numbers_end_only_the_run() {
    let cli = Cli::new();
    let turn = json!({"text": "more", "finish": "length", "cost": 1e300, "duration_ms": u64::MAX,
                      "input_tokens": u64::MAX, "output_tokens": u64::MAX});
    let off = json!({"max_continuations": 3_000, "max_turns": 2_000, "turn_timeout": null,
                     "stall_timeout": null, "max_unproductive_turns": null});
    let scenario = json!({"turns": [turn], "repeat_last": true, "limits": off,
                          "context_window": u64::MAX, "prompt_tokens": u64::MAX});
    let outcome = cli.feed(["simulate"], &scenario.to_string()).exits(0).outcome();
    assert_eq!(outcome["termination"], "error_max_turns");
}

/// Asserts that a stream continues after bad lines: each line has its answer at its position.
fn continues_after(command: &[&str], good: &str, bad: &[(Vec<u8>, Vec<&str>)]) {
    let cli = Cli::new();
    let mut file = good.as_bytes().to_vec();
    for (line, _) in bad {
        file.extend([b"\n", &line[..], b"\n", good.as_bytes()].concat());
    }
    cli.write("lines.jsonl", file);
    let args = [command, &["lines.jsonl"]].concat();
    for args in [args.clone(), [&args[..], &["--json"]].concat()] {
        let done = cli.run(args).exits(2);
        let outputs = done.lines();
        assert_eq!(outputs.len(), 1 + 2 * bad.len(), "{done:#?}");
        let notes: Vec<&str> = done.stderr.lines().collect();
        assert_eq!(notes.len(), bad.len(), "{done:#?}");
        for (at, output) in outputs.iter().enumerate() {
            if at % 2 == 0 {
                assert_eq!(*output, outputs[0]);
                continue;
            }
            assert_eq!(output["type"], "error", "{output}");
            assert_eq!(output["line"], at + 1, "{output}");
            let message = &output["error"]["message"];
            let said = message.as_str().or(output["error"].as_str()).unwrap();
            let line = format!("line {}: ", at + 1);
            for says in bad[at / 2].1.iter().copied().chain([&line[..]]) {
                assert!(said.contains(says), "no {says:?} in: {said}");
                assert!(notes[at / 2].contains(says), "no {says:?} in: {}", notes[at / 2]);
            }
            assert!(notes[at / 2].contains("lines.jsonl: "), "{}", notes[at / 2]);
        }
    }
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[test]
fn simulate_continues_after_bad_line() {
    let good = json!({"id": "good", "scenario": {"turns": [{"text": "Yes."}]}}).to_string();
    let mut bad = vec![
        (b"{\"id\": 2, oops}".to_vec(), vec!["not valid JSON", "column 11"]),
        (b"\"\xff\"".to_vec(), vec!["not UTF-8", "byte 2"]),
        (bytes(&json!([])), vec!["`scenario`", "{\"id\", \"scenario\"}"]),
        (bytes(&json!({"id": 1})), vec!["`scenario`", "{\"id\", \"scenario\"}"]),
    ];
    for (scenario, says) in bad_scenarios() {
        bad.push((bytes(&json!({"id": "bad", "scenario": scenario})), says));
    }
    continues_after(&["simulate", "--jsonl"], &good, &bad);
}

#[test]
fn detect_continues_after_bad_line() {
    let body = r#"{"choices": [{"message": {"content": "Yes."}, "finish_reason": "stop"}]}"#;
    let good = json!({"id": "good", "api": "openai-chat", "status": 200, "body": body});
    let with = |key: &str, value: Value| {
        let mut row = good.clone();
        row[key] = value;
        bytes(&row)
    };
    let mut bodiless = good.clone();
    bodiless.as_object_mut().unwrap().remove("body");
    let mut base64 = good.clone();
    base64["body_encoding"] = json!("base64");
    let bad = [
        (b"{\"id\": 2, oops}".to_vec(), vec!["not valid JSON", "column 11"]),
        (b"{\"body\": \"\xff\"}".to_vec(), vec!["not UTF-8", "byte 11"]),
        (bytes(&json!([])), vec!["`api`", "openai-chat"]),
        (with("api", json!(5)), vec!["`api`", "openai-chat"]),
        (with("api", json!("telegraph")), vec!["`telegraph`", "openai-chat, anthropic-messages"]),
        (with("status", json!("ok")), vec!["`status`", "such as 200"]),
        (with("status", json!(70_000)), vec!["`status`", "such as 200"]),
        (with("headers", json!("none")), vec!["`headers`", "an object"]),
        (with("request", json!(5)), vec!["`request`", "an object"]),
        (with("body_encoding", json!("rot13")), vec!["`body_encoding`", "\"utf-8\" or \"base64\""]),
        (bytes(&base64), vec!["`body`", "base64"]),
        (bytes(&bodiless), vec!["`body` is missing"]),
    ];
    continues_after(&["detect", "--jsonl"], &good.to_string(), &bad);
}

#[test]
fn decide_continues_after_bad_line() {
    let good = json!({"result": {"action_type": "message", "output": "FINAL(42)"}}).to_string();
    let result = |key: &str, value: Value| {
        let mut step = json!({"result": {"action_type": "message"}});
        step["result"][key] = value;
        bytes(&step)
    };
    let context =
        |context: Value| bytes(&json!({"result": {"action_type": "message"}, "context": context}));
    let bad = [
        (b"{\"id\": 2, oops}".to_vec(), vec!["not valid JSON", "column 11"]),
        (b"{\"task\": \"\xff\"}".to_vec(), vec!["not UTF-8", "byte 11"]),
        (bytes(&json!([])), vec!["not a JSON object"]),
        (bytes(&json!({})), vec!["`result` is missing"]),
        (bytes(&json!({"result": 5})), vec!["`result` must be an object"]),
        (bytes(&json!({"reset": 1})), vec!["`reset` must be true"]),
        (result("action_type", json!(5)), vec!["`result.action_type` must be a string"]),
        (result("output", json!(5)), vec!["`result.output` must be a string or null"]),
        (result("success", json!("yes")), vec!["`result.success` must be true or false"]),
        (result("metadata", json!([])), vec!["`result.metadata` must be an object"]),
        (result("outputs", json!(5)), vec!["`result.outputs` is not a list"]),
        (context(json!(5)), vec!["`context` must be an object"]),
        (context(json!({"step": 1.5})), vec!["`context.step` must be a whole number"]),
    ];
    continues_after(&["decide", "--policy", "final_pattern"], &good, &bad);
}

#[test]
fn explain_reads_every_event_kind() {
    let cli = Cli::new();
    let server = playing([
        Turn::error(500, "{}"),
        Turn::call("read_file", &json!({"path": "absent"})).and_text("I look."),
        Turn::text(""),
        Turn::text("Nothing is there."),
    ]);
    let args = ["Look.", "--tool", "read_file", "--events", "run.jsonl"];
    cli.agent(&server, "openai-chat", &args).exits(0);
    let written = cli.read("run.jsonl");
    for kind in
        ["attempt_failed", "turn_finished", "tool_finished", "message_injected", "delta", "outcome"]
    {
        assert!(written.contains(&format!("{kind:?}")), "no {kind} in {written}");
    }
    let explained = cli.run(["explain", "run.jsonl"]).exits(0).stdout;
    for says in ["failed: server_error", "read_file error", "message to the model", "stopped: stop"]
    {
        assert!(explained.contains(says), "no {says:?} in {explained}");
    }
}

#[test]
fn errors_quote_no_control_characters() {
    let cli = Cli::new();
    cli.write("run.jsonl", "{\"type\":\"\\u001b]0;owned\\u0007 \\u001b[2J\\u202e\"}\n");
    let done = cli.run(["explain", "run.jsonl"]).exits(2);
    assert!(done.stderr.contains("␛]0;owned␇ ␛[2J<U+202E>"), "{done:?}");
    assert!(!done.stderr.contains(['\u{1b}', '\u{202e}']), "{done:?}");
}

#[test]
fn unexplainable_runs_are_refused() {
    let cli = Cli::new();
    let started = r#"{"type":"turn_started","turn":1,"attempt":1,"at_ms":0.5}"#;
    for (file, says) in [
        (format!("{started}\n{{\"type\"\n{started}"), &["line 2", "not valid JSON"][..]),
        (r#"{"type":"user","message":"hi"}"#.to_owned(), &["line 1", "`user`", "`turn_started`"]),
        (r#"{"role":"user"}"#.to_owned(), &["line 1", "missing field `type`"]),
        ("[1, 2]".to_owned(), &["line 1", "missing field `type`"]),
        (r#"{"type":"turn_started"}"#.to_owned(), &["line 1", "missing field `turn`"]),
        (
            format!("{started}\n\n{{\"type\":\"outcome\"}}"),
            &["line 3", "missing field `decided_by`"],
        ),
        (
            r#"{"type":"outcome","termination":"error_of_2030","decided_by":{}}"#.to_owned(),
            &["line 1", "not an outcome: `termination`: unknown variant `error_of_2030`"],
        ),
        (
            r#"{"type":"outcome","termination":"stop","decided_by":{},"cost_usd":-1}"#.to_owned(),
            &["line 1", "`cost_usd`: ", "a non-negative amount of dollars"],
        ),
        ("2026-01-01 INFO started".to_owned(), &["line 1", "not valid JSON"]),
        ("\n\n".to_owned(), &["no events found"]),
    ] {
        cli.write("run.jsonl", file);
        let says = [says, &["run.jsonl: ", "`endstop run --events`"]].concat();
        refused(&cli, &["explain", "run.jsonl"], &says);
    }
    // A file as a killed run leaves it.
    cli.write("run.jsonl", format!("{started}\n{{\"type\":\"turn_en"));
    let done = cli.run(["explain", "run.jsonl"]).exits(0).notes(&["the last line is incomplete"]);
    assert!(done.stdout.contains("turn 1") && done.stdout.contains("no outcome"), "{done:#?}");
    // A time beyond every clock.
    cli.write("run.jsonl", started.replace("0.5", "1e300"));
    cli.run(["explain", "run.jsonl"]).exits(0);
}
