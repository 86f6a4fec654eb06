// Mastra, with the adapter of @endstop/node/mastra.
import { createOpenAI } from '@ai-sdk/openai';
import { Endstop } from '@endstop/node/mastra';
import { tap } from '@endstop/node/tap';
import { Agent } from '@mastra/core/agent';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import { BASE, echo, guarded, main } from './harness.mjs';

const provider = createOpenAI({ baseURL: BASE, apiKey: 'x', fetch: tap() });
const tools = {
  echo: createTool({
    id: 'echo',
    description: 'Echoes.',
    inputSchema: z.object({ text: z.string() }),
    // The input was an argument of its own in earlier versions.
    execute: async (input) => ({ text: echo(input.text ?? input.context?.text) }),
  }),
};

async function once(model, settings, stream) {
  const agent = new Agent({ id: 'a', name: 'a', instructions: 'Be brief.', model, tools, maxRetries: 0 });
  if (!stream) {
    const result = await agent.generate('Go.', settings);
    return `returned (${result.finishReason})`;
  }
  const result = await agent.stream('Go.', settings);
  for await (const part of result.fullStream) {
    if (part.type === 'error') throw part.payload?.error ?? part.error;
  }
  return `returned (${await result.finishReason})`;
}

await main('mastra', async (name, stream, guard, signal, limits) => {
  const model = provider.chat(name);
  if (!guard) return { ending: await once(model, { abortSignal: signal, maxSteps: 20 }, stream) };
  const endstop = new Endstop({ signal, ...limits });
  return guarded(endstop, () => once(endstop.model(model), endstop.hooks(), stream));
});
