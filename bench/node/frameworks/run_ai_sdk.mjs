// The Vercel AI SDK, with the adapter of @endstop/node/ai-sdk.
import { readFileSync } from 'node:fs';
import { createOpenAI } from '@ai-sdk/openai';
import { Endstop } from '@endstop/node/ai-sdk';
import { tap } from '@endstop/node/tap';
import { generateText, streamText, stepCountIs, tool, wrapLanguageModel } from 'ai';
import { z } from 'zod';
import { BASE, echo, guarded, main } from './harness.mjs';

const how = process.env.HOW ?? 'tap';
const version = JSON.parse(readFileSync(new URL('../node_modules/ai/package.json', import.meta.url), 'utf8')).version;
const provider = createOpenAI({ baseURL: BASE, apiKey: 'x', fetch: how === 'tap' ? tap() : undefined });
const tools = {
  echo: tool({ description: 'Echoes.', inputSchema: z.object({ text: z.string() }), execute: async ({ text }) => echo(text) }),
};

async function once(settings, stream) {
  const options = { tools, prompt: 'Go.', maxRetries: 1, ...settings };
  if (!stream) {
    const result = await generateText(options);
    return `returned (${result.finishReason})`;
  }
  let problem;
  const result = streamText({ ...options, onError: ({ error }) => { problem = error; } });
  for await (const _ of result.textStream);
  if (problem !== undefined) throw problem;
  return `returned (${await result.finishReason})`;
}

await main(`ai ${version}, ${how}`, async (name, stream, guard, signal, limits) => {
  const model = provider.chat(name);
  if (!guard) return { ending: await once({ model, stopWhen: stepCountIs(20), abortSignal: signal }, stream) };
  const endstop = new Endstop({ signal, ...limits });
  const wrapped = how === 'middleware' ? wrapLanguageModel({ model, middleware: endstop.middleware }) : endstop.model(model);
  return guarded(endstop, () => once({ model: wrapped, ...endstop.hooks() }, stream));
});
