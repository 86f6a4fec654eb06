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
    create_sdk_mcp_server,
    tool,
)

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


async def run(model: str, stream: bool, guarded: bool) -> dict[str, Any]:
    options = ClaudeAgentOptions(
        model=model,
        env=ENVIRONMENT,
        mcp_servers={"t": create_sdk_mcp_server("t", tools=[echo])},
        allowed_tools=["mcp__t__echo"],
        tools=[],
        cwd=tempfile.mkdtemp(),
        setting_sources=[],
    )
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


harness.main("claude_sdk", run, absent=("stream",))
