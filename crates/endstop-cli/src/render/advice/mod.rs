//! Advice about endings: the meaning of each ending and the next step. The card, `explain`, `audit`
//! and the endings page of the book share one table, and a test compares the book with it.

mod facts;
mod next;
mod resume;

pub(crate) use facts::Facts;
pub(crate) use next::{AFTER_DIVERGENCE, of_demo};
pub(crate) use resume::{Again, Guarded, PLACEHOLDER, before_repeats, in_journal};

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use endstop::Termination;
    use endstop_report::advice::advice;

    #[test]
    fn settings_are_shown_as_flags() {
        let mut args = crate::args::Args::command();
        args.build();
        let run = args.find_subcommand("run").unwrap();
        for termination in Termination::all() {
            let shown = advice(*termination);
            let mut other = shown.split('`').skip(1).step_by(2);
            assert!(other.all(|name| name == "endstop providers NAME"), "{shown}");
            for flag in shown.split_whitespace().filter_map(|word| word.strip_prefix("--")) {
                let flag = flag.trim_end_matches([',', ';', ':', '.']);
                let known = run.get_arguments().any(|arg| arg.get_long() == Some(flag));
                assert!(known, "`endstop run` has no flag --{flag}");
            }
        }
    }
}
