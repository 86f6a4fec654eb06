//! `endstop demo NAME`: shows the endings live, without a key. A script plays the model on a
//! loopback server. Everything else is real: the encoder, the socket, the decoder, the kernel, and
//! the tools, which work in a temporary folder.

use crate::args::DemoArgs;
use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::output;
use crate::run::agent::{Built, runtime};
use crate::run::cassette::Cassette;
use crate::run::session::RunSession;
use crate::run::start::Begin;
use crate::run::steer::Steer;
use endstop::agent::{Agent, AgentBuilder};
use endstop::journal::SqliteJournal;
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::{Limits, NanoUsd, Price};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// The demos: name and description.
const DEMOS: [(&str, &str); 6] = [
    ("fix", "a failing test is fixed with real tools: submitted, and verified"),
    ("loop", "an agent that repeats itself: error_no_progress"),
    ("cut", "an answer cut off by the token limit: error_output_truncated, never success"),
    (
        "budget",
        "a cost ceiling that stops the run before the call that would exceed it: error_max_budget_usd",
    ),
    ("cancel", "a cancel during a stream (press Ctrl-C, or wait): cancelled"),
    ("filtered", "a refusal: error_content_filtered"),
];

/// The test of the project that the `fix` demo works on.
const TEST: &str = "#!/bin/sh
# The test of calc.sh.
. ./calc.sh
got=$(add 2 3)
if [ \"$got\" = 5 ]; then echo 'ok: 2 + 3 = 5'; else echo \"FAIL: 2 + 3 gave $got\"; exit 1; fi
";
/// The bug that the script can fix.
const BUG: &str = "# Adds two numbers.\nadd() {\n    echo $(( $1 - $2 ))\n}\n";
/// A bug that the script cannot fix.
const OTHER_BUG: &str = "# Adds two numbers.\nadd() {\n    echo $(( $1 * $2 + 1 ))\n}\n";

pub(crate) fn run(args: &DemoArgs, json: bool) -> Result {
    let Some((name, about)) = DEMOS.iter().find(|(name, _)| *name == args.name) else {
        let names: Vec<&str> = DEMOS.iter().map(|(name, _)| *name).collect();
        let problem = endstop::core::limits::unknown_key(&args.name, &names);
        return Err(Failure::usage(format!("demo `{}`: {problem}", args.name)));
    };
    let folder = tempfile::Builder::new()
        .prefix("endstop-demo-")
        .tempdir()
        .map_err(|error| Failure::fault(format!("no temporary folder: {error}")))?;
    let dir = folder.path();
    prepare(dir, args.unfixable)
        .map_err(|error| Failure::fault(format!("{}: {error}", dir.display())))?;
    let server = Server::start(script(name))
        .map_err(|error| Failure::fault(format!("the demo's server did not start: {error}")))?;
    if !json {
        output::note(&format!("demo `{name}`: {about}\n"));
    }
    let limits = limits(name);
    // Stored like any other run, so that the user can try `endstop explain` on it.
    let journal = journal_path::to_write(&JournalPath::of(None, None)?)?;
    let agent = agent(name, &server, dir, &limits, journal.as_ref())?;
    let cancelled = agent.clone();
    let session = RunSession {
        built: Built {
            verify: (*name == "fix").then(|| "sh test.sh".to_owned()),
            dir: Some(dir.to_owned()),
            ..Built::alone(agent, limits)
        },
        events: None,
        cassette: Cassette::default(),
        journal,
        named_journal: None,
        demo: true,
        answer_only: false,
        accept_divergence: false,
        steer: Steer::default(),
        json,
    };
    let task = match *name {
        "fix" => "The test in test.sh fails. Find out why, repair it, and see it pass.",
        "loop" => "Wait until note.txt says that the build is done.",
        "budget" => "Write a chapter a turn until the book is finished.",
        _ => "Tell me a long story.",
    };
    if *name == "cancel" {
        // A separate thread, because the demo also shows that a cancel can come from outside the
        // run.
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1500));
            cancelled.cancel();
        });
    }
    session.perform(runtime()?, Begin::Task(Box::new(task.into())))
}

pub(super) fn prepare(dir: &Path, unfixable: bool) -> std::io::Result<()> {
    std::fs::write(dir.join("test.sh"), TEST)?;
    std::fs::write(dir.join("calc.sh"), if unfixable { OTHER_BUG } else { BUG })?;
    std::fs::write(dir.join("note.txt"), "The build is still running.\n")
}

pub(super) fn limits(name: &str) -> Limits {
    match name {
        "budget" => Limits { max_budget_usd: Some(0.25), ..Limits::default() },
        _ => Limits::default(),
    }
}

fn agent(
    name: &str,
    server: &Server,
    dir: &Path,
    limits: &Limits,
    journal: Option<&SqliteJournal>,
) -> Result<Agent> {
    let builder = builder(name, server, dir, limits, journal)?;
    builder.build().map_err(|error| Failure::fault(error.to_string()))
}

/// Returns the agent of a demo, before it is built.
pub(super) fn builder(
    name: &str,
    server: &Server,
    dir: &Path,
    limits: &Limits,
    journal: Option<&SqliteJournal>,
) -> Result<AgentBuilder> {
    let options = HttpProvider::builder("script").base_url(server.base_url()).price(Price {
        input: NanoUsd::from_usd(3.0),
        output: NanoUsd::from_usd(15.0),
        ..Price::default()
    });
    // Reads no environment variables, because a demo needs no key and must not send one.
    let provider =
        options.env(|_| None).build().map_err(|error| Failure::fault(error.to_string()))?;
    let mut builder = Agent::builder(provider)
        .system("You are a careful engineer. Work in the current folder.")
        .limits(limits.clone())
        .working_dir(dir);
    if let Some(journal) = journal {
        builder = builder.journal(journal.clone()).journal_settings(json!({"demo": name}));
    }
    tools(builder, name)
}

fn tools(mut builder: AgentBuilder, name: &str) -> Result<AgentBuilder> {
    let names: &[&str] = match name {
        "fix" => &["shell", "read_file", "write_file"],
        "loop" => &["read_file"],
        "budget" => &["write_file"],
        _ => &[],
    };
    for name in names {
        let tool =
            endstop::tool::built_in(name).map_err(|error| Failure::usage(error.to_string()))?;
        builder = builder.shared_tool(tool);
    }
    Ok(builder)
}

/// Returns the script that plays the model: it maps a request to its answer.
pub(super) fn script(name: &str) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    let name = name.to_owned();
    move |request| {
        let turn = match name.as_str() {
            "fix" => fix(request),
            "loop" => Turn::call("read_file", &json!({"path": "note.txt"})),
            "cut" => Turn::text(
                "Once upon a time there was an agent that never said how it had ended, and so",
            )
            .pace(Duration::from_millis(30))
            .finish("length"),
            "budget" => chapter(turns(request) + 1),
            "cancel" => Turn::text("Once upon a time, word after word, ".repeat(200))
                .pace(Duration::from_millis(60)),
            _ => Turn::text("I would rather not ").finish("content_filter"),
        };
        Reply::turn(request, &turn)
    }
}

fn chapter(number: u64) -> Turn {
    Turn::call(
        "write_file",
        &json!({"path": format!("chapter-{number}.txt"), "content": format!("Chapter {number}.\n")}),
    )
    // The prompt grows with each chapter, so that the ceiling ends the run after a few turns.
    .usage(10_000 + 2_000 * number, 1_500)
}

/// Plays an engineer who runs the test, reads the code, and fixes the one bug that the script
/// knows.
fn fix(request: &Request) -> Turn {
    let last = last_tool_result(request);
    match last {
        None => {
            Turn::call("shell", &json!({"command": "sh test.sh"})).and_text("I run the test first.")
        }
        Some((name, content)) => match name.as_str() {
            "read_file" if content.contains("$1 - $2") => Turn::call(
                "write_file",
                &json!({"path": "calc.sh", "content": content.replace("$1 - $2", "$1 + $2")}),
            )
            .and_text("It subtracts instead of adding. I fix that."),
            "write_file" => Turn::call("shell", &json!({"command": "sh test.sh"}))
                .and_text("Now the test again."),
            "shell" if content.contains("ok:") => Turn::call(
                "finish",
                &json!({
                    "deliverable": "calc.sh subtracted instead of adding; it adds now, and the test passes.",
                    "summary": "one line changed in calc.sh",
                }),
            ),
            "shell" if !has_read(request) => {
                Turn::call("read_file", &json!({"path": "calc.sh"})).and_text("I read the code.")
            }
            // The script knows no other bug, so it runs the test again and again, until a limit
            // ends the run.
            _ => Turn::call("shell", &json!({"command": "sh test.sh"})),
        },
    }
}

/// Returns the number of turns so far, which a restart of the server does not change.
fn turns(request: &Request) -> u64 {
    messages(request).iter().filter(|message| message["role"] == "assistant").count() as u64
}

fn messages(request: &Request) -> &[Value] {
    request.body["messages"].as_array().map_or(&[], Vec::as_slice)
}

/// Returns the name of the tool that answered last, and its result.
fn last_tool_result(request: &Request) -> Option<(String, String)> {
    let messages = messages(request);
    let result = messages.iter().rev().find(|message| message["role"] == "tool")?;
    let id = result["tool_call_id"].as_str()?;
    let name = messages
        .iter()
        .filter_map(|message| message["tool_calls"].as_array())
        .flatten()
        .rev()
        .find(|call| call["id"] == id)
        .and_then(|call| call["function"]["name"].as_str())?;
    Some((name.to_owned(), result["content"].as_str().unwrap_or_default().to_owned()))
}

fn has_read(request: &Request) -> bool {
    messages(request)
        .iter()
        .filter_map(|message| message["tool_calls"].as_array())
        .flatten()
        .any(|call| call["function"]["name"] == "read_file")
}
