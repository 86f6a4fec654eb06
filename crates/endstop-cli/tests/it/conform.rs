//! `endstop conform` with real programs: `endstop run` itself, a script that says success to everything, and programs that
//! are no agents.

use crate::cli::{Cli, Started, ask, eventually};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// An agent of five lines that makes one call, and exits with 0 whatever the answer is.
const CARELESS: &str = r#"
address="${OPENAI_BASE_URL#http://}"; host="${address%%/*}"; path="/${address#*/}"
exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
body='{"model":"m","messages":[{"role":"user","content":"go"}],"tools":[{"type":"function","function":{"name":"shell","parameters":{"properties":{"command":{}}}}}]}'
printf 'POST %s/chat/completions HTTP/1.1\r\nhost: %s\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' "$path" "$host" "${#body}" "$body" >&3
timeout 5 head -c 400 <&3
exit 0
"#;

fn verdicts(done: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let checks = done["checks"].as_array().unwrap();
    checks.iter().map(|check| (text(&check["id"]), text(&check["verdict"]))).collect()
}

#[test]
fn endstop_run_passes_checks_of_each_level() {
    let cli = Cli::new();
    let only = "C-01,T-01,T-02,T-07,C-04,S-02,X-02,L-01,L-06,O-01,O-02";
    let program = env!("CARGO_BIN_EXE_endstop");
    let done = cli.run(["conform", "--json", "--only", only, "--", program]).exits(0);
    let result = done.lines().pop().unwrap();
    assert_eq!(result["profile"], "endstop");
    for (id, verdict) in verdicts(&result) {
        assert_eq!(verdict, "pass", "{id}: {result}");
    }
    // The bodies of the tool have really run, and the answers were really those of the case.
    let case = |name: &str| {
        let cases = result["cases"].as_array().unwrap();
        cases.iter().find(|case| case["name"] == name).unwrap()["evidence"].clone()
    };
    assert_eq!(case("parallel-calls")["started"].as_array().unwrap().len(), 2);
    assert!(case("cut-text")["calls"][0]["bytes"].as_str().unwrap().contains("\"length\""));
    assert_eq!(case("turn-cap")["calls"].as_array().unwrap().len(), 4);
}

#[test]
fn program_that_always_succeeds_fails() {
    let cli = Cli::new();
    cli.write("careless.sh", CARELESS);
    let only = "T-01,T-04,T-08,R-01,X-02,L-01";
    let args = ["conform", "--json", "--only", only, "--", "bash", "careless.sh"];
    let result = cli.run(args).exits(1).lines().pop().unwrap();
    let expected = [
        ("T-01", "fail"),
        ("T-04", "fail"),
        ("T-08", "fail"),
        // It makes one call and starts no tool, so that these situations do not arise.
        ("R-01", "not_reached"),
        ("X-02", "not_reached"),
        ("L-01", "not_applicable"),
    ];
    let expected = expected.map(|(id, verdict)| (id.to_owned(), verdict.to_owned()));
    assert_eq!(verdicts(&result), expected, "{result}");
}

#[test]
fn baseline_fails_if_an_expected_failure_passes() {
    let cli = Cli::new();
    cli.write("careless.sh", CARELESS);
    cli.write("quiet.sh", CARELESS.replace("exit 0", "exit 1"));
    cli.write("known.txt", "T-01 # cut text is a success\n");
    let run = |script: &str, baseline: &str| {
        cli.run(["conform", "--only", "T-01", "--baseline", baseline, "--", "bash", script])
    };
    run("careless.sh", "known.txt").exits(0);
    run("quiet.sh", "known.txt").exits(1).notes(&["T-01 passes; remove it from the baseline"]);
    cli.write("empty.txt", "# nothing\n");
    run("careless.sh", "empty.txt").exits(1).notes(&["the baseline does not list it"]);
    cli.write("wrong.txt", "T-01\nT-0l\n");
    run("careless.sh", "wrong.txt").exits(2).notes(&["wrong.txt, line 2", "T-0l"]);
}

#[test]
fn programs_that_are_no_agents_are_not_reached() {
    let cli = Cli::new();
    let why = |words: &[&str]| {
        let args = ["conform", "--json", "--patience", "2s", "--only", "T-01", "--"];
        let done = cli.run([&args[..], words].concat()).exits(1);
        let result = done.lines().pop().unwrap();
        assert_eq!(result["checks"][0]["verdict"], "not_reached", "{result}");
        result
    };
    let quits = why(&["sh", "-c", "echo 'please log in' >&2; exit 3"]);
    let said = quits["checks"][0]["why"].as_str().unwrap();
    assert!(said.contains("exit status 3") && said.contains("please log in"), "{said}");
    let floods = why(&["yes", "a long line of output without an end"]);
    assert!(floods["checks"][0]["why"].as_str().unwrap().contains("Output"), "{floods}");
    let elsewhere = why(&[
        "bash",
        "-c",
        "p=${HTTPS_PROXY#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:}; printf 'CONNECT other.example:443 HTTP/1.1\\r\\n\\r\\n' >&3; cat <&3",
    ]);
    assert_eq!(elsewhere["elsewhere"][0], "other.example:443");
    assert!(elsewhere["checks"][0]["why"].as_str().unwrap().contains("ignores the base URL"));
}

#[test]
fn environment_and_home_are_fresh() {
    let cli = Cli::new();
    let script =
        "echo \"home=$HOME key=$OPENAI_API_KEY secret=$MY_LOGIN passed=$MY_MODE\"; pwd; exit 3";
    let args =
        ["conform", "--json", "--only", "T-01", "--pass", "MY_MODE", "--", "sh", "-c", script];
    let mut command = cli.command(args);
    command
        .env("MY_LOGIN", "login-4711")
        .env("MY_MODE", "fast")
        .env("OPENAI_API_KEY", "sk-real-4711");
    let result = Started::new(command, "").finish().exits(1).lines().pop().unwrap();
    let output = result["cases"][0]["evidence"]["stdout"].as_str().unwrap();
    assert!(output.contains("secret= passed=fast"), "{output}");
    assert!(!output.contains("4711"), "{output}");
    let home = output.split("home=").nth(1).unwrap().split(' ').next().unwrap();
    assert!(home.contains("endstop-conform-") && !Path::new(home).exists(), "{home}");
}

/// Ctrl-C: nothing runs any more, and no folder is left.
#[test]
fn interrupted_suite_leaves_nothing() {
    let cli = Cli::new();
    let folder = cli.path("tmp");
    std::fs::create_dir(&folder).unwrap();
    let script = "setsid sleep 86399 & echo $$ > \"$FOLDER/pid\"; sleep 86398";
    let args = ["conform", "--only", "T-01", "--pass", "FOLDER", "--", "sh", "-c", script];
    let mut command = cli.command(args);
    command.env("FOLDER", cli.path("")).env("TMPDIR", &folder);
    let started = Started::new(command, "");
    eventually("the program", || {
        !std::fs::read_to_string(cli.path("pid")).unwrap_or_default().is_empty()
    });
    let pid = rustix::process::Pid::from_raw(started.child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    started.finish().exits(130);
    let is_left = || {
        let found = Command::new("pgrep").args(["-f", "sleep 8639[89]"]).output().unwrap();
        !found.stdout.is_empty()
    };
    eventually("the end of all processes", || !is_left());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn reports_have_their_forms() {
    let cli = Cli::new();
    cli.write(
        "careless.sh",
        CARELESS.replace("exit 0", "echo '<script>alert(1)</script>'; exit 0"),
    );
    let files = ["r.json", "r.xml", "r.md", "r.html"];
    let mut args = vec!["conform", "--only", "T-01,O-02", "--badge", "b.json"];
    files.iter().for_each(|file| args.extend(["--report", file]));
    args.extend(["--", "bash", "careless.sh"]);
    cli.run(&args).exits(1);
    let result: Value = serde_json::from_str(&cli.read("r.json")).unwrap();
    assert_eq!(result["counts"]["fail"], 1);
    let xml = cli.read("r.xml");
    assert!(xml.contains("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""), "{xml}");
    assert!(cli.read("r.md").contains("| T-01 | 2 MUST | fail |"), "{}", cli.read("r.md"));
    let page = cli.read("r.html");
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>"), "{page}");
    assert_eq!(serde_json::from_str::<Value>(&cli.read("b.json")).unwrap()["label"], "endings");
    // The same result has no difference from itself.
    cli.run(["conform", "diff", "r.json", "r.json"]).exits(0);
    cli.run(&args).exits(2).notes(&["--overwrite"]);
    cli.run(["conform", "--only", "T-01", "--report", "r.txt", "--", "true"])
        .exits(2)
        .notes(&[".html"]);
}

#[test]
fn provider_serves_bytes_of_a_case() {
    let cli = Cli::new();
    let started =
        Started::new(cli.command(["conform", "provider", "--case", "T-01", "--json"]), "");
    eventually("the address", || started.stdout().contains("base_url"));
    let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
    let address = line["base_url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let body = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;
    let (status, answer) = ask(address, "POST /v1/chat/completions", "", body);
    assert!(status == 200 && answer.contains(r#""finish_reason":"length""#), "{answer}");
    let pid = rustix::process::Pid::from_raw(started.child.id().try_into().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    started.finish().exits(143);
}

#[test]
fn wrong_usage_names_the_fix() {
    let cli = Cli::new();
    for (args, says) in [
        (&["conform"][..], "after `--`"),
        (&["conform", "--only", "T-99", "--", "true"], "T-99"),
        (&["conform", "--profile", "claud", "--", "true"], "did you mean `claude`?"),
        (&["conform", "--", "no-such-agent-4711"], "no-such-agent-4711"),
        (&["conform", "--level", "5", "--", "true"], "1 to 4"),
        (&["conform", "show", "cut-texts"], "did you mean `cut-text`?"),
        (&["conform", "diff", "a.json", "b.json"], "a.json"),
    ] {
        cli.run(args).exits(2).notes(&[says]);
    }
    let list = cli.run(["conform", "list"]).exits(0).stdout;
    assert!(list.contains("T-01") && list.contains("profiles: "), "{list}");
    let shown = cli.run(["conform", "show", "t-01"]).exits(0).stdout;
    assert!(shown.contains("sentences 14") && shown.contains("finish = \"length\""), "{shown}");
}

/// Guard judges the cut answer, which the program takes for a whole one. The pages show both results.
#[test]
fn guard_lifts_careless_program() {
    let cli = Cli::new();
    cli.write("careless.sh", CARELESS);
    let judge = |guarded: &[&str], report: &str, status: i32| {
        let args = ["conform", "--only", "T-01,O-02", "--report", report].into_iter();
        let args = args.chain(guarded.iter().copied()).chain(["--", "bash", "careless.sh"]);
        cli.run(args.collect::<Vec<_>>()).exits(status);
        let result: Value = serde_json::from_str(&cli.read(report)).unwrap();
        verdicts(&result)
    };
    let of = |verdicts: &[(String, String)], id: &str| {
        verdicts.iter().find(|(known, _)| known == id).unwrap().1.clone()
    };
    let plain = judge(&[], "plain.json", 1);
    assert_eq!((of(&plain, "T-01"), of(&plain, "O-02")), ("fail".into(), "not_applicable".into()));
    let guarded = judge(&["--guarded"], "guarded.json", 0);
    assert_eq!((of(&guarded, "T-01"), of(&guarded, "O-02")), ("pass".into(), "pass".into()));

    // The second result of the same program reaches nothing new, and the last one differs.
    let differs =
        cli.read("plain.json").replacen("\"verdict\":\"fail\"", "\"verdict\":\"pass\"", 1);
    cli.write("differs.json", &differs);
    let results = ["plain.json", "guarded.json", "differs.json"];
    cli.run(
        ["conform", "pages", "--out", "book/results"]
            .into_iter()
            .chain(results)
            .collect::<Vec<_>>(),
    )
    .exits(0);
    let tables = cli.read("book/results/tables.md");
    assert!(tables.contains("[✗±](generic-bash-careless-sh.md#t-01)"), "{tables}");
    assert!(tables.contains("[✓](generic-bash-careless-sh-guarded.md#t-01)"), "{tables}");
    let page = cli.read("book/results/generic-bash-careless-sh.md");
    assert!(page.contains("<a id=\"t-01\"></a>T-01 | ✗± fail"), "{page}");
    assert!(page.contains("exit status 0 after") && page.contains("`Length`"), "{page}");
}
