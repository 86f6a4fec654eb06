"""LangChain's `create_agent`, a LangGraph graph."""

import asyncio
import sqlite3
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import harness
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    SummarizationMiddleware,
    ToolCallLimitMiddleware,
    hook_config,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage
from langchain_core.tools import InjectedToolCallId, tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.errors import GraphRecursionError
from langgraph.graph import MessagesState, StateGraph
from langgraph.types import Command, interrupt
from pydantic import BaseModel

import endstop
from endstop.adapters.langchain import EndstopMiddleware, first_failure, outcome_of


@tool
def echo(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    chat = ChatOpenAI(
        model=model,
        base_url=harness.BASE,
        api_key="x",
        streaming=stream,
        stream_usage=True,
        max_retries=0,
        use_responses_api=False,
    )
    outcomes: list[endstop.Outcome] = []
    if guarded:
        endstop.tap.wrap(chat.root_async_client)
    guard = EndstopMiddleware(**harness.LIMITS, on_end=outcomes.append)
    middleware = [guard] if guarded else []
    agent = create_agent(chat, tools=[echo], middleware=middleware)
    try:
        state = await agent.ainvoke({"messages": [("user", "go")]})
    except Exception as problem:
        if not guarded:
            raise
        outcome = outcome_of(problem)
        assert outcomes == [outcome], "one ending"
        return harness.ended(outcome)
    if not guarded:
        return {"ending": "returned", "evidence": state["messages"][-1].text[:40]}
    assert "endstop_run" not in state, "the live run must stay private"
    open_calls = {call["id"] for m in state["messages"] for call in getattr(m, "tool_calls", [])}
    answered = {getattr(m, "tool_call_id", None) for m in state["messages"]}
    assert open_calls <= answered, "the history has an open call"
    return harness.ended(outcome_of(state))


# --- what programs do ---


class City(BaseModel):
    name: str
    country: str


CITY = {"name": "Paris", "country": "France"}
GO: Any = {"messages": [("user", "go")]}


@tool
def ask_first(text: str) -> str:
    """Echo, if a person agrees."""
    if not interrupt({"may I": text}):
        return "no"
    harness.RAN.append(text)
    return text


@tool(return_direct=True)
def echo_direct(text: str) -> str:
    """Echo."""
    harness.RAN.append(text)
    return text


def model(script: str, responses: bool = False, tapped: bool = True) -> ChatOpenAI:
    chat = ChatOpenAI(
        model="m-" + script,
        base_url=harness.BASE,
        api_key="x",
        max_retries=0,
        stream_usage=True,
        use_responses_api=responses,
    )
    if tapped:
        endstop.tap.wrap(chat.root_async_client)
        endstop.tap.wrap(chat.root_client)
    return chat


class Program:
    """An agent under the adapter, and what `on_end` had."""

    def __init__(
        self,
        script: str,
        tools: Any = (echo,),
        *,
        responses: bool = False,
        tapped: bool = True,
        after: Any = (),
        before: Any = (),
        limits: Any = None,
        **options: Any,
    ) -> None:
        self.heard: list[endstop.Outcome] = []
        settings = {
            "max_turns": 25,
            "price": harness.PRICE,
            "on_end": self.heard.append,
        }
        self.guard = EndstopMiddleware(**{**settings, **(limits or {})})
        self.agent: Any = create_agent(
            model(script, responses, tapped),
            tools=[*tools],
            middleware=[*before, self.guard, *after],
            **options,
        )

    @property
    def outcome(self) -> endstop.Outcome:
        assert len(self.heard) == 1, self.heard
        return self.heard[0]

    async def go(self, raises: Any = None, sync: bool = False, **config: Any) -> endstop.Outcome:
        try:
            if sync:
                state = await asyncio.to_thread(self.agent.invoke, GO, config)
            else:
                state = await self.agent.ainvoke(GO, config)
        except Exception as problem:
            if raises is None or not isinstance(problem, raises):
                raise
            assert outcome_of(problem) == self.outcome
        else:
            assert raises is None, "no exception"
            assert outcome_of(state).termination == self.outcome.termination
            assert self.outcome.is_success or state.get("structured_response") is None
            kept = [
                m for m in state["messages"] if "endstop" in getattr(m, "response_metadata", {})
            ]
            assert not kept, "the state of the run is left in a message"
        return self.outcome


async def structured(strategy: Any, **options: Any) -> Any:
    outcome = await Program("city", response_format=strategy, **options).go()
    assert outcome.deliverable == CITY, outcome.deliverable
    return outcome


@harness.case("stop")
async def cached() -> Any:
    """Without the tap, so that the message of LangChain has the usage."""
    return await Program("cached", tapped=False, limits=harness.CACHED_LIMITS).go()


@harness.case("submitted")
async def structured_tool() -> Any:
    return await structured(ToolStrategy(City))


@harness.case("submitted")
async def structured_default() -> Any:
    return await structured(City)


@harness.case("submitted")
async def structured_provider() -> Any:
    return await structured(ProviderStrategy(City))


@harness.case("submitted")
async def structured_untapped() -> Any:
    return await structured(ToolStrategy(City), tapped=False)


@harness.case("submitted")
async def structured_with_checkpoints() -> Any:
    saver = InMemorySaver()
    outcome = await Program("city", response_format=ToolStrategy(City), checkpointer=saver).go(
        configurable={"thread_id": "1"}
    )
    assert outcome.deliverable == CITY
    return outcome


@harness.case("error_output_truncated")
async def structured_cut() -> Any:
    return await Program("cutcity", response_format=ToolStrategy(City)).go()


@harness.case("error_output_truncated")
async def structured_whole_behind_the_cut() -> Any:
    """The token limit was reached after the object: it is cut all the same."""
    return await Program("limitcity", response_format=ToolStrategy(City)).go()


@harness.case("error_output_truncated")
async def structured_cut_provider() -> Any:
    program = Program("cutcity", response_format=ProviderStrategy(City))
    return await program.go(raises=Exception)


@harness.case("error_max_turns")
async def structured_bad() -> Any:
    """The model never gives a valid object."""
    program = Program("badcity", response_format=ToolStrategy(City), limits={"max_turns": 3})
    return await program.go()


@harness.case("submitted")
async def return_direct() -> Any:
    outcome = await Program("once", [echo_direct]).go()
    assert outcome.deliverable == "x", outcome.deliverable
    return outcome


@harness.case("submitted")
async def return_direct_sync() -> Any:
    return await Program("once", [echo_direct]).go(sync=True)


@harness.case("error_max_turns")
async def own_model_limit() -> Any:
    return await Program("budget", after=[ModelCallLimitMiddleware(run_limit=3)]).go()


@harness.case("error_max_turns")
async def own_model_limit_before() -> Any:
    return await Program("budget", before=[ModelCallLimitMiddleware(run_limit=3)]).go()


@harness.case("error_max_turns")
async def own_model_limit_raises() -> Any:
    limit = ModelCallLimitMiddleware(run_limit=3, exit_behavior="error")
    return await Program("budget", after=[limit]).go(raises=Exception)


@harness.case("error_halted")
async def own_tool_limit() -> Any:
    limit = ToolCallLimitMiddleware(run_limit=2, exit_behavior="end")
    outcome = await Program("budget", after=[limit]).go()
    assert outcome.evidence.startswith("ToolCallLimitMiddleware"), outcome.evidence
    return outcome


@harness.case("error_during_execution")
async def unreadable_call() -> Any:
    """LangChain ends with a call that is not JSON as with an answer."""
    outcome = await Program("cuttool").go()
    assert outcome.evidence.endswith("the arguments of a tool call are not JSON: echo"), outcome.evidence
    return outcome


@harness.case("error_max_turns")
async def recursion_limit() -> Any:
    program = Program("budget")
    outcome = await program.go(raises=GraphRecursionError, recursion_limit=12)
    assert "GraphRecursionError" in outcome.evidence, outcome.evidence
    return outcome


@harness.case("error_halted")
async def guardrail() -> Any:
    class Polite(AgentMiddleware):
        @hook_config(can_jump_to=["end"])
        def before_model(self, state: Any, runtime: Any) -> Any:
            if len(state["messages"]) < 3:
                return None
            return {"messages": [AIMessage("I must not.")], "jump_to": "end"}

    outcome = await Program("budget", after=[Polite()]).go()
    assert "I must not." in outcome.evidence, outcome.evidence
    return outcome


@harness.case("error_during_execution")
async def tool_raises() -> Any:
    @tool
    def echo(text: str) -> str:
        """Echo."""
        raise ValueError("no such text")

    outcome = await Program("once", [echo]).go(raises=ValueError)
    assert "ValueError: no such text" in outcome.evidence, outcome.evidence
    return outcome


@harness.case("error_provider_rejected")
async def provider_denies() -> Any:
    return await Program("denied").go(raises=Exception)


@harness.case("error_output_truncated")
async def responses_cut() -> Any:
    return await Program("length", responses=True).go()


@harness.case("error_output_truncated")
async def responses_cut_stream() -> Any:
    program = Program("length", responses=True)
    async for _ in program.agent.astream(GO, stream_mode="messages"):
        pass
    return program.outcome


@harness.case("stop")
async def retries() -> Any:
    """Each attempt of other middleware is booked."""
    fallback = ModelFallbackMiddleware(model("parallel"))
    return await Program(
        "denied",
        before=[ModelRetryMiddleware(max_retries=1, initial_delay=0.0), fallback],
    ).go()


@harness.case("error_max_turns")
async def summarization() -> Any:
    """The calls of another middleware are booked, and are no turns."""
    summary = SummarizationMiddleware(model("stop"), trigger=("messages", 3), keep=("messages", 2))
    outcome = await Program("ten", after=[summary], limits={"max_turns": 4}).go()
    assert harness.get("/stats")["stop"] >= 1
    return outcome


def sub_agent(script: str, sync: bool = False) -> Any:
    inner: Any = create_agent(model(script), tools=[echo])
    if sync:

        @tool("echo")
        def delegated(text: str) -> str:
            """Asks."""
            return str(inner.invoke(GO, {"recursion_limit": 1000})["messages"][-1].text)

        return delegated

    @tool("echo")
    async def adelegated(text: str) -> str:
        """Asks."""
        return str((await inner.ainvoke(GO, {"recursion_limit": 1000}))["messages"][-1].text)

    return adelegated


@harness.case("stop")
async def sub_agents() -> Any:
    return await Program("parallel", [sub_agent("stop")]).go()


@harness.case("stop")
async def sub_agents_sync() -> Any:
    return await Program("parallel", [sub_agent("stop", sync=True)]).go(sync=True)


@harness.case("stop")
async def sub_agent_cut() -> Any:
    return await Program("once", [sub_agent("length")]).go()


@harness.case("error_max_budget_usd")
async def sub_agent_over_budget() -> Any:
    limits = {"max_budget_usd": 1.0}
    return await Program("ten", [sub_agent("budget")], limits=limits).go(raises=Exception)


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Any:
    """The agent in the tool has a middleware of its own, whose run the outer one pays for."""
    inner = Program("budget", tapped=False)

    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return str((await inner.agent.ainvoke(GO))["messages"][-1].text)

    outcome = await Program("ten", [echo], limits={"max_budget_usd": 0.5}).go()
    assert (inner.outcome.termination, inner.outcome.model_calls) == ("cancelled", 2)
    return outcome


@harness.case("stop")
async def model_call_in_a_tool() -> Any:
    inner = model("stop")

    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return str((await inner.ainvoke(text)).text)

    return await Program("parallel", [echo]).go()


@harness.case("submitted")
async def handoff_to_parent() -> Any:
    @tool
    def transfer(tool_call_id: Annotated[str, InjectedToolCallId]) -> Any:
        """Hands over."""
        return Command(goto="other", graph=Command.PARENT, update={"messages": []})

    class State(MessagesState):
        endstop: Annotated[dict[str, Any] | None, first_failure]

    program = Program("handoff", [transfer])
    graph = StateGraph(State)
    graph.add_node("first", program.agent)
    graph.add_node("other", lambda state: {})
    graph.set_entry_point("first")
    state = await graph.compile().ainvoke(GO)
    assert outcome_of(state).deliverable == program.outcome.deliverable, state
    assert program.outcome.deliverable == {"goto": "other"}, program.outcome.deliverable
    return program.outcome


@harness.case("error_output_truncated")
async def agents_as_nodes() -> Any:
    """The first failure is in the state of the parent graph, also with agents at the same time."""

    class State(MessagesState):
        endstop: Annotated[dict[str, Any] | None, first_failure]

    bad, good = Program("length"), Program("stop")
    graph = StateGraph(State)
    for name, one in (("bad", bad), ("good", good), ("last", Program("stop"))):
        graph.add_node(name, one.agent)
    graph.set_entry_point("bad")
    graph.set_entry_point("good")
    graph.add_edge("bad", "last")
    state = await graph.compile().ainvoke(GO)
    assert outcome_of(state).termination == bad.outcome.termination == "error_output_truncated"
    harness.get("/reset")
    bad.heard.clear()
    return await bad.go()


def thread(name: str = "1") -> Any:
    return {"configurable": {"thread_id": name}}


HITL: Any = {"interrupt_on": {"echo": True}}
YES: Any = Command(resume={"decisions": [{"type": "approve"}]})
NO: Any = Command(resume={"decisions": [{"type": "reject", "message": "no"}]})


async def paused(program: Program, resume: Any, sync: bool = False) -> Any:
    async def call(given: Any) -> Any:
        if sync:
            return await asyncio.to_thread(program.agent.invoke, given, thread())
        return await program.agent.ainvoke(given, thread())

    state = await call(GO)
    assert "__interrupt__" in state and program.heard == [], (state, program.heard)
    assert state.get("endstop") is None
    state = await call(resume)
    assert outcome_of(state).termination == program.outcome.termination, state
    assert program.outcome.turns == 2, program.outcome
    return program.outcome


@harness.case("stop")
async def interrupt_in_a_tool() -> Any:
    outcome = await paused(
        Program("once", [ask_first], checkpointer=InMemorySaver()), Command(resume=True)
    )
    assert harness.RAN == ["x"] and outcome.tool_calls == 1
    return outcome


@harness.case("stop")
async def approval() -> Any:
    hitl = HumanInTheLoopMiddleware(**HITL)
    outcome = await paused(Program("once", after=[hitl], checkpointer=InMemorySaver()), YES)
    assert harness.RAN == ["x"]
    return outcome


@harness.case("stop")
async def approval_before() -> Any:
    hitl = HumanInTheLoopMiddleware(**HITL)
    return await paused(
        Program("once", before=[hitl], checkpointer=InMemorySaver()), YES, sync=True
    )


@harness.case("stop")
async def approval_rejected() -> Any:
    hitl = HumanInTheLoopMiddleware(**HITL)
    outcome = await paused(Program("once", after=[hitl], checkpointer=InMemorySaver()), NO)
    assert harness.RAN == []
    return outcome


@harness.case("stop")
async def approval_with_new_graph() -> Any:
    """A web server builds the graph for each request."""
    saver, hitl = InMemorySaver(), HumanInTheLoopMiddleware(**HITL)
    first = Program("once", after=[hitl], checkpointer=saver)
    await first.agent.ainvoke(GO, thread())
    second = Program("once", after=[HumanInTheLoopMiddleware(**HITL)], checkpointer=saver)
    await second.agent.ainvoke(YES, thread())
    assert first.heard == [] and second.outcome.turns == 2
    return second.outcome


@harness.case("stop")
async def static_interrupt() -> Any:
    program = Program("once", checkpointer=InMemorySaver(), interrupt_before=["tools"])
    await program.agent.ainvoke(GO, thread())
    assert program.heard == []
    await program.agent.ainvoke(None, thread())
    return program.outcome


@harness.case("stop")
async def interrupt_in_parallel_tools() -> Any:
    @tool
    def echo(text: str) -> str:
        """Echo; one of them asks first."""
        return str(interrupt("may I")) if text == "a" else text

    program = Program("parallel", [echo], checkpointer=InMemorySaver())
    async for _ in program.agent.astream(GO, thread()):
        pass
    assert program.heard == []
    async for _ in program.agent.astream(Command(resume="yes"), thread()):
        pass
    assert program.outcome.tool_calls == 2, program.outcome
    return program.outcome


@harness.case("stop")
async def interrupt_in_a_sub_agent() -> Any:
    """A pause inside of an agent that is a tool pauses both."""
    inner = Program("once", [ask_first], checkpointer=True)

    @tool("echo")
    async def delegated(text: str) -> str:
        """Asks."""
        return str((await inner.agent.ainvoke(GO))["messages"][-1].text)

    outer = Program("once", [delegated], checkpointer=InMemorySaver())
    state = await outer.agent.ainvoke(GO, thread())
    assert "__interrupt__" in state and outer.heard == inner.heard == []
    await outer.agent.ainvoke(Command(resume=True), thread())
    # The outer run pays for the inner one, which it was resumed with.
    assert (outer.outcome.model_calls, inner.outcome.model_calls) == (4, 2)
    assert harness.RAN == ["x"]
    harness.get("/reset")
    harness.RAN.clear()
    return await Program("parallel").go()


@harness.case("stop")
async def approval_in_a_node() -> Any:
    """Only the parent graph has a checkpointer."""
    program = Program("once", after=[HumanInTheLoopMiddleware(**HITL)])
    graph = StateGraph(MessagesState)
    graph.add_node("agent", program.agent)
    graph.set_entry_point("agent")
    parent: Any = graph.compile(checkpointer=InMemorySaver())
    state = await parent.ainvoke(GO, thread())
    assert "__interrupt__" in state and program.heard == []
    await parent.ainvoke(YES, thread())
    return program.outcome


@harness.case("stop")
async def approval_edited() -> Any:
    edited = {"type": "edit", "edited_action": {"name": "echo", "args": {"text": "y"}}}
    hitl = HumanInTheLoopMiddleware(**HITL)
    program = Program("once", after=[hitl], checkpointer=InMemorySaver())
    outcome = await paused(program, Command(resume={"decisions": [edited]}))
    assert harness.RAN == ["y"]
    return outcome


@harness.case("error_during_execution")
async def thread_after_an_error() -> Any:
    """A run that has ended with an exception stays so: its thread continues with a new message."""
    broken = True

    @tool
    def echo(text: str) -> str:
        """Echo."""
        if broken:
            raise ValueError("down")
        return text

    program = Program("once", [echo], checkpointer=InMemorySaver())
    with suppress(ValueError):
        await program.agent.ainvoke(GO, thread())
    broken = False
    state = await program.agent.ainvoke(None, thread())
    assert outcome_of(state).termination == "error_during_execution"
    return program.outcome


@harness.case("stop")
async def new_message_instead_of_an_answer() -> Any:
    """A program may give up a paused run and start the next one on the thread."""
    hitl = HumanInTheLoopMiddleware(**HITL)
    program = Program("once", after=[hitl], checkpointer=InMemorySaver())
    await program.agent.ainvoke(GO, thread("a"))
    assert program.heard == []
    harness.get("/reset")
    state = await program.agent.ainvoke(GO, thread("b"))
    await program.agent.ainvoke(YES, thread("b"))
    return program.outcome


@harness.case("stop")
async def paused_time_does_not_count() -> Any:
    limits = {"timeout": "1500ms"}
    hitl = HumanInTheLoopMiddleware(**HITL)
    program = Program("once", after=[hitl], checkpointer=InMemorySaver(), limits=limits)
    await program.agent.ainvoke(GO, thread())
    await asyncio.sleep(2)
    await program.agent.ainvoke(YES, thread())
    return program.outcome


@harness.case("error_max_turns")
async def approvals_share_limits() -> Any:
    """Many pauses, one limit of turns; and the next message of the thread starts a new run."""
    hitl = HumanInTheLoopMiddleware(**HITL)
    program = Program("budget", after=[hitl], checkpointer=InMemorySaver(), limits={"max_turns": 3})
    state = await program.agent.ainvoke(GO, thread())
    for _ in range(10):
        if "__interrupt__" not in state:
            break
        state = await program.agent.ainvoke(YES, thread())
    assert outcome_of(state).termination == program.outcome.termination
    return program.outcome


@harness.case("error_output_truncated")
async def cut_call_is_not_approved() -> Any:
    hitl = HumanInTheLoopMiddleware(**HITL)
    program = Program("lengthtool", before=[hitl], checkpointer=InMemorySaver())
    await program.agent.ainvoke(GO, thread())
    return program.outcome


@harness.case("stop")
async def resumed_after_policy() -> Any:
    """A policy with a state continues after a checkpoint."""
    seen: list[int] = []

    @endstop.policy("counts")
    def counts(step: Any, context: Any) -> bool:
        seen.append(context.step)
        return False

    program = Program("ten", checkpointer=InMemorySaver(), limits={"policy": counts})
    outcome = await program.go(**thread())
    assert seen == [*range(11)], seen
    return outcome


def sqlite_program(path: str, **limits: Any) -> Program:
    saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
    return Program("ten", [ask_first], checkpointer=saver, limits=limits)


@harness.elsewhere
async def resume(path: str) -> str:
    program = sqlite_program(path, max_budget_usd=0.5)
    state = program.agent.invoke(Command(resume=True), thread())
    if "__interrupt__" in state:
        assert program.heard == []
        return "paused"
    return outcome_of(state).to_json()


@harness.case("error_max_budget_usd")
async def resume_in_another_process() -> Any:
    """One budget over all processes, and a looser one is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "checkpoints.sqlite")
        program = sqlite_program(path, max_budget_usd=0.5)
        state = program.agent.invoke(GO, thread())
        assert "__interrupt__" in state and program.heard == []
        try:
            sqlite_program(path, max_budget_usd=5.0).agent.invoke(Command(resume=True), thread())
        except endstop.ConfigError as refused:
            assert "max_budget_usd" in str(refused), refused
        else:
            raise AssertionError("a looser limit is not refused")
        done = "paused"
        while done == "paused":
            done = resume(path)
    return endstop.Outcome.from_json(done)


@harness.case("cancelled")
async def task_cancelled() -> Any:
    program = Program("slow")
    task = asyncio.create_task(program.agent.ainvoke(GO))
    await asyncio.sleep(0.7)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    return program.outcome


@harness.case("cancelled")
async def waited_too_long() -> Any:
    program = Program("slow")
    with suppress(TimeoutError):
        await asyncio.wait_for(program.agent.ainvoke(GO), 0.7)
    return program.outcome


@harness.case("cancelled")
async def stream_left() -> Any:
    program = Program("slow")
    stream = program.agent.astream(GO, stream_mode="messages")
    count = 0
    async for _ in stream:
        count += 1
        if count == 3:
            break
    await stream.aclose()
    return program.outcome


@harness.case("cancelled")
async def stream_left_sync() -> Any:
    program = Program("slow")

    def work() -> None:
        for count, _ in enumerate(program.agent.stream(GO, stream_mode="messages")):
            if count == 3:
                break

    await asyncio.to_thread(work)
    return program.outcome


@harness.case("stop")
async def batch() -> Any:
    program = Program("parallel")
    await program.agent.abatch([GO] * 5)
    assert [one.termination for one in program.heard] == ["stop"] * 5, program.heard
    harness.get("/reset")
    program.heard.clear()
    return await program.go()


@harness.case("submitted")
async def structured_with_a_tool() -> Any:
    return await Program("both", response_format=ToolStrategy(City)).go()


@harness.case("cancelled")
async def generator_closed() -> Any:
    """A route of a web server streams from a generator, which the server closes if the client leaves."""
    program = Program("slow")

    async def route() -> Any:
        async for part in program.agent.astream(GO, stream_mode="messages"):
            yield part

    parts = route()
    for _ in range(3):
        await anext(parts)
    await asyncio.create_task(parts.aclose())
    for _ in range(50):
        # The inner generator is closed by the event loop.
        if not program.heard:
            await asyncio.sleep(0.1)
    return program.outcome


@harness.case("stop")
async def second_request() -> Any:
    program = Program("parallel", checkpointer=InMemorySaver())
    for _ in range(3):
        harness.get("/reset")
        program.heard.clear()
        await program.go(**thread())
    return program.outcome


@harness.case("stop")
async def concurrent_runs() -> Any:
    program = Program("parallel")
    await asyncio.gather(*(program.agent.ainvoke(GO) for _ in range(10)))
    assert all(one.termination == "stop" for one in program.heard), program.heard
    harness.get("/reset")
    program.heard.clear()
    return await program.go()


harness.main("langchain", run)
