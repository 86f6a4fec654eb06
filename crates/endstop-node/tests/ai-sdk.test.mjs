// The adapter of the Vercel AI SDK over models that are written here; `bench/node` runs the real SDK.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, EndstopStopped, policy, VersionError } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { Endstop as Agents } from '@endstop/node/openai-agents';
import { Endstop as LangChain } from '@endstop/node/langchain';
import { tap } from '@endstop/node/tap';

const CALL = { type: 'tool-call', toolCallId: 'c1', toolName: 'echo', input: '{"text":"x"}' };
const USAGE = { inputTokens: { total: 100 }, outputTokens: { total: 50 } };

/** Returns a model that gives these responses by turns, plain and streamed. */
function model(responses, specificationVersion = 'v3') {
  let turn = 0;
  const next = () => {
    const { raw = 'stop', unified = raw, text, calls = [], error } = responses[turn++ % responses.length];
    const parts = [...(text === undefined ? [] : [{ type: 'text', text }]), ...calls];
    return { content: parts, finishReason: { unified, raw }, usage: USAGE, warnings: [], error };
  };
  return {
    specificationVersion,
    provider: 'test',
    modelId: 'm',
    turns: () => turn,
    doGenerate: async () => next(),
    doStream: async () => {
      const { content, finishReason, usage, error } = next();
      const parts = content.map((part) => (part.type === 'text' ? { type: 'text-delta', id: 't', delta: part.text } : part));
      if (error !== undefined) parts.push({ type: 'error', error });
      parts.push({ type: 'finish', finishReason, usage });
      const start = (controller) => {
        parts.forEach((part) => controller.enqueue(part));
        controller.close();
      };
      return { stream: new ReadableStream({ start }) };
    },
  };
}

const ask = { prompt: [] };

async function partsOf(wrapped) {
  const parts = [];
  for await (const part of (await wrapped.doStream(ask)).stream) parts.push(part);
  return parts;
}

/** A loop as the SDK has it: calls, tools, and the condition between. */
async function loop(endstop, inner, run = () => 'same') {
  const wrapped = endstop.model(inner);
  const { stopWhen, onStepFinish } = endstop.hooks();
  const steps = [];
  for (;;) {
    const { content } = await wrapped.doGenerate(ask);
    const calls = content.filter((part) => part.type === 'tool-call');
    const results = calls.map((call) => ({ type: 'tool-result', toolCallId: call.toolCallId, output: run(call) }));
    steps.push({ content: [...content, ...results] });
    onStepFinish(steps.at(-1));
    if (calls.length === 0 || (await stopWhen({ steps }))) return steps.length;
  }
}

test('unknown specification names the range', () => {
  assert.throws(() => new Endstop().model(model([{}], 'v9')), (e) => e instanceof VersionError && /v9.*ai >=5 <8/.test(e.message));
  assert.throws(() => new Agents().model({}), (e) => e instanceof VersionError && /@openai\/agents >=/.test(e.message));
  assert.throws(() => new Agents().provider({}), VersionError);
  assert.throws(() => new LangChain().middleware(undefined), (e) => e instanceof VersionError && /langchain >=1\.2/.test(e.message));
  assert.throws(() => new Endstop({ maxTurn: 3 }), /maxTurns/);
});

test('turns, budget, loop and policy end the loop with its steps', async () => {
  const calling = [{ raw: 'tool_calls', calls: [CALL] }];
  const growing = () => String(Math.random());
  const declared = policy('second', (_, context) => context.step === 1 && 'enough');
  for (const [settings, run, ending, turns] of [
    [{ maxTurns: 3 }, growing, 'error_max_turns', 3],
    [{ maxBudgetUsd: 0.002, price: 'in=3,out=15' }, growing, 'error_max_budget_usd', 2],
    [{}, () => 'same', 'error_no_progress', 4],
    [{ policy: declared }, growing, 'submitted', 2],
  ]) {
    const endstop = new Endstop(settings);
    const inner = model(calling);
    assert.equal(await endstop.during(() => loop(endstop, inner, run)), turns, ending);
    assert.equal(endstop.outcome.termination, ending);
    assert.equal(inner.turns(), turns);
    assert.equal(endstop.outcome.modelCalls, turns);
  }
});

test('other conditions stop the loop as well', async () => {
  const endstop = new Endstop();
  const called = ({ steps }) => steps.at(-1).toolCalls.some((call) => call.toolName === 'echo');
  function dear({ steps }) { return steps.at(-1).usage.inputTokens > 1; }
  for (const [condition, ending, evidence] of [
    [({ steps }) => steps.length === 1, 'error_max_turns', /after 1 steps/],
    [({ steps: { length } }) => length >= 1, 'error_max_turns', /after 1 steps/],
    [called, 'submitted', /`echo` has the answer/],
    [dear, 'error_halted', /^stopWhen: dear/],
    [async (options) => dear(options), 'error_halted', /^stopWhen: /],
  ]) {
    const endstop = new Endstop();
    const stops = await endstop.during(async () => {
      const wrapped = endstop.model(model([{ raw: 'tool_calls', calls: [CALL] }]));
      const { content } = await wrapped.doGenerate(ask);
      const { stopWhen } = endstop.hooks({ stopWhen: condition });
      const result = { type: 'tool-result', toolCallId: 'c1', output: 'x' };
      return stopWhen({ steps: [{ content: [...content, result], toolCalls: content, usage: { inputTokens: 9 } }] });
    });
    assert.equal(stops, true);
    const { outcome } = endstop;
    assert.equal(outcome.termination, ending);
    assert.match(outcome.evidence, evidence);
    assert.equal(outcome.deliverable, ending === 'submitted' ? 'x' : null);
    // No call was asked for and not made.
    assert.equal(outcome.modelCalls, 1);
  }
});

test('a complete response without a finish value of its provider is an answer', async () => {
  for (const [given, ending] of [
    [{ raw: undefined, unified: 'stop', text: 'Done.' }, 'stop'],
    [{ raw: null, unified: 'length', text: 'Half' }, 'error_output_truncated'],
    [{ raw: null, unified: 'other', text: 'Half' }, 'error_during_execution'],
    [{ raw: null, unified: 'error', text: 'Half' }, 'error_during_execution'],
    [{ raw: null, unified: 'interrupted', text: 'Half' }, 'error_during_execution'],
  ]) {
    const inner = model([]);
    const { text, ...finishReason } = given;
    inner.doGenerate = async () => ({ content: [{ type: 'text', text }], finishReason, usage: USAGE, warnings: [] });
    const endstop = new Endstop();
    await endstop.during(() => endstop.model(inner).doGenerate(ask)).catch(() => {});
    assert.equal(endstop.outcome.termination, ending, given.unified);
  }
});

test('names and providers are no models', () => {
  const provider = Object.assign(() => model([{}]), { languageModel: () => model([{}]) });
  assert.throws(() => new Endstop().model('openai/gpt-5'), (e) => e instanceof ConfigError && /gateway\('openai\/gpt-5'\)/.test(e.message));
  assert.throws(() => new Endstop().model(provider), (e) => e instanceof ConfigError && /this is a provider/.test(e.message));
  assert.throws(() => new Endstop().model({ languageModel: () => {} }), /this is a provider/);
  for (const odd of [undefined, null, {}, 3]) assert.throws(() => new Endstop().model(odd), VersionError);
});

test('one object serves requests at the same time, and each has its outcome', async () => {
  const ended = [];
  const endstop = new Endstop({ onEnd: (outcome) => ended.push(outcome) });
  const shared = endstop.model(model([{ text: 'Done.' }]));
  const ask = async (signal) => endstop.during(async () => {
    await new Promise(setImmediate);
    const { content } = await shared.doGenerate({ prompt: [] });
    assert.equal(endstop.run.turns, 1);
    return content[0].text;
  }, { signal });
  const gone = AbortSignal.abort();
  const running = [ask(), ask(), ask(gone), ask()];
  // Outside of them, nothing says which one is meant.
  assert.throws(() => endstop.outcome, (e) => e instanceof ConfigError && /several runs/.test(e.message));
  const results = await Promise.allSettled(running);
  assert.deepEqual(results.map((one) => one.status), ['fulfilled', 'fulfilled', 'rejected', 'fulfilled']);
  assert.deepEqual(ended.map((one) => one.termination).sort(), ['cancelled', 'stop', 'stop', 'stop']);
  assert.deepEqual(ended.map((one) => one.modelCalls).sort(), [0, 1, 1, 1]);
  await ask();
  assert.equal(endstop.outcome.termination, 'stop');
  assert.equal(ended.length, 5);
});

test('hooks of an agent that is built once serve all of its requests', async () => {
  const ended = [];
  const endstop = new Endstop({ maxTurns: 2, onEnd: (outcome) => ended.push(outcome.termination) });
  const calling = model([{ raw: 'tool_calls', calls: [CALL] }]);
  const wrapped = endstop.model(calling);
  const hooks = endstop.hooks();
  assert.ok(!('abortSignal' in hooks));
  const request = (settings) => endstop.during(async () => {
    const steps = [];
    for (;;) {
      const { content } = await wrapped.doGenerate(ask);
      const result = { type: 'tool-result', toolCallId: 'c1', output: Math.random() };
      steps.push({ content: [...content, result] });
      await hooks.onStepFinish(steps.at(-1));
      if (await hooks.stopWhen({ steps })) break;
    }
    await hooks.onFinish({});
    return { steps };
  }, settings);
  for (let n = 0; n < 3; n++) await request();
  await assert.rejects(request({ signal: AbortSignal.abort() }));
  // Made outside of a request, while and after others run, they have the signal of none.
  assert.ok(!('abortSignal' in endstop.hooks()));
  const running = request();
  assert.ok(!('abortSignal' in endstop.hooks()));
  await running;
  assert.deepEqual(ended, [...Array(3).fill('error_max_turns'), 'cancelled', 'error_max_turns']);
  assert.equal(calling.turns(), 8);
});

test('the deadline reaches a model call without the hooks', { timeout: 60_000 }, async () => {
  for (const abortSignal of [undefined, new AbortController().signal]) {
    const endstop = new Endstop({ timeout: '50ms' });
    const late = { ...model([]), doGenerate: ({ abortSignal: given }) => new Promise((_, reject) => given.addEventListener('abort', () => reject(given.reason))) };
    const call = () => endstop.model(late).doGenerate({ prompt: [], abortSignal });
    await assert.rejects(endstop.during(call), (e) => e instanceof EndstopStopped && e.outcome.termination === 'error_timeout');
  }
});

test('an object without during serves one request, and names the fix for another', async () => {
  const ended = [];
  const endstop = new Endstop({ onEnd: (outcome) => ended.push(outcome.termination) });
  const shared = endstop.model(model([{ text: 'Done.' }]));
  const { onFinish } = endstop.hooks();
  await shared.doGenerate(ask);
  await onFinish({});
  assert.deepEqual(ended, ['stop']);
  await assert.rejects(shared.doGenerate(ask), (e) => e instanceof ConfigError && /inside of endstop.during|for each request/.test(e.message));
});

test('what the program aborts is cancelled', async () => {
  for (const reason of [undefined, new Error('gone'), 'gone']) {
    const controller = new AbortController();
    const endstop = new Endstop();
    const inner = { ...model([]), doGenerate: async ({ abortSignal }) => { controller.abort(reason); throw abortSignal.reason; } };
    const given = { prompt: [], abortSignal: controller.signal };
    await assert.rejects(endstop.during(() => endstop.model(inner).doGenerate(given)), (e) => e === controller.signal.reason);
    assert.equal(endstop.outcome.termination, 'cancelled');
    // The signal of the settings, with the exception of a client that listens to it.
    const own = new AbortController();
    const settled = new Endstop({ signal: own.signal });
    const listens = { ...model([]), doGenerate: async () => { own.abort(reason); throw own.signal.reason; } };
    await assert.rejects(settled.during(() => settled.model(listens).doGenerate(ask)), (e) => e === own.signal.reason);
    assert.equal(settled.outcome.termination, 'cancelled');
  }
});

test('a refused response is an error part and no abort', async () => {
  const endstop = new Endstop();
  await assert.rejects(endstop.during(async () => {
    const { abortSignal } = endstop.hooks();
    const parts = await partsOf(endstop.model(model([{ raw: 'length', text: 'Half' }])));
    assert.deepEqual([parts.at(-1).type, abortSignal.aborted, endstop.run.signal.aborted], ['error', false, true]);
  }), EndstopStopped);
});

test('a stream that is left unread is cancelled', async () => {
  const endstop = new Endstop({ onEnd: (outcome) => assert.equal(outcome.termination, 'cancelled') });
  await endstop.during(async () => {
    const reader = (await endstop.model(model([{ text: 'Done.' }])).doStream(ask)).stream.getReader();
    await reader.read();
  });
  assert.equal(endstop.outcome.termination, 'cancelled');
});

test('a sub-agent under the run keeps the calls of the agent around it', async () => {
  const endstop = new Endstop();
  const wrapped = endstop.model(model([{ raw: 'tool_calls', calls: [CALL] }, { text: 'Sub.' }, { text: 'Done.' }]));
  await endstop.during(async () => {
    await wrapped.doGenerate(ask);
    await wrapped.doGenerate(ask);
    const output = { type: 'text', value: 'echoed' };
    await wrapped.doGenerate({ prompt: [{ role: 'assistant', content: [CALL] }, { role: 'tool', content: [{ type: 'tool-result', toolCallId: 'c1', output }] }] });
  });
  const { termination, turns, toolCalls, messages } = endstop.outcome;
  assert.deepEqual([termination, turns, toolCalls], ['stop', 3, 1]);
  assert.match(JSON.stringify(messages), /echoed/);
});

test('a returned stream ends the run, and a reader that leaves cancels it', async () => {
  const chunks = (...given) => new ReadableStream({ start: (open) => { given.forEach((one) => open.enqueue(one)); open.close(); } });
  const answered = async (endstop, returned) => endstop.during(async () => {
    await endstop.model(model([{ text: 'Done.' }])).doGenerate(ask);
    return returned;
  });
  const objects = new Endstop();
  const parts = [];
  for await (const part of await answered(objects, chunks({ type: 'start' }, { type: 'finish-step' }, { type: 'finish' }))) parts.push(part);
  const data = { termination: 'stop', category: 'success', isSuccess: true, isParked: false };
  assert.deepEqual(parts, [{ type: 'start' }, { type: 'finish-step' }, { type: 'data-endstop', data }, { type: 'finish' }]);
  const bytes = new Endstop();
  const event = (part) => new TextEncoder().encode(`data: ${JSON.stringify(part)}\n\n`);
  const body = chunks(event({ type: 'start' }), event({ type: 'finish' }), new TextEncoder().encode('data: [DONE]\n\n'));
  const response = await answered(bytes, new Response(body, { status: 201, headers: { 'x-a': 'b' } }));
  assert.equal(response.status, 201);
  assert.equal(response.headers.get('x-a'), 'b');
  assert.match(await response.text(), /"start"}\n\ndata: {"type":"data-endstop".*\n\ndata: {"type":"finish"}/);
  const text = new Endstop();
  assert.equal(await new Response(await answered(text, chunks(event('a')))).text(), 'data: "a"\n\n');
  assert.equal(text.outcome.termination, 'stop');
  const left = new Endstop();
  const reader = (await answered(left, chunks({ type: 'start' }, { type: 'finish' }))).getReader();
  await reader.read();
  assert.equal(left.run.running, true);
  await reader.cancel();
  assert.equal(left.outcome.termination, 'cancelled');
  const broken = new Endstop();
  const failing = new ReadableStream({ pull: () => { throw new TypeError('mine'); } });
  await assert.rejects((await answered(broken, failing)).getReader().read(), /mine/);
  assert.equal(broken.outcome.termination, 'error_during_execution');
  const unread = new Endstop();
  await assert.rejects(unread.during(() => ({ get fullStream() { throw new Error('read'); } })), /has not been read/);
});

test('a client that asks for a person parks the run, which resumes', async () => {
  const approval = { type: 'tool-approval-request', approvalId: 'a', toolCall: CALL };
  const first = new Endstop({ onEnd: () => assert.fail('a parked run has no ending') });
  await first.during(async () => {
    const { content } = await first.model(model([{ raw: 'tool_calls', calls: [CALL] }])).doGenerate(ask);
    return { steps: [{ content: [...content, approval] }] };
  });
  assert.ok(first.run.parked && first.run.outcome === null && typeof first.parked === 'string');
  assert.throws(() => first.outcome, /parked/);
  const second = new Endstop({ resume: first.parked });
  const output = { type: 'text', value: 'echoed' };
  const prompt = [{ role: 'assistant', content: [CALL] }, { role: 'tool', content: [{ type: 'tool-result', toolCallId: 'c1', output }] }];
  await second.during(() => second.model(model([{ text: 'Done.' }])).doGenerate({ prompt }));
  const { termination, turns, modelCalls, toolCalls, usage } = second.outcome;
  assert.deepEqual([termination, turns, modelCalls, toolCalls, usage.totalTokens], ['stop', 2, 2, 1, 300]);
  assert.throws(() => new Endstop({ resume: first.parked }), ConfigError);
});

test('a tool without a result is an answer only if a call was required', async () => {
  const once = async (params, settings = {}) => {
    const endstop = new Endstop(settings);
    await endstop.during(async () => {
      const { content } = await endstop.model(model([{ raw: 'tool_calls', calls: [CALL] }])).doGenerate({ prompt: [], ...params });
      return { steps: [{ content: content.map((part) => ({ ...part, input: JSON.parse(part.input) })) }] };
    });
    return endstop;
  };
  for (const toolChoice of [{ type: 'required' }, { type: 'tool', toolName: 'echo' }]) {
    const { outcome } = await once({ toolChoice });
    assert.deepEqual([outcome.termination, outcome.deliverable], ['submitted', { text: 'x' }]);
  }
  for (const toolChoice of [undefined, { type: 'auto' }]) assert.equal((await once({ toolChoice })).run.parked, true);
});

test('a structured answer is submitted, and a cut one is not', async () => {
  const responseFormat = { type: 'json' };
  for (const [given, returned, ending, deliverable] of [
    [{ text: '{"a":1}' }, undefined, 'submitted', { a: 1 }],
    [{ text: '{"a":1}' }, { object: { a: 2 } }, 'submitted', { a: 2 }],
    [{ text: 'null' }, undefined, 'stop', null],
    [{ text: 'no json' }, undefined, 'stop', null],
    [{ text: '{"a":1}', raw: 'length' }, undefined, 'error_output_truncated', null],
  ]) {
    const endstop = new Endstop();
    await endstop.during(async () => {
      await endstop.model(model([given])).doGenerate({ prompt: [], responseFormat });
      return returned;
    }).catch(() => {});
    assert.deepEqual([endstop.outcome.termination, endstop.outcome.deliverable], [ending, deliverable]);
  }
});

test('sub-agents and tools that call models are counted, and stopped at the budget', async () => {
  const body = (text) => JSON.stringify({ object: 'chat.completion', model: 'm', choices: [{ index: 0, message: { role: 'assistant', content: text }, finish_reason: 'stop' }], usage: { prompt_tokens: 100, completion_tokens: 50 } });
  let sent = 0;
  const send = tap(async () => { sent += 1; return new Response(body('x')); });
  const endstop = new Endstop({ price: 'in=3,out=15', maxBudgetUsd: 0.004 });
  await assert.rejects(endstop.during(async () => {
    await endstop.model(model([{ raw: 'tool_calls', calls: [CALL] }])).doGenerate(ask);
    for (let n = 0; n < 30; n++) await (await send('http://x/v1/chat/completions', { method: 'POST', body: '{}' })).text();
  }), EndstopStopped);
  assert.equal(endstop.outcome.termination, 'error_max_budget_usd');
  assert.deepEqual([sent, endstop.outcome.modelCalls, endstop.outcome.turns], [3, 4, 1]);
  assert.ok(Math.abs(endstop.outcome.costUsd - 4 * 0.00105) < 1e-9);
  // A nested run of the same adapter is booked by the outer one.
  const outer = new Endstop({ price: 'in=3,out=15' });
  await outer.during(async () => {
    await outer.model(model([{ raw: 'tool_calls', calls: [CALL] }])).doGenerate(ask);
    await outer.during(() => outer.model(model([{ text: 'Sub.' }])).doGenerate(ask));
    outer.run.result('c1', 'x');
    await outer.model(model([{ text: 'Done.' }])).doGenerate(ask);
  });
  assert.ok(Math.abs(outer.outcome.costUsd - 3 * 0.00105) < 1e-9);
  assert.deepEqual([outer.outcome.turns, outer.outcome.modelCalls, outer.outcome.usage.totalTokens], [2, 3, 450]);
});

test('a loop without a model of the adapter says so', async () => {
  const endstop = new Endstop();
  assert.equal(await endstop.during(() => 'answer'), 'answer');
  assert.match(endstop.outcome.evidence, /no model call was seen: give the SDK/);
});

test('cut response leaves the model as an error', async () => {
  for (const [given, ending] of [
    [{ raw: 'length', text: 'Half' }, 'error_output_truncated'],
    [{ raw: 'length', calls: [{ ...CALL, input: '{"text":"hel' }] }, 'error_output_truncated'],
    [{ raw: 'content_filter', text: 'Half' }, 'error_content_filtered'],
    [{ raw: 'stop', unified: 'content-filter', text: 'I cannot.' }, 'error_content_filtered'],
    [{ raw: null, unified: 'other', text: 'Half' }, 'error_during_execution'],
    [{ raw: 'weird', unified: 'other', text: 'Half' }, 'error_during_execution'],
  ]) {
    const plain = new Endstop();
    const rejected = plain.during(() => plain.model(model([given])).doGenerate(ask));
    await assert.rejects(rejected, (e) => e instanceof EndstopStopped && e.outcome === plain.outcome);
    assert.equal(plain.outcome.termination, ending);

    const streamed = new Endstop();
    let parts;
    const stopped = streamed.during(async () => { parts = await partsOf(streamed.model(model([given]))); });
    // The SDK hands an error part to the program, which may not look at it.
    await assert.rejects(stopped, (e) => e instanceof EndstopStopped && e.outcome === streamed.outcome);
    assert.equal(streamed.outcome.termination, ending);
    assert.ok(parts.at(-1).type === 'error' && parts.at(-1).error instanceof EndstopStopped);
    assert.ok(!parts.some((part) => part.type === 'tool-call' || part.type === 'finish'));
  }
});

test('finish counts the bytes of an open connection', async () => {
  const events = (...given) => given.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join('');
  const message = { id: 'm', type: 'message', role: 'assistant', model: 'm', content: [], usage: { input_tokens: 1, output_tokens: 1 } };
  const start = { type: 'message_start', message };
  const paused = { type: 'message_delta', delta: { stop_reason: 'pause_turn' }, usage: { output_tokens: 1 } };
  const stop = { type: 'message_stop' };
  const failed = { type: 'error', error: { type: 'invalid_request_error', message: 'no' } };
  for (const [body, given, ending] of [
    // The SDK 5 reports a paused turn as `stop`.
    [events(start, paused, stop), { text: 'I search.' }, 'error_during_execution'],
    [events(start, failed), { error: failed.error }, 'error_provider_rejected'],
  ]) {
    // The connection stays open after the end marker.
    const fetch = tap(async () => new Response(new ReadableStream({ start: (open) => open.enqueue(Buffer.from(body)) })));
    const inner = model([given], 'v2');
    const doStream = async () => {
      const response = await fetch('http://localhost/v1/messages', { method: 'POST', body: '{}' });
      await response.body.getReader().read();
      return inner.doStream();
    };
    const endstop = new Endstop();
    await endstop.during(() => partsOf(endstop.model({ ...inner, doStream }))).catch(() => {});
    assert.equal(endstop.outcome.termination, ending);
  }
});

test('streamed calls wait for the finish', async () => {
  const endstop = new Endstop();
  await endstop.during(async () => {
    const parts = await partsOf(endstop.model(model([{ raw: 'tool_calls', text: 'I call.', calls: [CALL] }])));
    assert.deepEqual(parts.map((part) => part.type), ['text-delta', 'tool-call', 'finish']);
    endstop.run.result('c1', 'x');
    const answer = await partsOf(endstop.model(model([{ raw: 'stop', text: 'Done.' }])));
    assert.deepEqual(answer.map((part) => part.type), ['text-delta', 'finish']);
  });
  assert.equal(endstop.outcome.termination, 'stop');
  assert.equal(endstop.outcome.usage.totalTokens, 300);
});

test('declared answer next to a call ends the loop', async () => {
  const given = [{ raw: 'tool_calls', text: "FINAL('42')", calls: [CALL] }];
  for (const how of ['doGenerate', 'doStream']) {
    const endstop = new Endstop({ policy: policy('text', (step) => step.output?.includes('FINAL') && '42') });
    await endstop.during(async () => {
      const wrapped = endstop.model(model(given));
      if (how === 'doStream') await partsOf(wrapped);
      else await wrapped.doGenerate(ask);
      endstop.run.result('c1', 'x');
      assert.equal(await endstop.stopWhen()({ steps: [] }), true);
    });
    assert.deepEqual([endstop.outcome.termination, endstop.outcome.answer], ['submitted', '42']);
  }
});

test('failed attempts are retried by the SDK', async () => {
  const busy = Object.assign(new Error('slow down'), { statusCode: 429, responseBody: '{"error":{"message":"slow"}}' });
  const endstop = new Endstop();
  await endstop.during(async () => {
    let tries = 0;
    const inner = model([{ text: 'Done.' }]);
    const generate = inner.doGenerate;
    inner.doGenerate = async () => {
      if (++tries === 1) throw busy;
      return generate();
    };
    const wrapped = endstop.model(inner);
    await assert.rejects(wrapped.doGenerate(ask), /slow down/);
    await wrapped.doGenerate(ask);
  });
  assert.deepEqual([endstop.outcome.termination, endstop.outcome.modelCalls, endstop.outcome.turns], ['stop', 2, 1]);
  const broken = new Endstop();
  const parts = await broken.during(() => partsOf(broken.model(model([{ text: 'Half', error: busy }]))));
  assert.equal(parts.at(-1).error, busy);
  assert.equal(broken.outcome.termination, 'error_during_execution');
});

test('middleware does what the model does', async () => {
  const endstop = new Endstop();
  const inner = model([{ raw: 'length', text: 'Half' }], 'v2');
  const given = { doGenerate: () => inner.doGenerate(), params: ask, model: inner };
  await assert.rejects(endstop.during(() => endstop.middleware.wrapGenerate(given)), EndstopStopped);
  assert.equal(endstop.outcome.termination, 'error_output_truncated');
});

const CACHED = 'in=2,out=10,cached=0.2,cache_write=2.5,cache_write_1h=4';

test('cached tokens have their price', async () => {
  const metadata = (usage) => ({ anthropic: { usage, cacheCreationInputTokens: usage.cache_creation_input_tokens } });
  const cases = [
    // Versions 6 and 7: the total has everything in it.
    ['v3', 'openai.chat', { inputTokens: { total: 1e6, cacheRead: 9e5 }, outputTokens: { total: 0 } }, undefined, 0.38],
    ['v3', 'anthropic.messages', { inputTokens: { total: 1e6, cacheRead: 6e5, cacheWrite: 3e5 }, outputTokens: { total: 0 }, raw: { cache_creation: { ephemeral_1h_input_tokens: 1e5 } } }, undefined, 0.2 + 0.12 + 0.5 + 0.4],
    // Version 5: the input of OpenAI has it, and those of Anthropic and Bedrock have not.
    ['v2', 'openai.chat', { inputTokens: 1e6, cachedInputTokens: 9e5, outputTokens: 0, totalTokens: 1e6 }, undefined, 0.38],
    ['v2', 'anthropic.messages', { inputTokens: 6e5, cachedInputTokens: 3e5, outputTokens: 0, totalTokens: 6e5 }, metadata({ cache_creation_input_tokens: 1e5 }), 1.2 + 0.06 + 0.25],
    ['v2', 'amazon-bedrock', { inputTokens: 9e5, cachedInputTokens: 1e5, outputTokens: 0, totalTokens: 9e5 }, undefined, 1.82],
    // Gemini's thoughts are next to the output, as the total says.
    ['v2', 'google.generative-ai', { inputTokens: 1e6, cachedInputTokens: 9e5, outputTokens: 1e4, reasoningTokens: 2e4, totalTokens: 1.03e6 }, undefined, 0.38 + 0.3],
    // A provider may send anything.
    ['v2', 'odd', { inputTokens: 1e6, outputTokens: 0, cachedInputTokens: 'many', reasoningTokens: Number.NaN, totalTokens: -1 }, undefined, 2],
  ];
  for (const [version, provider, usage, providerMetadata, expected] of cases) {
    const finishReason = version === 'v2' ? 'stop' : { unified: 'stop', raw: 'stop' };
    const answer = { content: [{ type: 'text', text: '42' }], finishReason, usage, providerMetadata, warnings: [] };
    const parts = [{ type: 'text-delta', id: 't', delta: '42' }, { type: 'finish', finishReason, usage, providerMetadata }];
    const start = (controller) => { parts.forEach((part) => controller.enqueue(part)); controller.close(); };
    const given = { specificationVersion: version, provider, modelId: 'm', doGenerate: async () => answer, doStream: async () => ({ stream: new ReadableStream({ start }) }) };
    for (const read of [(wrapped) => wrapped.doGenerate(ask), partsOf]) {
      const endstop = new Endstop({ price: CACHED });
      await endstop.during(() => read(endstop.model(given)));
      assert.ok(Math.abs(endstop.outcome.costUsd - expected) < 1e-9, `${provider} ${version}: ${endstop.outcome.costUsd}`);
    }
  }
});

test('langchain counts cached tokens by their names', async () => {
  const cases = [
    [{ cache_read: 9e5 }, 0.38],
    [{ flex_cache_read: 9e5 }, 0.38],
    [{ cache_creation: 5e5 }, 1 + 1.25],
    [{ cache_creation: 0, ephemeral_5m_input_tokens: 3e5, ephemeral_1h_input_tokens: 2e5 }, 1 + 0.75 + 0.8],
  ];
  for (const [input_token_details, expected] of cases) {
    const endstop = new LangChain({ price: CACHED });
    const { wrapModelCall } = endstop.middleware((config) => config);
    const usage_metadata = { input_tokens: 1e6, output_tokens: 0, total_tokens: 1e6, input_token_details };
    const message = { getType: () => 'ai', text: '42', tool_calls: [], response_metadata: { finish_reason: 'stop' }, usage_metadata };
    await endstop.during(async () => ({ messages: [await wrapModelCall({ messages: [] }, async () => message)] }));
    assert.ok(Math.abs(endstop.outcome.costUsd - expected) < 1e-9, String(endstop.outcome.costUsd));
  }
});

test('a budget holds in the runs inside of a run', async () => {
  const price = 'in=1000,out=2000';
  const outer = new Endstop({ price, maxBudgetUsd: 0.7 });
  const [middle, inner] = [new Endstop({ price }), new Endstop({ price })];
  const calling = model([1, 2, 3, 4, 5].map((n) => ({ raw: 'tool_calls', calls: [{ ...CALL, toolCallId: `c${n}`, input: `{"n":${n}}` }] })));
  let ended = null;
  await assert.rejects(outer.during(async () => {
    await outer.model(calling).doGenerate(ask);
    await middle.during(async () => {
      await middle.model(model([{ raw: 'tool_calls', calls: [CALL] }])).doGenerate(ask);
      await inner.during(async () => {
        const wrapped = inner.model(calling);
        try {
          for (let n = 0; n < 9; n++) {
            const { content } = await wrapped.doGenerate(ask);
            inner.run.result(content[0].toolCallId, String(n));
          }
        } finally {
          ended = inner.run.finished();
        }
      });
    });
  }), EndstopStopped);
  assert.deepEqual([ended.termination, ended.modelCalls], ['cancelled', 2]);
  const { outcome } = outer;
  assert.deepEqual([outcome.termination, outcome.modelCalls, outcome.turns], ['error_max_budget_usd', 4, 1]);
  assert.ok(Math.abs(outcome.costUsd - 0.8) < 1e-9, String(outcome.costUsd));
});
