//! Rounds of runs: starts servers, runs many conversations at once, and checks for leaks when all have
//! ended.

use crate::answers::Answers;
use crate::budgets::Budgets;
use crate::dice::Dice;
use crate::left::Held;
use crate::runs::{World, lane};
use crate::setup::price;
use crate::tally::Tally;
use endstop::journal::SqliteJournal;
use endstop::process::{CommandLine, StopTokens};
use endstop::provider::http::HttpProvider;
use endstop::testkit::Server;
use std::error::Error;
use std::net::TcpStream;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const SEED: u64 = 1;
/// Number of runs between two checks for leaks.
const ROUND: u64 = 1_000;
/// Number of simultaneous conversations.
const LANES: u64 = 16;
const SERVERS: u64 = 3;
const FORMATS: [&str; 2] = ["openai-chat", "anthropic-messages"];

/// Words of the checks that must find what is planted.
const FINDS: [&str; 8] = [
    "connections: ",
    "descriptors: ",
    "processes: ",
    "tasks: ",
    "threads: ",
    "although its request was denied",
    "the journal has the messages",
    "the replay ends as",
];

/// Deliberate leaks, which last until all runs have ended.
struct Leaked {
    _connection: TcpStream,
    process: Child,
}

impl Leaked {
    fn new(runtime: &Runtime, server: &Server) -> Result<Leaked> {
        runtime.spawn(std::future::pending::<()>());
        std::thread::spawn(std::thread::park);
        let url = server.base_url();
        let address = url.trim_start_matches("http://").trim_end_matches("/v1");
        let process = Command::new("sleep").arg("600").spawn()?;
        Ok(Leaked { _connection: TcpStream::connect(address)?, process })
    }
}

impl Drop for Leaked {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Makes the runs, and some more with leaks and faults, which the checks must find.
pub(crate) fn all() -> ExitCode {
    let asked = std::env::var("ENDSTOP_CHAOS_RUNS").ok().map(|runs| runs.parse().unwrap());
    let began = Instant::now();
    let tally = rounds(asked.unwrap_or(300), false).unwrap();
    if asked.is_some() {
        tally.print();
    }
    let breaches = tally.breaches();
    for breach in breaches.iter().take(40) {
        println!("BROKEN: {breach}");
    }
    let (runs, seconds) = (tally.runs(), began.elapsed().as_secs_f64());
    println!("{runs} runs in {seconds:.0} s; broken: {}", breaches.len());
    if !breaches.is_empty() {
        return ExitCode::FAILURE;
    }
    let found = rounds(300, true).unwrap().breaches();
    for words in FINDS {
        assert!(found.iter().any(|breach| breach.contains(words)), "`{words}` was not found");
    }
    println!("the checks found what was planted");
    ExitCode::SUCCESS
}

/// Makes this many runs; if `planted`, with leaks and faults.
fn rounds(runs: u64, planted: bool) -> Result<Arc<Tally>> {
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
    // Time for what is released in the background; a planted leak uses all of it.
    let patience = Duration::from_secs(if planted { 1 } else { 10 });
    let mut leaked = None;
    for number in 0..runs.div_ceil(ROUND) {
        let servers = servers(number, &sleep, &tally)?;
        if planted {
            leaked = servers.first().map(|server| Leaked::new(&runtime, server)).transpose()?;
        }
        round(number, ROUND.min(runs - number * ROUND), planted, &runtime, &servers, &tally)?;
        for server in &servers {
            let closed = server.until(|server| server.open_connections() == 0);
            if runtime.block_on(async { timeout(patience, closed).await }).is_err() {
                let open = server.open_connections();
                tally.broken(&format!("round {number}: connections: {open} stay open"));
            }
        }
        // Before the count, because the servers are threads and descriptors of this process.
        drop(servers);
        for more in before.left(runtime.handle(), &sleep, patience) {
            tally.broken(&format!("round {number}: {more}"));
        }
        if !tally.breaches().is_empty() {
            // The same leak would be reported in every later round.
            break;
        }
    }
    drop(leaked);
    // Bounded, because a thread that hangs would be waited for without an end.
    runtime.shutdown_timeout(patience);
    Ok(tally)
}

fn servers(round: u64, sleep: &str, tally: &Arc<Tally>) -> Result<Vec<Server>> {
    let server = |number: u64| {
        let (sleep, tally) = (sleep.to_owned(), Arc::clone(tally));
        let answers = Answers { seed: SEED, server: round * SERVERS + number, sleep, tally };
        Server::start(move |request| answers.to(request))
    };
    Ok((0..SERVERS).map(server).collect::<std::io::Result<_>>()?)
}

/// Makes the runs of one round over these servers.
fn round(
    number: u64,
    runs: u64,
    planted: bool,
    runtime: &Runtime,
    servers: &[Server],
    tally: &Arc<Tally>,
) -> Result<()> {
    let mut providers = Vec::new();
    for server in servers {
        for api in FORMATS {
            let options =
                HttpProvider::builder("script").api(api).base_url(server.base_url()).price(price());
            providers.push(options.env(|_| None).build()?);
        }
    }
    // Each round has a file, which goes with it.
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("journal.db");
    let budgets = Budgets::new(&mut Dice::new(SEED, &[number]), runs);
    let watch = budgets.watch(tally)?;
    let world = Arc::new(World {
        seed: SEED,
        round: number,
        providers,
        budgets: budgets.clone(),
        tally: Arc::clone(tally),
        journal: SqliteJournal::open(&file)?,
        other: SqliteJournal::open(&file)?,
        planted,
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
