// OpenAI Agents SDK, with the adapter of @endstop/node/openai-agents.
import { Endstop } from '@endstop/node/openai-agents';
import { tap } from '@endstop/node/tap';
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { BASE, echo, guarded, main } from './harness.mjs';

setTracingDisabled(true);
const openAIClient = new OpenAI({ baseURL: BASE, apiKey: 'x', maxRetries: 0, fetch: tap() });
const provider = new OpenAIProvider({ openAIClient, useResponses: process.env.HOW === 'responses' });
const tools = [
  tool({ name: 'echo', description: 'Echoes.', parameters: z.object({ text: z.string() }), execute: async ({ text }) => echo(text) }),
];

async function once(modelProvider, model, stream, signal) {
  const runner = new Runner({ modelProvider });
  const agent = new Agent({ name: 'a', instructions: 'Be brief.', model, tools });
  const result = await runner.run(agent, 'Go.', { stream, signal });
  if (stream) {
    for await (const _ of result.toStream());
    await result.completed;
  }
  return 'returned';
}

await main('@openai/agents', async (model, stream, guard, signal, limits) => {
  if (!guard) return { ending: await once(provider, model, stream, signal) };
  const endstop = new Endstop({ signal, ...limits });
  return guarded(endstop, () => once(endstop.provider(provider), model, stream, endstop.signal));
});
