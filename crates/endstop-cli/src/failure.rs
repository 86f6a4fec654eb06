//! The error that ends a command, with the exit status that it becomes.

use crate::visible::visible;
use std::io;

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The error message: the place, the problem, and the fix.
    pub(crate) message: String,
    /// The exit status. 2: usage or bad input; 70: an internal fault; 74: a write error; 126 and 127: a program that
    /// `endstop guard` could not start.
    pub(crate) status: u8,
}

/// What the library's messages tell a programmer to use, and what a user of the command has instead.
const IN_FLAGS: [(&str, &str); 11] = [
    ("`AgentBuilder::verifier`", "`--verify`"),
    ("with `AgentBuilder::price`", "with `--price in=…,out=…`"),
    // No flag sets the price of a fallback.
    (
        ", choose one with a known price, or set it with `HttpProviderBuilder::price`",
        ", or choose one with a known price",
    ),
    ("`HttpProviderBuilder::allow_http`", "--allow-http"),
    ("`McpServer::allow_http`", "--allow-http"),
    ("invalid base URL", "invalid --base-url"),
    ("; set no format, or ", "; omit --api, or set it to "),
    ("; set the format", "; set it with --api"),
    ("`SqliteJournal::runs` lists", "`endstop runs` lists"),
    ("`SqliteJournal::load` reads the rest", "`endstop explain` shows the rest"),
    ("a file that a `Recorder` wrote", "a file that `endstop run --record` wrote"),
];

/// Replaces the library's methods in a message by the flags that set the same.
fn in_flags(message: String) -> String {
    IN_FLAGS.iter().fold(message, |message, (method, flag)| message.replace(method, flag))
}

impl Failure {
    /// Creates an error for wrong usage or bad input.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: in_flags(message.into()), status: 2 }
    }

    /// Creates the error for an address that cannot be listened on.
    pub(crate) fn listening(
        flag: &str,
        address: &str,
        error: &io::Error,
        example: &str,
    ) -> Failure {
        let fix = if error.kind() == io::ErrorKind::AddrInUse {
            "end the program that uses it, or choose another port".to_owned()
        } else {
            format!("expected for example {example}")
        };
        Failure::usage(format!("{flag} {}: {error}; {fix}", visible(address)))
    }

    /// Creates an error for an internal fault.
    pub(crate) fn fault(message: impl Into<String>) -> Failure {
        Failure { message: in_flags(message.into()), status: 70 }
    }
}

/// An exit status, by the process that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Describes how the command itself, or its run, ended.
    OfCommand(u8),
    /// The status of the program that `endstop guard` ran.
    OfProgram(u8),
}

/// The exit status, or the error that replaces it.
pub(crate) type Result<T = u8, E = Failure> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::Failure;
    use endstop::BuildError;
    use endstop::wire::WireFormat;
    use endstop::wire::endpoint::ResolveError;

    #[test]
    fn messages_of_the_library_name_flags() {
        let ceiling = "max_budget_usd";
        let no_price = BuildError::NoPrice { ceiling, model: "m".to_owned() };
        let no_fallback = BuildError::NoFallbackPrice { ceiling, model: "m".to_owned() };
        let (api, own) = (WireFormat::Gemini, WireFormat::Anthropic);
        let other = ResolveError::OtherApi { model: "m".to_owned(), api, own };
        for (error, says) in [
            (BuildError::NoVerifier.to_string(), "set `--verify`"),
            (no_price.to_string(), "with `--price in=…,out=…`"),
            (no_fallback.to_string(), "remove that fallback, or choose one with a known price"),
            (other.to_string(), "omit --api, or set it to anthropic-messages"),
        ] {
            let message = Failure::usage(error).message;
            assert!(message.contains(says) && !message.contains("::"), "{message}");
        }
    }
}
