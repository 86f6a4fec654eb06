//! Readers of a run that is silent: their memory, and the delay of other runs meanwhile.

use crate::Result;
use crate::client::{Connection, Delays, Events, run};
use crate::process::memory_mb;
use crate::serving::Serving;
use std::time::Instant;
use tokio::task::JoinSet;

/// Number of connections that are opened at once.
// The system drops connection attempts beyond the server's backlog, and the client repeats them a
// second later.
const AT_ONCE: usize = 64;

/// The figures of idle readers.
pub(crate) struct Idle {
    pub(crate) before_mb: f64,
    pub(crate) with_mb: f64,
    /// p50 and p99 of the delay of runs during the idle readers, in milliseconds.
    pub(crate) others: (f64, f64),
    /// Time from the cancel of the silent run to the last reader's last event, in seconds.
    pub(crate) released_s: f64,
}

/// Opens this many readers of one run, and ends the run at last.
pub(crate) async fn measured(serving: &Serving, readers: usize) -> Result<Idle> {
    let (address, process) = (serving.address.clone(), serving.process.id());
    let mut asking = Connection::open(&address).await?;
    let id = asking.begin("silent").await?;
    let mut first = Events::open(Connection::open(&address).await?, &id).await?;
    until_silent(&mut first).await?;
    let before_mb = memory_mb(process, "VmRSS");
    let mut open = vec![first];
    while open.len() < readers {
        let mut opening = JoinSet::new();
        for _ in 0..AT_ONCE.min(readers - open.len()) {
            let (address, id) = (address.clone(), id.clone());
            opening.spawn(async move {
                let mut events = Events::open(Connection::open(&address).await?, &id).await?;
                until_silent(&mut events).await?;
                Result::Ok(events)
            });
        }
        for events in opening.join_all().await {
            open.push(events?);
        }
    }
    let with_mb = memory_mb(process, "VmRSS");
    let mut delays = Delays::default();
    for _ in 0..5 {
        asking = run(asking, "paced", &mut delays).await?;
    }
    let began = Instant::now();
    asking.ask("POST", &format!("/v1/runs/{id}/cancel"), "{}").await?;
    let mut ending = JoinSet::new();
    for mut events in open {
        ending.spawn(async move {
            let mut last = false;
            while let Some(event) = events.next().await? {
                last = event.starts_with(r#"{"type":"finished""#);
            }
            Result::Ok(last)
        });
    }
    for ended in ending.join_all().await {
        if !ended? {
            return Err("a reader did not get the ending".into());
        }
    }
    let released_s = began.elapsed().as_secs_f64();
    Ok(Idle { before_mb, with_mb, others: delays.quantiles(), released_s })
}

/// Reads up to the only text of the silent turn.
async fn until_silent(events: &mut Events) -> Result<()> {
    while let Some(event) = events.next().await? {
        if event.starts_with(r#"{"type":"text_delta""#) {
            return Ok(());
        }
    }
    Err("the silent run ended".into())
}
