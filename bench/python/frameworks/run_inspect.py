"""Inspect's `react` agent, chat completions."""

import asyncio
import os
import tempfile
from contextlib import suppress
from typing import Any

os.environ.update(INSPECT_DISPLAY="none", INSPECT_LOG_DIR=tempfile.mkdtemp())

import harness  # noqa: E402
from inspect_ai import Task, eval_async  # noqa: E402
from inspect_ai.agent import AgentSubmit, as_tool, handoff, react  # noqa: E402
from inspect_ai.agent import run as run_agent  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402
from inspect_ai.scorer import match  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402
from inspect_ai.util import LimitExceededError  # noqa: E402

import endstop  # noqa: E402
from endstop import Outcome  # noqa: E402
from endstop.adapters.inspect import checked, guarded, outcome_in  # noqa: E402


@tool
def echo() -> Any:
    async def execute(text: str) -> str:
        """Echo.

        Args:
            text: the text
        """
        harness.RAN.append(text)
        return text

    return execute


async def run(model: str, stream: bool, guard: bool) -> dict[str, Any]:
    chat = get_model(
        "openai/" + model, base_url=harness.BASE, api_key="x", responses_api=False, memoize=False
    )
    agent = react(tools=[echo()], submit=False, model=checked() if guard else None)
    solver = guarded(agent, **harness.LIMITS) if guard else agent
    # The alarm of the harness would break Inspect's task groups.
    seconds = max(1, int(harness.LIMIT) - 1)
    task = Task(dataset=[Sample(input="go")], solver=solver, time_limit=seconds)
    log = (await eval_async(task, model=chat, max_retries=0, log_level="error"))[0]
    sample = (log.samples or [])[0]
    if guard:
        return harness.ended(outcome_in(sample.store))
    if sample.limit is not None:
        return {"ending": "still running"}
    if sample.error is not None:
        return {"ending": f"status {log.status}", "evidence": sample.error.message[:80]}
    reason = sample.output.stop_reason
    return {"ending": "returned", "evidence": f"{log.status} {reason}"}


async def one(script: str, *, limits: Any = None, tools: Any = None, **options: Any) -> Outcome:
    """Runs one sample. `limits` are those of Inspect's task."""
    agent = react(tools=tools or [echo()], model=checked(chat(script)), **options)
    return await sample(agent, **(limits or {}))


def chat(script: str) -> Any:
    return get_model(
        "openai/" + script, base_url=harness.BASE, api_key="x", responses_api=False, memoize=False
    )


class Hidden:
    """A client that the adapter cannot tap."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_inner"], name) if name != "_client" else None


async def sample(agent: Any, **options: Any) -> Outcome:
    ended: list[Any] = []
    solver = guarded(agent, **harness.LIMITS, on_end=ended.append)
    task = Task(dataset=[Sample(input="go", target="y")], solver=solver, **options)
    log = (await eval_async(task, model="mockllm/model", max_retries=0, log_level="error"))[0]
    outcome = outcome_in((log.samples or [])[0].store)
    assert len(ended) == 1 and ended[0].termination == outcome.termination
    return outcome


@harness.case("stop")
async def cached() -> Outcome:
    """A model whose client is hidden, so that the output of Inspect has the usage."""
    hidden = chat("m-cached")
    hidden.api.client = Hidden(hidden.api.client)
    return await sample(react(tools=[echo()], submit=False, model=checked(hidden)))


@harness.case("submitted")
async def submitted() -> Outcome:
    return await one("m-do.A.echo.submit")


@harness.case("submitted")
async def submitted_under_another_name() -> Outcome:
    return await one("m-do.A.echo.answer", submit=AgentSubmit(name="answer"))


@harness.case("submitted")
async def submitted_twice() -> Outcome:
    """Two attempts: the first answer is wrong."""
    return await one("m-do.A.submit.echo.submit", attempts=2, limits={"scorer": match()})


@harness.case("submitted")
async def submitted_wrongly() -> Outcome:
    return await one("m-do.A.wrong~submit.submit")


@harness.case("error_output_truncated")
async def submitted_cut() -> Outcome:
    return await one("m-do.A.halt")


@harness.case("submitted")
async def subagent() -> Outcome:
    helper = react(
        name="helper",
        description="helps",
        tools=[echo()],
        model=checked(chat("m-do.B.echo.submit")),
    )
    return await one("m-do.A.helper.submit", tools=[as_tool(helper)])


@harness.case("submitted")
async def subagent_plain() -> Outcome:
    """The helper's model is not checked: the tap sees it, as the client is."""
    model = chat("m-do.B.echo.submit")
    endstop.tap.wrap(model.api.client)
    helper = react(name="helper", description="helps", tools=[echo()], model=model)
    return await one("m-do.A.helper.submit", tools=[as_tool(helper)])


@harness.case("submitted")
async def handed_off() -> Outcome:
    model = checked(chat("m-do.B.echo.submit"))
    helper = react(name="helper", description="helps", tools=[echo()], model=model)
    return await one("m-do.A.transfer.submit", tools=[handoff(helper)])


@harness.case("submitted")
async def parallel_agents() -> Outcome:
    helpers = [
        react(
            name=f"helper{name}",
            description="helps",
            tools=[echo()],
            model=checked(chat(f"m-do.{name}.echo.submit")),
        )
        for name in "ab"
    ]

    @tool
    def both() -> Any:
        async def execute(text: str) -> str:
            """Asks both helpers.

            Args:
                text: the text
            """
            await asyncio.gather(*(run_agent(helper, text) for helper in helpers))
            return text

        return execute

    return await one("m-do.A.both.submit", tools=[both()])


@harness.case("error_max_tokens")
async def own_limit() -> Outcome:
    return await one("m-budget", limits={"token_limit": 400})


@harness.case("error_halted")
async def own_limit_of_messages() -> Outcome:
    return await one("m-budget", limits={"message_limit": 6})


@harness.case("cancelled")
async def own_limit_of_time() -> Outcome:
    return await one("m-do.A.slow", limits={"time_limit": 2})


@harness.case("error_timeout")
async def deadline() -> Outcome:
    harness.LIMITS["timeout"] = "1s"
    return await one("m-do.A.slow")


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    model = chat("m-do.A.submit")
    endstop.tap.wrap(model.api.client)
    return await sample(react(tools=[echo()], model=model))


# Inspect does not stream, and runs one evaluation at a time.
@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool is guarded by itself, and the outer run pays for it."""
    ended: list[Outcome] = []
    inner = react(name="inner", tools=[echo()], model=checked(chat("m-budget")))
    helper = guarded(inner, **harness.LIMITS, on_end=ended.append)

    @tool
    def help() -> Any:
        async def execute(text: str) -> str:
            """Help.

            Args:
                text: the text
            """
            with suppress(LimitExceededError):
                await run_agent(helper, text)
            return "stopped"

        return execute

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await one("m-do.A.help.help.submit", tools=[help()])
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return outcome


harness.main("inspect", run, absent=("stream", "concurrent"))
