// The adapters of OpenAI Agents, LangChain and Mastra over frameworks that are written here; `bench/node` runs
// the real ones.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, EndstopStopped } from '@endstop/node';
import { Endstop as LangChain } from '@endstop/node/langchain';
import { Endstop as Mastra } from '@endstop/node/mastra';
import { Endstop as Agents } from '@endstop/node/openai-agents';
import { tap } from '@endstop/node/tap';
import { chat, tool } from './bodies.mjs';

const URL = 'http://localhost/v1/chat/completions';

/** Returns a client with the tap, which sends these bodies by turns. */
function client(bodies) {
  let sent = 0;
  const send = tap(async () => new Response(bodies[sent++ % bodies.length]));
  const post = async () => (await send(URL, { method: 'POST', body: '{}' })).json();
  return Object.assign(post, { sent: () => sent });
}

/** Returns a model of OpenAI Agents over a client. */
function agentModel(post, fails = () => {}) {
  const getResponse = async () => {
    const answer = await post();
    fails();
    return answer;
  };
  return { getResponse, async *getStreamedResponse() { yield { type: 'response_done', response: await getResponse() }; } };
}

const output = (callId, text) => ({ type: 'tool_call_output_item', rawItem: { type: 'function_call_result', callId, output: { type: 'text', text } } });

test('agents: what the runner returned decides about the ending', async () => {
  class MaxTurnsExceededError extends Error {}
  class InputGuardrailTripwireTriggered extends Error {}
  const throws = (problem) => () => { throw problem; };
  for (const [body, returned, ending, deliverable] of [
    [chat('Done.'), { newItems: [], finalOutput: 'Done.' }, 'stop', null],
    [chat('{"a":1}'), { newItems: [], finalOutput: { a: 1 } }, 'submitted', { a: 1 }],
    [tool(), { newItems: [output('c1', 'x')], finalOutput: 'x' }, 'submitted', 'x'],
    [tool(), { newItems: [], finalOutput: 'x' }, 'submitted', 'x'],
    [tool(), { newItems: [], interruptions: [{}] }, null, null],
    [tool(), 'derived', 'error_halted', null],
    [tool(), throws(new MaxTurnsExceededError('3')), 'error_max_turns', null],
    [tool(), throws(new InputGuardrailTripwireTriggered('no')), 'error_halted', null],
    [chat('Done.'), throws(new TypeError('mine')), 'error_during_execution', null],
    [chat('Half', { finish: 'length' }), { newItems: [], finalOutput: { a: 1 } }, 'error_output_truncated', null],
  ]) {
    const endstop = new Agents();
    await endstop.during(async () => {
      await endstop.model(agentModel(client([body]))).getResponse({ input: [] }).catch(() => {});
      return typeof returned === 'function' ? returned() : returned;
    }).catch(() => {});
    const { outcome } = endstop.run;
    assert.equal(outcome?.termination ?? null, ending, JSON.stringify(returned));
    assert.equal(endstop.parked !== null, ending === null);
    if (ending !== null) assert.deepEqual(outcome.deliverable, deliverable);
    if (ending === 'error_halted' && typeof returned === 'function') assert.equal(outcome.decidedBy.name, 'InputGuardrailTripwireTriggered');
  }
});

test('agents: a cut response behind an SDK that throws is that response', async () => {
  for (const how of ['getResponse', 'getStreamedResponse']) {
    const endstop = new Agents({ price: 'in=3,out=15' });
    const model = endstop.model(agentModel(client([chat('Half', { finish: 'length' })]), () => { throw new Error('incomplete'); }));
    const read = async () => { for await (const _ of model.getStreamedResponse({ input: [] })); };
    const stopped = endstop.during(() => (how === 'getResponse' ? model.getResponse({ input: [] }) : read()));
    await assert.rejects(stopped, (e) => e instanceof EndstopStopped && e.outcome.termination === 'error_output_truncated');
    assert.deepEqual([endstop.outcome.usage.totalTokens, endstop.outcome.costUsd], [150, 0.00105]);
  }
});

test('agents: a response of another agent is not taken for the call', async () => {
  const endstop = new Agents();
  const judge = client([chat('Ha', { finish: 'length' })]);
  const inner = agentModel(client([tool()]));
  const model = endstop.model({ ...inner, getResponse: async () => { const answer = await inner.getResponse(); await new Promise(setImmediate); return answer; } });
  await endstop.during(async () => {
    // A guardrail works next to the call, with the same client.
    await Promise.all([model.getResponse({ input: [] }), judge()]);
    await endstop.model(agentModel(client([chat('Done.')]))).getResponse({ input: [{ type: 'function_call_result', callId: 'c1', output: 'x' }] });
    return { newItems: [], finalOutput: 'Done.' };
  });
  const { termination, turns, modelCalls, toolCalls } = endstop.outcome;
  assert.deepEqual([termination, turns, modelCalls, toolCalls], ['stop', 2, 3, 1]);
});

test('agents: a stream that is left is cancelled, and one that is not read is refused', async () => {
  const left = new Agents();
  const words = { getResponse: async () => {}, async *getStreamedResponse() { yield { type: 'a' }; yield { type: 'b' }; } };
  await left.during(async () => {
    for await (const _ of left.model(words).getStreamedResponse({ input: [] })) break;
    assert.equal(left.run.running, false);
  });
  assert.equal(left.outcome.termination, 'cancelled');
  const unread = new Agents();
  const result = { newItems: [], toStream: () => {}, completed: new Promise(() => {}) };
  await assert.rejects(unread.during(() => result), (e) => e instanceof ConfigError && /has not been read/.test(e.message));
  const noted = new Agents();
  const runner = noted.runner({ run: async () => { await noted.model(agentModel(client([tool()]))).getResponse({ input: [] }); return { newItems: [output('c1', 'x')], finalOutput: 'x' }; } });
  assert.equal(await noted.during(async () => (await runner.run()).finalOutput), 'x');
  assert.equal(noted.outcome.termination, 'submitted');
});

const ai = (fields) => ({ getType: () => 'ai', text: '', tool_calls: [], response_metadata: { finish_reason: 'stop' }, usage_metadata: { input_tokens: 100, output_tokens: 50 }, ...fields });
const asks = ai({ tool_calls: [{ id: 'c1', name: 'echo', args: { text: 'x' } }], response_metadata: { finish_reason: 'tool_calls' } });
const told = (fields) => ({ getType: () => 'tool', tool_call_id: 'c1', name: 'echo', text: 'x', ...fields });

/** An agent of LangChain: its hooks around responses, with a tool after each call. */
function graph(endstop, responses, { tools = () => [told()], end = (state) => state } = {}) {
  const { beforeModel, wrapModelCall, afterModel, afterAgent } = endstop.middleware((config) => config);
  return async () => {
    const messages = [];
    for (const response of responses) {
      if (beforeModel.hook({ messages })?.jumpTo === 'end') break;
      const answer = await wrapModelCall({ messages }, async () => response);
      messages.push(...(answer.messages ?? [answer]));
      const after = afterModel.hook({ messages });
      messages.push(...(after?.messages ?? []));
      if (after?.jumpTo === 'end') break;
      if (messages.at(-1).tool_calls?.length > 0) messages.push(...tools());
    }
    const state = { messages };
    if (responses.at(-1).structuredResponse !== undefined) state.structuredResponse = responses.at(-1).structuredResponse;
    afterAgent(state);
    return end(state);
  };
}

test('langchain: what the graph did decides about the ending', async () => {
  const structured = { structuredResponse: { a: 1 }, messages: [asks, told(), ai({ text: 'Returning structured response' })] };
  for (const [responses, options, ending, deliverable] of [
    [[asks, ai({ text: 'Done.' })], {}, 'stop', null],
    [[structured], {}, 'submitted', { a: 1 }],
    [[asks], {}, 'submitted', 'x'],
    [[asks], { tools: () => [told({ status: 'error' })] }, 'error_halted', null],
    [[asks], { tools: () => [told(), ai({ text: 'Model call limits exceeded: 1' })] }, 'error_max_turns', null],
    [[asks], { tools: () => [told(), ai({ text: 'Tool call limit reached' })] }, 'error_halted', null],
    [[asks], { tools: () => [] }, null, null],
    [[asks], { end: (state) => ({ ...state, __interrupt__: [{}] }) }, null, null],
    [[asks], { end: () => { throw Object.assign(new Error('x'), { name: 'GraphRecursionError' }); } }, 'error_max_turns', null],
    [[ai({ text: 'Half', response_metadata: { finish_reason: 'length' } })], {}, 'error_output_truncated', null],
    [[ai({ invalid_tool_calls: [{ id: 'c1', name: 'echo', args: '{"text": "hel' }], response_metadata: {} })], {}, 'error_during_execution', null],
  ]) {
    const endstop = new LangChain();
    await endstop.during(graph(endstop, responses, options)).catch(() => {});
    assert.equal(endstop.run.outcome?.termination ?? null, ending, JSON.stringify([responses, ending]));
    assert.equal(endstop.parked !== null, ending === null);
    if (ending !== null) assert.deepEqual(endstop.outcome.deliverable, deliverable);
  }
});

test('langchain: a cut answer leaves during, after the end of the graph', async () => {
  const endstop = new LangChain();
  const half = ai({ text: 'Half', tool_calls: [{ id: 'c1', name: 'echo', args: {} }], response_metadata: { finish_reason: 'length' } });
  let state;
  const stopped = endstop.during(graph(endstop, [half, ai({ text: 'Never.' })], { end: (given) => { state = given; } }));
  await assert.rejects(stopped, (e) => e instanceof EndstopStopped && e.outcome.termination === 'error_output_truncated');
  // The provider accepts a history whose calls are answered.
  assert.deepEqual(state.messages.map((one) => one.content ?? one.text), ['Half', `Not run: ${endstop.outcome}.`]);
});

test('langchain: an agent that is built once serves every request, inside of during only', async () => {
  const ended = [];
  const endstop = new LangChain({ onEnd: (outcome) => ended.push(outcome) });
  const agent = graph(endstop, [asks, ai({ text: 'Done.' })]);
  for (let n = 0; n < 2; n++) await endstop.during(agent);
  await Promise.all([1, 2, 3].map(() => endstop.during(agent)));
  assert.deepEqual(ended.map((one) => [one.termination, one.modelCalls]), Array(5).fill(['stop', 2]));
  const running = endstop.during(async () => { await new Promise(setImmediate); return agent(); });
  await assert.rejects(agent(), (e) => e instanceof ConfigError && /inside of endstop\.during/.test(e.message));
  await running;
});

test('langchain: a structured answer that is never valid reaches the limit', async () => {
  const endstop = new LangChain({ maxTurns: 3 });
  const retry = Array.from({ length: 30 }, (_, n) => ai({ tool_calls: [{ id: `c${n}`, name: 'extract', args: { n } }], response_metadata: { finish_reason: 'tool_calls' } }));
  let turn = 0;
  await endstop.during(graph(endstop, retry, { tools: () => [told({ tool_call_id: `c${turn++}`, text: 'invalid', status: 'error' })] }));
  assert.deepEqual([endstop.outcome.termination, endstop.outcome.turns], ['error_max_turns', 3]);
});

test('langchain: a parked run continues with its checkpoint', async () => {
  const endstop = new LangChain();
  await endstop.during(graph(endstop, [asks], { tools: () => [] }));
  const { parked } = endstop;
  const { beforeModel, wrapModelCall } = endstop.middleware((config) => config);
  await endstop.during(async () => {
    const messages = [asks, told()];
    assert.equal(beforeModel.hook({ messages }), undefined);
    await wrapModelCall({ messages }, async () => ai({ text: 'Done.' }));
  }, { resume: parked });
  const { termination, turns, toolCalls } = endstop.outcome;
  assert.deepEqual([termination, turns, toolCalls], ['stop', 2, 1]);
});

test('mastra: a cut answer leaves during, although the framework swallows it', async () => {
  const finishReason = { unified: 'length', raw: 'length' };
  const model = { specificationVersion: 'v3', doGenerate: async () => ({ content: [{ type: 'text', text: 'Half' }], finishReason, usage: {} }) };
  const endstop = new Mastra();
  const swallowed = endstop.during(async () => {
    await endstop.model(model).doGenerate({ prompt: [] }).catch(() => {});
    return { text: '', finishReason: 'aborted' };
  });
  await assert.rejects(swallowed, (e) => e instanceof EndstopStopped && e.outcome.termination === 'error_output_truncated');
  const tripped = new Mastra();
  await tripped.during(() => ({ tripwire: { reason: 'no' } }));
  assert.deepEqual([tripped.outcome.termination, tripped.outcome.evidence], ['error_halted', 'tripwire: no']);
});
