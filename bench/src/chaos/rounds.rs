//! Rounds of `bench-chaos`: starts servers, runs many conversations at once, and checks for leaks
//! when all have ended.
//!
//! ```text
//! let plan = Plan::read(&words)?; // `10000 7 --leak task`
//! let sound = rounds::all(&plan)?;
//! ```

use crate::answers::Answers;
use crate::budgets::Budgets;
use crate::dice::Dice;
use crate::left::Held;
use crate::runs::{Fault, World, lane};
use crate::setup::price;
use crate::tally::Tally;
use endstop::journal::SqliteJournal;
use endstop::process::{CommandLine, StopTokens};
use endstop::provider::http::{HttpOptions, HttpProvider};
use endstop::testkit::Server;
use std::error::Error;
use std::fs::File;
use std::net::TcpStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Number of runs between two checks for leaks.
const ROUND: u64 = 1_000;
/// Number of simultaneous conversations.
const LANES: u64 = 16;
const SERVERS: u64 = 3;
const FORMATS: [&str; 2] = ["openai-chat", "anthropic-messages"];

/// A deliberate leak.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leak {
    Fd,
    Task,
    Process,
    Connection,
}

/// The parsed command line.
#[derive(Debug)]
pub(crate) struct Plan {
    runs: u64,
    seed: u64,
    leak: Option<Leak>,
    fault: Option<Fault>,
}

impl Plan {
    pub(crate) fn read(words: &[String]) -> Result<Plan> {
        let mut words = words.iter();
        let mut numbers = Vec::new();
        let (mut leak, mut fault) = (None, None);
        while let Some(word) = words.next() {
            if word == "--leak" {
                leak = Some(match words.next().map(String::as_str) {
                    Some("fd") => Leak::Fd,
                    Some("task") => Leak::Task,
                    Some("process") => Leak::Process,
                    Some("connection") => Leak::Connection,
                    _ => {
                        return Err(
                            "invalid --leak: expected fd, task, process or connection".into()
                        );
                    }
                });
            } else if word == "--fault" {
                fault = Some(match words.next().map(String::as_str) {
                    Some("denial") => Fault::Denial,
                    Some("message") => Fault::Message,
                    Some("replay") => Fault::Replay,
                    _ => return Err("invalid --fault: expected denial, message or replay".into()),
                });
            } else {
                numbers.push(word.parse().map_err(|_| format!("`{word}` is not a number"))?);
            }
        }
        let mut numbers = numbers.into_iter();
        let (runs, seed) = (numbers.next().unwrap_or(10_000), numbers.next().unwrap_or(1));
        Ok(Plan { runs, seed, leak, fault })
    }
}

/// Deliberate leaks, which last until the program ends.
#[derive(Default)]
struct Leaked {
    files: Vec<File>,
    streams: Vec<TcpStream>,
    processes: Vec<Child>,
}

impl Leaked {
    fn leak(&mut self, leak: Leak, runtime: &Runtime, servers: &[Server]) -> Result<()> {
        match leak {
            Leak::Fd => self.files.push(File::open("/proc/self/status")?),
            Leak::Task => drop(runtime.spawn(std::future::pending::<()>())),
            Leak::Process => self.processes.push(Command::new("sleep").arg("600").spawn()?),
            Leak::Connection => {
                let url = servers.first().map(Server::base_url).unwrap_or_default();
                let address = url.trim_start_matches("http://").trim_end_matches("/v1");
                self.streams.push(TcpStream::connect(address)?);
            }
        }
        Ok(())
    }
}

impl Drop for Leaked {
    fn drop(&mut self) {
        for process in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// Runs all rounds; returns `true` if no check failed.
#[expect(clippy::print_stdout, reason = "the result")]
pub(crate) fn all(plan: &Plan) -> Result<bool> {
    // Idle threads end soon, so that only leaked threads stay.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_keep_alive(Duration::from_millis(50))
        .enable_all()
        .build()?;
    // A duration that no other program uses, so that the processes can be found by it.
    let sleep = format!("30.{:010}", std::process::id());
    let tally = Arc::new(Tally::default());
    // The first command opens descriptors and threads that stay for later ones; they are no leak.
    runtime.block_on(CommandLine::new("true").run(&StopTokens::never()))?;
    // Longer than an idle thread lives, so that `before` does not count it.
    std::thread::sleep(Duration::from_millis(200));
    let before = Held::now(runtime.handle(), &sleep);
    println!("seed {}; {} runs, {LANES} conversations at once", plan.seed, plan.runs);
    let began = Instant::now();
    let mut leaked = Leaked::default();
    let rounds = plan.runs.div_ceil(ROUND);
    for number in 0..rounds {
        let runs = ROUND.min(plan.runs - number * ROUND);
        let servers = servers(plan.seed, number, &sleep, &tally)?;
        if let Some(leak) = plan.leak.filter(|_| number == 0) {
            leaked.leak(leak, &runtime, &servers)?;
        }
        round(plan, number, runs, &runtime, &servers, &tally)?;
        for server in &servers {
            if !runtime.block_on(server.until(|server| server.open_connections() == 0)) {
                let open = server.open_connections();
                tally.broken(&format!("round {number}: connections: {open} stay open"));
            }
        }
        // Before the count, because the servers are threads and descriptors of this process.
        drop(servers);
        for more in before.left(runtime.handle(), &sleep) {
            tally.broken(&format!("round {number}: {more}"));
        }
        if tally.breaches() > 0 {
            // The same leak would be reported in every later round.
            break;
        }
    }
    drop(leaked);
    tally.print();
    println!(
        "{} runs in {:.0} s; broken: {}",
        tally.runs(),
        began.elapsed().as_secs_f64(),
        tally.breaches()
    );
    // Does not wait for a leaked task, which would never end.
    runtime.shutdown_background();
    Ok(tally.breaches() == 0)
}

fn servers(seed: u64, round: u64, sleep: &str, tally: &Arc<Tally>) -> Result<Vec<Server>> {
    let server = |number: u64| {
        let (sleep, tally) = (sleep.to_owned(), Arc::clone(tally));
        let answers = Answers { seed, server: round * SERVERS + number, sleep, tally };
        Server::start(move |request| answers.to(request))
    };
    Ok((0..SERVERS).map(server).collect::<std::io::Result<_>>()?)
}

/// Makes the runs of one round over these servers.
fn round(
    plan: &Plan,
    number: u64,
    runs: u64,
    runtime: &Runtime,
    servers: &[Server],
    tally: &Arc<Tally>,
) -> Result<()> {
    let mut providers = Vec::new();
    for server in servers {
        for api in FORMATS {
            let options = HttpOptions {
                model: "script".to_owned(),
                api: Some(api.to_owned()),
                base_url: Some(server.base_url()),
                price: Some(price()),
                ..HttpOptions::default()
            };
            providers.push(HttpProvider::new(&options, &|_| None)?);
        }
    }
    let seed = plan.seed;
    // Each round has a file, which goes with it.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("journal.db");
    let budgets = Budgets::new(&mut Dice::new(seed, &[number]), runs);
    let watch = budgets.watch(tally)?;
    let world = Arc::new(World {
        seed,
        round: number,
        providers,
        budgets: budgets.clone(),
        tally: Arc::clone(tally),
        journal: SqliteJournal::open(&file)?,
        other: SqliteJournal::open(&file)?,
        fault: plan.fault,
        runs: AtomicU64::new(runs),
        cost: AtomicU64::new(0),
    });
    runtime.block_on(async {
        let mut lanes = JoinSet::new();
        for at in 0..LANES {
            lanes.spawn(lane(Arc::clone(&world), at));
        }
        while let Some(lane) = lanes.join_next().await {
            if let Err(problem) = lane {
                tally.broken(&format!("round {number}: {problem}"));
            }
        }
    });
    watch.end();
    // The outcomes and the budgets count independently, so that their sums check each other.
    let (told, spent) = (world.cost.load(Ordering::Relaxed), budgets.spent());
    tally.cost(told, spent.0);
    if told != spent.0 {
        tally.broken(&format!("round {number}: outcomes cost {told}, budgets booked {spent:?}"));
    }
    Ok(())
}
