// The scenarios of the OpenAI Agents SDK.
import { readFileSync } from 'node:fs';
import { Endstop } from '@endstop/node/openai-agents';
import { tap } from '@endstop/node/tap';
import { Agent, OpenAIProvider, Runner, RunState, run as runAgent, setDefaultModelProvider, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import { call, echo, main, must } from './harness.mjs';
import { PRICE } from './server.mjs';

setTracingDisabled(true);
const version = JSON.parse(readFileSync(new URL('../node_modules/@openai/agents/package.json', import.meta.url), 'utf8')).version;
const useResponses = process.env.HOW === 'responses';
const fetch = tap();
let provider = null;
/** The provider, once the server runs. */
function models() {
  if (provider !== null) return provider;
  const openAIClient = new OpenAI({ baseURL: process.env.OPENAI_BASE_URL, apiKey: 'x', maxRetries: 0, fetch });
  provider = new OpenAIProvider({ openAIClient, useResponses });
  setDefaultModelProvider(provider);
  return provider;
}
const parameters = z.object({ text: z.string() });
const own = tool({ name: 'echo', description: 'Echoes.', parameters, execute: async ({ text }) => echo(text) });
const danger = tool({ name: 'danger', description: 'Asks.', parameters, needsApproval: true, execute: async ({ text }) => echo(text) });
const agent = (model, more = {}) => new Agent({ name: model, instructions: 'Be brief.', model, tools: [own], ...more });
const start = (e, one, options) => new Runner({ modelProvider: e.provider(models()) }).run(one, 'Go.', options);
const during = (model, more, options) => (e) => e.during(() => start(e, agent(model, more), options));
const read = async (e, model, options) => { const result = await start(e, agent(model), { stream: true, ...options }); for await (const _ of result); return result; };
const approver = () => agent('danger', { tools: [danger] });
const asTool = (model) => agent(model).asTool({ toolName: 'sub', toolDescription: 'A sub-agent.' });
const judged = (model, isBad) => ({ name: 'judge', execute: async () => { await runAgent(new Agent({ name: 'judge', instructions: 'Judge.', model }), 'x'); return { outputInfo: {}, tripwireTriggered: isBad }; } });
const sub = { main: [{ calls: [['sub', '{"input":"x"}']] }, { text: 'Done.' }], hand: [{ calls: [['transfer_to_text', '{}']] }] };

const scenarios = [
  { name: 'answer', expect: 'stop', run: during('text') },
  { name: 'cached prompt', expect: 'stop', run: during('cached') },
  { name: 'tool and answer', expect: 'stop', run: during('once') },
  { name: 'tool and answer, streamed', expect: 'stop', run: (e) => e.during(() => read(e, 'once')) },
  { name: 'parallel tool calls', expect: 'stop', run: during('twice') },
  { name: 'structured: outputType', expect: 'submitted', run: during('city', { tools: [], outputType: z.object({ name: z.string() }) }) },
  { name: 'structured, cut', expect: 'error_output_truncated', run: during('citycut', { tools: [], outputType: z.object({ name: z.string() }) }) },
  { name: 'answer in a call: stop_on_first_tool', expect: 'submitted', run: during('once', { toolUseBehavior: 'stop_on_first_tool' }) },
  { name: 'answer in a call: stopAtToolNames', expect: 'submitted', run: (e) => e.during(async () => { const runner = e.runner(new Runner({ modelProvider: e.provider(models()) })); return (await runner.run(agent('once', { toolUseBehavior: { stopAtToolNames: ['echo'] } }), 'Go.')).finalOutput; }) },
  { name: 'own turn limit: maxTurns', expect: 'error_max_turns', run: during('loop', {}, { maxTurns: 3 }) },
  { name: 'turns', expect: 'error_max_turns', settings: { maxTurns: 3 }, run: during('loop', {}, { maxTurns: 30 }) },
  { name: 'budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.002 }, run: during('loop', {}, { maxTurns: 30 }) },
  {
    name: 'approval', expect: 'stop',
    run: async (e) => (await e.during(() => start(e, approver()))).state.toString(),
    again: async (e, text) => {
      const one = approver();
      const state = await RunState.fromString(one, text);
      for (const waiting of state.getInterruptions()) state.approve(waiting);
      return new Runner({ modelProvider: e.provider(models()) }).run(one, state);
    },
  },
  { name: 'cut answer', expect: 'error_output_truncated', run: during('cut') },
  { name: 'cut answer, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cut')) },
  { name: 'cut call', expect: 'error_output_truncated', run: during('cutcall') },
  { name: 'cut call, streamed', expect: 'error_output_truncated', run: (e) => e.during(() => read(e, 'cutcall')) },
  { name: 'sub-agent: asTool', expect: 'stop', run: during('main', { tools: [asTool('sub')] }) },
  { name: 'sub-agent: cut', expect: 'error_output_truncated', run: during('main', { tools: [asTool('cut')] }) },
  { name: 'sub-agent at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: during('main', { tools: [asTool('subloop')] }) },
  { name: 'run inside of a run, at the budget', expect: 'error_max_budget_usd', settings: { maxBudgetUsd: 0.004 }, run: (e) => during('main', { tools: [tool({ name: 'sub', description: 'A sub-agent.', parameters: z.object({ input: z.string() }), execute: async () => { await during('subloop')(new Endstop({ price: PRICE })).catch(() => {}); return 'stopped'; } })] })(e) },
  { name: 'handoff', expect: 'stop', run: during('hand', { handoffs: [new Agent({ name: 'text', instructions: 'x', model: 'text' })] }) },
  { name: 'guardrail that is an agent', expect: 'stop', run: during('once', { inputGuardrails: [judged('judge', false)] }) },
  // The SDK fails on a Responses answer that was cut, and the guardrail with it.
  { name: 'guardrail, its answer cut', expect: useResponses ? 'error_during_execution' : 'stop', run: during('once', { inputGuardrails: [judged('judgecut', false)] }) },
  { name: 'guardrail trips: output', expect: 'error_halted', run: during('text', { outputGuardrails: [judged('judge', true)] }) },
  { name: 'agents at the same time', expect: 'stop', run: (e) => e.during(() => Promise.all(['one', 'two', 'three'].map((name) => start(e, agent(name))))) },
  { name: 'provider refuses', expect: 'error_provider_rejected', run: during('bad') },
  { name: 'timeout', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: (e) => during('hang', {}, { signal: e.signal })(e) },
  { name: 'timeout, streamed', expect: 'error_timeout', isOpen: true, settings: { timeout: '300ms' }, run: (e) => e.during(() => read(e, 'hang', { signal: e.signal })) },
  { name: 'caller aborts', expect: 'cancelled', isOpen: true, run: (e) => during('hang', {}, { signal: AbortSignal.timeout(300) })(e) },
  { name: 'caller leaves the stream', expect: 'cancelled', isOpen: true, run: (e) => e.during(async () => { for await (const _ of await start(e, agent('hang'), { stream: true })) break; }) },
  { name: 'stream that is returned', expect: 'stop', run: async (e) => { const stream = await e.during(async () => (await start(e, agent('once'), { stream: true })).toStream()); let count = 0; for await (const _ of stream) count += 1; must(count > 3, 'events'); } },
  { name: 'one object, many requests', expect: 'stop', run: async (e) => { await e.during(() => start(e, agent('text'))); must(e.outcome.modelCalls === 1, 'a run of its own'); }, },
];
await main({ framework: `@openai/agents ${version}${useResponses ? ', responses' : ''}`, Endstop, scenarios, scripts: sub });
