//! Random runs that use several features at once, each over several processes: parks and answers,
//! messages, changes of limits, verification, fallbacks, wrap-ups, background calls, ceilings of a day,
//! branches, suspensions and deaths. The journal of each replays to the same outcome, decisions and
//! events.
//!
//! The clock is virtual, so that timeouts, backoffs and thinking models take no time. The driver, the
//! journal and its file are real. `ENDSTOP_REPLAYS=1000` plays 1,000 runs and prints their counts.

mod checks;
mod code;
mod setting;

use super::Place;
use super::replayed::Dice;
use checks::check;
use endstop::agent::cancel_parked;
use endstop::journal::{DecideError, SqliteJournal};
use endstop::park::{Answer, AnswerRefused, ParkRequest, ParkedRun, RequestKind, RunStatus};
use endstop::{
    Agent, AgentEventKind, Branch, LimitChanges, Outcome, Resume, RunHandle, StartError, Steering,
};
use serde_json::{Map, Value};
use setting::{Setting, change};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Number of runs without `ENDSTOP_REPLAYS`.
const RUNS: u64 = 100;
const LANES: u64 = 4;
/// The most processes of a run. Far above what its turns need.
const MOST_LIVES: u32 = 200;
/// Virtual time after which a part of a run counts as hanging.
const HANG: Duration = Duration::from_secs(10_000_000);

/// The uses of each feature, and the kinds of events, effects and endings.
#[derive(Default)]
struct Counts(BTreeMap<String, u32>);

impl Counts {
    fn add(&mut self, kind: &str, name: &str) {
        *self.0.entry(format!("{kind}: {name}")).or_default() += 1;
    }

    fn of(&self, name: &str) -> u32 {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// A run and its processes.
struct Story<'a> {
    seed: u64,
    dice: Dice,
    file: PathBuf,
    setting: Setting,
    counts: &'a mut Counts,
    /// The features that the run has used.
    features: BTreeSet<&'static str>,
    /// `true` if a process died, so that tools may have run although no journal knows.
    died: bool,
}

/// The way in which a process begins with a run.
#[expect(clippy::large_enum_variant, reason = "one value at a time")]
enum Start {
    Run,
    Resume(Resume),
    /// Resumes a run that has ended.
    Again(Resume),
    Branch(Branch),
}

/// The part of a run that one process had.
struct Part {
    id: String,
    /// The events without deltas, and without those of nested runs.
    events: Vec<Value>,
    /// The messages that the run has accepted.
    said: Vec<String>,
    status: RunStatus,
}

/// A run with all its parts.
struct Whole {
    id: String,
    outcome: Outcome,
    events: Vec<Value>,
    said: Vec<String>,
    /// `true` if the handles have reported exactly what the journal has: no process died, and none but
    /// theirs has ended the run.
    heard: bool,
    /// `true` if the journal also has the events of the run that this one continues.
    continues: bool,
}

/// An action of the user while the run works.
enum Act {
    Say(String),
    Change(LimitChanges),
    Cancel,
    Terminate,
    /// The clock jumps, as if the machine had been suspended.
    Suspend(Duration),
}

impl Story<'_> {
    fn note(&mut self, feature: &'static str) {
        if self.features.insert(feature) {
            self.counts.add("feature", feature);
        }
    }

    fn actions(&mut self) -> Vec<(Duration, Act)> {
        let dice = &mut self.dice;
        let number = if dice.percent(60) { dice.below(4) } else { 0 };
        let mut actions = Vec::new();
        for nth in 0..number {
            // Early moments are the most frequent, because many runs are short.
            let most = 1 << dice.below(18);
            let after = Duration::from_millis(dice.below(most));
            let act = match dice.below(20) {
                0 => Act::Cancel,
                1 => Act::Terminate,
                2 | 3 => Act::Suspend(Duration::from_secs(20 + dice.below(7_200))),
                4..=11 => Act::Say(format!("message {nth} {}", dice.below(u64::MAX))),
                _ => {
                    let (name, value) = change(dice);
                    Act::Change(LimitChanges::new().set(name, value).unwrap())
                }
            };
            actions.push((after, act));
        }
        actions
    }

    /// Has one process work on the run until it parks, ends or dies.
    async fn part(&mut self, start: Start, dies: Option<u32>) -> Result<Part, StartError> {
        let journal = SqliteJournal::open(&self.file).unwrap();
        let agent = self.setting.agent(&journal, dies);
        let mut handle = match start {
            Start::Run => {
                let session = agent.session_from(self.setting.earlier.clone()).unwrap();
                session.run(format!("run {}", self.seed))
            }
            Start::Resume(how) | Start::Again(how) => agent.resume(how),
            Start::Branch(how) => agent.branch(how),
        }?;
        let id = handle.run_id().to_owned();
        let (steering, actions) = (handle.steering(), self.actions());
        let both = async { tokio::join!(read(&mut handle), steer(&agent, &steering, actions)) };
        let (events, said) = tokio::time::timeout(HANG, both).await.expect("the run hangs");
        tokio::time::timeout(HANG, agent.settled()).await.expect("its work hangs");
        for (kind, counted) in &said.counted {
            self.counts.add("user", &format!("{kind} {counted}"));
        }
        Ok(Part { id, events, said: said.accepted, status: handle.status() })
    }

    /// Plays a run until it ends, and checks its journal. Returns nothing if it could not start.
    async fn whole(&mut self, start: Start) -> Result<Whole, StartError> {
        let mut continues = matches!(start, Start::Again(_));
        let dies = self.dice.percent(20).then(|| 1 + self.dice.below(12) as u32);
        let mut part = self.part(start, dies).await?;
        let mut id = part.id.clone();
        let (mut events, mut said, mut heard) = (Vec::new(), Vec::new(), true);
        for life in 0.. {
            assert!(life < MOST_LIVES, "seed {}: run {id} does not end", self.seed);
            events.append(&mut part.events);
            said.append(&mut part.said);
            let journal = SqliteJournal::read(&self.file).unwrap();
            let ended = journal.load(&id).unwrap().outcome.is_some();
            let parked = journal.pending().unwrap().into_iter().find(|run| run.run_id == id);
            match (&part.status, ended, &parked) {
                (RunStatus::Ended(outcome), true, _) => {
                    let outcome = Outcome::clone(outcome);
                    return Ok(Whole { id, outcome, events, said, heard, continues });
                }
                (RunStatus::Parked(request), false, Some(parked)) => {
                    assert_eq!(**request, parked.request, "seed {}", self.seed);
                }
                // The journal has only what was written before the process died.
                _ => {
                    assert!(dies.is_some() && life == 0, "seed {}: {:?}", self.seed, part.status);
                    self.note("death");
                    (heard, self.died) = (false, true);
                }
            }
            let mut how = Resume::new(&id);
            if let Some(parked) = parked.filter(|parked| parked.decision.is_none()) {
                self.note("park");
                self.counts.add("park", parked.request.kind.as_str());
                match self.decide(&parked, how) {
                    Decided::Resume(resume) => how = resume,
                    Decided::Cancelled(outcome) => {
                        let outcome = *outcome;
                        return Ok(Whole { id, outcome, events, said, heard: false, continues });
                    }
                }
            }
            self.note("resume");
            part = match self.part(Start::Resume(how), None).await {
                // Its ending was decided when the process died, and is stored by now.
                Err(StartError::Ended { .. }) if self.died => {
                    let stored = journal.load(&id).unwrap().outcome.unwrap();
                    let outcome = serde_json::from_value(stored).unwrap();
                    return Ok(Whole { id, outcome, events, said, heard, continues });
                }
                started => started?,
            };
            if part.id != id {
                assert!(self.died, "seed {}: a run that has not ended stays the same", self.seed);
                (id, continues) = (part.id.clone(), true);
            }
        }
        unreachable!()
    }

    /// Decides the request of a parked run, or not, from another connection.
    fn decide(&mut self, parked: &ParkedRun, how: Resume) -> Decided {
        let journal = SqliteJournal::open(&self.file).unwrap();
        let (id, request) = (parked.run_id.as_str(), &parked.request);
        let question = request.kind == RequestKind::Question;
        let answer = match self.dice.below(3) {
            0 => Answer::deny("no, thanks"),
            _ if question => Answer::text("And another thing."),
            1 => Answer::approve_changed(changed_of(request)),
            _ => Answer::approve(),
        };
        let refusal = |answer: &Answer| match journal.answer(id, answer) {
            Err(DecideError::Refused(refused)) => refused,
            other => panic!("not refused: {other:?}"),
        };
        if parked.expired {
            let refused = refusal(&answer);
            assert!(matches!(refused, AnswerRefused::Expired { .. }), "{refused}");
            self.counts.add("answer", "expired");
            return Decided::Resume(how);
        }
        let way = self.dice.below(12);
        let name = match way {
            0 => "none yet",
            1 => "cancelled",
            2 => {
                let refused = refusal(&answer.clone().digest("00000000"));
                assert!(matches!(refused, AnswerRefused::Digest { .. }), "{refused}");
                "wrong digest"
            }
            3 => {
                let other = if question { Answer::approve() } else { Answer::text("yes") };
                let refused = refusal(&other);
                assert!(matches!(refused, AnswerRefused::Kind { .. }), "{refused}");
                "wrong kind"
            }
            4 if request.expires_ms.is_some() => {
                let late = request.expires_ms.unwrap_or_default() + 23 * 3_600_000;
                let refused = journal.answer_at(id, &answer, late).unwrap_err();
                let DecideError::Refused(refused) = refused else { panic!("{refused}") };
                assert!(matches!(refused, AnswerRefused::Expired { .. }), "{refused}");
                "late"
            }
            5 | 6 => "with the resume",
            _ => "in time",
        };
        self.counts.add("answer", name);
        match way {
            0 | 2 | 3 => Decided::Resume(how),
            1 => Decided::Cancelled(Box::new(cancel_parked(&journal, id).unwrap())),
            5 | 6 => Decided::Resume(how.answer(answer)),
            _ => {
                if name == "in time" {
                    journal.answer(id, &answer).unwrap();
                }
                // Also after the expiry that a late answer has stored.
                let refused = refusal(&answer);
                assert!(matches!(refused, AnswerRefused::AlreadyDecided { .. }), "{refused}");
                self.counts.add("answer", "twice");
                Decided::Resume(how)
            }
        }
    }
}

/// What became of the request of a parked run.
#[expect(clippy::large_enum_variant, reason = "one value at a time")]
enum Decided {
    Resume(Resume),
    Cancelled(Box<Outcome>),
}

/// Reads the events of a run that its journal can tell again.
async fn read(handle: &mut RunHandle) -> Vec<Value> {
    let mut events = Vec::new();
    while let Some(event) = handle.next().await {
        if let AgentEventKind::Warning { message, .. } = &event.kind {
            panic!("the run warns: {message}");
        }
        let decided = matches!(event.kind, AgentEventKind::Decided { .. });
        if event.path().is_empty() && !event.kind.is_delta() && !decided {
            events.push(serde_json::to_value(&event).unwrap());
        }
    }
    events
}

/// The messages that were accepted, and the results of all actions.
#[derive(Default)]
struct Steered {
    accepted: Vec<String>,
    counted: Vec<(&'static str, &'static str)>,
}

/// Performs the actions, each some time after the one before it.
async fn steer(agent: &Agent, steering: &Steering, actions: Vec<(Duration, Act)>) -> Steered {
    let mut steered = Steered::default();
    for (after, action) in actions {
        tokio::time::sleep(after).await;
        let (kind, done) = match action {
            Act::Say(text) => {
                let said = steering.say(&text);
                if said.is_ok() {
                    steered.accepted.push(text);
                }
                ("says", said.is_ok())
            }
            Act::Change(changes) => ("changes a limit", steering.set_limits(changes).is_ok()),
            Act::Cancel => {
                agent.cancel();
                ("cancels", true)
            }
            Act::Terminate => {
                agent.terminate();
                ("terminates", true)
            }
            Act::Suspend(time) => {
                tokio::time::advance(time).await;
                ("suspends", true)
            }
        };
        steered.counted.push((kind, if done { "in time" } else { "too late" }));
    }
    steered
}

/// Returns other arguments for the call of a request, which no other call has.
fn changed_of(request: &ParkRequest) -> Map<String, Value> {
    let subject = serde_json::from_str::<Map<String, Value>>(&request.subject).unwrap_or_default();
    let text = subject.get("text").and_then(Value::as_str).unwrap_or_default();
    [("text".to_owned(), format!("{text}, changed").into())].into_iter().collect()
}

/// Plays the run of a seed, and then branches from it, or resumes it if it failed.
async fn play(seed: u64, file: &Path, counts: &mut Counts) {
    let mut dice = Dice(seed);
    let setting = Setting::new(seed, &mut dice);
    let (file, features) = (file.to_owned(), BTreeSet::new());
    let mut story = Story { seed, dice, file, setting, counts, features, died: false };
    let whole = story.whole(Start::Run).await.unwrap();
    check(&mut story, &whole);
    let (several, most) = (story.features.len() > 2, story.features.len() > 4);
    for (is, name) in [(several, "3 or more at once"), (most, "5 or more at once")] {
        if is {
            story.counts.add("run", name);
        }
    }
    if story.dice.percent(40) {
        let turn = story.dice.below(u64::from(whole.outcome.turns) + 1) as u32;
        let how = Branch::new(&whole.id, turn).message("Try it in another way.");
        match story.whole(Start::Branch(how)).await {
            Ok(branch) => {
                check(&mut story, &branch);
                let from = branch.outcome.branched_from.as_ref().map(|from| from.run_id.as_str());
                assert_eq!(from, Some(whole.id.as_str()));
                story.note("branch");
            }
            Err(refused) => panic!("seed {seed}: no branch at {turn}: {refused}"),
        }
    }
    if !whole.outcome.is_success() && story.dice.percent(60) {
        story.setting.loosen(&mut story.dice);
        match story.whole(Start::Again(Resume::new(&whole.id))).await {
            Ok(again) => {
                check(&mut story, &again);
                story.note("resume after the end");
            }
            Err(StartError::Ended { .. }) => story.counts.add("resume", "would end again"),
            Err(refused) => panic!("seed {seed}: not resumed: {refused}"),
        }
    }
    assert_ran_once(&story);
}

/// A call that needs approval runs at most once, also in the runs that branch off or continue.
fn assert_ran_once(story: &Story<'_>) {
    if story.died {
        return;
    }
    let ran = story.setting.ran.lock().unwrap();
    let different: BTreeSet<&String> = ran.iter().collect();
    assert_eq!(different.len(), ran.len(), "seed {}: {ran:?}", story.seed);
}

#[test]
fn mixed_runs_replay_to_their_outcomes() {
    let runs = std::env::var("ENDSTOP_REPLAYS").ok().and_then(|runs| runs.parse().ok());
    let runs: u64 = runs.unwrap_or(RUNS);
    let mut all = Counts::default();
    let lanes: Vec<Counts> = std::thread::scope(|scope| {
        let lane = |lane: u64| {
            scope.spawn(move || {
                let (place, mut counts) = (Place::new(), Counts::default());
                for seed in (lane..runs).step_by(LANES as usize) {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .start_paused(true)
                        .build()
                        .unwrap();
                    runtime.block_on(play(seed, &place.file(), &mut counts));
                }
                counts
            })
        };
        let lanes: Vec<_> = (0..LANES).map(lane).collect();
        lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
    });
    for (name, count) in lanes.into_iter().flat_map(|lane| lane.0) {
        *all.0.entry(name).or_default() += count;
    }
    for (name, count) in &all.0 {
        println!("{count:>7}  {name}");
    }
    // Far below what the runs have, because the moments of some actions vary.
    let (names, least) = match runs {
        500.. => (checks::EXPECTED, (runs / 100) as u32),
        _ => (checks::FREQUENT, 1),
    };
    for name in names {
        let count = all.of(name);
        assert!(count >= least || runs < RUNS, "{name}: {count} times in {runs} runs");
    }
}
