//! User code that counts its starts, and those after its run was stopped.

use super::*;

/// The counts over all runs.
#[derive(Default)]
pub(super) struct Counts {
    /// Number of started pieces of user code, by kind.
    pub(super) ran: Mutex<BTreeMap<&'static str, u64>>,
    /// Those that started after the stop had returned.
    pub(super) late: Mutex<BTreeMap<&'static str, u64>>,
    /// Number of stopped runs, by event.
    pub(super) stopped: Mutex<BTreeMap<&'static str, u64>>,
}

/// A run, with a flag that is set when its stop has returned.
#[derive(Clone)]
pub(super) struct Probe {
    pub(super) returned: Arc<AtomicBool>,
    pub(super) counts: Arc<Counts>,
    /// `true` if the hooks change calls and results.
    pub(super) changes: bool,
}

impl Probe {
    /// The first instruction of user code.
    fn starts(&self, what: &'static str) {
        let late = self.returned.load(Ordering::SeqCst);
        *self.counts.ran.lock().unwrap().entry(what).or_default() += 1;
        if late {
            *self.counts.late.lock().unwrap().entry(what).or_default() += 1;
        }
    }

    pub(super) fn tool(&self, name: &'static str) -> impl Tool + 'static {
        let probe = self.clone();
        tool_fn(name, "Works.", move |arguments: Value, context: ToolContext| {
            let probe = probe.clone();
            async move {
                probe.starts(if arguments["n"] == 9 { "changed tool" } else { "tool" });
                match name {
                    "wait" => context.cancelled().await,
                    "halt" => return ToolOutput::halt("enough"),
                    _ => tokio::task::yield_now().await,
                }
                ToolOutput::ok("done")
            }
        })
    }

    pub(super) fn model(&self, turns: impl IntoIterator<Item = Option<Turn>>) -> ProbedModel {
        let turns = turns.into_iter().collect::<Vec<_>>();
        let fails = turns.iter().map(Option::is_none).collect();
        let script = ScriptedModel::new(turns.into_iter().flatten());
        ProbedModel { probe: self.clone(), script, fails, calls: Arc::default() }
    }
}

/// A scripted model that reports its calls. A turn that is `None` fails, and may be retried at
/// once.
#[derive(Clone)]
pub(super) struct ProbedModel {
    pub(super) probe: Probe,
    script: ScriptedModel,
    pub(super) fails: Vec<bool>,
    calls: Arc<AtomicUsize>,
}

impl Provider for ProbedModel {
    fn name(&self) -> &str {
        self.script.name()
    }
    fn model(&self) -> &str {
        self.script.model()
    }
    fn open(&self, spec: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(ProbedSession(self.clone(), self.script.open(spec)))
    }
    fn is_terminal(&self, response: &Response) -> bool {
        self.script.is_terminal(response)
    }
}

struct ProbedSession(ProbedModel, Box<dyn ModelSession>);

impl ModelSession for ProbedSession {
    fn call(&mut self, call: CallSpec<'_>) -> CallStream {
        self.0.probe.starts("model call");
        let nth = self.0.calls.fetch_add(1, Ordering::SeqCst);
        let stream = if self.0.fails.get(nth).copied().unwrap_or(false) {
            let mut error = ModelError::new(ErrorClass::Overloaded, "busy");
            error.retry_after_ms = Some(0);
            Err(Some(CallEvent::Failed(error, None)))
        } else {
            Ok(self.1.call(call))
        };
        Box::pin(ProbedStream { probe: Some(self.0.probe.clone()), stream })
    }
}

/// A response, or one failure.
struct ProbedStream {
    pub(super) probe: Option<Probe>,
    stream: Result<CallStream, Option<CallEvent>>,
}

impl Stream for ProbedStream {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        if let Some(probe) = self.probe.take() {
            probe.starts("request");
        }
        match &mut self.stream {
            Ok(stream) => stream.as_mut().poll_next(cx),
            Err(failure) => Poll::Ready(failure.take()),
        }
    }
}

impl Hook for Probe {
    fn points(&self) -> Hooks {
        let changes = self.changes;
        Hooks {
            prompt: true,
            pre_tool: true,
            chat_params: true,
            post_tool: changes,
            pre_call: changes,
            ..Hooks::default()
        }
    }
    fn consult(&self, point: ConsultPoint) -> HookFuture<'_> {
        Box::pin(async move {
            self.starts("hook");
            match point {
                ConsultPoint::Prompt => HookDecision::ProceedWith("Be quick.".to_owned()),
                ConsultPoint::PreTool { call } if self.changes => {
                    let arguments = json!({"n": 9, "task": "another"}).to_string();
                    HookDecision::ChangeCall(ToolCall { arguments, ..call })
                }
                ConsultPoint::PostTool { .. } => {
                    HookDecision::ChangeResult(ChangedResult::ok("changed"))
                }
                _ => HookDecision::Proceed,
            }
        })
    }
}

impl Approver for Probe {
    fn approve(&self, _: ToolCall) -> HookFuture<'_> {
        Box::pin(async {
            self.starts("approval");
            HookDecision::Proceed
        })
    }
}

/// A compactor that drops old turns once, or fails.
pub(super) struct ProbedCompactor {
    pub(super) probe: Probe,
    pub(super) fails: bool,
    pub(super) asked: AtomicUsize,
}

impl Compactor for ProbedCompactor {
    fn compact(&self, request: CompactionRequest) -> CompactionFuture<'_> {
        Box::pin(async move {
            self.probe.starts("compaction");
            match self.asked.fetch_add(1, Ordering::SeqCst) {
                0 if self.fails => Compaction::Failed("not now".to_owned()),
                0 => DropOldTurns::keep(1).compact(request).await,
                _ => Compaction::NotNeeded,
            }
        })
    }
}

/// A SQLite journal whose writes take 2 ms.
pub(super) struct Slow(pub(super) SqliteJournal);

struct SlowRun(Box<dyn RunJournal>);

fn write_slowly() {
    std::thread::sleep(Duration::from_millis(2));
}

impl Journal for Slow {
    fn begin(&self, header: &RunHeader) -> Result<Box<dyn RunJournal>, JournalError> {
        write_slowly();
        Ok(Box::new(SlowRun(self.0.begin(header)?)))
    }
    fn load(&self, id: &str) -> Result<RecordedRun, JournalError> {
        self.0.load(id)
    }
    fn resume(&self, id: &str) -> Result<Box<dyn RunJournal>, JournalError> {
        Ok(Box::new(SlowRun(self.0.resume(id)?)))
    }
}

impl RunJournal for SlowRun {
    fn append(&mut self, records: &[Record]) -> Result<(), JournalError> {
        write_slowly();
        self.0.append(records)
    }
    fn ended(&mut self, outcome: &Outcome, text: &str) -> Result<(), JournalError> {
        write_slowly();
        self.0.ended(outcome, text)
    }
}

/// A tool that may run in parallel with others.
pub(super) struct Parallel<T>(pub(super) T);

impl<T: Tool> Tool for Parallel<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn schema(&self) -> Value {
        self.0.schema()
    }
    fn call(
        &self,
        arguments: serde_json::Map<String, Value>,
        context: ToolContext,
    ) -> endstop::tool::ToolFuture<'_> {
        self.0.call(arguments, context)
    }
    fn parallel_safe(&self) -> bool {
        true
    }
}
