"""OpenAI Agents SDK, chat completions and Responses."""

import asyncio
import json
from contextlib import suppress
from typing import Any

import harness
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    OutputGuardrail,
    Runner,
    RunState,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

import endstop
from endstop.adapters.openai_agents import EndstopHooks, EndstopStopped

set_tracing_disabled(True)


@function_tool
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    client = AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0)
    chat = OpenAIChatCompletionsModel(model=model, openai_client=client)
    agent = Agent(name="a", instructions="x", model=chat, tools=[echo])

    async def go(**options: Any) -> Any:
        if not stream:
            return await Runner.run(agent, "go", **options)
        result = Runner.run_streamed(agent, "go", **options)
        async for _ in result.stream_events():
            pass
        return result

    if not guarded:
        result = await go()
        return {"ending": "returned", "evidence": str(result.final_output)[:40]}
    endstop.tap.wrap(client)
    hooks = EndstopHooks(**harness.LIMITS)
    try:
        async with hooks:
            # The server is not OpenAI's, so that its streams have usage only on request.
            await go(hooks=hooks, run_config=hooks.run_config(), max_turns=1000)
    except EndstopStopped as stopped:
        assert stopped.run_data is not None, "the work so far is lost"
    except Exception:
        if hooks.outcome.is_success:
            raise
    return harness.ended(hooks.outcome)


# --- what programs do ---


class City(BaseModel):
    name: str
    country: str


@function_tool(needs_approval=True)
def careful(text: str) -> str:
    """Echo, if a person agrees."""
    harness.RAN.append(text)
    return text


CLIENT = endstop.tap.wrap(AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0))


def model(script: str, responses: bool = False) -> Any:
    kind = OpenAIResponsesModel if responses else OpenAIChatCompletionsModel
    return kind(model="m-" + script, openai_client=CLIENT)


def agent(script: str, responses: bool = False, **options: Any) -> Agent[Any]:
    options = {"name": script, "instructions": "x", "tools": [echo], **options}
    return Agent(model=model(script, responses), **options)


def guarded(**options: Any) -> EndstopHooks:
    return EndstopHooks(**{"max_turns": 25, "price": harness.PRICE, **options})


async def once(
    one: Agent[Any],
    stream: bool = False,
    stopped: type[Exception] | None = None,
    **options: Any,
) -> Any:
    """Runs an agent under the adapter. Returns the outcome, which `on_end` had, too."""
    heard: list[endstop.Outcome] = []
    raised: Exception | None = None
    hooks = guarded(**options, on_end=heard.append)
    try:
        async with hooks:
            if stream:
                result = Runner.run_streamed(one, "go", hooks=hooks, run_config=hooks.run_config())
                async for _ in result.stream_events():
                    pass
            else:
                await Runner.run(one, "go", hooks=hooks)
    except Exception as problem:
        raised = problem
    assert heard == [hooks.outcome], "on_end is called once"
    if stopped is None:
        assert raised is None or isinstance(raised, EndstopStopped), repr(raised)
    else:
        assert isinstance(raised, stopped), repr(raised)
    return hooks.outcome


@harness.case("stop")
async def cached() -> Any:
    return await once(agent("cached"), price=harness.CACHED_LIMITS["price"])


@harness.case("submitted")
async def structured() -> Any:
    outcome = await once(agent("city", output_type=City))
    assert outcome.deliverable == {"name": "Paris", "country": "France"}, outcome.deliverable
    return outcome


@harness.case("submitted")
async def structured_responses_stream() -> Any:
    return await once(agent("city", True, output_type=City), stream=True)


@harness.case("error_output_truncated")
async def structured_cut() -> Any:
    return await once(agent("cutcity", output_type=City))


@harness.case("submitted")
async def stop_on_first_tool() -> Any:
    outcome = await once(agent("once", tool_use_behavior="stop_on_first_tool"))
    assert outcome.deliverable == "x", outcome.deliverable
    return outcome


@harness.case("submitted")
async def stop_at_tool_names() -> Any:
    return await once(
        agent("once", tool_use_behavior={"stop_at_tool_names": ["echo"]}), stream=True
    )


@harness.case("error_output_truncated")
async def responses_cut() -> Any:
    return await once(agent("length", True), stopped=Exception)


@harness.case("error_output_truncated")
async def responses_cut_stream() -> Any:
    return await once(agent("length", True), stream=True, stopped=Exception)


@harness.case("error_output_truncated")
async def responses_cut_tool_stream() -> Any:
    return await once(agent("lengthtool", True), stream=True, stopped=Exception)


@harness.case("error_provider_rejected")
async def provider_denies() -> Any:
    return await once(agent("denied"), stopped=Exception)


@harness.case("error_max_turns")
async def own_max_turns() -> Any:
    hooks = guarded()
    with suppress(Exception):
        async with hooks:
            await Runner.run(agent("budget"), "go", hooks=hooks, max_turns=3)
    return hooks.outcome


def tripwire(trip: bool) -> Any:
    async def no_secrets(context: Any, one: Any, text: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=trip)

    return no_secrets


@harness.case("error_halted")
async def input_guardrail() -> Any:
    guard: Any = InputGuardrail(guardrail_function=tripwire(True), run_in_parallel=False)
    # The model is not called: one call afterwards, so that the numbers can be compared.
    outcome = await once(agent("stop", input_guardrails=[guard]), stopped=Exception)
    assert "no_secrets" in outcome.evidence, outcome.evidence
    return outcome


@harness.case("error_halted")
async def output_guardrail() -> Any:
    guard: Any = OutputGuardrail(guardrail_function=tripwire(True))
    outcome = await once(agent("stop", output_guardrails=[guard]), stopped=Exception)
    assert "no_secrets" in outcome.evidence, outcome.evidence
    return outcome


async def judged_runs(stream: bool) -> Any:
    """A judge on the same client, at the same time: its cut answer is not that of the run."""
    judge = agent("length", tools=[])

    async def judged(context: Any, one: Any, text: Any) -> GuardrailFunctionOutput:
        await Runner.run(judge, text)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    guard: Any = InputGuardrail(guardrail_function=judged)
    for _ in range(20):
        harness.get("/reset")
        outcome = await once(agent("parallel", input_guardrails=[guard]), stream)
        assert outcome.turns == 2 and outcome.termination == "stop", outcome
    return outcome


@harness.case("stop")
async def guardrail_agent() -> Any:
    return await judged_runs(False)


@harness.case("stop")
async def guardrail_agent_stream() -> Any:
    return await judged_runs(True)


@harness.case("stop")
async def model_call_in_a_tool() -> Any:
    @function_tool(name_override="echo")
    async def asks(text: str) -> str:
        """Asks a model."""
        one: Any = {"role": "user", "content": text}
        answer = await CLIENT.chat.completions.create(model="m-length", messages=[one])
        return str(answer.choices[0].message.content)

    return await once(agent("parallel", tools=[asks]))


@harness.case("stop")
async def agent_as_tool() -> Any:
    inner = agent("parallel").as_tool("echo_agent", "asks")
    return await once(agent("once", tools=[inner]))


@harness.case("error_max_budget_usd")
async def agent_as_tool_over_budget() -> Any:
    inner = agent("budget").as_tool("echo_agent", "asks", max_turns=30)
    return await once(agent("ten", tools=[inner]), max_budget_usd=1.0)


@harness.case("stop")
async def parallel_agents_as_tools() -> Any:
    inner = agent("once").as_tool("echo_agent", "asks")
    return await once(agent("parallel", tools=[inner]), stream=True)


@harness.case("stop")
async def agents_as_tools_with_hooks() -> Any:
    """Agents with the same hooks are conversations of the run: their turns count."""
    hooks = guarded()
    inner = agent("parallel").as_tool("echo_agent", "asks", hooks=hooks)
    async with hooks:
        await Runner.run(agent("parallel", tools=[inner]), "go", hooks=hooks)
    assert hooks.outcome.turns == hooks.outcome.model_calls == 4, hooks.outcome
    return hooks.outcome


@harness.case("error_output_truncated")
async def agent_as_tool_with_hooks_cut() -> Any:
    hooks = guarded()
    inner = agent("length").as_tool("echo_agent", "asks", hooks=hooks, failure_error_function=None)
    with suppress(EndstopStopped):
        async with hooks:
            await Runner.run(agent("once", tools=[inner]), "go", hooks=hooks)
    return hooks.outcome


@harness.case("stop")
async def handoff() -> Any:
    return await once(agent("handoff", handoffs=[agent("parallel")]))


@harness.case("stop")
async def approval() -> Any:
    """Parked and resumed in this process, under one budget."""
    heard: list[endstop.Outcome] = []
    one = agent("once", tools=[careful])
    async with guarded(on_end=heard.append) as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    assert result.interruptions and hooks.parked is not None and heard == []
    state = result.to_state()
    state.approve(result.interruptions[0])
    async with guarded(parked=hooks.parked, on_end=heard.append) as hooks:
        result = await Runner.run(one, state, hooks=hooks)
    assert result.final_output == "All done." and heard == [hooks.outcome] and harness.RAN == ["x"]
    assert hooks.outcome.turns == 2 and hooks.outcome.tool_calls == 1, hooks.outcome.to_dict()
    return hooks.outcome


@harness.case("stop")
async def approval_in_one_scope() -> Any:
    one = agent("once", tools=[careful])
    async with guarded() as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
        state = result.to_state()
        state.approve(result.interruptions[0])
        await Runner.run(one, state, hooks=hooks)
    return hooks.outcome


@harness.case("stop")
async def approval_rejected() -> Any:
    one = agent("once", tools=[careful])
    async with guarded() as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    state = result.to_state()
    state.reject(result.interruptions[0])
    async with guarded(parked=hooks.parked) as hooks:
        await Runner.run(one, state, hooks=hooks)
    assert harness.RAN == []
    return hooks.outcome


@harness.case("stop")
async def approval_stream() -> Any:
    one = agent("once", True, tools=[careful])
    async with guarded() as hooks:
        result = Runner.run_streamed(one, "go", hooks=hooks)
        async for _ in result.stream_events():
            pass
    state = result.to_state()
    state.approve(result.interruptions[0])
    async with guarded(parked=hooks.parked) as hooks:
        result = Runner.run_streamed(one, state, hooks=hooks)
        async for _ in result.stream_events():
            pass
    assert result.final_output == "All done."
    return hooks.outcome


@harness.case("stop")
async def approval_in_an_agent_as_tool() -> Any:
    """The inner agent waits for a person, so both wait."""
    inner = agent("once", tools=[careful]).as_tool("echo_agent", "asks")
    one = agent("parallel", tools=[inner])
    async with guarded() as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    assert result.interruptions and hooks.parked
    state = result.to_state()
    for item in result.interruptions:
        state.approve(item)
    async with guarded(parked=hooks.parked) as hooks:
        result = await Runner.run(one, state, hooks=hooks)
    assert result.final_output == "All done."
    return hooks.outcome


@harness.case("stop")
async def approval_with_an_agent_as_tool() -> Any:
    """The final output of an inner agent is not that of the run, which waits for a person."""
    hooks = guarded()
    inner = agent("stop", tools=[]).as_tool("echo_agent", "asks", hooks=hooks)
    async with hooks:
        result = await Runner.run(agent("both", tools=[inner, careful]), "go", hooks=hooks)
    assert result.interruptions and hooks.parked, hooks.run
    harness.get("/reset")
    return await once(agent("parallel"))


@harness.case("submitted")
async def approval_then_first_tool() -> Any:
    """The second half makes no model call."""
    one = agent("once", tools=[careful], tool_use_behavior="stop_on_first_tool")
    async with guarded() as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    state = result.to_state()
    state.approve(result.interruptions[0])
    async with guarded(parked=hooks.parked) as hooks:
        await Runner.run(one, state, hooks=hooks)
    assert hooks.outcome.deliverable == "x"
    return hooks.outcome


@harness.case("stop")
async def approvals_one_by_one() -> Any:
    """Two calls wait, and a person decides about one at a time."""
    one = agent("parallel", tools=[careful])
    async with guarded() as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    while result.interruptions:
        state = result.to_state()
        state.approve(result.interruptions[0])
        async with guarded(parked=hooks.parked) as hooks:
            result = await Runner.run(one, state, hooks=hooks)
    assert hooks.outcome.tool_calls == 2, hooks.outcome
    return hooks.outcome


@harness.case("stop")
async def synchronous() -> Any:
    def work() -> Any:
        own = endstop.tap.wrap(AsyncOpenAI(base_url=harness.BASE, api_key="x", max_retries=0))
        chat = OpenAIChatCompletionsModel(model="m-parallel", openai_client=own)
        with guarded() as hooks:
            Runner.run_sync(Agent(name="a", model=chat, tools=[echo]), "go", hooks=hooks)
        return hooks.outcome

    return await asyncio.to_thread(work)


@harness.case("stop")
async def hooks_of_the_program() -> Any:
    """Hooks in hooks, which the SDK calls in a copy of the context."""

    class Own(EndstopHooks):
        async def on_llm_start(self, *given: Any) -> None:
            await super().on_llm_start(*given)

        async def on_llm_end(self, *given: Any) -> None:
            await super().on_llm_end(*given)

        async def on_tool_start(self, *given: Any) -> None:
            await super().on_tool_start(*given)

    hooks = Own(max_turns=25, price=harness.PRICE)
    inner = agent("parallel").as_tool("echo_agent", "asks")
    async with hooks:
        await Runner.run(agent("parallel", tools=[inner]), "go", hooks=hooks)
    return hooks.outcome


@harness.elsewhere
async def approve(text: str) -> str:
    given = json.loads(text)
    one = agent("ten", tools=[careful])
    state = await RunState.from_string(one, given["state"])
    for item in state.get_interruptions():
        state.approve(item)
    hooks = guarded(parked=given["parked"], max_budget_usd=0.5)
    with suppress(EndstopStopped):
        async with hooks:
            await Runner.run(one, state, hooks=hooks)
    return json.dumps(
        {
            "parked": hooks.parked,
            "outcome": None if hooks.parked else hooks.outcome.to_json(),
        }
    )


@harness.case("error_max_budget_usd")
async def approval_in_another_process() -> Any:
    """One budget over all processes, and a looser one is refused."""
    one = agent("ten", tools=[careful])
    async with guarded(max_budget_usd=0.5) as hooks:
        result = await Runner.run(one, "go", hooks=hooks)
    try:
        guarded(parked=hooks.parked, max_budget_usd=5.0)
    except endstop.ConfigError as refused:
        assert "max_budget_usd" in str(refused), refused
    else:
        raise AssertionError("a looser limit is not refused")
    parked = {"state": result.to_state().to_string(), "parked": hooks.parked}
    done = json.loads(approve(json.dumps(parked)))
    # It has paused again, with a state that only that process has.
    assert done["parked"], done
    heard: list[endstop.Outcome] = []
    with suppress(EndstopStopped):
        async with guarded(parked=done["parked"], max_budget_usd=0.5, on_end=heard.append) as hooks:
            while True:
                await Runner.run(agent("ten"), "go", hooks=hooks)
    assert heard == [hooks.outcome]
    return hooks.outcome


@harness.case("cancelled")
async def task_cancelled() -> Any:
    hooks = guarded()

    async def work() -> None:
        async with hooks:
            await Runner.run(agent("slow"), "go", hooks=hooks)

    task = asyncio.create_task(work())
    await asyncio.sleep(0.5)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return hooks.outcome


@harness.case("cancelled")
async def waited_too_long() -> Any:
    hooks = guarded()
    with suppress(TimeoutError):
        async with asyncio.timeout(0.5), hooks:
            await Runner.run(agent("slow"), "go", hooks=hooks)
    return hooks.outcome


@harness.case("error_timeout")
async def own_timeout() -> Any:
    hooks = guarded(timeout="500ms")
    async with hooks:
        await Runner.run(agent("slow"), "go", hooks=hooks)
    return hooks.outcome


@harness.case("cancelled")
async def stream_left() -> Any:
    hooks = guarded()
    async with hooks:
        result = Runner.run_streamed(agent("slow"), "go", hooks=hooks)
        count = 0
        async for _ in result.stream_events():
            count += 1
            if count == 8:
                break
    assert hooks.outcome.usage.output_tokens, "what was read is booked"
    return hooks.outcome


@harness.case("cancelled")
async def stream_left_in_a_tool() -> Any:
    @function_tool(name_override="echo")
    async def waits(text: str) -> str:
        """Waits."""
        await asyncio.sleep(30)
        return text

    hooks = guarded()
    async with hooks:
        one = agent("once", tools=[waits])
        result = Runner.run_streamed(one, "go", hooks=hooks, run_config=hooks.run_config())
        async for event in result.stream_events():
            if event.type == "run_item_stream_event" and event.name == "tool_called":
                await asyncio.sleep(0.1)
                break
    return hooks.outcome


@harness.case("cancelled")
async def stream_cancelled() -> Any:
    hooks = guarded()
    async with hooks:
        result = Runner.run_streamed(agent("slow"), "go", hooks=hooks)
        count = 0
        async for _ in result.stream_events():
            count += 1
            if count == 8:
                result.cancel()
                break
    return hooks.outcome


@harness.case("cancelled")
async def generator_closed() -> Any:
    """A route of a web server streams from a generator, which the server closes if the client leaves."""
    hooks = guarded()

    async def route() -> Any:
        async with hooks:
            result = Runner.run_streamed(agent("slow"), "go", hooks=hooks)
            async for event in result.stream_events():
                yield event

    events = route()
    for _ in range(8):
        await anext(events)
    await asyncio.create_task(events.aclose())
    return hooks.outcome


@harness.case("stop")
async def second_use() -> Any:
    """A scope is of one run: the second one is refused with the fix."""
    hooks = guarded()
    async with hooks:
        await Runner.run(agent("stop"), "go", hooks=hooks)
    try:
        async with hooks:
            raise AssertionError("a second use")
    except endstop.ConfigError as refused:
        assert "make a new EndstopHooks(…)" in str(refused), refused
    return hooks.outcome


@harness.case("error_during_execution")
async def hooks_forgotten() -> Any:
    hooks = guarded()
    async with hooks:
        pass
    assert "no model call was seen: pass the hooks" in hooks.outcome.evidence, hooks.outcome
    return hooks.outcome


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Any:
    """The agent in the tool has hooks of its own, whose run the outer one pays for."""
    ended: list[endstop.Outcome] = []

    @function_tool
    async def helper(text: str) -> str:
        """Help."""
        ended.append(await once(agent("budget")))
        return "helped"

    outcome = await once(agent("ten", tools=[helper]), max_budget_usd=0.5)
    assert [(one.termination, one.model_calls) for one in ended] == [("cancelled", 2)]
    return outcome


harness.main("openai-agents", run)
