//! The settings of a scenario's run, for the kernel.

use super::scenario::{Scenario, ScenarioError};
use endstop_core::{
    BoxPolicy, CompactionSpec, Hooks, Message, MessageId, Permission, ProactiveCompaction, Role,
    RunSpec, ToolPolicy,
};
use std::sync::Arc;

/// Returns the error for a member of the scenario.
pub(super) fn problem(field: &str, problem: &dyn std::fmt::Display) -> ScenarioError {
    ScenarioError { field: field.to_owned(), problem: problem.to_string() }
}

/// Returns the settings of the scenario's run.
pub(super) fn run_spec(
    scenario: &Scenario,
    policy: Option<BoxPolicy>,
    has_schema: bool,
) -> Result<RunSpec, ScenarioError> {
    let hooks = &scenario.hooks;
    Ok(RunSpec {
        limits: scenario.limits()?,
        policy: policy.map(BoxPolicy::into_inner),
        tools: Arc::new(tools(scenario)),
        finish_tool: scenario.finish_tool,
        hooks: Hooks {
            prompt: scenario.early_halt.is_some(),
            pre_iteration: hooks.pre_iteration.is_some(),
            chat_params: hooks.chat_params.is_some(),
            pre_tool: !hooks.pre_tool.is_empty(),
            ..Hooks::default()
        },
        output_schema: has_schema,
        verifier: !scenario.verdicts.is_empty(),
        compaction: CompactionSpec {
            proactive: if scenario.compaction.proactive_fails_at.is_some() {
                ProactiveCompaction::Ask
            } else {
                ProactiveCompaction::Never
            },
            reactive: scenario.compaction.reactive,
            // A compaction of a script returns the same messages; any least gain would reject
            // it.
            least_gain: 0.0,
            ..CompactionSpec::default()
        },
        // If the script makes a proactive compaction fail, the window is left unknown.
        // Otherwise the kernel would find that the prompt fits, and the failure would not end
        // the run.
        context_window: (scenario.compaction.proactive_fails_at.is_none())
            .then_some(scenario.context_window),
        reserve: false,
        streaming: false,
        ..RunSpec::new(vec![Message::text(MessageId(1), Role::User, "simulate")])
    })
}

fn tools(scenario: &Scenario) -> Vec<ToolPolicy> {
    scenario
        .tools
        .iter()
        .map(|(name, tool)| ToolPolicy {
            name: name.clone(),
            parallel_safe: tool.parallel_safe,
            permission: if scenario.denied.contains(name) {
                Permission::Deny
            } else {
                Permission::Allow
            },
            ..ToolPolicy::default()
        })
        // A denied tool need not be declared under `tools`, because it never runs.
        .chain(scenario.denied.iter().filter(|name| !scenario.tools.contains_key(*name)).map(
            |name| ToolPolicy {
                name: name.clone(),
                permission: Permission::Deny,
                ..ToolPolicy::default()
            },
        ))
        .collect()
}
