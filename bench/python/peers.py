"""Measures what a turn costs under other guards, next to Endstop: microseconds of processor time, for a
model call and a tool call. No peer reads a response: each is given the tokens.

    LAB/peers/bin/python bench/python/peers.py

The environment has the wheel, and what is measured: `pip install agentguard47 runbound langchain`. A
package that is missing is left out. `costs.py` writes the rows into the page.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Row = tuple[str, str, float]


def best(code: Callable[[int], object], number: int, rounds: int = 5) -> float:
    """Returns the microseconds of one turn: the best of several rounds."""
    results = []
    at = 0
    for _ in range(rounds):
        began = time.thread_time()
        for _ in range(number):
            code(at)
            at += 1
        results.append((time.thread_time() - began) / number * 1e6)
    return min(results)


def named(package: str) -> str:
    return f"{package} {importlib.metadata.version(package)}"


def own() -> Iterator[Row]:
    import costs
    import endstop

    limits = {"max_turns": None, "max_unproductive_turns": None, "max_consecutive_mistakes": None}
    run = endstop.Run(limits=limits, price="in=1,out=2")
    bodies = [costs.body(n) for n in range(10_000)]

    def turn(n: int) -> None:
        run.go()
        for call in run.turn(bodies[n]).calls:
            run.result(call, "17 lines")

    yield "endstop", "reads the response; budget, loops, cuts, repeated results", best(turn, 2_000)


def agentguard() -> Iterator[Row]:
    from agentguard import BudgetGuard, LoopGuard

    budget, loop = BudgetGuard(max_cost_usd=1e9), LoopGuard(max_repeats=3)

    def turn(n: int) -> None:
        budget.check()
        budget.consume(tokens=150, calls=1, cost_usd=0.0002)
        loop.check("read", {"path": f"src/file_{n}.rs"})

    yield named("agentguard47"), "`BudgetGuard`, `LoopGuard`", best(turn, 2_000)


def runbound() -> Iterator[Row]:
    import runbound

    runbound.init(budget_usd=1e9, max_steps=10**9, on_anomaly="raise")

    @runbound.tool
    def read(path: str) -> str:
        return "17 lines"

    def turn(n: int) -> None:
        runbound.record_call("gpt-4o-mini", tokens_in=100, tokens_out=50)
        read(f"src/file_{n}.rs")

    yield named("runbound"), "`record_call`, `@tool`", best(turn, 2_000)


def langchain() -> Iterator[Row]:
    """A graph with a scripted model: the difference of a turn with and without a middleware."""
    from langchain.agents import create_agent
    from langchain.agents.middleware import ModelCallLimitMiddleware, ToolCallLimitMiddleware
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool

    from endstop.adapters.langchain import EndstopMiddleware

    @tool
    def read(path: str) -> str:
        """Reads a file."""
        return "17 lines"

    class Scripted(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    turns = 50

    def answers() -> Iterator[AIMessage]:
        facts = {"finish_reason": "tool_calls", "model_name": "gpt-4o-mini"}
        usage = {"input_tokens": 100, "output_tokens": 50, "total_tokens": 150}
        for n in range(turns):
            call = {"id": f"c{n}", "name": "read", "args": {"path": f"src/file_{n}.rs"}}
            yield AIMessage("", tool_calls=[call], response_metadata=facts, usage_metadata=usage)
        end = facts | {"finish_reason": "stop"}
        yield AIMessage("Done.", response_metadata=end, usage_metadata=usage)

    def once(middleware: list[Any]) -> float:
        agent = create_agent(Scripted(messages=answers()), [read], middleware=middleware)
        began = time.process_time()
        state = agent.invoke({"messages": [("user", "go")]}, {"recursion_limit": 10_000})
        spent = time.process_time() - began
        assert sum(message.type == "tool" for message in state["messages"]) == turns
        return spent / turns * 1e6

    limits = {"max_turns": None, "max_unproductive_turns": None, "max_budget_usd": 1e6, "price": "in=1,out=2"}
    kinds: dict[str, Callable[[], list[Any]]] = {
        "no middleware": lambda: [],
        "`ModelCallLimitMiddleware`, `ToolCallLimitMiddleware`": lambda: [
            ModelCallLimitMiddleware(run_limit=1000),
            ToolCallLimitMiddleware(run_limit=1000),
        ],
        "`EndstopMiddleware`": lambda: [EndstopMiddleware(**limits)],
    }
    costs: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(7):
        # Interleaved, so that a busy machine is busy for all of them.
        for kind, make in kinds.items():
            costs[kind].append(once(make()))
    for kind, found in costs.items():
        yield named("langchain"), f"a turn of its graph, {kind}", min(found)


def main() -> None:
    rows: list[Row] = []
    for peer in (own, agentguard, runbound, langchain):
        try:
            rows += peer()
        except ImportError as missing:
            print(f"{peer.__name__}: skipped: {missing}", file=sys.stderr)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
