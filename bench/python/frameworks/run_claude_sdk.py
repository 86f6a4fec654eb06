"""Claude Agent SDK: its own command over the messages API, with one tool in this process. The agent
streams always."""

import asyncio
import tempfile
from typing import Any

import harness
from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    StreamEvent,
    create_sdk_mcp_server,
    tool,
)

from endstop import Outcome
from endstop.adapters.claude_sdk import Endstop

FOLDER = tempfile.mkdtemp()
ENVIRONMENT = {
    "ANTHROPIC_BASE_URL": harness.ROOT,
    "ANTHROPIC_API_KEY": "sk-ant-x",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CONFIG_DIR": FOLDER,
    "API_TIMEOUT_MS": "8000",
    "CLAUDE_CODE_MAX_RETRIES": "0",
    "IS_SANDBOX": "1",
}


@tool("echo", "Echo.", {"text": str})
async def echo(arguments: dict[str, Any]) -> dict[str, Any]:
    harness.RAN.append(arguments["text"])
    return {"content": [{"type": "text", "text": arguments["text"]}]}


def chosen(model: str, body: Any = echo, **options: Any) -> ClaudeAgentOptions:
    return ClaudeAgentOptions(
        model=model,
        env=ENVIRONMENT,
        mcp_servers={"t": create_sdk_mcp_server("t", tools=[body])},
        allowed_tools=[f"mcp__t__{body.name}"],
        tools=[],
        cwd=tempfile.mkdtemp(),
        setting_sources=[],
        **options,
    )


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    options = chosen(model)
    if not guarded:
        try:
            # Within the harness's time, so that the client ends its command.
            async with asyncio.timeout(harness.LIMIT - 3), ClaudeSDKClient(options) as client:
                await client.query("go")
                async for message in client.receive_response():
                    if isinstance(message, ResultMessage):
                        result = message
        except TimeoutError:
            return {"ending": "still running"}
        ending = "error" if result.is_error else "returned"
        return {"ending": f"{ending} {result.subtype}", "evidence": str(result.result)[:60]}
    async with Endstop(**harness.LIMITS) as stop, ClaudeSDKClient(stop.options(options)) as client:
        await client.query("go")
        async for _ in stop.messages(client):
            pass
    return harness.ended(stop.outcome)


async def one(model: str, **options: Any) -> Outcome:
    stop = Endstop(**harness.LIMITS)
    async with stop, ClaudeSDKClient(stop.options(chosen(model, **options))) as client:
        await client.query("go")
        async for _ in stop.messages(client):
            pass
    return stop.outcome


@harness.case("stop")
async def cached() -> Outcome:
    return await one("m-cached")


@harness.case("submitted")
async def structured() -> Outcome:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    return await one(
        "m-do.A.Structured.stop", output_format={"type": "json_schema", "schema": schema}
    )


@harness.case("error_max_turns")
async def own_limit() -> Outcome:
    return await one("m-budget", max_turns=2)


@harness.case("error_max_turns")
async def turns() -> Outcome:
    """The agent stops before the call too many."""
    harness.LIMITS["max_turns"] = 2
    return await one("m-budget")


@harness.case("error_max_budget_usd")
async def run_inside_of_a_run() -> Outcome:
    """The agent in the tool has a run of its own, which the outer one pays for."""
    inner: list[Outcome] = []

    @tool("helper", "Help.", {"text": str})
    async def helper(arguments: dict[str, Any]) -> dict[str, Any]:
        inner.append(await one("m-budget"))
        return {"content": [{"type": "text", "text": "Helped."}]}

    stop = Endstop(**harness.LIMITS, max_budget_usd=0.5)
    options = stop.options(chosen("m-do.A.mcp__t__helper", helper))
    async with stop, ClaudeSDKClient(options) as client:
        await client.query("go")
        async for _ in stop.messages(client):
            pass
    assert [(one.termination, one.model_calls) for one in inner] == [("cancelled", 2)], inner
    return stop.outcome


@harness.case("cancelled")
async def cancel() -> Outcome:
    stop, began = Endstop(**harness.LIMITS), asyncio.Event()

    async def go() -> None:
        async with stop, ClaudeSDKClient(stop.options(chosen("m-do.A.drip"))) as client:
            await client.query("go")
            async for message in stop.messages(client):
                if isinstance(message, StreamEvent):
                    began.set()

    task = asyncio.create_task(go())
    await began.wait()
    await harness.cancelled(task, "m-do.A.drip")
    return stop.outcome


@harness.case("cancelled")
async def interrupted() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    async with stop, ClaudeSDKClient(stop.options(chosen("m-do.A.drip"))) as client:
        await client.query("go")
        async for message in stop.messages(client):
            if isinstance(message, StreamEvent):
                await client.interrupt()
    return stop.outcome


@harness.case("cancelled")
async def left() -> Outcome:
    stop = Endstop(**harness.LIMITS)
    async with stop, ClaudeSDKClient(stop.options(chosen("m-do.A.drip"))) as client:
        await client.query("go")
        async for message in stop.messages(client):
            if isinstance(message, StreamEvent):
                break
    return stop.outcome


@harness.case("error_during_execution")
async def forgotten() -> Outcome:
    async with Endstop(**harness.LIMITS) as stop, ClaudeSDKClient(chosen("m-stop")) as client:
        await client.query("go")
        async for _ in client.receive_response():
            pass
    # The adapter sees nothing of these calls.
    harness.get("/reset")
    return stop.outcome


harness.main("claude_sdk", run, absent=("stream",))
