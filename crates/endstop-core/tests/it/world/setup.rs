//! The parameters of a random world: its random numbers, its limits, and its policy.

use crate::laws::begin_as_branch;
use endstop_core::*;
use std::sync::Arc;
use std::time::Duration;

/// The SplitMix64 generator: one `u64` of state, so that a seed reproduces a world on every
/// platform.
#[derive(Clone)]
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

/// A policy that stops, tells or panics if marks in the text say so. Mid-stream it sees the text in
/// chunks.
#[derive(Clone, Default)]
pub struct Marks {
    seen: String,
    steps: u32,
    counted_to: u32,
    /// A guest's client may repeat a turn, and the policy then sees another step of it.
    repeats: bool,
}

impl Marks {
    pub fn of_guest() -> Marks {
        Marks { repeats: true, ..Marks::default() }
    }
}

const END_MARKS: [(&str, PolicyEnd); 4] = [
    ("[submit]", PolicyEnd::Submitted),
    ("[stuck]", PolicyEnd::NoProgress),
    ("[mistaken]", PolicyEnd::ConsecutiveMistakes),
    ("[halt]", PolicyEnd::Halted),
];

impl TerminationPolicy for Marks {
    fn name(&self) -> &str {
        "marks"
    }
    fn should_terminate(&mut self, step: &StepResult, context: &StepContext) -> Verdict {
        self.steps += 1;
        let once = context.step >= i64::from(self.steps) - 1;
        assert!(once || self.repeats, "each step is seen once");
        let text = step.output.clone().unwrap_or_default();
        assert!(!text.contains("[panic]"), "asked to panic");
        if text.contains("[tell]") {
            return Verdict::Tell("told".to_owned());
        }
        for output in &step.outputs {
            if output.output.contains("[submit]") {
                return Verdict::Stop(Stop::submitted("marks", "a tool said so").answer("tool"));
            }
        }
        match END_MARKS.iter().find(|(mark, _)| text.contains(mark)) {
            Some((mark, end)) => Verdict::Stop(Stop {
                ends_as: *end,
                ..Stop::submitted("marks", *mark).answer("text")
            }),
            None => Verdict::Continue,
        }
    }
    fn begin_turn(&mut self) {
        self.seen.clear();
    }
    fn on_delta(&mut self, piece: &str, _: &StepContext) -> Option<Stop> {
        self.seen.push_str(piece);
        // Mid-stream only submissions are seen, so a mark that spans two chunks is missed on
        // purpose.
        self.seen.contains("[submit]").then(|| Stop::submitted("marks", "[submit]").answer("text"))
    }
    fn reset(&mut self) {
        (self.steps, self.counted_to) = (0, 0);
        self.seen.clear();
    }
}

/// The parameters of a world, derived from its seed.
pub struct Setup {
    pub price: Option<Price>,
    pub limits: Limits,
    pub tools: Arc<Vec<ToolPolicy>>,
    pub shared: bool,
    pub window: u64,
    pub hooks: Hooks,
    pub verifier: bool,
    pub output_schema: bool,
    /// `true` if the run has fallback models.
    pub falls_back: bool,
    pub branched_from: Option<BranchPoint>,
}

impl Setup {
    /// `true` if only an accepted answer is a success.
    pub fn verifies(&self) -> bool {
        self.verifier && self.limits.verify_rounds.is_some()
    }
}

pub fn spec(rng: &mut Rng) -> (RunSpec, Setup) {
    let maybe = |rng: &mut Rng, percent: u64, value: u32| rng.chance(percent).then_some(value);
    let default = Limits::default();
    // No `..default`, so that the random worlds do not compile without a value for a new limit.
    let mut limits = Limits {
        max_turns: if rng.chance(4) {
            None
        } else {
            Some([0, 4, 12, 20, 30][rng.below(5) as usize])
        },
        max_consecutive_mistakes: {
            let n = 1 + rng.below(4) as u32;
            maybe(rng, 80, n)
        },
        max_unproductive_turns: {
            let n = 1 + rng.below(4) as u32;
            maybe(rng, 80, n)
        },
        max_structured_output_retries: {
            let n = rng.below(3) as u32;
            maybe(rng, 90, n)
        },
        max_retries: Some(rng.below(3) as u32),
        max_empty_turns: {
            let n = rng.below(3) as u32;
            maybe(rng, 90, n)
        },
        max_continuations: rng.below(3) as u32,
        tool_concurrency: 1 + rng.below(4) as u32,
        accept_unknown_finish: rng.chance(20),
        tool_timeout: rng.chance(70).then(|| Duration::from_millis(50)),
        turn_timeout: rng.chance(50).then(|| Duration::from_millis(400)),
        first_content_timeout: rng.chance(70).then(|| Duration::from_millis(200)),
        stall_timeout: rng.chance(70).then(|| Duration::from_millis(150)),
        thinking_timeout: rng.chance(40).then(|| Duration::from_millis(40 + rng.below(80))),
        cancel_grace: Duration::from_millis(rng.below(3) * 20),
        // Some of these are set below.
        max_budget_usd: None,
        max_tokens: None,
        max_tokens_counts: TokensCounted::ALL[rng.below(3) as usize],
        timeout: None,
        max_tool_timeout: default.max_tool_timeout,
        retry_for: default.retry_for,
        verify_rounds: None,
        verify_timeout: None,
        max_tool_calls: None,
        max_window: None,
        wait_for_window: false,
        max_rate: None,
        wrap_up: false,
        tell_remaining: false,
        warn_model: false,
    };
    if limits.max_turns == Some(0) && rng.chance(90) {
        limits.max_turns = Some(25);
    }
    let price = rng.chance(60).then(|| Price {
        input: NanoUsd(rng.below(5_000_000_000)),
        output: NanoUsd(rng.below(20_000_000_000)),
        ..Price::default()
    });
    if price.is_some() && rng.chance(40) {
        limits.max_budget_usd = Some(rng.below(4000) as f64 / 1000.0);
    }
    if rng.chance(20) {
        limits.max_tokens = Some(rng.below(90_000));
    }
    if rng.chance(25) {
        limits.timeout = Some(Duration::from_millis(20 + rng.below(2000)));
    }
    let permission = |rng: &mut Rng| match rng.below(8) {
        0 | 1 => Permission::Ask,
        2 if rng.chance(40) => Permission::Deny,
        _ => Permission::Allow,
    };
    let tools = ["read", "write", "wait", "code"]
        .into_iter()
        .map(|name| ToolPolicy {
            name: name.to_owned(),
            parallel_safe: name == "read" || name == "wait",
            runs_code: name == "code",
            repeatable: name == "read",
            exempt_from_no_progress: name == "wait",
            max_calls: None,
            timeout: None,
            timeout_argument: None,
            permission: permission(rng),
            background: false,
        })
        .collect::<Vec<_>>()
        .into();
    let shared = rng.chance(20);
    let window = [2_000, 32_000, 128_000][rng.below(3) as usize];
    let spec = RunSpec {
        limits: limits.clone(),
        policy: rng.chance(60).then(|| Box::new(Marks::default()) as Box<dyn TerminationPolicy>),
        tools,
        finish_tool: rng.chance(80),
        hooks: Hooks {
            prompt: rng.chance(10),
            pre_iteration: rng.chance(15),
            chat_params: rng.chance(15),
            pre_tool: rng.chance(20),
            post_tool: rng.chance(25),
            pre_call: rng.chance(10),
            stop: rng.chance(20),
            ..Hooks::default()
        },
        output_schema: rng.chance(25),
        compaction: CompactionSpec {
            proactive: match rng.below(4) {
                0 => ProactiveCompaction::Ask,
                1 => ProactiveCompaction::AtShare(0.02),
                _ => ProactiveCompaction::Never,
            },
            reactive: rng.chance(50),
            ..CompactionSpec::default()
        },
        context_window: rng.chance(80).then_some(window),
        prompt_overhead: rng.below(200),
        output_cap: rng.chance(60).then(|| 1 + rng.below(3000)),
        thinking_budget: if rng.chance(20) { 300 } else { 0 },
        reserve: true,
        shared_budget: shared,
        nudge: rng.chance(80),
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "do it")])
    };
    let mut spec = spec;
    spec.verifier = rng.chance(25);
    if spec.verifier {
        limits.verify_rounds = {
            let n = 1 + rng.below(3) as u32;
            maybe(rng, 75, n)
        };
        limits.verify_timeout = rng.chance(50).then(|| Duration::from_millis(60));
        spec.limits = limits.clone();
    }
    // The hand-over and the room that other calls leave for it change every ceiling.
    limits.wrap_up = rng.chance(30);
    limits.tell_remaining = rng.chance(15);
    (spec.limits.wrap_up, spec.limits.tell_remaining) = (limits.wrap_up, limits.tell_remaining);
    if rng.chance(35) {
        spec.fallbacks =
            (0..=rng.below(2)).map(|nth| fallback(nth, price.is_some(), rng)).collect();
    }
    if rng.chance(15) {
        begin_as_branch(&mut spec);
    }
    // Drawn last, so that the worlds without background calls stay the same.
    if rng.chance(30) {
        for tool in Arc::make_mut(&mut spec.tools).iter_mut().filter(|tool| tool.name != "write") {
            tool.background = rng.chance(50);
        }
    }
    if rng.chance(25) {
        limits.max_tool_calls = Some(rng.below(8) as u32);
        let write = Arc::make_mut(&mut spec.tools).iter_mut().find(|tool| tool.name == "write");
        if let Some(write) = write.filter(|_| rng.chance(50)) {
            write.max_calls = Some(rng.below(3) as u32);
        }
    }
    if rng.chance(25) {
        limits.max_window = "5h=80%,7d=90%".parse().ok();
        limits.wait_for_window = rng.chance(50);
    }
    if rng.chance(25) {
        let rates = ["100 tokens/m", "2k tokens/h", "$0.01/m", "$0.5/h,50 tokens/m"];
        limits.max_rate = rates[rng.below(4) as usize].parse().ok();
    }
    limits.warn_model = rng.chance(25);
    spec.limits = limits.clone();
    let RunSpec { hooks, verifier, output_schema, .. } = spec;
    let falls_back = !spec.fallbacks.is_empty();
    let branched_from = spec.branched_from.as_deref().cloned();
    let setup = Setup {
        price,
        tools: Arc::clone(&spec.tools),
        limits,
        shared,
        window,
        hooks,
        verifier,
        output_schema,
        falls_back,
        branched_from,
    };
    (spec, setup)
}

/// A fallback model. It has a price if the own model has one, because a cost ceiling needs both.
fn fallback(nth: u64, priced: bool, rng: &mut Rng) -> FallbackModel {
    FallbackModel {
        provider: Some("other".to_owned()),
        model: Some(format!("m{nth}")),
        price: priced.then(|| Price {
            input: NanoUsd(rng.below(5_000_000_000)),
            output: NanoUsd(rng.below(20_000_000_000)),
            ..Price::default()
        }),
        context_window: rng.chance(70).then(|| [60, 2_000, 32_000][rng.below(3) as usize]),
        max_output: rng.chance(30).then(|| 1 + rng.below(3000)),
        ..FallbackModel::default()
    }
}
