//! The keys of a settings file, and what a file may do to each without consent.

/// The change that a file may make to a key without consent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowed {
    /// None: the key starts a process, chooses a host or a price, or sets where files are written;
    /// or a value cannot be shown to be tighter.
    Nothing,
    /// Set it to this value, or leave it as it is.
    Only(bool),
    /// Lower it.
    Lower,
    /// Set it if the user has not set it.
    IfNone,
    /// Add rules, and raise the mode of existing rules.
    Add,
    /// Compact earlier or with fewer strategies.
    Compact,
    /// Decided by the table of limits.
    Limits,
    /// Set it: it only describes where the file comes from.
    Describe,
}

/// Every key of a settings file.
pub(crate) const KEYS: [(&str, Allowed); 27] = [
    ("model", Allowed::Nothing),
    // A fallback is another host that receives the conversation, with its own price.
    ("fallback", Allowed::Nothing),
    ("api", Allowed::Nothing),
    ("base_url", Allowed::Nothing),
    ("allow_http", Allowed::Only(false)),
    // A proxy and an authority see the conversation and the key, or can.
    ("http", Allowed::Nothing),
    ("system", Allowed::Nothing),
    // Also for an empty list, because only the user knows which tools the run needs.
    ("tools", Allowed::Nothing),
    // A background call runs longer than a call that the run waits for.
    ("background", Allowed::Nothing),
    ("ask", Allowed::Only(true)),
    ("dir", Allowed::Nothing),
    ("max_output_tokens", Allowed::Lower),
    ("verify", Allowed::Nothing),
    // A larger window postpones compaction; a smaller one changes the model that a local server
    // loads.
    ("context_window", Allowed::Nothing),
    // Without a stream no policy can stop a turn before it is complete.
    ("stream", Allowed::Only(true)),
    ("journal", Allowed::Nothing),
    // The price determines when a budget is spent.
    ("price", Allowed::Nothing),
    // It adds the ceilings of a project to those of all runs, unless the user chose a project.
    ("project", Allowed::IfNone),
    ("spend", Allowed::Nothing),
    // A parameter changes the model's work and its cost, and a header may be a credential.
    ("params", Allowed::Nothing),
    ("limits", Allowed::Limits),
    ("policy", Allowed::IfNone),
    ("watch", Allowed::Add),
    ("calibrated", Allowed::Describe),
    ("compaction", Allowed::Compact),
    ("mcp", Allowed::Nothing),
    // An agent has its own tools and commands, and clients of `endstop serve` can start it.
    ("agents", Allowed::Nothing),
];
