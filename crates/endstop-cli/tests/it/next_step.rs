//! The row `next` of each ending, and of each cause within it: a printed command is run literally, against
//! a server that answers well by then, and leads to a success. If no command can help, none is printed.

use crate::cli::{Cli, Done, Started, agent_args, answering, eventually};
use crate::hints::{commands, row, row_of, shell};
use endstop::Termination;
use endstop::testkit::{Reply, Request, Turn};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What the row must say.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// A command with these words, which leads to a success.
    Continues(&'static str),
    /// A sentence with these words, and no command.
    Says(&'static str),
}
use Next::{Continues, Says};

type Respond = Arc<dyn Fn(&Request) -> Reply + Send + Sync>;

/// A way to reach an ending.
struct Case {
    /// Flags of `endstop run`, separated by spaces.
    flags: &'static str,
    /// The wire format.
    api: &'static str,
    /// The server until the ending.
    server: Respond,
    /// The answer of the server afterwards.
    answer: &'static str,
    /// Signals that stop the run once its text is shown.
    signals: &'static [&'static str],
    status: i32,
    next: Next,
}

impl Case {
    fn new(status: i32, flags: &'static str, turn: Turn, next: Next) -> Case {
        let turns = move |_: &Request| turn.clone();
        Case::served(status, flags, move |request| Reply::turn(request, &turns(request)), next)
    }

    fn served(
        status: i32,
        flags: &'static str,
        server: impl Fn(&Request) -> Reply + Send + Sync + 'static,
        next: Next,
    ) -> Case {
        Case {
            flags,
            api: "openai-chat",
            server: Arc::new(server),
            answer: "Done.",
            signals: &[],
            status,
            next,
        }
    }
}

fn cut(text: &str) -> Turn {
    Turn::text(text).finish("length")
}

fn failed(status: u16, code: &str) -> Turn {
    Turn::error(status, json!({"error": {"message": "refused", "code": code}}).to_string())
}

/// A call that is different in each turn.
fn busy(request: &Request) -> Reply {
    let command = format!("echo {}", request.number);
    Reply::turn(request, &Turn::call("shell", &json!({"command": command})).usage(1_000, 100))
}

/// An answer that fills the output cap of its call.
fn fills_cap(request: &Request) -> Reply {
    let cap = ["max_tokens", "max_completion_tokens"];
    let cap = cap.iter().find_map(|key| request.body[*key].as_u64()).unwrap();
    Reply::turn(request, &cut("Half an ans").usage(100, cap))
}

/// Returns each way to this ending that has advice of its own.
fn cases(ending: Termination) -> Vec<Case> {
    let call = |name: &str| Turn::call(name, &json!({"command": "true"}));
    let finish = |key: &str| Turn::call("finish", &json!({key: "It is 42."}));
    let thinking = || Turn::text("").reasoning("hm ".repeat(20));
    match ending {
        Termination::Stop => vec![
            Case::new(0, "", Turn::text("Hi."), Says("the work is done")),
            Case::new(1, "--verify false", Turn::text("Hi."), Says("what the verifier printed")),
        ],
        Termination::Submitted => {
            vec![Case::new(0, "--tool shell", finish("deliverable"), Says("the work is done"))]
        }
        Termination::ErrorMaxTurns => {
            let several = "--tool shell --max-consecutive-mistakes 3 --max-unproductive-turns 2 --max-turns 3";
            vec![
                Case::served(20, "--tool shell --max-turns 1", busy, Continues("--max-turns 2")),
                // Several limits end the run in the same moment, so all of them are raised.
                Case::new(20, several, call("nothing"), Continues("--max-unproductive-turns 4")),
            ]
        }
        Termination::ErrorMaxBudgetUsd => vec![
            Case::served(
                20,
                "--tool shell --price in=3,out=15 --max-budget-usd 0.01",
                busy,
                Continues("--max-budget-usd"),
            ),
            Case::served(
                20,
                "--price in=3,out=15 --max-output-tokens 1000 --max-budget-usd 0.01",
                fills_cap,
                Continues("--max-budget-usd"),
            ),
            // The ceiling of a day belongs to all runs.
            Case::served(
                20,
                "--tool shell --price in=3,out=15 --config spend.toml",
                busy,
                Says("raise the shared budget"),
            ),
        ],
        Termination::ErrorMaxTokens => vec![
            Case::served(20, "--tool shell --max-tokens 2500", busy, Continues("--max-tokens")),
            Case::served(
                20,
                "--max-output-tokens 1000 --max-tokens 600",
                fills_cap,
                Continues("--max-tokens"),
            ),
        ],
        Termination::ErrorTimeout => {
            let sleep = Turn::call("shell", &json!({"command": "sleep 30"}));
            vec![Case::new(20, "--tool shell --timeout 1s", sleep, Continues("--timeout"))]
        }
        Termination::ErrorMaxStructuredOutputRetries => vec![Case {
            answer: r#"{"n": 1}"#,
            ..Case::new(
                20,
                "--output-schema schema.json --max-structured-output-retries 1",
                Turn::text("none"),
                Continues("--max-structured-output-retries 2"),
            )
        }],
        Termination::ErrorSchemaValidation => vec![
            Case {
                answer: r#"{"n": 1}"#,
                ..Case::new(
                    10,
                    "--output-schema schema.json --max-structured-output-retries 0",
                    Turn::text("none"),
                    Continues("--max-structured-output-retries 2"),
                )
            },
            Case::new(
                10,
                "--tool shell",
                Turn::text("<tool_call>{\"name\": \"shell\"}"),
                Says("tool parser"),
            ),
        ],
        Termination::ErrorConsecutiveMistakes => vec![Case::new(
            20,
            "--tool shell --max-consecutive-mistakes 2",
            call("nothing"),
            Continues("--max-consecutive-mistakes 4"),
        )],
        Termination::ErrorPromptTooLong => vec![Case::new(
            20,
            "--compact off",
            failed(400, "context_length_exceeded"),
            Says("a larger context window"),
        )],
        Termination::ErrorNoProgress => vec![
            Case::new(20, "--tool shell", call("shell"), Continues("--at 1 --message")),
            Case::new(20, "", Turn::text(" "), Continues("--max-empty-turns 2")),
            Case::new(
                20,
                "--tool shell --watch stop:stuck --max-unproductive-turns 9",
                call("shell"),
                Says("describe the obstacle"),
            ),
        ],
        Termination::ErrorThinkingStarved => vec![
            Case::new(
                20,
                "--max-output-tokens 100",
                thinking().finish("length"),
                Continues("--max-output-tokens 1600"),
            ),
            Case::served(
                20,
                "--tool shell --max-output-tokens 100",
                move |request| {
                    let turn = match request.number {
                        1 => Turn::call("shell", &json!({"command": "true"})),
                        _ => Turn::text("").reasoning("hm").finish("length"),
                    };
                    Reply::turn(request, &turn)
                },
                Continues("--at 1 --max-output-tokens 1600"),
            ),
            Case::served(
                20,
                "--thinking-timeout 300ms --max-retries 1",
                |_| {
                    let delta = json!({"choices": [{"delta": {"reasoning_content": "hm "}}]});
                    let stream = format!("data: {delta}\n\n").repeat(20_000);
                    Reply::new(200, "text/event-stream", stream).drip(Duration::from_millis(1))
                },
                Continues("--thinking-timeout 1s"),
            ),
        ],
        Termination::ErrorOutputTruncated => vec![
            Case::new(20, "", cut("Half an ans"), Continues("--max-continuations 2")),
            Case::new(
                20,
                "--max-continuations 1",
                cut("Half an ans"),
                Continues("--max-continuations 2"),
            ),
            Case::new(
                20,
                "--tool shell",
                call("shell").finish("length"),
                Continues("--max-continuations 2"),
            ),
        ],
        Termination::ErrorNotVerified => vec![Case::new(
            20,
            "--verify-rounds 1 --config verify.toml",
            Turn::text("Hi."),
            Continues("--verify-rounds 2"),
        )],
        Termination::ErrorDuringExecution => vec![
            Case::new(10, "--max-retries 0", failed(503, "overloaded"), Continues("--resume")),
            Case::new(
                10,
                "--max-retries 0",
                failed(429, "rate_limit").header("retry-after", "70"),
                Continues("--resume"),
            ),
            Case::new(
                10,
                "--max-retries 0 --stall-timeout 200ms",
                Turn::text("word ".repeat(20)).pace(Duration::from_secs(2)),
                Continues("--resume"),
            ),
            Case::served(
                10,
                "--max-retries 0",
                |request| Reply::turn(request, &Turn::text("word ".repeat(50))).cut_after(300),
                Continues("--resume"),
            ),
            Case::new(
                10,
                "",
                Turn::text("It is whole.").finish("brand_new"),
                Continues("--accept-unknown-finish"),
            ),
            Case {
                api: "anthropic-messages",
                ..Case::new(
                    10,
                    "",
                    Turn::text("Searching.").finish("pause_turn"),
                    Says("the provider pauses"),
                )
            },
        ],
        Termination::ErrorContentFiltered => vec![
            Case::new(
                30,
                "",
                Turn::text("I would rather ").finish("content_filter"),
                Says("the same wording will be refused"),
            ),
            Case::new(30, "", failed(400, "content_policy_violation"), Says("the same wording")),
        ],
        Termination::ErrorProviderRejected => vec![
            Case::new(30, "", failed(400, "bad"), Says("fix the request")),
            Case::new(30, "", failed(404, "model_not_found"), Says("check the model name")),
            Case::new(30, "", failed(429, "insufficient_quota"), Continues("billing")),
        ],
        Termination::GaveUp => {
            vec![Case::new(30, "--tool shell", finish("infeasible"), Says("the model's reason"))]
        }
        Termination::ErrorHalted => vec![Case::served(
            30,
            "--tool shell --policy max_steps={\"steps\":1}",
            busy,
            Says("change the policy `max_steps`"),
        )],
        // Simulated below, because a run of the command line always has another attempt.
        Termination::ErrorCompactionFailed => Vec::new(),
        Termination::ErrorProviderAuth => {
            vec![Case::new(30, "", failed(401, "no"), Continues("endstop providers"))]
        }
        Termination::Cancelled => vec![slow(&["INT"], 130), slow(&["TERM"], 143)],
        Termination::Terminated => {
            let deaf = "trap '' INT TERM; touch deaf; sleep 10; sleep 10";
            let deaf = Turn::call("shell", &json!({"command": deaf}));
            let case = Case::new(143, "--tool shell", deaf, Continues("--resume"));
            vec![Case { signals: &["INT", "INT"], ..case }]
        }
        Termination::ErrorMaxToolCalls => vec![
            Case::served(
                20,
                "--tool shell --max-tool-calls 1",
                busy,
                Continues("--max-tool-calls 2"),
            ),
            Case::served(
                20,
                "--tool shell --max-calls shell=1",
                busy,
                Says("raise --max-tool-calls or --max-calls"),
            ),
        ],
        Termination::ErrorMaxWindow => {
            let used = call("shell")
                .header("anthropic-ratelimit-unified-5h-status", "allowed_warning")
                .header("anthropic-ratelimit-unified-5h-utilization", "0.9");
            let case = Case::new(
                20,
                "--tool shell --max-window 5h=80%",
                used,
                Says("let it wait with --wait-for-window"),
            );
            vec![Case { api: "anthropic-messages", ..case }]
        }
        other => panic!("no case for {other}"),
    }
}

/// A run that signals stop while it streams.
fn slow(signals: &'static [&'static str], status: i32) -> Case {
    let words = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(20));
    Case { signals, ..Case::new(status, "", words, Continues("--resume")) }
}

fn reach(cli: &Cli, case: &Case, args: Vec<String>) -> Done {
    let started = Started::new(cli.command(args), "");
    for signal in case.signals {
        let works = || started.stdout().contains("word") || cli.path("deaf").exists();
        eventually("text, or the tool", works);
        let pid = started.child.id().to_string();
        std::process::Command::new("kill").args(["-s", signal, &pid]).status().unwrap();
        eventually("the stop", || started.stderr().contains("■"));
        std::thread::sleep(Duration::from_millis(20));
    }
    started.finish()
}

/// Runs the case to its ending and follows its row. Returns what is wrong.
fn follow(ending: Termination, case: &Case) -> Result<(), String> {
    let cli = Cli::new();
    cli.write("schema.json", r#"{"type": "object", "required": ["n"]}"#);
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 0.01\n");
    cli.write("verify.toml", "verify = \"test -e ready\"\n");
    let recovered = Arc::new(AtomicBool::new(false));
    let (now, respond, answer) = (recovered.clone(), case.server.clone(), case.answer);
    let server = answering(move |request| {
        if now.load(Ordering::SeqCst) {
            Reply::turn(request, &Turn::text(answer))
        } else {
            respond(request)
        }
    });
    let flags = ["Go.", "--journal", "my runs.db"].into_iter();
    let flags: Vec<_> = flags.chain(case.flags.split_whitespace()).collect();
    let done = reach(&cli, case, agent_args(&server, case.api, &flags));
    let ended = done.stderr.contains(&format!("stopped: {ending} ("));
    if !ended || done.code() != case.status {
        return Err(format!("it ended otherwise: {}", done.stderr));
    }
    let next = row(&done, "next");
    let explained = shell(&cli, "endstop explain last --journal 'my runs.db'").stdout;
    if row_of(&explained, "next") != next {
        return Err(format!("`explain` gives other advice: {explained}"));
    }
    let (words, must_continue) = match case.next {
        Continues(words) => (words, true),
        Says(words) => (words, false),
    };
    let printed = commands(&next);
    let resumes = |command: &String| command.contains("--resume") || command.contains("branch");
    if !next.contains(words) || printed.iter().any(resumes) != must_continue {
        return Err(format!("next: {next}"));
    }
    recovered.store(true, Ordering::SeqCst);
    cli.write("ready", "");
    for command in &printed {
        // The words of the user.
        let command = &command.replace("SAY WHAT IS IN THE WAY", "The build is broken.");
        let done = shell(&cli, command);
        if done.code() != 0 {
            return Err(format!("{command}: {}", done.stderr));
        }
        if resumes(command) && !done.stderr.contains("stopped: stop (success)") {
            return Err(format!("{command}: {}", done.stderr));
        }
    }
    Ok(())
}

#[test]
fn next_of_each_ending_works() {
    let mut wrong = Vec::new();
    for ending in Termination::all() {
        for case in cases(*ending) {
            if let Err(problem) = follow(*ending, &case) {
                let (flags, next) = (case.flags, case.next);
                wrong.push(format!("{ending} by `{flags}`, {next:?}: {problem}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Endings by parts that only a program that uses the library has.
#[test]
fn simulated_endings_have_advice() {
    let compaction = json!({"compaction": {"proactive_fails_at": 1}, "tools": {"look": {}},
        "turns": [{"tool_calls": [{"id": "1", "name": "look", "args": {}}]}, {"text": "Hi."}]});
    let hook =
        json!({"hooks": {"PreIteration": {"at": 0, "halt": "no"}}, "turns": [{"text": "Hi."}]});
    let tool = json!({"tools": {"stop": {"kind": "halt", "result": "no"}},
        "turns": [{"tool_calls": [{"id": "1", "name": "stop", "args": {}}]}]});
    for (scenario, ending, words) in [
        (compaction, "error_compaction_failed", "fix the compactor"),
        (hook, "error_halted", "what halted the run"),
        (tool, "error_halted", "what halted the run"),
    ] {
        let cli = Cli::new();
        let outcome = cli.feed(["simulate", "-"], &scenario.to_string()).exits(0).stdout;
        cli.write("outcome.jsonl", &outcome);
        let shown = cli.run(["explain", "outcome.jsonl"]).exits(0).stdout;
        assert!(shown.contains(&format!("stopped: {ending} (")), "{outcome}");
        let next = row_of(&shown, "next");
        assert!(next.contains(words) && commands(&next).is_empty(), "{next}");
    }
}
