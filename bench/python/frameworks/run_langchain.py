"""LangChain's `create_agent`, a LangGraph graph."""

from typing import Any

import harness
from langchain.agents import create_agent
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

import endstop
from endstop.adapters.langchain import EndstopMiddleware, outcome_of


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


harness.main("langchain", run)
