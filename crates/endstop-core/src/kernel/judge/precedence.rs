//! The order of precedence of the decisions about a step.

use crate::kernel::outcome::ending::Ending;

/// The source of a decision about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `finish` declared an answer, or that the task is not feasible.
    Finish,
    /// The policy stopped the run, or panicked.
    Policy,
    /// A watch rule in mode `stop` fired.
    Rule,
    /// The text of the step is an answer.
    Answer,
}

/// The sources in their order of precedence.
///
/// `finish` outranks everything. Among the others, a success outranks every failure, because an
/// answer stands; of several successes or several failures the first source in the table decides.
/// A policy's success outranks the natural end, because the policy found the answer within the text.
const PRECEDENCE: [Source; 4] = [Source::Finish, Source::Policy, Source::Rule, Source::Answer];

/// Returns the ending that decides, with the failures that it outranks.
pub(super) fn decide(mut found: Vec<(Source, Box<Ending>)>) -> Option<Box<Ending>> {
    found.sort_by_key(|(source, _)| PRECEDENCE.iter().position(|other| other == source));
    let declared = found.first()?.0 == Source::Finish;
    let success = found.iter().position(|(_, ending)| ending.termination.is_success());
    let (_, mut decided) = found.remove(success.filter(|_| !declared).unwrap_or(0));
    // Only failures are recorded as outranked: a second success adds nothing to the outcome.
    let failures = found.into_iter().map(|(_, ending)| *ending);
    decided.outranked.extend(failures.filter(|ending| !ending.termination.is_success()));
    Some(decided)
}

#[cfg(test)]
mod tests {
    use super::{Source, decide};
    use crate::kernel::outcome::decided_by::{Decision, Layer};
    use crate::kernel::outcome::ending::Ending;
    use crate::termination::Termination;

    fn by(source: Source, termination: Termination) -> (Source, Box<Ending>) {
        (source, Ending::new(termination, Layer::Policy, Decision::Custom("test".into()), ""))
    }

    #[test]
    fn success_outranks_failures_of_any_source() {
        let failed = Termination::ErrorNoProgress;
        let decided = decide(vec![
            by(Source::Answer, Termination::Stop),
            by(Source::Rule, failed),
            by(Source::Policy, Termination::ErrorHalted),
        ]);
        let decided = decided.unwrap();
        assert_eq!(decided.termination, Termination::Stop);
        let outranked: Vec<_> = decided.outranked.iter().map(|e| e.termination).collect();
        assert_eq!(outranked, [Termination::ErrorHalted, failed]);
    }

    #[test]
    fn finish_outranks_other_successes() {
        let decided = decide(vec![
            by(Source::Policy, Termination::Submitted),
            by(Source::Finish, Termination::GaveUp),
        ]);
        let decided = decided.unwrap();
        assert_eq!(decided.termination, Termination::GaveUp);
        assert!(decided.outranked.is_empty(), "a second success adds nothing");
        assert!(decide(Vec::new()).is_none());
    }
}
