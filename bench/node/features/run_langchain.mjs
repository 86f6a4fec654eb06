// The scenarios of LangChain and LangGraph.
import { readFileSync } from 'node:fs';
import { deserialize, serialize } from 'node:v8';
import { Endstop } from '@endstop/node/langchain';
import { tap } from '@endstop/node/tap';
import { Command, interrupt, MemorySaver } from '@langchain/langgraph';
import { ChatOpenAI } from '@langchain/openai';
import { createAgent, createMiddleware, humanInTheLoopMiddleware, modelCallLimitMiddleware, providerStrategy, tool, toolCallLimitMiddleware, toolStrategy } from 'langchain';
import { z } from 'zod';
import { echo, main, must } from './harness.mjs';
import { PRICE } from './server.mjs';

const version = JSON.parse(readFileSync(new URL('../node_modules/langchain/package.json', import.meta.url), 'utf8')).version;
const fetch = tap();
// Without the tap, LangChain counts the tokens of a cache.
const model = (name, more) => new ChatOpenAI({ model: name, apiKey: 'x', maxRetries: 0, configuration: { baseURL: process.env.OPENAI_BASE_URL, fetch: name === 'cached' ? undefined : fetch }, ...more });
const schema = z.object({ text: z.string() });
const made = (name, body, more) => tool(body, { name, description: 'A tool.', schema, ...more });
const own = made('echo', async ({ text }) => echo(text));
const go = { messages: [{ role: 'user', content: 'Go.' }] };
const agent = (e, name, { middleware = [], ...more } = {}) => createAgent({ model: typeof name === 'string' ? model(name) : name, tools: [own], middleware: [e.middleware(createMiddleware), ...middleware], ...more });
const during = (name, more, config) => (e) => e.during(() => agent(e, name, more).invoke(go, config));
const read = async (e, name) => { for await (const _ of await agent(e, model(name, { streaming: true })).stream(go, { streamMode: 'messages' })); };
const City = z.object({ name: z.string() });
const thread = { configurable: { thread_id: '1' } };
/** A pause for a person, whose checkpoints go to another process as text. */
const waits = (make) => ({
  run: async (e) => {
    const saver = new MemorySaver();
    await e.during(() => make(e, saver).invoke(go, thread));
    return serialize({ storage: saver.storage, writes: saver.writes }).toString('base64');
  },
  again: (e, text) => make(e, Object.assign(new MemorySaver(), deserialize(Buffer.from(text, 'base64')))).invoke(new Command({ resume: make.answer }), thread),
});
const hitl = (e, checkpointer) => agent(e, 'danger', { tools: [made('danger', async ({ text }) => echo(text))], checkpointer, middleware: [humanInTheLoopMiddleware({ interruptOn: { danger: true } })] });
hitl.answer = { decisions: [{ type: 'approve' }] };
const asks = (e, checkpointer) => agent(e, 'danger', { tools: [made('danger', async ({ text }) => echo(`${text} ${interrupt('May I?')}`))], checkpointer });
asks.answer = 'yes';
const sub = (inner) => made('sub', async () => (await inner.invoke(go)).messages.at(-1).text);

const scenarios = [
  { name: 'answer', expect: 'stop', run: during('text') },
  { name: 'cached prompt', expect: 'stop', run: during('cached') },
  { name: 'tool and answer', expect: 'stop', run: during('once') },
  { name: 'tool and answer, streamed', expect: 'stop', run: (e) => e.during(() => read(e, 'once')) },
  { name: 'parallel tool calls', expect: 'stop', run: during('twice') },
  { name: 'structured: toolStrategy', expect: 'submitted', run: during('extract', { responseFormat: toolStrategy(City) }) },
  { name: 'structured: providerStrategy', expect: 'submitted', run: (e) => during(model('city', { model: 'city' }), { responseFormat: providerStrategy(City), tools: [] })(e) },
  { name: 'structured, cut', expect: 'error_output_truncated', run: during('citycut', { responseFormat: providerStrategy(City), tools: [] }) },
  { name: 'structured, never valid', expect: 'error_max_turns', settings: { maxTurns: 3 }, run: during('extractwrong', { responseFormat: toolStrategy(City) }) },
  { name: 'answer in a call: returnDirect', expect: 'submitted', run: during('once', { tools: [made('echo', async ({ text }) => echo(text), { returnDirect: true })] }) },
  { name: 'own turn limit: recursionLimit', expect: 'error_max_turns', run: during('loop', {}, { recursionLimit: 7 }) },
  { name: 'own turn limit: modelCallLimit', expect: 'error_max_turns', run: during('loop', { middleware: [modelCallLimitMiddleware({ runLimit: 2 })] }) },
  { name: 'own turn limit: modelCallLimit, error', expect: 'error_max_turns', run: during('loop', { middleware: [modelCallLimitMiddleware({ runLimit: 2, exitBehavior: 'error' })] }) },
  { name: 'own limit: toolCallLimit', expect: 'error_halted', run: during('loop', { middleware: [toolCallLimitMiddleware({ runLimit: 2, exitBehavior: 'end' })] }) },
  { name: 'turns', expect: 'error_max_turns', settings: { maxTurns: 3 }, run: during('loop') },
  { name: 'budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.002 }, run: during('loop') },
  { name: 'approval: humanInTheLoop', expect: 'stop', ...waits(hitl) },
  { name: 'approval: interrupt in a tool', expect: 'stop', ...waits(asks) },
  { name: 'cut answer', expect: 'error_output_truncated', run: during('cut') },
  { name: 'cut answer, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cut')) },
  { name: 'cut call', expect: 'error_output_truncated', run: during('cutcall') },
  { name: 'cut call, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cutcall')) },
  { name: 'call that is not JSON', expect: 'error_during_execution', run: during('broken') },
  { name: 'sub-agent in a tool', expect: 'stop', run: (e) => during('main', { tools: [sub(createAgent({ model: model('sub'), tools: [own] }))] })(e) },
  { name: 'sub-agent under the run', expect: 'stop', run: (e) => during('main', { tools: [sub(agent(e, 'sub'))] })(e) },
  { name: 'run inside of a run, at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', { tools: [made('sub', async () => { await during('subloop')(new Endstop({ price: PRICE })).catch(() => {}); return 'stopped'; })] })(e) },
  { name: 'sub-agent at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', { tools: [sub(createAgent({ model: model('subloop'), tools: [own] }))] })(e) },
  { name: 'agents at the same time', expect: 'stop', run: (e) => e.during(() => Promise.all(['one', 'two', 'three'].map((name) => agent(e, name).invoke(go)))) },
  { name: 'provider refuses', expect: 'error_provider_rejected', run: during('bad') },
  { name: 'timeout', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: (e) => during('hang', {}, { signal: e.signal })(e) },
  { name: 'caller aborts', expect: 'cancelled', isOpen: true, run: (e) => during('hang', {}, { signal: AbortSignal.timeout(300) })(e) },
  { name: 'caller leaves the stream', expect: 'cancelled', isOpen: true, run: (e) => e.during(async () => { for await (const _ of await agent(e, model('hang', { streaming: true })).stream(go, { streamMode: 'messages' })) break; }) },
  { name: 'stream that is returned', expect: 'stop', run: async (e) => { const stream = await e.during(() => agent(e, model('once', { streaming: true })).stream(go, { streamMode: 'messages' })); for await (const _ of stream); } },
  { name: 'one agent, requests in sequence', expect: 'stop', run: async (e) => { const one = agent(e, 'text'); await e.during(() => one.invoke(go)); must(e.outcome.modelCalls === 1, 'a run of its own'); } },
];
const scripts = { broken: [{ calls: [['echo', '{"text":"hel']] }], extract: [{ calls: [['extract-1', '{"name":"Paris"}']] }], extractwrong: [{ calls: [['extract-1', '{"nam":"Paris"}']] }] };
await main({ framework: `langchain ${version}`, Endstop, scenarios, scripts });
