// LangChain and LangGraph, with the adapter of @endstop/node/langchain.
import { Endstop } from '@endstop/node/langchain';
import { tap } from '@endstop/node/tap';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, createMiddleware, tool } from 'langchain';
import { z } from 'zod';
import { BASE, echo, guarded, main } from './harness.mjs';

const tools = [tool(async ({ text }) => echo(text), { name: 'echo', description: 'Echoes.', schema: z.object({ text: z.string() }) })];
const how = process.env.HOW ?? 'tap';

async function once(name, middleware, stream, signal) {
  const fetch = how === 'tap' ? tap() : undefined;
  const model = new ChatOpenAI({ model: name, apiKey: 'x', maxRetries: 0, streaming: stream, configuration: { baseURL: BASE, fetch } });
  const agent = createAgent({ model, tools, middleware });
  const input = { messages: [{ role: 'user', content: 'Go.' }] };
  if (!stream) await agent.invoke(input, { signal });
  else for await (const _ of await agent.stream(input, { signal, streamMode: 'messages' }));
  return 'returned';
}

await main('langchain', async (name, stream, guard, signal, limits) => {
  if (!guard) return { ending: await once(name, [], stream, signal) };
  const endstop = new Endstop({ signal, ...limits });
  return guarded(endstop, () => once(name, [endstop.middleware(createMiddleware)], stream, endstop.signal));
});
