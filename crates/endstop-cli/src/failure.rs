//! The error that ends a command, with the exit status that it becomes.

/// An error that ends a command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The error message: the place, the problem, and the fix.
    pub(crate) message: String,
    /// The exit status. 2: usage or bad input; 70: an internal fault; 74: a write error; 126 and 127: a program that
    /// `endstop guard` could not start.
    pub(crate) status: u8,
}

impl Failure {
    /// Creates an error for wrong usage or bad input.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 2 }
    }

    /// Creates an error for an internal fault.
    pub(crate) fn fault(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), status: 70 }
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
