"""Inspect's `react` agent, chat completions."""

import os
import tempfile
from typing import Any

os.environ.update(INSPECT_DISPLAY="none", INSPECT_LOG_DIR=tempfile.mkdtemp())

import harness  # noqa: E402
from inspect_ai import Task, eval_async  # noqa: E402
from inspect_ai.agent import react  # noqa: E402
from inspect_ai.dataset import Sample  # noqa: E402
from inspect_ai.model import get_model  # noqa: E402
from inspect_ai.tool import tool  # noqa: E402

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


# Inspect does not stream, and runs one evaluation at a time.
harness.main("inspect", run, absent=("stream", "concurrent"))
