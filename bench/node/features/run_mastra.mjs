// The scenarios of Mastra.
import { readFileSync } from 'node:fs';
import { createOpenAI } from '@ai-sdk/openai';
import { Endstop } from '@endstop/node/mastra';
import { tap } from '@endstop/node/tap';
import { Agent } from '@mastra/core/agent';
import { Mastra } from '@mastra/core/mastra';
import { InMemoryStore } from '@mastra/core/storage';
import { createTool } from '@mastra/core/tools';
import { z } from 'zod';
import { echo, main, must } from './harness.mjs';
import { PRICE } from './server.mjs';

const version = JSON.parse(readFileSync(new URL('../node_modules/@mastra/core/package.json', import.meta.url), 'utf8')).version;
const fetch = tap();
// Without the tap, the SDK counts the tokens of a cache.
const plain = (name) => createOpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: 'x', fetch: name === 'cached' ? undefined : fetch }).chat(name);
const made = (id, body, more) => createTool({ id, description: 'A tool.', inputSchema: z.object({ text: z.string() }), execute: async (input) => ({ text: await body(input.text ?? input.context?.text) }), ...more });
const own = made('echo', echo);
const agent = (e, name, more = {}) => new Agent({ id: 'a', name: 'a', instructions: 'Be brief.', model: e.model(plain(name)), tools: { echo: own }, maxRetries: 0, ...more });
const during = (name, more, options) => (e) => e.during(() => agent(e, name, more).generate('Go.', { ...e.hooks(), ...options }));
const read = async (e, name) => { const result = await agent(e, name).stream('Go.', e.hooks()); for await (const _ of result.fullStream); };
const sub = (inner) => ({ sub: made('sub', async () => (await inner.generate('x', { maxSteps: 30 })).text) });
const inner = (name) => new Agent({ id: 'b', name: 'b', instructions: 'Be brief.', model: plain(name), tools: { echo: own }, maxRetries: 0 });
const waiting = async (e) => {
  const one = agent(e, 'danger', { tools: { danger: made('danger', echo, { requireApproval: true }) } });
  const mastra = new Mastra({ agents: { a: one }, storage: new InMemoryStore({ id: 's' }), logger: false });
  const result = await e.during(() => mastra.getAgent('a').generate('Go.', e.hooks()));
  return { mastra, runId: result.runId, toolCallId: result.suspendPayload?.toolCallId };
};
const approved = async (e) => {
  const { mastra, runId, toolCallId } = await waiting(e);
  const one = mastra.getAgent('a');
  await e.during(() => one.approveToolCallGenerate({ runId, toolCallId, ...e.hooks() }), { resume: e.parked });
};

const scenarios = [
  { name: 'answer', expect: 'stop', run: during('text') },
  { name: 'cached prompt', expect: 'stop', run: during('cached') },
  { name: 'tool and answer', expect: 'stop', run: during('once') },
  { name: 'tool and answer, streamed', expect: 'stop', run: (e) => e.during(() => read(e, 'once')) },
  { name: 'parallel tool calls', expect: 'stop', run: during('twice') },
  { name: 'structured: structuredOutput', expect: 'submitted', run: during('city', { tools: {} }, { structuredOutput: { schema: z.object({ name: z.string() }) } }) },
  { name: 'structured, cut', expect: 'error_output_truncated', run: during('citycut', { tools: {} }, { structuredOutput: { schema: z.object({ name: z.string() }) } }) },
  { name: 'own turn limit: maxSteps', expect: 'error_max_turns', run: during('loop', {}, { maxSteps: 2 }) },
  { name: 'turns', expect: 'error_max_turns', settings: { maxTurns: 3 }, run: during('loop') },
  { name: 'budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.002 }, run: during('loop') },
  { name: 'approval', expect: 'parked', run: waiting },
  { name: 'approval, continued', expect: 'stop', run: approved },
  { name: 'cut answer', expect: 'error_output_truncated', run: during('cut') },
  { name: 'cut answer, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cut')) },
  { name: 'cut call', expect: 'error_output_truncated', run: during('cutcall') },
  { name: 'cut call, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cutcall')) },
  { name: 'sub-agent in a tool', expect: 'stop', run: (e) => during('main', { tools: sub(inner('sub')) })(e) },
  { name: 'sub-agent under the run', expect: 'stop', run: (e) => during('main', { tools: sub(agent(e, 'sub')) })(e) },
  { name: 'sub-agent at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', { tools: sub(inner('subloop')) })(e) },
  { name: 'run inside of a run, at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', { tools: { sub: made('sub', async () => { await during('subloop')(new Endstop({ price: PRICE })).catch(() => {}); return 'stopped'; }) } })(e) },
  { name: 'agents at the same time', expect: 'stop', run: (e) => e.during(() => Promise.all(['one', 'two', 'three'].map((name) => agent(e, name).generate('Go.', e.hooks())))) },
  { name: 'guardrail: input processor', expect: 'error_halted', run: during('text', { inputProcessors: [{ id: 'p', name: 'p', processInput: async ({ abort }) => abort('no') }] }) },
  { name: 'guardrail: output processor', expect: 'error_halted', run: during('text', { outputProcessors: [{ id: 'p', name: 'p', processOutputResult: async ({ abort }) => abort('no') }] }) },
  { name: 'provider refuses', expect: 'error_provider_rejected', run: during('bad') },
  { name: 'timeout', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: during('hang') },
  { name: 'caller aborts', expect: 'cancelled', isOpen: true, run: (e) => during('hang', {}, { abortSignal: AbortSignal.timeout(300) })(e) },
  { name: 'caller leaves the stream', expect: 'cancelled', isOpen: true, run: (e) => e.during(async () => { const result = await agent(e, 'hang').stream('Go.', e.hooks()); for await (const _ of result.textStream) break; }) },
  { name: 'one agent, many requests', expect: 'stop', run: async (e) => { const one = agent(e, 'text'); await e.during(() => one.generate('Go.', e.hooks())); must(e.outcome.modelCalls === 1, 'a run of its own'); } },
];
await main({ framework: `@mastra/core ${version}`, Endstop, scenarios });
