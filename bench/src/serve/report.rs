//! The arguments of `bench-serve`, its rounds, and its table.

use crate::process::{Process, quantile};
use crate::serving::{Serving, measured};
use crate::{Result, idle, library, model};
use serde_json::Value;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

/// Number of runs at once.
const AT_ONCE: usize = 64;

struct Options {
    endstop: String,
    runs: usize,
    rounds: usize,
    idle: usize,
    out: Option<String>,
}

impl Options {
    fn read(words: &[String]) -> Result<Options> {
        let mut options =
            Options { endstop: String::new(), runs: 1_000, rounds: 3, idle: 10_000, out: None };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return Err(format!("{}: no value", pair[0]).into()) };
            match name.as_str() {
                "--endstop" => options.endstop.clone_from(value),
                "--runs" => options.runs = value.parse()?,
                "--rounds" => options.rounds = value.parse()?,
                "--idle" => options.idle = value.parse()?,
                "--out" => options.out = Some(value.clone()),
                _ => return Err(format!("unknown argument `{name}`").into()),
            }
        }
        if options.endstop.is_empty() {
            return Err("set --endstop to the program, for example target/release/endstop".into());
        }
        // Absolute, because the server is started in another folder.
        let program = Path::new(&options.endstop).canonicalize()?;
        program.to_str().ok_or("--endstop is not UTF-8")?.clone_into(&mut options.endstop);
        Ok(options)
    }
}

/// Runs the role that the arguments name, or measures.
pub(crate) fn main(words: &[String]) -> Result<()> {
    match words.first().map(String::as_str) {
        Some("model") => return model::serve(),
        Some("library") => return library::perform(&words[1..]),
        _ => {}
    }
    let options = Options::read(words)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let table = runtime.block_on(table(&options))?;
    write!(std::io::stdout(), "{table}")?;
    if let Some(path) = &options.out {
        std::fs::write(path, table)?;
    }
    Ok(())
}

/// The figures of one way to perform the runs, one of each round.
#[derive(Default)]
struct Figures(Vec<Value>);

impl Figures {
    fn median(&self, name: &str) -> f64 {
        let mut values: Vec<f64> =
            self.0.iter().map(|figures| figures[name].as_f64().unwrap_or(f64::NAN)).collect();
        quantile(&mut values, 0.5)
    }

    fn row(&self, name: &str, runs: usize) -> String {
        format!(
            "| {name} | {:.0} | {:.2} ms | {:.1} ms, {:.1} ms | {:.0} MB | {:.0} |\n",
            runs as f64 / self.median("wall"),
            self.median("cpu") * 1e3 / runs as f64,
            self.median("p50_ms"),
            self.median("p99_ms"),
            self.median("peak_mb"),
            self.median("events") / runs as f64,
        )
    }
}

async fn table(options: &Options) -> Result<String> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("note.txt"), "A line of a file.\n".repeat(20))?;
    let mut text = String::new();
    // The same runs without pauses, which use all processors, and with pauses.
    // Fewer of the latter, because the pauses of each take 2.4 s.
    for (task, runs, rounds) in
        [("fast", options.runs, options.rounds), ("paced", options.runs.min(256), 1)]
    {
        let (mut plain, mut stored, mut served) =
            (Figures::default(), Figures::default(), Figures::default());
        for round in 0..rounds {
            let mut model = Process::role(&["model"])?;
            let port = model.line()?;
            for (journal, figures) in [("none", &mut plain), ("journal", &mut stored)] {
                let own = folder.path().join(format!("{task}-{round}-{journal}"));
                std::fs::create_dir(&own)?;
                std::fs::copy(folder.path().join("note.txt"), own.join("note.txt"))?;
                let own = own.to_str().ok_or("not UTF-8")?;
                let (count, at_once) = (runs.to_string(), AT_ONCE.to_string());
                let words = ["library", own, &port, &count, &at_once, task, journal];
                let mut library = Process::role(&words)?;
                figures.0.push(serde_json::from_str(&library.line()?)?);
            }
            let own = folder.path().join(format!("{task}-{round}-serve"));
            let serving = Serving::start(&options.endstop, &own, &port, AT_ONCE)?;
            served.0.push(measured(&serving, runs, AT_ONCE, task).await?);
        }
        let _ = write!(
            text,
            "{runs} runs of {} turns, {AT_ONCE} at once, {} chunks a turn, {}; median of {rounds}.\n\n\
             | | runs/s | processor time of a run | delay of a chunk, p50 and p99 | peak memory | events of a run |\n\
             |---|---|---|---|---|---|\n",
            model::TURNS,
            model::CHUNKS,
            if task == "fast" { "without pauses" } else { "20 ms before each chunk" },
        );
        text.push_str(&plain.row("library, without a journal", runs));
        text.push_str(&stored.row("library, with a journal", runs));
        text.push_str(&served.row("`endstop serve`, with a reader of each run", runs));
        let ratio = |name: &str, other: &Figures| served.median(name) / other.median(name);
        let _ = write!(
            text,
            "\nProcessor time of serve, compared with the library with a journal: {:.2} times; without one: \
             {:.2} times.\n\n",
            ratio("cpu", &stored),
            ratio("cpu", &plain),
        );
    }
    if options.idle > 0 {
        text.push_str(&idle_table(options, folder.path()).await?);
    }
    Ok(text)
}

async fn idle_table(options: &Options, folder: &Path) -> Result<String> {
    let mut model = Process::role(&["model"])?;
    let port = model.line()?;
    let serving = Serving::start(&options.endstop, &folder.join("idle"), &port, AT_ONCE)?;
    let readers = options.idle;
    let found = idle::measured(&serving, readers).await?;
    Ok(format!(
        "Idle readers of one silent run.\n\n| figure | value |\n|---|---|\n\
         | readers | {readers} |\n\
         | memory of serve before, and with them | {:.1} MB, {:.1} MB |\n\
         | a reader | {:.1} kB |\n\
         | delay of a chunk of other runs meanwhile, p50 and p99 | {:.1} ms, {:.1} ms |\n\
         | from the cancel of the run until all readers have the ending | {:.2} s |\n",
        found.before_mb,
        found.with_mb,
        (found.with_mb - found.before_mb) * 1024.0 / readers as f64,
        found.others.0,
        found.others.1,
        found.released_s,
    ))
}
