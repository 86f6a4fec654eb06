"""LlamaIndex's function agent."""

import asyncio

import script
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai import OpenAI

options = script.options("llama-index-core")
output = {"output_cls": script.Answer} if options.structured else {}
cap = {"max_iterations": options.turns} if options.turns else {}
llm = OpenAI(model=script.MODEL, api_base=script.base())
agent = FunctionAgent(tools=[script.shell], llm=llm, **output)


async def main():
    return await agent.run(user_msg=options.task, **cap)


script.end(asyncio.run(main()))
