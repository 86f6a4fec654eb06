//! Builds the loop of a conversation: its model, limits, tools, user code, budgets and journal.
//!
//! ```text
//! let conversation = Conversation::new(&world, [round, lane, number])?;
//! ```

use crate::dice::Dice;
use crate::heard::Heard;
use crate::parks::Asks;
use crate::rough::Rough;
use crate::runs::World;
use crate::stored::NOON_MS;
use crate::tally::Tally;
use crate::tools::{Act, AtWork, Build, Deaf};
use crate::verdicts::Picky;
use endstop::agent::AgentTool;
use endstop::event::AgentEventKind;
use endstop::journal::{Period, SpendBudget, SqliteJournal};
use endstop::provider::http::HttpProvider;
use endstop::tool::Shell;
use endstop::{
    Agent, AgentBuilder, Limits, NanoUsd, Permission, Price, Session, budget::SharedBudget,
};
use std::sync::Arc;

/// A loop, its conversation, and what its runs are checked against.
pub(crate) struct Conversation<'a> {
    pub(crate) world: &'a World,
    pub(crate) place: [u64; 3],
    pub(crate) agent: Agent,
    pub(crate) session: Session,
    pub(crate) limits: Limits,
    pub(crate) budget: bool,
    pub(crate) rough: bool,
    pub(crate) heard: Arc<Heard>,
    pub(crate) at_work: AtWork,
    /// The journal of the runs, if they have one.
    pub(crate) stored: Option<Stored>,
}

/// A journal of runs.
pub(crate) struct Stored {
    pub(crate) journal: SqliteJournal,
    /// `true` if the runs can be replayed: their policy is not in code.
    pub(crate) replays: bool,
    /// The project of the conversation and its ceiling, if it has one.
    pub(crate) project: Option<(String, NanoUsd)>,
}

/// Returns the price of the scripted models, so that budgets and reservations have an effect.
pub(crate) fn price() -> Price {
    Price {
        input: NanoUsd::from_usd(1.0),
        output: NanoUsd::from_usd(4.0),
        cached_input: None,
        cache_write: None,
        cache_write_1h: None,
        ..Price::default()
    }
}

/// Returns short limits, so that many runs end by them.
fn limits(dice: &mut Dice) -> Limits {
    let at_times = |dice: &mut Dice, share: u64| dice.percent(share);
    Limits {
        max_turns: Some(dice.between(1, 8) as u32),
        max_budget_usd: at_times(dice, 10).then(|| dice.between(1, 40) as f64 / 10_000.0),
        max_tokens: at_times(dice, 6).then(|| dice.between(300, 20_000)),
        timeout: at_times(dice, 12).then(|| dice.millis(1, 150)),
        turn_timeout: Some(dice.millis(20, 400)),
        first_content_timeout: Some(dice.millis(20, 80)),
        stall_timeout: Some(dice.millis(20, 80)),
        tool_timeout: Some(dice.millis(20, 60)),
        cancel_grace: dice.millis(0, 20),
        max_retries: Some(dice.below(3) as u32),
        max_empty_turns: dice.pick(Some(1), &[None, Some(0)]),
        max_continuations: dice.below(2) as u32,
        tool_concurrency: dice.between(1, 4) as u32,
        accept_unknown_finish: dice.percent(20),
        ..Limits::default()
    }
}

impl<'a> Conversation<'a> {
    pub(crate) fn new(world: &'a World, place: [u64; 3]) -> Result<Conversation<'a>, String> {
        let dice = &mut Dice::new(world.seed, &place);
        let provider = world.provider(dice)?;
        let (mut limits, heard, at_work) =
            (limits(dice), Arc::<Heard>::default(), AtWork::default());
        let budget = if dice.percent(40) { world.budgets.one(dice) } else { None };
        let within = budget.is_some();
        let rough = dice.percent(30).then(|| Rough::new(dice, within, &at_work, &world.tally));
        if rough.is_some() {
            // Only the time limit of the run can end a hook that hangs.
            limits.timeout = limits.timeout.or(Some(dice.millis(50, 400)));
        }
        let tally = Arc::clone(&world.tally);
        let (told, told_busy) = (Arc::clone(&heard), Arc::clone(&heard));
        let mut builder = tools(provider.clone(), &at_work)
            .limits(limits.clone())
            .streaming(!dice.percent(15))
            .system("Be brief.")
            .on_event(move |event| {
                if let AgentEventKind::ToolStarted { name, .. } = &event.kind {
                    tally.tool(name);
                }
                told.event(event);
            })
            .on_busy(move |busy| told_busy.busy(busy));
        if dice.percent(3) {
            builder = builder.tool(Shell::default());
        }
        if dice.percent(8) {
            let other = tools(provider.clone(), &at_work).limits(limits.clone());
            builder = builder.tool(nested(other, rough.as_ref(), dice)?);
        }
        if let Some(rough) = &rough {
            builder = rough.stand_in(builder);
        }
        // Choices of their own, so that the other choices of a seed stay as they were.
        let dice = &mut Dice::new(world.seed, &[place[0], place[1], place[2], 2]);
        if dice.percent(20) {
            limits.verify_rounds = dice.percent(80).then(|| dice.between(1, 3) as u32);
            limits.verify_timeout = Some(dice.millis(20, 60));
            builder = builder.limits(limits.clone()).verifier(Picky::new(dice, &world.tally));
        }
        if dice.percent(30) {
            (limits.wrap_up, limits.tell_remaining) = (true, dice.percent(30));
            builder = builder.limits(limits.clone());
        }
        if dice.percent(30) {
            limits.warn_model = true;
            builder = builder.limits(limits.clone());
        }
        let dice = &mut Dice::new(world.seed, &[place[0], place[1], place[2], 3]);
        if dice.percent(25) {
            builder = builder.fallback(world.provider(dice)?);
        }
        if dice.percent(25) {
            builder = builder.tool(Build(at_work.clone()));
        }
        let mut stored = None;
        if dice.percent(50) {
            let of_day = dice.percent(30) && budget.is_none();
            let (project, ceiling) = (format!("{place:?}"), NanoUsd(dice.between(2, 60) * 100_000));
            let replays = rough.as_ref().is_none_or(|rough| !rough.is_policy());
            let journal = world.journal.clone();
            builder = builder.journal(journal.clone());
            // Without the code of its policy, a parked run could not be cancelled.
            if replays && rough.as_ref().is_none_or(|rough| !rough.is_approver()) {
                builder = asking(builder, &mut limits, dice, &world.tally);
            }
            let project = of_day.then_some((project, ceiling));
            if let Some(project) = &project {
                builder = builder.shared_budget(day(project, &journal)?);
            }
            stored = Some(Stored { journal, replays, project });
        }
        if let Some(budget) = budget {
            builder = builder.shared_budget(budget);
        }
        let agent = builder.build().map_err(|problem| problem.to_string())?;
        let (session, rough) = (agent.session(), rough.is_some());
        let budget = within;
        Ok(Conversation {
            world,
            place,
            agent,
            session,
            limits,
            budget,
            rough,
            heard,
            at_work,
            stored,
        })
    }
}

/// Builds a tool that runs an agent of its own.
fn nested(
    mut other: AgentBuilder,
    rough: Option<&Rough>,
    dice: &mut Dice,
) -> Result<AgentTool, String> {
    if let Some(rough) = rough {
        other = rough.stand_in(other);
    }
    let other = other.build().map_err(|problem| problem.to_string())?;
    let ask = AgentTool::new("ask", "Asks another.", other);
    // Half of the nested runs are stopped by the time limit of their tool.
    Ok(if dice.percent(50) { ask.timeout(dice.millis(20, 200)) } else { ask })
}

/// Lets a run ask for decisions, so that it can be parked.
fn asking(
    mut builder: AgentBuilder,
    limits: &mut Limits,
    dice: &mut Dice,
    tally: &Arc<Tally>,
) -> AgentBuilder {
    let asks = Asks::new(dice, tally);
    for tool in ["act", "deaf"] {
        builder = builder.permission(tool, Permission::Ask);
    }
    // Longer, so that more of these runs get to their calls, and to those after a park.
    limits.first_content_timeout = Some(dice.millis(60, 300));
    limits.stall_timeout = Some(dice.millis(60, 300));
    limits.turn_timeout = Some(dice.millis(100, 800));
    builder.approver(asks.clone()).hook(asks).limits(limits.clone())
}

/// Opens the ceiling of a conversation's project.
fn day(project: &(String, NanoUsd), journal: &SqliteJournal) -> Result<SharedBudget, String> {
    let (name, ceiling) = project;
    let budget =
        SpendBudget::new().project(name).project_max_usd(Period::Day, *ceiling).clock(|| NOON_MS);
    budget.open(journal).map_err(|problem| problem.to_string())
}

/// Returns a loop over this provider with the tools that all loops have.
fn tools(provider: HttpProvider, at_work: &AtWork) -> AgentBuilder {
    Agent::builder(provider)
        .price(price())
        .max_output_tokens(300)
        .tool(Act(at_work.clone()))
        .tool(Deaf(at_work.clone()))
}
