"""Pydantic AI, chat completions and Responses."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import harness
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    NativeOutput,
    PromptedOutput,
    RunContext,
    ToolDenied,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, UsageLimitExceeded
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.providers.openai import OpenAIProvider

import endstop
from endstop.adapters.pydantic_ai import Endstop, EndstopStopped


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    outcomes: list[endstop.Outcome] = []
    guard = Endstop(**harness.LIMITS, on_end=outcomes.append)
    if guarded:
        endstop.tap.wrap(client)
    chat = OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))
    agent = Agent(chat, capabilities=[guard] if guarded else [])

    @agent.tool_plain
    def echo(text: str) -> str:
        """Echo."""
        harness.RAN.append(text)
        return text

    async def drain(ctx: Any, events: Any) -> None:
        async for _ in events:
            pass

    options: dict[str, Any] = {"event_stream_handler": drain if stream else None}
    if not guarded:
        result = await agent.run("go", **options)
        return {"ending": "returned", "evidence": str(result.output)[:40]}
    try:
        result = await agent.run("go", usage_limits=UsageLimits(request_limit=None), **options)
        assert guard.outcome_of(result) == outcomes[0]
    except EndstopStopped:
        pass
    except Exception:
        if outcomes[0].is_success:
            raise
    return harness.ended(outcomes[0])


# --- what programs do ---


class City(BaseModel):
    name: str
    country: str


CITY = {"name": "Paris", "country": "France"}
FREE = UsageLimits(request_limit=None)


def client(tapped: bool = True) -> AsyncOpenAI:
    made = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    return endstop.tap.wrap(made) if tapped else made


def model(script: str, responses: bool = False, tapped: bool = True) -> Any:
    kind = OpenAIResponsesModel if responses else OpenAIChatModel
    return kind("m-" + script, provider=OpenAIProvider(openai_client=client(tapped)))


class Program:
    """An agent under the adapter, and what `on_end` had."""

    def __init__(
        self,
        script: Any,
        *,
        responses: bool = False,
        tapped: bool = True,
        tools: bool = True,
        limits: Any = None,
        **options: Any,
    ) -> None:
        self.heard: list[endstop.Outcome] = []
        settings = {
            "max_turns": 25,
            "price": harness.PRICE,
            "on_end": self.heard.append,
        }
        self.guard = Endstop(**{**settings, **(limits or {})})
        made = model(script, responses, tapped) if isinstance(script, str) else script
        self.agent: Agent[Any, Any] = Agent(made, capabilities=[self.guard], **options)
        if tools:

            @self.agent.tool_plain
            def echo(text: str) -> str:
                """Echo."""
                harness.RAN.append(text)
                return text

    @property
    def outcome(self) -> endstop.Outcome:
        assert len(self.heard) == 1, self.heard
        return self.heard[0]

    async def go(self, raises: Any = None, **options: Any) -> endstop.Outcome:
        options = {"usage_limits": FREE, **options}
        try:
            result = await self.agent.run("go", **options)
            assert self.guard.outcome_of(result) == self.outcome
        except EndstopStopped as stopped:
            assert stopped.outcome == self.outcome == self.guard.outcome_of(stopped)
        except Exception as problem:
            if raises is None or not isinstance(problem, raises):
                raise
            assert self.guard.outcome_of(problem) == self.outcome
        return self.outcome


async def structured(output: Any, **options: Any) -> Any:
    outcome = await Program("city", output_type=output, **options).go()
    assert outcome.deliverable == CITY, outcome.deliverable
    return outcome


@harness.case("stop")
async def cached() -> endstop.Outcome:
    """Without the tap, so that the response of Pydantic AI has the usage."""
    return await Program("cached", tapped=False, limits=harness.CACHED_LIMITS).go()


@harness.case("submitted")
async def structured_default() -> Any:
    return await structured(City)


@harness.case("submitted")
async def structured_tool_output() -> Any:
    return await structured(ToolOutput(City, name="city_result"), responses=True)


@harness.case("submitted")
async def structured_native() -> Any:
    return await structured(NativeOutput(City))


@harness.case("submitted")
async def structured_prompted() -> Any:
    return await structured(PromptedOutput(City))


@harness.case("submitted")
async def structured_untapped() -> Any:
    return await structured(City, tapped=False)


@harness.case("submitted")
async def structured_stream() -> Any:
    program = Program("city", output_type=City)
    async with program.agent.run_stream("go") as result:
        async for _ in result.stream_output():
            pass
        assert await result.get_output() == City(**CITY)
    assert program.outcome.deliverable == CITY
    return program.outcome


@harness.case("submitted")
async def output_function() -> Any:
    def found(name: str, country: str) -> str:
        return f"{name} is in {country}"

    outcome = await Program("city", output_type=found).go()
    assert outcome.deliverable == "Paris is in France", outcome.deliverable
    return outcome


@harness.case("submitted")
async def structured_early() -> Any:
    """A tool and an object in one response: the tool does not run."""
    outcome = await Program("both", output_type=City, end_strategy="early").go()
    assert outcome.deliverable == CITY and harness.RAN == []
    return outcome


@harness.case("submitted")
async def structured_exhaustive() -> Any:
    outcome = await Program("both", output_type=City, end_strategy="exhaustive").go()
    assert outcome.deliverable == CITY and harness.RAN == ["x"]
    return outcome


@harness.case("error_output_truncated")
async def structured_cut() -> Any:
    return await Program("cutcity", output_type=City).go()


@harness.case("error_output_truncated")
async def structured_cut_native() -> Any:
    return await Program("cutcity", output_type=NativeOutput(City)).go()


@harness.case("error_max_turns")
async def structured_bad() -> Any:
    """The model never gives a valid object."""
    program = Program("badcity", output_type=City, retries=1000, limits={"max_turns": 3})
    return await program.go()


@harness.case("error_output_truncated")
async def responses_cut() -> Any:
    return await Program("length", responses=True).go()


@harness.case("error_output_truncated")
async def responses_cut_stream() -> Any:
    program = Program("length", responses=True)
    with suppress(EndstopStopped):
        async with program.agent.run_stream("go") as result:
            async for _ in result.stream_text():
                pass
    return program.outcome


@harness.case("error_provider_rejected")
async def provider_denies() -> Any:
    return await Program("denied").go(raises=Exception)


@harness.case("error_provider_rejected")
async def provider_denies_untapped() -> Any:
    return await Program("denied", tapped=False).go(raises=Exception)


@harness.case("error_max_turns")
async def own_request_limit() -> Any:
    limits = UsageLimits(request_limit=3)
    return await Program("budget").go(raises=UsageLimitExceeded, usage_limits=limits)


@harness.case("error_max_tokens")
async def own_token_limit() -> Any:
    limits = UsageLimits(request_limit=None, total_tokens_limit=400)
    return await Program("budget").go(raises=UsageLimitExceeded, usage_limits=limits)


@harness.case("error_halted")
async def own_tool_limit() -> Any:
    limits = UsageLimits(request_limit=None, tool_calls_limit=2)
    return await Program("budget").go(raises=UsageLimitExceeded, usage_limits=limits)


@harness.case("error_during_execution")
async def tool_raises() -> Any:
    program = Program("once", tools=False)

    @program.agent.tool_plain
    def echo(text: str) -> str:
        raise ValueError("no such text")

    outcome = await program.go(raises=ValueError)
    assert "ValueError: no such text" in outcome.evidence, outcome.evidence
    return outcome


def delegating(script: str, to: str, **limits: Any) -> Program:
    program = Program(script, tools=False, limits=limits)
    inner = Agent(model(to))

    @inner.tool_plain
    def echo_inner(text: str) -> str:
        return text

    @program.agent.tool
    async def echo(ctx: RunContext[None], text: str) -> str:
        return str((await inner.run(text, usage=ctx.usage, usage_limits=FREE)).output)

    return program


@harness.case("stop")
async def delegation() -> Any:
    return await delegating("parallel", "stop").go()


@harness.case("error_max_budget_usd")
async def delegation_over_budget() -> Any:
    return await delegating("ten", "budget", max_budget_usd=1.0).go(raises=Exception)


@harness.case("stop")
async def delegation_with_a_guard() -> Any:
    """An agent with a capability of its own has a run of its own, which the outer one pays for, once."""
    inner, outer = Program("parallel"), Program("once", tools=False)

    @outer.agent.tool
    async def echo(ctx: RunContext[None], text: str) -> str:
        return str((await inner.agent.run(text)).output)

    await outer.go()
    calls = outer.outcome.model_calls, inner.outcome.model_calls
    assert calls == (4, 2) and sum(harness.get("/stats").values()) == 4, calls
    harness.get("/reset")
    inner.heard.clear()
    return await inner.go()


@harness.case("stop")
async def delegation_cut() -> Any:
    """The cut answer of the inner agent is not that of the run."""
    return await delegating("once", "length").go()


def careful(limits: Any = None, script: str = "once") -> Program:
    program = Program(script, tools=False, limits=limits, output_type=[str, DeferredToolRequests])

    @program.agent.tool_plain(requires_approval=True)
    def echo(text: str) -> str:
        harness.RAN.append(text)
        return text

    return program


def agreed(result: Any) -> DeferredToolResults:
    return DeferredToolResults(
        approvals={call.tool_call_id: True for call in result.output.approvals}
    )


@harness.case("stop")
async def approval() -> Any:
    program = careful()
    result = await program.agent.run("go")
    assert isinstance(result.output, DeferredToolRequests) and program.heard == []
    assert program.guard.parked_in(result.all_messages())
    done = await program.agent.run(
        message_history=result.all_messages(), deferred_tool_results=agreed(result)
    )
    assert done.output == "All done." and harness.RAN == ["x"]
    assert program.outcome.turns == 2 and program.outcome.tool_calls == 1
    return program.outcome


@harness.case("stop")
async def approval_denied() -> Any:
    program = careful()
    result = await program.agent.run("go")
    no = {call.tool_call_id: ToolDenied("no") for call in result.output.approvals}
    await program.agent.run(
        message_history=result.all_messages(),
        deferred_tool_results=DeferredToolResults(approvals=no),
    )
    assert harness.RAN == []
    return program.outcome


@harness.case("stop")
async def after_an_approval() -> Any:
    """A history with a run that was parked and has ended starts a new run."""
    program = careful()
    result = await program.agent.run("go")
    done = await program.agent.run(
        message_history=result.all_messages(), deferred_tool_results=agreed(result)
    )
    await program.agent.run("more", message_history=done.all_messages())
    first, second = program.heard
    assert (first.model_calls, second.model_calls) == (2, 1)
    harness.get("/reset")
    harness.RAN.clear()
    program.heard.clear()
    await program.agent.run("more", message_history=done.all_messages())
    return program.outcome


@harness.case("stop")
async def approval_stream() -> Any:
    program = careful()
    async with program.agent.run_stream("go") as result:
        output = await result.get_output()
    assert isinstance(output, DeferredToolRequests) and program.heard == []
    waiting = DeferredToolResults(approvals={call.tool_call_id: True for call in output.approvals})
    assert program.guard.parked_in(result.all_messages())
    history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    async with program.agent.run_stream(
        message_history=history, deferred_tool_results=waiting
    ) as result:
        assert await result.get_output() == "All done."
    return program.outcome


@harness.case("stop")
async def external_call() -> Any:
    """A tool of another system, in one response with a tool that runs here."""
    program = Program("parallel", tools=False, output_type=[str, DeferredToolRequests])

    @program.agent.tool_plain
    def echo(text: str) -> str:
        if text == "a":
            raise CallDeferred
        harness.RAN.append(text)
        return text

    result = await program.agent.run("go")
    assert program.heard == [] and harness.RAN == ["b"]
    waiting = DeferredToolResults(calls={call.tool_call_id: "A" for call in result.output.calls})
    history = ModelMessagesTypeAdapter.validate_json(result.all_messages_json())
    await program.agent.run(message_history=history, deferred_tool_results=waiting)
    assert program.outcome.tool_calls == 2, program.outcome
    return program.outcome


@harness.case("stop")
async def approval_by_exception() -> Any:
    program = Program("once", tools=False, output_type=[str, DeferredToolRequests])

    @program.agent.tool
    def echo(ctx: RunContext[None], text: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return text

    result = await program.agent.run("go")
    assert program.heard == []
    await program.agent.run(
        message_history=result.all_messages(), deferred_tool_results=agreed(result)
    )
    return program.outcome


@harness.case("stop")
async def history_resumed_twice() -> Any:
    program = careful()
    result = await program.agent.run("go")
    history = result.all_messages()
    await program.agent.run(message_history=history, deferred_tool_results=agreed(result))
    try:
        await program.agent.run(message_history=history, deferred_tool_results=agreed(result))
    except endstop.ConfigError as refused:
        assert "resumed before" in str(refused), refused
    else:
        raise AssertionError("a run is resumed twice")
    return program.outcome


@harness.elsewhere
async def approve(text: str) -> str:
    given = json.loads(text)
    program = careful({"max_budget_usd": 0.5}, "ten")
    history = ModelMessagesTypeAdapter.validate_json(given["history"])
    waiting = DeferredToolResults(approvals={id: True for id in given["ids"]})
    try:
        result = await program.agent.run(message_history=history, deferred_tool_results=waiting)
    except EndstopStopped as stopped:
        return json.dumps({"outcome": stopped.outcome.to_json()})
    return json.dumps(handed_over(result))


def handed_over(result: Any) -> dict[str, Any]:
    history = result.all_messages_json().decode()
    return {
        "history": history,
        "ids": [call.tool_call_id for call in result.output.approvals],
    }


@harness.case("error_max_budget_usd")
async def approval_in_another_process() -> Any:
    """One budget over all processes, and a looser one is refused."""
    result = await careful({"max_budget_usd": 0.5}, "ten").agent.run("go")
    try:
        await careful({"max_budget_usd": 5.0}, "ten").agent.run(
            message_history=result.all_messages(), deferred_tool_results=agreed(result)
        )
    except endstop.ConfigError as refused:
        assert "max_budget_usd" in str(refused), refused
    else:
        raise AssertionError("a looser limit is not refused")
    state = handed_over(result)
    while "outcome" not in state:
        state = json.loads(approve(json.dumps(state)))
    return endstop.Outcome.from_json(state["outcome"])


@harness.case("cancelled")
async def task_cancelled() -> Any:
    program = Program("slow")
    task = asyncio.create_task(program.agent.run("go"))
    await asyncio.sleep(0.5)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return program.outcome


@harness.case("cancelled")
async def waited_too_long() -> Any:
    program = Program("slow")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5):
            await program.agent.run("go")
    return program.outcome


@harness.case("error_timeout")
async def own_timeout() -> Any:
    program = Program("slow", limits={"timeout": "500ms"})
    began = asyncio.get_running_loop().time()
    outcome = await program.go()
    assert asyncio.get_running_loop().time() - began < 2, "the model is not waited for"
    return outcome


async def leave(program: Program) -> Any:
    async with program.agent.run_stream("go") as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            break
    return program.outcome


@harness.case("cancelled")
async def stream_left() -> Any:
    outcome = await leave(Program("slow"))
    assert outcome.usage.output_tokens, "what was read is booked"
    return outcome


@harness.case("cancelled")
async def stream_left_untapped() -> Any:
    return await leave(Program("slow", tapped=False))


@harness.case("cancelled")
async def iteration_left() -> Any:
    program = Program("budget")
    async with program.agent.iter("go") as run:
        async for node in run:
            if Agent.is_call_tools_node(node):
                break
    return program.outcome


@harness.case("stop")
async def iteration() -> Any:
    program = Program("parallel")
    async with program.agent.iter("go") as run:
        async for _ in run:
            pass
    return program.outcome


@harness.case("stop")
async def event_stream() -> Any:
    program = Program("parallel")
    async with program.agent.run_stream_events("go") as events:
        async for _ in events:
            pass
    return program.outcome


@harness.case("stop")
async def synchronous() -> Any:
    program = Program("parallel")
    await asyncio.to_thread(program.agent.run_sync, "go")
    return program.outcome


@harness.case("cancelled")
async def stream_left_by_exception() -> Any:
    program = Program("slow")
    with suppress(GeneratorExit):
        async with program.agent.run_stream("go") as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                raise GeneratorExit
    return program.outcome


@harness.case("cancelled")
async def generator_closed() -> Any:
    """A route of a web server streams from a generator, which the server closes if the client leaves."""
    program = Program("slow")

    async def route() -> Any:
        async with program.agent.run_stream("go") as result:
            async for text in result.stream_text(delta=True, debounce_by=None):
                yield text

    texts = route()
    await anext(texts)
    # Pydantic AI itself cannot be closed in another task without an error.
    with suppress(ValueError):
        await asyncio.create_task(texts.aclose())
    return program.outcome


@harness.case("stop")
async def concurrent_runs() -> Any:
    program = Program("parallel")
    await asyncio.gather(*(program.agent.run("go") for _ in range(10)))
    assert all(one.termination == "stop" for one in program.heard), program.heard
    harness.get("/reset")
    program.heard.clear()
    return await program.go()


@harness.case("stop")
async def test_models() -> Any:
    """The models for unit tests need neither a provider nor a tap."""
    for made in (TestModel(), TestModel(call_tools=[])):
        outcome = await Program(made).go()
        assert outcome.termination == "stop", outcome

    def answer(messages: Any, info: Any) -> Any:
        from pydantic_ai.messages import ModelResponse, TextPart

        return ModelResponse(parts=[TextPart("yes")])

    assert (await Program(FunctionModel(answer)).go()).answer == "yes"
    assert (await Program(TestModel(), output_type=City, tools=False).go()).is_success
    return await Program("stop").go()


@harness.case("error_content_filtered")
async def refusal_untapped() -> Any:
    return await Program("refusal", tapped=False).go(raises=Exception)


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> endstop.Outcome:
    """The agent in the tool has a capability of its own, whose run the outer one pays for."""
    inner = Program("budget", tapped=False)
    outer = Program("ten", tools=False, limits={"max_budget_usd": 0.5})

    @outer.agent.tool_plain
    async def echo(text: str) -> str:
        """Echo."""
        with suppress(EndstopStopped):
            await inner.agent.run("go", usage_limits=FREE)
        return "stopped"

    outcome = await outer.go()
    assert (inner.outcome.termination, inner.outcome.model_calls) == ("cancelled", 2)
    return outcome


harness.main("pydantic-ai", run)
