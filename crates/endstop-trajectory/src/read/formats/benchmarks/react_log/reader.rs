//! Decodes the runs of a log.

use super::line::{Line, asked_after};
use crate::model::{Call, CallResult, Ending, Origin, Recorded, Role, Step, Trajectory};
use crate::read::build::conversation::Conversation;
use crate::read::format::{Place, Sink};
use crate::read::io::json_lines::nothing;
use crate::read::io::source;
use crate::read::problem::{Problem, ProblemKind};
use serde_json::{Map, Value};

pub(super) fn read(bytes: &[u8], place: &Place<'_>, sink: &mut Sink<'_>) {
    let mut log = Log::new(place);
    for (line, at) in bytes.split(|byte| *byte == b'\n').zip(1..) {
        let line = String::from_utf8_lossy(line);
        log.take(line.trim_end_matches('\r'), at, sink);
    }
    if log.open.as_ref().is_some_and(|run| log.is_cut(run)) {
        sink(Err(Problem {
            file: place.file.to_owned(),
            at: log.open.as_ref().map(|run| run.line),
            kind: ProblemKind::Half,
            what: "the log ends in the middle of this run".to_owned(),
        }));
        if let Some(run) = &mut log.open {
            run.cut = true;
        }
    }
    // A log that ends in a heading, or in the question after it, lacks at least one run.
    let last = bytes.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    if log.open.is_none() && log.runs > 0 && !last.trim_ascii().is_empty() {
        sink(Err(Problem {
            file: place.file.to_owned(),
            at: None,
            kind: ProblemKind::Half,
            what: "the log ends in the middle of a line between two runs".to_owned(),
        }));
    }
    log.give(sink);
    if log.runs == 0 {
        sink(Err(nothing(place, "no question with an action")));
    }
}

/// The state of the line-by-line parser.
struct Log<'p> {
    place: &'p Place<'p>,
    trial: Option<String>,
    section: Option<&'static str>,
    context: String,
    /// The current run, and the number of runs before it.
    open: Option<Run>,
    runs: u64,
    /// `true` if the correct answer follows each run.
    has_gold: bool,
    /// `true` if the previous line was empty.
    blank: bool,
}

/// The element that a continuation line belongs to.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum At {
    #[default]
    Context,
    Question,
    Reflections,
    Thought,
    Action,
    Observation,
    Gold,
}

#[derive(Default)]
struct Run {
    line: u64,
    trial: Option<String>,
    section: Option<&'static str>,
    context: String,
    question: String,
    reflections: String,
    turns: Vec<Turn>,
    gold: Option<String>,
    at: At,
    /// `true` if the lines of the run have numbers; `None` if there was no such line yet.
    numbered: Option<bool>,
    /// `true` if text follows the end of the run.
    odd: bool,
    /// `true` if the log ends within the run.
    cut: bool,
}

#[derive(Default)]
struct Turn {
    thought: String,
    action: Option<String>,
    observation: Option<String>,
}

impl Log<'_> {
    fn new<'p>(place: &'p Place<'p>) -> Log<'p> {
        let context = String::new();
        Log {
            place,
            trial: None,
            section: None,
            context,
            open: None,
            runs: 0,
            has_gold: false,
            blank: true,
        }
    }

    fn take(&mut self, line: &str, at: u64, sink: &mut Sink<'_>) {
        let may_ask = self.blank || self.open.as_ref().is_none_or(|run| run.at == At::Gold);
        self.blank = line.trim().is_empty();
        let (turn, numbered) = match &self.open {
            Some(run) => (Some(run.turn()), run.numbered),
            None => (None, None),
        };
        let kind = match Line::of_run(line, turn, numbered) {
            // A passage may contain such a line.
            Line::Context | Line::Question(_) if !may_ask => Line::Other,
            Line::Reflections(_) if self.open.as_ref().is_some_and(|run| !run.turns.is_empty()) => {
                Line::Other
            }
            kind => kind,
        };
        match kind {
            Line::Trial(trial) => {
                self.give(sink);
                (self.trial, self.section) = (Some(trial.to_owned()), None);
            }
            Line::Section(heading) => {
                self.give(sink);
                self.section = ["CORRECT", "INCORRECT", "HALTED"]
                    .into_iter()
                    .find(|name| heading.split(' ').next() == Some(name));
            }
            Line::Frame => self.give(sink),
            Line::Context => {
                self.give(sink);
                line.clone_into(&mut self.context);
            }
            Line::Question(question) => {
                self.give(sink);
                self.ask(question, at);
            }
            kind => match (&mut self.open, asked_after(line)) {
                (Some(run), _) => {
                    // Reported once per run, not for each line.
                    if run.at == At::Gold && !self.blank && !std::mem::replace(&mut run.odd, true) {
                        sink(Err(lost(
                            self.place,
                            at,
                            "the text is treated as part of the previous run",
                        )));
                    }
                    run.take(kind, line);
                }
                (None, _) if self.context.is_empty() => {
                    if matches!(Line::of(line, Some(1)), Line::Action(_)) {
                        sink(Err(lost(self.place, at, "its run is not read")));
                    }
                }
                (None, Some((context, question))) => {
                    add_line(&mut self.context, context);
                    self.ask(question.trim(), at);
                }
                (None, None) => add_line(&mut self.context, line),
            },
        }
    }

    fn ask(&mut self, question: &str, at: u64) {
        self.open = Some(Run {
            line: at,
            trial: self.trial.clone(),
            section: self.section,
            context: std::mem::take(&mut self.context),
            question: question.to_owned(),
            at: At::Question,
            ..Run::default()
        });
    }

    /// Returns `true` if the last run of the file is truncated.
    fn is_cut(&self, run: &Run) -> bool {
        let told = run.turns.last().and_then(|turn| turn.observation.as_deref());
        let is_judged = told.is_some_and(|told| judged(told).is_some());
        // If earlier runs end with the correct answer, a last run without one is truncated.
        run.gold.is_none() && (self.has_gold || !is_judged && run.section != Some("HALTED"))
    }

    fn give(&mut self, sink: &mut Sink<'_>) {
        let Some(run) = self.open.take() else { return };
        self.runs += 1;
        self.has_gold |= run.gold.is_some();
        let stem = source::stem(source::bare_name(self.place.file));
        sink(Ok(run.finish(stem, self.runs, self.place.file)));
    }
}

impl Run {
    /// Returns the number of the turn that the next line may begin or continue.
    fn turn(&self) -> u64 {
        let done = self.turns.last().is_none_or(|turn| turn.observation.is_some());
        self.turns.len() as u64 + u64::from(done)
    }

    fn take(&mut self, kind: Line<'_>, line: &str) {
        if matches!(kind, Line::Thought(_) | Line::Action(_) | Line::Observation(_)) {
            // `Thought 1:` has a number and `Thought:` has none; the first line decides for the
            // whole run.
            let number = line.split_once(':').is_some_and(|(name, _)| name.contains(' '));
            self.numbered.get_or_insert(number);
        }
        match kind {
            Line::Reflections(told) => {
                self.at = At::Reflections;
                told.clone_into(&mut self.reflections);
            }
            Line::Thought(thought) => {
                self.at = At::Thought;
                add_line(&mut self.begin().thought, thought);
            }
            Line::Action(action) => {
                self.at = At::Action;
                add_line(self.begin().action.get_or_insert_default(), action);
            }
            Line::Observation(told) => {
                self.at = At::Observation;
                add_line(self.begin().observation.get_or_insert_default(), told);
            }
            Line::Gold(gold) => {
                self.at = At::Gold;
                self.gold = Some(gold.to_owned());
            }
            _ => {
                let turn = self.turns.last_mut();
                match self.at {
                    At::Context => add_line(&mut self.context, line),
                    At::Question => add_line(&mut self.question, line),
                    At::Reflections => add_line(&mut self.reflections, line),
                    At::Gold => add_line(self.gold.get_or_insert_default(), line),
                    At::Thought | At::Action | At::Observation => {
                        let Some(turn) = turn else { return };
                        match self.at {
                            At::Action => add_line(turn.action.get_or_insert_default(), line),
                            At::Observation => {
                                add_line(turn.observation.get_or_insert_default(), line);
                            }
                            _ => add_line(&mut turn.thought, line),
                        }
                    }
                }
            }
        }
    }

    /// Returns the current turn, or begins the next one if the current turn has its observation.
    fn begin(&mut self) -> &mut Turn {
        if self.turns.last().is_none_or(|turn| turn.observation.is_some()) {
            self.turns.push(Turn::default());
        }
        let last = self.turns.len() - 1;
        &mut self.turns[last]
    }

    /// Returns the message that the run began with.
    fn prompt(&self, question: &str) -> String {
        let mut prompt = String::new();
        let context = self.context.trim();
        // A run without a context may have only the heading.
        if context != "Context:" {
            prompt.push_str(context);
        }
        add_line(&mut prompt, &format!("Question: {question}"));
        if !self.reflections.trim().is_empty() {
            add_line(&mut prompt, &format!("Reflections:\n{}", self.reflections.trim()));
        }
        prompt
    }

    fn finish(self, stem: &str, number: u64, file: &str) -> Trajectory<'static> {
        let mut run = Trajectory::new(format!("{stem}/{number}"));
        run.origin = Origin { format: "react-log", file: file.to_owned(), at: Some(self.line) };
        run.agent = Some("react".into());
        let question = self.question.trim().to_owned();
        let prompt = self.prompt(&question);
        run.trial = self.trial.map(Into::into);
        run.task_id = Some(question.clone().into());
        let mut steps = Conversation::default();
        steps.push(Step { text: prompt.into(), ..Step::new(Role::User) });
        let (mut right, mut answer) = (None, None);
        for (turn, at) in self.turns.into_iter().zip(1..) {
            let told = turn.observation.as_deref().map(str::trim);
            right = told.and_then(judged);
            let text = turn.thought.trim().to_owned();
            let step = steps.push(Step { text: text.into(), ..Step::new(Role::Agent) });
            let id = format!("call-{at}");
            if let Some(action) = &turn.action {
                let (name, argument) = parts(action);
                answer = argument.filter(|_| name == "Finish").map(str::to_owned);
                let mut arguments = Map::new();
                if let Some(argument) = argument {
                    arguments.insert("query".to_owned(), argument.into());
                }
                let call = Call {
                    id: Some(id.clone().into()),
                    name: name.to_owned().into(),
                    arguments: Value::Object(arguments).to_string().into(),
                    extra: None,
                };
                steps.call(step, call);
            }
            if let Some(told) = told {
                steps.result(CallResult {
                    // An observation without an action has no call, so it must not have a call id.
                    call_id: turn.action.is_some().then(|| id.into()),
                    content: told.to_owned().into(),
                    is_error: is_failure(told),
                    ..CallResult::default()
                });
            }
        }
        (run.steps, run.notes) = steps.finish();
        let halted = self.section == Some("HALTED");
        let by_section = match self.section {
            Some("CORRECT") => Some(true),
            Some(_) => Some(false),
            None => None,
        };
        // The observation comes first: the section's heading may be missing.
        let success = right.or(by_section);
        run.recorded =
            Recorded { reward: success.map(|right| f64::from(u8::from(right))), success };
        let native = self.section.map(|section| section.to_lowercase().into());
        let reason = match (right, self.section) {
            (None, Some(_)) if halted => Some("max_steps"),
            (Some(_), _) | (None, Some(_)) => Some("final"),
            (None, None) => None,
        };
        // The last line of a log that was cut may be half an answer.
        let reason = reason.filter(|_| !self.cut);
        run.ending = reason.map(|reason| Ending {
            reason: reason.into(),
            native,
            answer: answer.map(Into::into),
            ..Ending::default()
        });
        if let Some(gold) = self.gold {
            run.labels.insert("gold".to_owned(), gold.trim().into());
        }
        run
    }
}

/// Creates the problem for a missing or unreadable question.
fn lost(place: &Place<'_>, at: u64, so: &str) -> Problem {
    Problem {
        file: place.file.to_owned(),
        at: Some(at),
        kind: ProblemKind::Malformed,
        what: format!("no question before this line; {so}"),
    }
}

/// Returns whether the environment judged the answer to be correct; `None` if it did not judge one.
fn judged(told: &str) -> Option<bool> {
    match told.trim() {
        "Answer is CORRECT" => Some(true),
        "Answer is INCORRECT" => Some(false),
        _ => None,
    }
}

/// Splits an action into its name and the argument in brackets: `Search[Creed (band)]`.
fn parts(action: &str) -> (&str, Option<&str>) {
    let action = action.trim();
    match action.split_once('[') {
        Some((name, rest)) => (name.trim(), Some(rest.strip_suffix(']').unwrap_or(rest))),
        None => (action, None),
    }
}

fn add_line(to: &mut String, line: &str) {
    if !to.is_empty() {
        to.push('\n');
    }
    to.push_str(line);
}

fn is_failure(told: &str) -> bool {
    ["Could not find", "Invalid Action", "The last page Searched", "There are no more"]
        .iter()
        .any(|words| told.starts_with(words))
}
