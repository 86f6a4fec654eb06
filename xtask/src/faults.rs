//! Mutation testing of the kernel with hand-written faults: each fault is injected alone into a
//! copy of the source, and the tests are run. A fault that no test catches is a gap in the tests.
//!
//! `cargo xtask faults` runs all faults, `cargo xtask faults NAME…` some of them. The task changes
//! a copy of the workspace under `target/faults`, never the source itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A replacement of source text in a file of the kernel.
struct Fault {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
}

const fn fault(
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
) -> Fault {
    Fault { name, file, from, to }
}

/// The faults: checks that are dropped or swapped, boundaries that are moved, answers that are
/// forgotten.
// `from` must occur exactly once in its file, which `every_fault_has_its_place` checks. Prefer code
// over comments, because comments are reworded more often.
const FAULTS: &[Fault] = &[
    fault("turn-cap-one-late", "precheck.rs", "u64::from(count) >= max", "u64::from(count) > max"),
    fault(
        "two-checks-swapped",
        "precheck.rs",
        "    BUDGET_USD,\n    BUDGET_TOKENS,\n    TIME,",
        "    TIME,\n    BUDGET_TOKENS,\n    BUDGET_USD,",
    ),
    fault(
        "rejected-answer-is-success",
        "verification.rs",
        "rounds.filter(|_| !passed)",
        "rounds.filter(|_| !passed && output.is_empty())",
    ),
    fault(
        "calls-leave-no-room-for-hand-over",
        "request.rs",
        "    let quote = match context.ledger.quote(ask, None, later) {",
        "    let _ = later;\n    let quote = match context.ledger.quote(ask, None, None) {",
    ),
    fault("hand-over-is-repeated", "wrap_up.rs", "    context.hand_over.tried = true;\n", ""),
    fault(
        "hand-over-is-a-turn",
        "wrap_up.rs",
        "    context.state.last_signal = signal;\n",
        "    context.state.last_signal = signal;\n    context.counts.turns += 1;\n",
    ),
    fault(
        "hand-over-outlives-deadline",
        "machine.rs",
        "        late && matches!(self.phase, Phase::WrappingUp(_))\n",
        "        late && matches!(self.phase, Phase::New)\n",
    ),
    fault("one-round-too-many", "verification.rs", "if round >= most {", "if round > most {"),
    fault(
        "verifier-may-hang",
        "verification.rs",
        "limit.filter(|limit| since.saturating_add(*limit) <= context.now)",
        "limit.filter(|limit| limit.is_zero())",
    ),
    fault(
        "deadline-keeps-unverified-answer",
        "stopping.rs",
        "if by_caller || context.needs_verdict() =>",
        "if by_caller =>",
    ),
    fault(
        "rejected-answer-is-lost",
        "conclude.rs",
        "        ending.complete(&answer);\n",
        "        drop(answer);\n",
    ),
    fault("compaction-need-not-shrink", "compaction.rs", "if enough {", "if enough || after > 0 {"),
    fault(
        "compactions-fail-for-ever",
        "boundary.rs",
        "if context.compactions.failed_in_a_row >= context.settings.compaction.max_failures {",
        "if context.compactions.failed_in_a_row == u32::MAX {",
    ),
    fault(
        "compaction-loses-what-must-stay",
        "compaction.rs",
        "shortened_problem(&context.state.messages, messages, context.task_message)",
        "crate::history::problem(messages)",
    ),
    fault(
        "compacted-after-every-refusal",
        "attempt.rs",
        "        context.compactions.forced_this_turn = true;\n",
        "",
    ),
    fault(
        "budget-not-met-at-equality",
        "ledger.rs",
        "self.committed() >= max",
        "self.committed() > max",
    ),
    fault(
        "failed-attempts-are-free",
        "booking.rs",
        "    settle(call, &usage, cost, more, context, effects);\n",
        "    let _ = (&usage, cost, more, effects);\n",
    ),
    fault(
        "cap-not-lowered",
        "ledger.rs",
        "(cap, lowered_by) = (affordable, Some(ceiling));",
        "lowered_by = Some(ceiling);",
    ),
    fault(
        "unseen-output-is-free",
        "ledger.rs",
        "if self.reserves { self.spent + self.bounded.0 } else { self.spent }",
        "self.spent",
    ),
    fault(
        "unseen-tokens-are-free",
        "ledger.rs",
        "if self.reserves { self.tokens.saturating_add(self.bounded.1) } else { self.tokens }",
        "self.tokens",
    ),
    fault(
        "a-cut-below-the-cap-is-the-budgets",
        "turn.rs",
        "is_some_and(|output| output >= cap)",
        "is_some_and(|output| output > 0)",
    ),
    fault(
        "a-quote-is-a-token-short",
        "ledger.rs",
        "lower(affordable, by_usd, left, Granted { usd: kept, tokens: None })?;",
        "lower(affordable.map(|most| most.saturating_sub(1)), by_usd, left, Granted { usd: kept, tokens: None })?;",
    ),
    fault(
        "budget-cut-passes-for-truncated",
        "response.rs",
        "    if let Some(cut_by) = cut_by {\n        return Continue(Next::End { ending: lowered(cut_by, shown), calls });\n    }\n",
        "",
    ),
    fault(
        "truncated-is-success",
        "response.rs",
        "        SignalReason::TokenLimitReached => {\n            truncated(*cut_by, &finish_value(), calls, context, effects)\n        }\n",
        "",
    ),
    fault(
        "filtered-runs-tools",
        "response.rs",
        "        SignalReason::ContentFiltered => {\n            let refusal",
        "        SignalReason::ContentFiltered if !has_calls => {\n            let refusal",
    ),
    fault(
        "unknown-finish-is-success",
        "response.rs",
        "if !context.settings.limits.accept_unknown_finish",
        "if context.settings.limits.accept_unknown_finish",
    ),
    fault(
        "retries-without-end",
        "attempt.rs",
        "max_retries.is_some_and(|max| context.attempts.retries >= max)",
        "max_retries.is_some_and(|max| context.attempts.retries > max)",
    ),
    fault(
        "long-wait-is-slept",
        "attempt.rs",
        "wait > LONGEST_RETRY_AFTER",
        "wait == Duration::MAX",
    ),
    fault("the-last-retry-comes-late", "attempt.rs", "        wait = wait.min(left);\n", ""),
    fault(
        "a-filler-gives-up",
        "finish.rs",
        "reason.filter(|text| !is_filler(text));",
        "reason.filter(|text| !text.is_empty());",
    ),
    fault(
        "finish-next-to-a-failure-stands",
        "finish.rs",
        "if failed.is_some() && !counts.finish_refused && ending.is_none() =>",
        "if failed.is_none() && !counts.finish_refused && ending.is_some() =>",
    ),
    fault(
        "a-deadline-takes-the-answer",
        "stopping.rs",
        "            answer.outranked.push(*ending);\n            answer\n",
        "            let _ = &mut answer;\n            ending\n",
    ),
    fault(
        "a-missing-finish-is-success",
        "turn.rs",
        "let cut = turn.finish_missing && ",
        "let cut = false && turn.finish_missing && ",
    ),
    fault(
        "waiting-is-repetition",
        "tool_step.rs",
        "*ran < WAITING && ",
        "*ran < Duration::MAX && ",
    ),
    fault(
        "silence-is-a-stall",
        "call.rs",
        "clock(\"first_content_timeout\", self.started, limits.first_content_timeout)",
        "clock(\"first_content_timeout\", self.started, limits.stall_timeout)",
    ),
    fault(
        "suspension-is-a-stall",
        "call.rs",
        "(self.last_content.as_mut(), self.thinks_since.as_mut())",
        "(None, self.thinks_since.as_mut())",
    ),
    fault(
        "suspension-is-thinking",
        "call.rs",
        "(self.last_content.as_mut(), self.thinks_since.as_mut())",
        "(self.last_content.as_mut(), None)",
    ),
    fault(
        "text-is-thinking",
        "call.rs",
        "TurnDelta::Text(_) | TurnDelta::ToolArguments(_) => self.thinks_since = None,",
        "TurnDelta::Text(_) | TurnDelta::ToolArguments(_) => {}",
    ),
    fault(
        "start-of-thinking-is-merged",
        "machine.rs",
        "if !thought && self.phase.thinks() && self.has_thinking_limit() {",
        "if false {",
    ),
    fault(
        "thinks-without-an-end",
        "attempt.rs",
        "std::mem::replace(&mut context.attempts.starved_this_turn, true);",
        "context.attempts.starved_this_turn;",
    ),
    fault(
        "message-skips-the-hook",
        "machine.rs",
        "Next::Call if context.has_news() => Next::PreCall,",
        "Next::Call if false => Next::PreCall,",
    ),
    fault(
        "answer-drops-the-message",
        "steering.rs",
        "if !context.has_news() || check_limits(context).is_break() {",
        "if true {",
    ),
    fault("unread-message-is-lost", "conclude.rs", "    keep_unread(&mut context);\n", ""),
    fault(
        "new-ceiling-reserves-nothing",
        "steering.rs",
        "if ceiling && !context.settings.reserve {",
        "if false {",
    ),
    fault(
        "starved-twice",
        "turn.rs",
        "            context.attempts.starved_this_turn = true;\n",
        "",
    ),
    fault(
        "pauses-are-endless",
        "response.rs",
        "context.counts.pauses > MOST_PAUSES",
        "context.counts.pauses > MOST_PAUSES * 9",
    ),
    fault(
        "vetoes-are-endless",
        "success.rs",
        "context.counts.vetoes >= MOST_VETOES",
        "context.counts.vetoes >= MOST_VETOES * 9",
    ),
    fault(
        "one-success-does-not-reset-mistakes",
        "counts.rs",
        "first.status.is_error() && ended.all(|(_, r)| r.status.is_error())",
        "first.status.is_error() || ended.any(|(_, r)| r.status.is_error())",
    ),
    fault(
        "repeated-text-is-progress",
        "judge/progress.rs",
        "self.texts.insert(hash_of(trimmed))",
        "{ self.texts.insert(hash_of(trimmed)); true }",
    ),
    fault(
        "result-does-not-count",
        "judge/progress.rs",
        "hash_of((result.status, &result.content, &result.attachments))",
        "hash_of(result.status)",
    ),
    fault(
        "late-answers-are-taken",
        "phase.rs",
        "Phase::Calling(call) if call.id == id => Some(call)",
        "Phase::Calling(call) => Some(call)",
    ),
    fault(
        "cancel-forgets-tools",
        "stopping.rs",
        "    effects.push(Effect::AbortTools { ids, grace });\n",
        "    let _ = (ids, grace);\n",
    ),
    fault(
        "a-fault-overrules-a-cancel",
        "stopping.rs",
        "            ending.outranked.push(*fault(name, message));\n            ending\n",
        "            fault(name, message)\n",
    ),
    fault(
        "a-fault-has-no-name",
        "stopping.rs",
        "            outrank(phase, fault(name, message), context)\n",
        "            outrank(phase, fault(\"driver\", message), context)\n",
    ),
    fault(
        "a-compaction-costs-nothing",
        "compaction.rs",
        "    context.ledger.book(&Usage::default(), cost, false, Unreported::NOTHING);\n",
        "",
    ),
    fault(
        "a-shared-budget-hears-of-no-compaction",
        "compaction.rs",
        "if context.settings.shared_budget && cost > NanoUsd::ZERO {",
        "if false && cost > NanoUsd::ZERO {",
    ),
    fault(
        "questions-outlive-a-cancel",
        "stopping.rs",
        "    effects.extend(open.take_asked().into_iter().map(|id| Effect::Abandon { id }));\n    let until",
        "    let until",
    ),
    fault(
        "a-panic-leaves-calls-unanswered",
        "turn.rs",
        "Some(ending) if !response.is_answer() => Continue(Next::End { ending, calls }),",
        "Some(ending) if !response.is_answer() => Break(ending),",
    ),
    fault(
        "open-calls-stay-unanswered",
        "abort.rs",
        "    record_results(open, context);\n",
        "    let _ = &open;\n",
    ),
    fault(
        "pings-reset-the-stall-clock",
        "stream.rs",
        "    if delta.is_empty() {\n        return Continue(());\n    }\n",
        "",
    ),
    fault(
        "a-clock-may-go-back",
        "machine.rs",
        "context.now = context.now.max(at);",
        "context.now = at;",
    ),
    fault("deadline-does-not-preempt", "machine.rs", "if late && ", "if false && late && "),
    fault(
        "serial-tools-run-together",
        "tools.rs",
        "                open.running.is_empty()\n",
        "                true\n",
    ),
    fault(
        "reservation-is-kept",
        "booking.rs",
        "        effects.push(Effect::Settle { id, spent, tokens });\n",
        "        let _ = (id, spent, tokens);\n",
    ),
    fault(
        "approved-call-runs-again",
        "open_calls.rs",
        "self.calls.get(running.at).filter(|open| !open.parked)?",
        "self.calls.get(running.at)?",
    ),
    fault(
        "schema-is-not-asked",
        "success.rs",
        "    if context.settings.output_schema {\n        return",
        "    if false {\n        return",
    ),
];

pub(crate) fn run(only: &[String]) -> Result<(), String> {
    let root = root()?;
    let copy = root.join("target/faults/workspace");
    let mut missed = Vec::new();
    let mut caught = 0;
    refresh(&root, &copy)?;
    // Without this check, one failing test would count as catching every fault.
    if let Some(test) = failing_test(&copy)? {
        return Err(format!("the tests fail without any fault: {test}"));
    }
    for fault in FAULTS {
        if !only.is_empty() && !only.iter().any(|name| name == fault.name) {
            continue;
        }
        let path = copy.join("crates/endstop-core/src/kernel").join(fault.file);
        let source = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if source.matches(fault.from).count() != 1 {
            return Err(format!(
                "fault `{}`: found its text {} times in {}, expected once; update the fault",
                fault.name,
                source.matches(fault.from).count(),
                fault.file
            ));
        }
        // Only the copy is written, so that an interrupted task leaves the source intact.
        write(&path, &source.replacen(fault.from, fault.to, 1))?;
        if let Some(test) = failing_test(&copy)? {
            caught += 1;
            println!("caught  {:<40} by {test}", fault.name);
        } else {
            println!("MISSED  {}", fault.name);
            missed.push(fault.name);
        }
        // Restored, so that every fault is alone.
        write(&path, &source)?;
    }
    println!("{caught} faults caught, {} missed", missed.len());
    if missed.is_empty() { Ok(()) } else { Err(format!("no test catches {}", missed.join(", "))) }
}

/// Returns the first test that fails in the copy; `None` if all pass.
fn failing_test(copy: &Path) -> Result<Option<String>, String> {
    let output = Command::new("cargo")
        .args(["test", "--quiet", "-p", "endstop-core", "--lib", "--test", "it", "kernel"])
        // A separate target folder keeps the incremental build of the copy, so that a fault costs
        // one crate and not the whole workspace. More random cases than usual find rare faults.
        .env("CARGO_TARGET_DIR", copy.with_file_name("target"))
        .env("ENDSTOP_CASES", "4000")
        .current_dir(copy)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if output.status.success() {
        return Ok(None);
    }
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let failed = text
        .lines()
        .find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"))
        .map(str::to_owned);
    match failed {
        Some(test) => Ok(Some(test)),
        // A fault that does not compile proves nothing, so it is an error of the task itself.
        None if text.contains("error[") || text.contains("could not compile") => {
            Err(format!("the copy does not compile:\n{text}"))
        }
        // The test process was killed or aborted, for example by a stack overflow.
        None => Ok(Some("the test process did not finish".to_owned())),
    }
}

/// Copies everything that the tests of the core need.
fn refresh(root: &Path, copy: &Path) -> Result<(), String> {
    // Removed first, because files that were deleted from the source would still be compiled.
    let _ = fs::remove_dir_all(copy);
    for part in ["crates/endstop-core", "testdata"] {
        copy_tree(&root.join(part), &copy.join(part))?;
    }
    let manifest = root.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|e| format!("{}: {e}", manifest.display()))?;
    let mut members = String::new();
    for line in text.lines() {
        // The other members are not copied, and cargo would refuse to build without them.
        if line.starts_with("members") {
            members.push_str("members = [\"crates/endstop-core\"]\n");
        } else {
            members.push_str(line);
            members.push('\n');
        }
    }
    write(&copy.join("Cargo.toml"), &members)?;
    fs::copy(root.join("Cargo.lock"), copy.join("Cargo.lock"))
        .map_err(|e| format!("Cargo.lock: {e}"))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<(), String> {
    let wrong = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(to).map_err(|e| wrong(to, e))?;
    for entry in fs::read_dir(from).map_err(|e| wrong(from, e))? {
        let entry = entry.map_err(|e| wrong(from, e))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_tree(&source, &target)?;
        } else {
            fs::copy(&source, &target).map_err(|e| wrong(&source, e))?;
        }
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Returns the root of the workspace: the parent of this package's folder.
pub(crate) fn root() -> Result<PathBuf, String> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_owned)
        .ok_or_else(|| "xtask has no parent folder".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{FAULTS, root};

    /// Checks that every fault still applies, because the faults themselves are run rarely.
    #[test]
    fn every_fault_has_its_place() {
        let kernel = root().unwrap().join("crates/endstop-core/src/kernel");
        for fault in FAULTS {
            let source = std::fs::read_to_string(kernel.join(fault.file)).unwrap();
            let found = source.matches(fault.from).count();
            assert_eq!(found, 1, "fault `{}` in {}: update its text", fault.name, fault.file);
        }
    }
}
