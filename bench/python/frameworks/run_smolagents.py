"""smolagents' `ToolCallingAgent`, chat completions."""

import asyncio
from contextlib import suppress
from typing import Any

import harness
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

import endstop
from endstop import Outcome
from endstop.adapters.smolagents import Endstop, EndstopStopped


@tool
def echo(text: str) -> str:
    """Echo.

    Args:
        text: the text
    """
    # A framework may pass broken JSON on as the argument.
    harness.RAN.append("hel" if text.startswith('{"text": "hel') else text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    chat = OpenAIModel(
        model_id=model, api_base=harness.BASE, api_key="x", client_kwargs={"max_retries": 0}
    )
    options: dict[str, Any] = {"tools": [echo], "stream_outputs": stream, "verbosity_level": 0}
    if not guarded:
        result = ToolCallingAgent(model=chat, **options).run("go", return_full_result=True)
        return {"ending": "returned", "evidence": f"{result.state} {result.output}"[:40]}

    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS, stop_on_answer=True)
        try:
            with stop:
                agent = ToolCallingAgent(
                    model=stop.model(chat), step_callbacks=[stop.on_step], **options
                )
                agent.run("go", max_steps=1000)
        except Exception:
            # An answer in text ends the run by an exception as well.
            pass
        return stop

    # In a thread, so that runs are concurrent.
    stop = await asyncio.to_thread(go)
    return harness.ended(stop.outcome)


def agent(stop: Endstop | None, script: str, **options: Any) -> ToolCallingAgent:
    chat = OpenAIModel(
        model_id=script, api_base=harness.BASE, api_key="x", client_kwargs={"max_retries": 0}
    )
    if stop is not None:
        options = {"step_callbacks": [stop.on_step]} | options
    model = chat if stop is None else stop.model(chat)
    return ToolCallingAgent(model=model, **{"tools": [echo], "verbosity_level": 0} | options)


async def one(script: str, **options: Any) -> Outcome:
    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS)
        try:
            with stop:
                agent(stop, script, **options).run("go")
        except EndstopStopped as stopped:
            assert stopped.outcome == stop.outcome
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("stop")
async def cached() -> Outcome:
    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS, stop_on_answer=True)
        with suppress(EndstopStopped), stop:
            agent(stop, "m-cached").run("go")
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("submitted")
async def answered() -> Outcome:
    """The final answer is a call."""
    return await one("m-do.A.echo.final_answer")


@harness.case("submitted")
async def answered_stream() -> Outcome:
    return await one("m-do.A.echo.final_answer", stream_outputs=True)


@harness.case("submitted")
async def answered_without_callback() -> Outcome:
    return await one("m-do.A.final_answer", step_callbacks=[])


@harness.case("submitted")
async def answer_repaired() -> Outcome:
    """A final answer with wrong arguments is an error that the model repairs."""
    return await one("m-do.A.wrong~final_answer.final_answer")


@harness.case("submitted")
async def answer_refused() -> Outcome:
    """A check of the program's own refuses the first answer."""
    seen: list[Any] = []

    def check(answer: Any, memory: Any, agent: Any) -> bool:
        seen.append(answer)
        return len(seen) > 1

    return await one("m-do.A.final_answer.echo.final_answer", final_answer_checks=[check])


@harness.case("error_output_truncated")
async def answer_cut() -> Outcome:
    return await one("m-do.A.halt")


@harness.case("submitted")
async def code() -> Outcome:
    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            chat = OpenAIModel(model_id="m-do.A.code", api_base=harness.BASE, api_key="x")
            coder = CodeAgent(
                model=stop.model(chat),
                tools=[],
                step_callbacks=[stop.on_step],
                verbosity_level=0,
            )
            coder.run("go")
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("submitted")
async def subagent() -> Outcome:
    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            helper = agent(stop, "m-do.B.echo.final_answer", name="helper", description="helps")
            agent(stop, "m-do.A.helper.final_answer", managed_agents=[helper]).run("go")
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("submitted")
async def subagent_plain() -> Outcome:
    """The helper's model is not wrapped: the tap sees it, if the client is."""

    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            helper = agent(None, "m-do.B.echo.final_answer", name="helper", description="helps")
            endstop.tap.wrap(helper.model.client)
            agent(stop, "m-do.A.helper.final_answer", managed_agents=[helper]).run("go")
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("cancelled")
async def left() -> Outcome:
    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            for _ in agent(stop, "m-do.A.echo.echo.final_answer").run("go", stream=True):
                break
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("cancelled")
async def interrupted() -> Outcome:
    def go() -> Endstop:
        stop = Endstop(**harness.LIMITS)

        def interrupt(step: Any, agent: Any) -> None:
            agent.interrupt()

        try:
            with stop:
                agent(stop, "m-budget", step_callbacks=[stop.on_step, interrupt]).run("go")
        except Exception:
            pass
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    return await one("m-do.A.echo.echo.stop", max_steps=2)


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    def go() -> Endstop:
        with Endstop(**harness.LIMITS) as stop:
            plain = agent(None, "m-do.A.final_answer")
            endstop.tap.wrap(plain.model.client)
            plain.run("go")
        return stop

    return (await asyncio.to_thread(go)).outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool is in a block of its own, whose run the outer one pays for."""
    ended: list[Outcome] = []
    settings = {**harness.LIMITS, "on_end": ended.append}

    @tool
    def helper(text: str) -> str:
        """Help.

        Args:
            text: the text
        """
        with suppress(EndstopStopped), Endstop(**settings) as inner:
            agent(inner, "m-budget").run("go")
        return "stopped"

    harness.LIMITS["max_budget_usd"] = 0.5
    outcome = await one("m-ten", tools=[helper])
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)], ended
    return outcome


harness.main("smolagents", run)
