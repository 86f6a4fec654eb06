"""Endings that are not those of the agent behind a protocol."""
import a2a
import acp
from faults import mutant


@mutant("P-01-acp", "says `end_turn` at a limit", acp)
def _():
    acp.STOP_REASONS.update(dict.fromkeys(("max_turns", "budget", "max_time"), "end_turn"))


@mutant("P-02-acp", "answers a prompt when it is cancelled, and continues with its run", acp)
def _():
    def cancel(self, session):
        acp.send(id=session.prompt, result={"stopReason": "cancelled"})

    acp.Server.cancel = cancel


@mutant("P-01-a2a", "completes a task whose run was not a success", a2a)
def _():
    a2a.STATES.update(limit="TASK_STATE_COMPLETED", failed="TASK_STATE_COMPLETED")


@mutant("P-02-a2a", "reports that a task is cancelled, and continues with its run", a2a)
def _():
    a2a.Task.cancel = lambda self: self.change("TASK_STATE_CANCELED")


@mutant("P-02-acp-silent", "answers a prompt when it is cancelled, and continues with its run without a word", acp)
def _():
    send, cancelled = acp.send, set()

    def cancel(self, session):
        if session.prompt not in cancelled:
            send(id=session.prompt, result={"stopReason": "cancelled"})
            cancelled.add(session.prompt)

    acp.Server.cancel = cancel
    acp.send = lambda **message: None if message.get("id") in cancelled or cancelled and "method" in message else send(**message)
