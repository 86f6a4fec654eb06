//! The table of checks.

use super::judging::{Observed, given_up, not_a_success};
use super::verdict::{Finding, Level, Severity, Verdict, not_reached};
use super::{accountable, clean, ends, honest, protocol};
use crate::evidence::{Evidence, Kind, Unspoken};
use crate::profile::Profile;
use crate::vocabulary::Capability;

/// The function of a check. A failure of a SHOULD becomes a warning.
type Judge = fn(&Observed<'_>) -> Finding;

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The id, which no other check gets.
    pub id: &'static str,
    /// The level.
    pub level: Level,
    /// `true` for a MUST, `false` for a SHOULD.
    pub must: bool,
    /// Cost of a failure.
    pub severity: Severity,
    /// The numbers of its sentences.
    pub sentences: &'static [u8],
    /// Expectation.
    pub text: &'static str,
    /// Capabilities that it needs in addition to its case.
    pub needs: &'static [Capability],
    /// `true` if it judges every case, and not those that list it.
    pub every_case: bool,
    judge: Judge,
}

impl Check {
    /// Judges what was observed in a case.
    pub fn judge(&self, observed: &Observed<'_>) -> Finding {
        let Observed { case, profile, evidence } = observed;
        let lacks = case.needs.iter().chain(self.needs).find(|needed| !profile.can(**needed));
        if let Some(lacks) = lacks {
            let why = format!("the profile declares no `{}`", lacks.name());
            return Finding::new(Verdict::NotApplicable, why);
        }
        if let Some(problem) = &evidence.problem {
            return not_reached(problem.clone());
        }
        if evidence.calls.is_empty() {
            return not_reached(no_call(evidence));
        }
        // A sub-agent without the tool has a bound; the run without it has no such situation.
        let unspoken = evidence.of_kind(Kind::Main).find_map(|call| call.unspoken.as_ref());
        if let Some(Unspoken { why, is_of_format }) = unspoken.filter(|_| !self.every_case) {
            // A response that a format cannot express does not happen to its clients.
            let lacks = || Finding::new(Verdict::NotApplicable, why.clone());
            return if *is_of_format { lacks() } else { not_reached(why.clone()) };
        }
        let finding = (self.judge)(observed);
        match finding.verdict {
            Verdict::Fail if !self.must => Finding { verdict: Verdict::Warn, ..finding },
            _ => finding,
        }
    }

    /// Returns the verdict without a run, if the program lacks what the check needs.
    pub fn not_applicable(&self, profile: &Profile) -> Option<Finding> {
        let lacks = self.needs.iter().find(|needed| !profile.can(**needed))?;
        let why = format!("the profile declares no `{}`", lacks.name());
        Some(Finding::new(Verdict::NotApplicable, why))
    }

    /// `MUST` or `SHOULD`.
    pub fn strength(&self) -> &'static str {
        if self.must { "MUST" } else { "SHOULD" }
    }
}

fn no_call(evidence: &Evidence) -> String {
    match evidence.elsewhere.first() {
        Some(host) => {
            format!("the program called {host} and not the provider: it ignores the base URL")
        }
        None => "the program made no call to the provider".to_owned(),
    }
}

/// A row of the table. `judge` is the function; `every` marks a check of every case.
macro_rules! checks {
    ($($id:literal $level:ident $must:ident $severity:ident [$($sentence:literal)*] $text:literal
       [$($need:ident)*] $kind:ident $judge:path;)*) => {
        /// The checks, in the order of the reports.
        pub const CHECKS: &[Check] = &[$(Check {
            id: $id,
            level: Level::$level,
            must: checks!(@ $must),
            severity: Severity::$severity,
            sentences: &[$($sentence),*],
            text: $text,
            needs: &[$(Capability::$need),*],
            every_case: checks!(@ $kind),
            judge: $judge,
        }),*];
    };
    (@ must) => { true };
    (@ should) => { false };
    (@ every) => { true };
    (@ of_case) => { false };
}

checks! {
    "T-01" Honest must A [14] "text that the output limit cut is not a success" [] of_case not_a_success;
    "T-02" Honest must A [14 17] "a call that the output limit cut is not run" [] of_case honest::cut_call;
    "T-03" Honest must A [14 17] "arguments that cannot be read are not run, whatever the finish value says" [] of_case honest::cut_call;
    "T-04" Honest must A [14] "text that a filter cut is not a success" [] of_case not_a_success;
    "T-05" Honest must A [14] "a refusal is not a success, and is repeated at most once" [] of_case honest::refusal;
    "T-06" Honest should B [19] "a pause is continued a bounded number of times, and is not an answer" [] of_case honest::pause;
    "T-07" Honest must A [14] "an unknown finish value is not a success, and its word is kept" [] of_case honest::unknown_finish;
    "T-08" Honest must A [14] "a stream without a finish value is not a success" [] of_case not_a_success;
    "T-09" Honest must A [18] "calls that are announced and missing are not a success" [] of_case not_a_success;
    "T-10" Ends must A [2] "blank answers end the run after at most five, and not as a success" [] of_case ends::blank;
    "T-11" Honest must A [19] "reasoning without an answer is not a success" [] of_case not_a_success;
    "T-12" Honest must A [15] "an error inside a stream of status 200 is not an answer" [] of_case not_a_success;
    "T-13" Honest should A [18] "a call that stands in the text is run, or ends the run as not successful" [] of_case honest::call_in_text;
    "S-01" Honest must A [16] "a lost connection is repeated at most five times, and is not a success" [] of_case honest::lost_text;
    "S-02" Clean must A [31] "the body of a repeated call runs once" [] of_case clean::lost_arguments;
    "S-03" Ends must A [3] "a response without content is given up in time" [] of_case given_up;
    "S-04" Ends should B [3] "pings do not extend the time without content" [] of_case given_up;
    "S-05" Accountable should B [37] "90 seconds of silence before an answer do not end the run" [] of_case accountable::late_answer;
    "S-06" Ends must A [4] "a response that only reasons ends in time" [] of_case given_up;
    "S-07" Accountable should B [37] "a connection that stays open after the finish value is a success, without another call" [] of_case accountable::open_after_finish;
    "S-08" Honest should A [15] "a part that cannot be read is not left out in silence" [] of_case honest::junk_chunk;
    "C-01" Ends must A [5] "the same call for ever ends by a rule or a limit, and not as a success" [] of_case ends::endless_calls;
    "C-02" Ends should B [5] "two calls in turn for ever end by a rule or a limit" [] of_case ends::endless_calls;
    "C-03" Accountable should B [37] "20 polls of a build that progresses do not end the run" [] of_case accountable::polls;
    "C-04" Clean must A [30] "one failed call of two leaves the other answered, and the run continues" [] of_case clean::parallel_calls;
    "C-05" Ends must A [6] "calls with invalid arguments are answered a bounded number of times" [] of_case ends::endless_calls;
    "C-06" Ends must A [7] "a tool that hangs is ended or answered in the documented time" [] of_case ends::hanging_tool;
    "C-07" Clean should A [30] "two calls with one id lose and swap nothing" [] of_case clean::same_ids;
    "L-01" Accountable must A [34 35] "a cap on turns is exact, typed, and exits with another status than 0" [] of_case accountable::turn_cap;
    "L-02" Honest must A [20] "text before a limit does not make reaching it a success" [] of_case not_a_success;
    "L-03" Accountable must A [35] "a ceiling in money is exceeded by at most the call in which it is reached" [] of_case accountable::budget;
    "L-04" Accountable must A [35] "cached tokens are counted at their prices" [] of_case accountable::budget;
    "L-05" Accountable must A [35 38] "a budget also ends a run whose usage is not reported, and its cost is not zero" [] of_case accountable::unreported;
    "L-06" Accountable must A [35] "a limit on time is kept within two seconds, also while a tool runs" [] of_case accountable::time_limit;
    "L-07" Accountable should B [34] "of two limits the one that decided is the reason" [Json] of_case accountable::two_limits;
    "L-08" Honest should A [20] "a summary that the agent asks for at a limit is not a success" [] of_case honest::wrap_up;
    "L-09" Accountable should B [37] "a whole answer in the last allowed turn is a success" [] of_case accountable::last_turn;
    "R-01" Accountable should B [37] "a pause that the provider names is waited for, and the run continues" [] of_case accountable::rate_limited;
    "R-02" Ends must A [8] "a rate limit for ever ends after at most 20 calls" [] of_case ends::at_most_20_calls;
    "R-03" Ends must A [8] "a server error for ever ends after at most 20 calls" [] of_case ends::at_most_20_calls;
    "R-04" Ends must A [8] "a refused key or a used up quota ends after at most two calls" [] of_case ends::at_most_two_calls;
    "R-05" Ends must A [9] "a prompt that stays too long ends the run" [] of_case not_a_success;
    "R-06" Honest must A [21] "the text of an error is not the answer of a success" [] of_case honest::error_text;
    "R-07" Ends must A [10] "a structured answer is repaired a bounded number of times" [] of_case not_a_success;
    "X-01" Clean must A [26 32] "SIGINT in the stream or in a tool ends the run in five seconds, with another status than 0, and no further call" [] of_case clean::interrupt;
    "X-02" Clean must A [27] "SIGINT and SIGTERM end a running tool and its children in ten seconds" [] of_case clean::stopped_tool;
    "X-03" Clean should A [27] "after SIGKILL of the agent, a running tool and its children end in ten seconds" [] of_case clean::stopped_tool;
    "X-04" Clean must A [28 32] "a call that arrives after the stop is not started" [] of_case clean::late_call;
    "X-05" Clean must A [29] "the history after a stop is valid" [Resume] of_case clean::valid_history;
    "X-06" Ends must A [11] "a hook that vetoes each stop does not keep the run alive" [] of_case ends::stop_hook;
    "X-07" Clean must A [26 32] "SIGINT in a pause before a further attempt ends the run in five seconds, with another status than 0, and no further call" [] of_case clean::interrupted_pause;
    "N-01" Honest must A [22] "the parent learns that a sub-agent did not finish" [] of_case honest::sub_agent_cap;
    "N-02" Ends must A [12] "a sub-agent that does not answer does not keep its parent alive" [] of_case ends::silent_sub_agent;
    "N-03" Honest must A [23] "a run is not a success while its background work is open and not listed" [] of_case honest::background;
    "N-04" Accountable must A [36] "sub-agents count against the budget of the parent, and their depth is bounded" [] of_case accountable::sub_agents;
    "A-01" Ends must A [13] "a call that needs a permission does not wait for ever, and its run is not a success" [] of_case not_a_success;
    "D-01" Clean must A [31] "a resumed run does not repeat the body of an interrupted call in silence" [Resume] of_case clean::resumed;
    "O-01" Accountable must A [33] "there is one final record, the last, with reason and usage" [Json] every accountable::one_record;
    "O-02" Honest must A [24] "exit status and record agree" [Json] every honest::agreement;
    "P-01" Honest must A [40] "an agent behind a protocol says the same in the words of the protocol" [Protocol] of_case protocol::words;
    "P-02" Clean must A [41] "a cancellation behind a protocol ends the run once" [Protocol] of_case protocol::cancelled;
}

/// Returns a check by its id.
pub fn find(id: &str) -> Option<&'static Check> {
    CHECKS.iter().find(|check| check.id == id)
}

#[cfg(test)]
mod tests {
    use super::CHECKS;
    use crate::case;

    #[test]
    fn each_check_has_a_case_or_is_of_every_case() {
        let cases = case::all().unwrap();
        for check in CHECKS {
            let judged = cases.iter().any(|case| case.checks.iter().any(|id| id == check.id));
            assert!(judged != check.every_case, "{}", check.id);
        }
        for case in cases {
            for id in &case.checks {
                assert!(CHECKS.iter().any(|check| check.id == id), "{}: {id}", case.name);
            }
        }
    }
}
