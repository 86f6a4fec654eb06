//! The kinds of data that a limit, a policy or a rule reads and that a recorded run may lack.

/// A kind of data that a recorded run may lack. A backtest skips a setting whose data is missing,
/// because without it the setting could never fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RunData {
    /// The cost of each turn.
    Cost,
    /// The tokens of each turn.
    Tokens,
    /// The time of each turn.
    Times,
    /// The results of tool calls.
    Results,
    /// Rewards.
    Reward,
    /// The confidence that the model reports for each step.
    Confidence,
}
