//! The scripted server, the runs, and their cost.

use crate::measure::{Watch, median};
use endstop::journal::{
    BatchRunJournal, Journal, JournalError, JournalErrorKind, Record, RecordedRun, RunHeader,
    RunJournal, SqliteJournal,
};
use endstop::provider::http::HttpProvider;
use endstop::testkit::{Reply, Request, Server, Turn};
use endstop::tool::{ToolOutput, tool_fn};
use endstop::wire::redact::KnownKeys;
use endstop::{Agent, Limits, Message, NanoUsd, Outcome, Price, Termination};
use serde_json::{Map, Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The argument that makes this program the server.
pub(crate) const SERVE: &str = "serve";

type Done<T> = Result<T, Box<dyn Error>>;

/// Plays the model until standard input closes: as many calls as the task names, then an answer.
pub(crate) fn serve() -> Done<()> {
    let server = Server::start(|request: &Request| {
        let messages = request.body["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let steps = messages.iter().find(|message| message["role"] == "user");
        let steps = steps.and_then(|message| message["content"].as_str()?.parse().ok());
        let done = messages.iter().filter(|message| message["role"] == "tool").count();
        let turn = if done < steps.unwrap_or(0) {
            let text = "I look at the next file, and say why before I do: it is the one that the last one named.";
            Turn::call("look", &json!({"path": format!("src/part_{done}.rs")})).and_text(text)
        } else {
            Turn::text("That is all of it.")
        };
        Reply::turn(request, &turn.usage(1_000 + 150 * done as u64, 60))
    })?;
    println!("{}", server.base_url());
    std::io::stdout().flush()?;
    // Ends with its parent, even if that is killed, because the pipe closes then.
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}

/// The server process, which is killed when the value is dropped.
struct Model {
    child: Child,
    url: String,
}

impl Model {
    fn start() -> Done<Model> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut url = String::new();
        let out = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(out).read_line(&mut url)?;
        Ok(Model { child, url: url.trim().to_owned() })
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A journal that stores nothing, to measure the cost of building the records.
struct Nothing;

impl Journal for Nothing {
    fn begin(&self, _: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(Nothing))
    }

    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        let problem = format!("no run `{id}`");
        Err(JournalError { journal: "nothing".into(), problem, kind: JournalErrorKind::NotFound })
    }

    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        self.load(id).map(|_| Box::new(Nothing) as Box<dyn RunJournal>)
    }
}

impl RunJournal for Nothing {
    fn append(&mut self, _: &[Record]) -> Result<(), JournalError> {
        Ok(())
    }

    fn ended(&mut self, _: &Outcome, _: &str) -> Result<(), JournalError> {
        Ok(())
    }

    fn batch(&mut self) -> Option<&mut dyn BatchRunJournal> {
        Some(self)
    }
}

impl BatchRunJournal for Nothing {
    // Without it each append would move to another thread, whose cost is not that of the records.
    fn try_append(&mut self, _: &[Record]) -> Option<Result<(), JournalError>> {
        Some(Ok(()))
    }

    fn messages(&mut self, _: &[Message], _: &KnownKeys) -> bool {
        false
    }
}

/// The journal of a run.
#[derive(Clone, Copy)]
enum Kept {
    Not,
    Nowhere,
    InFile,
}

impl Kept {
    /// The names on the command line.
    const ALL: [(&str, Kept); 3] =
        [("none", Kept::Not), ("nowhere", Kept::Nowhere), ("file", Kept::InFile)];
}

/// Everything that the runs share.
struct Bench {
    runtime: tokio::runtime::Runtime,
    provider: HttpProvider,
    journal: SqliteJournal,
    folder: Folder,
    steps: usize,
    _model: Model,
}

/// A folder that is removed when the value is dropped.
struct Folder(PathBuf);

impl Folder {
    /// Returns the path of the journal.
    fn file(&self) -> PathBuf {
        self.0.join("journal.db")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Bench {
    /// Starts the server, and makes one run of each way, which opens connections, fills caches and
    /// creates tables.
    fn start(steps: usize) -> Done<Bench> {
        let model = Model::start()?;
        let options = HttpProvider::builder("script").base_url(model.url.clone()).price(Price {
            input: NanoUsd::from_usd(3.0),
            output: NanoUsd::from_usd(15.0),
            ..Price::default()
        });
        let provider = options
            .env(|name| {
                // With a key, because a journal searches everything that it writes for the key.
                (name == "OPENAI_API_KEY").then(|| "sk-proj-4fQ9xTz71LmN0pWv8aBcD".to_owned())
            })
            .build()?;
        let name = format!("bench-journal-{}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(name));
        let bench = Bench {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            provider,
            journal: SqliteJournal::open(folder.file())?,
            folder,
            steps,
            _model: model,
        };
        for (_, kept) in Kept::ALL {
            bench.run(kept)?;
        }
        Ok(bench)
    }

    /// Makes a run, and returns its processor time in seconds.
    fn run(&self, kept: Kept) -> Done<f64> {
        let look = tool_fn("look", "Reads a file.", |_: Map<String, Value>, _| async {
            ToolOutput::ok(
                "fn part() -> u32 {\n    // what a file has in it, a few lines of it\n    1\n}\n"
                    .repeat(8),
            )
        });
        let limits = Limits { max_turns: None, max_unproductive_turns: None, ..Limits::default() };
        let mut builder = Agent::builder(self.provider.clone()).tool(look).limits(limits);
        builder = match kept {
            Kept::Not => builder,
            Kept::Nowhere => builder.journal(Nothing),
            Kept::InFile => builder.journal(self.journal.clone()),
        };
        let agent = builder.build()?;
        let watch = Watch::start();
        let outcome = self.runtime.block_on(async {
            let run = agent.run(self.steps.to_string())?;
            Ok::<_, endstop::StartError>(run.outcome().await)
        })?;
        let (_, cpu) = watch.read();
        match outcome.termination {
            Termination::Stop if outcome.tool_calls as usize == self.steps => Ok(cpu),
            // A run that ended early would look cheap.
            other => Err(format!("it ended as {other}: {}", outcome.decided_by.evidence).into()),
        }
    }

    fn turns(&self) -> f64 {
        self.steps as f64 + 1.0
    }
}

/// Makes runs of one way only, for a profiler, and returns their cost.
pub(crate) fn one_way(runs: usize, steps: usize, way: &str) -> Done<String> {
    let found = Kept::ALL.into_iter().find(|(name, _)| *name == way);
    let (_, kept) = found.ok_or("expected the journal none, nowhere or file")?;
    let bench = Bench::start(steps)?;
    let costs: Done<Vec<f64>> = (0..runs).map(|_| bench.run(kept)).collect();
    let cost = median(&mut costs?) * 1e6 / bench.turns();
    Ok(format!("{runs} runs of {steps} steps, journal {way}: processor time a turn {cost:.1} µs"))
}

/// Alternates runs with and without a journal, and returns the table.
pub(crate) fn measured(runs: usize, steps: usize) -> Done<String> {
    let bench = Bench::start(steps)?;
    let mut costs = [Vec::new(), Vec::new(), Vec::new()];
    // The load of the machine changes slowly, so that runs of the same round are compared.
    let mut ratios = Vec::new();
    for nth in 0..runs {
        for at in 0..Kept::ALL.len() {
            // The order rotates, so that no way always runs after the same other one.
            let way = (nth + at) % Kept::ALL.len();
            costs[way].push(bench.run(Kept::ALL[way].1)?);
        }
        let [bare, _, kept] = &costs;
        ratios.extend(kept.last().zip(bare.last()).map(|(kept, bare)| kept / bare));
    }
    let turns = bench.turns();
    let Bench { journal, folder, .. } = bench;
    let last = journal.load(&journal.find("last")?)?;
    let rows: usize = last.events.len();
    let raw: usize =
        last.events.iter().map(|event| serde_json::to_string(event).map_or(0, |t| t.len())).sum();
    // SQLite moves its write-ahead log into the file when the last connection closes.
    drop(journal);
    let bytes = std::fs::metadata(folder.file())?.len();
    let [bare, nowhere, kept] = costs.map(|mut costs| median(&mut costs) * 1e6 / turns);
    Ok(format!(
        "{runs} runs of {steps} steps each way, in turns\n\
         processor time a turn   with a journal {kept:.1} µs, without {bare:.1} µs, ratio {:.3} (of rounds {:.3})\n\
         the journal alone       {:.1} µs a step, of it {:.1} to make the records\n\
         on disk                 {:.0} bytes a step, of it {:.0} of events; {:.1} rows a step",
        kept / bare,
        median(&mut ratios),
        kept - bare,
        nowhere - bare,
        // One run more, because `start` has made one of each way.
        bytes as f64 / ((runs as f64 + 1.0) * turns),
        raw as f64 / turns,
        rows as f64 / turns,
    ))
}
