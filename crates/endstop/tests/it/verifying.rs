//! Verifiers: rounds with the model, limits between them, and verifiers that hang, panic, print
//! without end or leave processes behind.

use crate::journal::{Place, agent as journalled};
use crate::support::{agent, eventually, marker, processes_with};
use endstop::event::AgentEventKind;
use endstop::testkit::Turn;
use endstop::verifier::{CommandVerifier, Verification};
use endstop::{Agent, BuildError, Limits, Outcome, Termination};
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn rounds(rounds: u32) -> Limits {
    Limits { verify_rounds: Some(rounds), ..Limits::default() }
}

fn answers(count: usize) -> Vec<Turn> {
    (1..=count).map(|nth| Turn::text(format!("try {nth}"))).collect()
}

async fn ended(agent: &Agent) -> Arc<Outcome> {
    let outcome = agent.run("do it").unwrap().outcome().await;
    agent.settled().await;
    Arc::new(outcome)
}

#[tokio::test]
async fn rejected_answer_returns_to_model() {
    let judged = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&judged);
    let agent = agent(answers(3))
        .verifier(move |answer: Option<String>| {
            let answer = answer.unwrap_or_default();
            let passed = answer == "try 3";
            let verdict = if passed {
                Verification::accepted()
            } else {
                Verification::rejected(format!("{answer} is wrong"))
            };
            log.lock().unwrap().push(answer);
            async move { verdict }
        })
        .limits(rounds(5))
        .build()
        .unwrap();
    let mut run = agent.run("do it").unwrap();
    let mut seen = Vec::new();
    while let Some(event) = run.next().await {
        if let AgentEventKind::Verified { round, rounds, passed, .. } = event.kind {
            seen.push((round, rounds, passed));
        }
    }
    let outcome = run.try_outcome().unwrap();
    assert_eq!((outcome.termination, outcome.verified), (Termination::Stop, Some(true)));
    assert_eq!(seen, [(1, Some(5), false), (2, Some(5), false), (3, Some(5), true)]);
    assert_eq!(*judged.lock().unwrap(), ["try 1", "try 2", "try 3"]);
    assert!(outcome.messages[2].plain_text().contains("try 1 is wrong"));
}

#[tokio::test]
async fn never_accepted_run_is_not_verified() {
    let agent = agent(answers(9))
        .verifier(|_| async { Verification::rejected("still wrong") })
        .limits(rounds(3))
        .build()
        .unwrap();
    let outcome = ended(&agent).await;
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    assert_eq!((outcome.turns, outcome.verify_rounds.len()), (3, 3));
    assert_eq!(outcome.last_text.as_deref(), Some("try 3"));
}

#[tokio::test]
async fn rounds_need_a_verifier() {
    let built = agent(answers(1)).limits(rounds(2)).build();
    assert_eq!(built.err(), Some(BuildError::NoVerifier));
}

#[tokio::test]
async fn panicking_verifier_accepts_nothing() {
    let agent = agent(answers(2))
        .verifier(|_| async { panic!("the verifier broke") })
        .limits(rounds(2))
        .build()
        .unwrap();
    let outcome = ended(&agent).await;
    assert_eq!(outcome.termination, Termination::ErrorDuringExecution);
    assert_eq!(outcome.decided_by.decision.as_str(), "verifier");
    assert!(outcome.decided_by.evidence.contains("the verifier broke"));
    assert_eq!(outcome.verified, None);
}

/// Counts the futures that exist.
struct Alive(Arc<AtomicU32>);

impl Alive {
    fn new(count: &Arc<AtomicU32>) -> Alive {
        count.fetch_add(1, Ordering::SeqCst);
        Alive(Arc::clone(count))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn hanging_verifier_is_dropped() {
    let alive = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&alive);
    let agent = agent(answers(2))
        .verifier(move |_| {
            let alive = Alive::new(&count);
            async move {
                let _alive = alive;
                pending::<Verification>().await
            }
        })
        .limits(rounds(2))
        .build()
        .unwrap();
    let outcome = ended(&agent).await;
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    assert!(outcome.verify_rounds.iter().all(|round| round.output.contains("did not end within")));
    assert_eq!(outcome.duration, Duration::from_secs(20 * 60), "twice the default of ten minutes");
    assert_eq!(alive.load(Ordering::SeqCst), 0, "no verification is left");
}

#[tokio::test]
async fn cancel_stops_the_verifier() {
    let alive = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&alive);
    let agent = agent(answers(1))
        .verifier(move |_| {
            let alive = Alive::new(&count);
            async move {
                let _alive = alive;
                pending::<Verification>().await
            }
        })
        .limits(rounds(2))
        .build()
        .unwrap();
    let run = agent.run("do it").unwrap();
    eventually("the verifier works", || alive.load(Ordering::SeqCst) == 1).await;
    agent.cancel();
    let outcome = run.outcome().await;
    agent.settled().await;
    assert_eq!((outcome.termination, outcome.verified), (Termination::Cancelled, None));
    assert_eq!(outcome.last_text.as_deref(), Some("try 1"));
    assert_eq!(alive.load(Ordering::SeqCst), 0, "no verification is left");
}

#[tokio::test]
async fn stopped_verification_runs_again() {
    let place = Place::new();
    let journal = place.journal();
    let judged = Arc::new(AtomicU32::new(0));
    let verifying = |hangs: bool| {
        let judged = Arc::clone(&judged);
        journalled(answers(1), &journal)
            .verifier(move |_| {
                judged.fetch_add(1, Ordering::SeqCst);
                async move { if hangs { pending().await } else { Verification::accepted() } }
            })
            .limits(rounds(2))
            .build()
            .unwrap()
    };
    let first = verifying(true);
    let run = first.run("do it").unwrap();
    let id = run.run_id().to_owned();
    eventually("the verifier works", || judged.load(Ordering::SeqCst) == 1).await;
    first.cancel();
    assert_eq!(run.outcome().await.termination, Termination::Cancelled);
    first.settled().await;
    let resumed = verifying(false).resume(id).unwrap().outcome().await;
    assert_eq!((resumed.termination, resumed.verified), (Termination::Stop, Some(true)));
    assert_eq!((resumed.turns, judged.load(Ordering::SeqCst)), (1, 2));
}

#[tokio::test]
async fn more_rounds_resume_the_run() {
    let place = Place::new();
    let journal = place.journal();
    let verifying = |turns: Vec<Turn>, most: u32| {
        journalled(turns, &journal)
            .verifier(|answer: Option<String>| async move {
                match answer.as_deref() {
                    Some("try 3") => Verification::accepted().output("3 passed"),
                    _ => Verification::rejected("1 failed"),
                }
            })
            .limits(rounds(most))
            .build()
            .unwrap()
    };
    let outcome = ended(&verifying(answers(2), 2)).await;
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    let id = outcome.run_id.clone().unwrap();
    assert!(verifying(Vec::new(), 2).resume(id.clone()).is_err(), "it would end again at once");
    let rest = answers(3).split_off(2);
    let outcome = verifying(rest, 3).resume(id).unwrap().outcome().await;
    assert_eq!((outcome.termination, outcome.verified), (Termination::Stop, Some(true)));
    assert_eq!((outcome.turns, outcome.verify_rounds.len()), (3, 3));
    let run = journal.load(outcome.run_id.as_deref().unwrap()).unwrap();
    let again = serde_json::to_string(run.replay(None).unwrap().outcome().unwrap()).unwrap();
    assert_eq!(again, serde_json::to_string(&outcome).unwrap(), "replayed");
}

#[cfg(unix)]
#[tokio::test]
async fn command_output_reaches_the_model() {
    let dir = tempfile::tempdir().unwrap();
    let command = "echo $((1 + $(cat n 2>/dev/null || echo 0))) > n; cat n; test $(cat n) -ge 3";
    let agent = agent(answers(3))
        .verifier(CommandVerifier::new(command).in_dir(dir.path()))
        .limits(rounds(3))
        .build()
        .unwrap();
    let outcome = ended(&agent).await;
    assert_eq!((outcome.termination, outcome.verified), (Termination::Stop, Some(true)));
    // The file that the verifier writes stays, and later rounds see it.
    let outputs: Vec<&str> = outcome.verify_rounds.iter().map(|r| r.output.as_str()).collect();
    assert_eq!(outputs, ["1\n[exit status 1]", "2\n[exit status 1]", "3"]);
}

#[cfg(unix)]
#[tokio::test]
async fn endless_output_is_bounded() {
    // A gigabyte.
    let command = "yes this test failed | head -c 1000000000; echo the end; exit 3";
    let agent = agent(answers(1))
        .verifier(CommandVerifier::new(command))
        .limits(rounds(1))
        .build()
        .unwrap();
    let outcome = ended(&agent).await;
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    let output = &outcome.verify_rounds[0].output;
    assert!(output.len() < 17 * 1024, "{} bytes", output.len());
    assert!(output.starts_with("this test failed\n"), "{}", &output[..40]);
    assert!(output.ends_with("the end\n[exit status 3]"), "{}", &output[output.len() - 40..]);
}

#[cfg(unix)]
#[tokio::test]
async fn hanging_command_is_killed_whole() {
    let mark = marker();
    let command = format!("export MARK={mark}; sleep 1000 & sleep 1000");
    let limits = Limits { verify_timeout: Some(Duration::from_millis(300)), ..rounds(1) };
    let agent =
        agent(answers(1)).verifier(CommandVerifier::new(command)).limits(limits).build().unwrap();
    let outcome = ended(&agent).await;
    assert_eq!(outcome.termination, Termination::ErrorNotVerified);
    assert!(outcome.verify_rounds[0].output.contains("did not end within 300ms"));
    eventually("its processes are gone", || processes_with(&mark) == 0).await;
}
