// The adapter of the Vercel AI SDK over models that are written here; `bench/node` runs the real SDK.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EndstopStopped, policy, VersionError } from '@endstop/node';
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
  assert.throws(() => new LangChain().middleware(undefined), (e) => e instanceof VersionError && /langchain >=1/.test(e.message));
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
  const steps = await endstop.during(async () => {
    const wrapped = endstop.model(model([{ raw: 'tool_calls', calls: [CALL] }]));
    const { content } = await wrapped.doGenerate(ask);
    const stop = endstop.stopWhen(({ steps }) => steps.length === 1);
    return stop({ steps: [{ content: [...content, { type: 'tool-result', toolCallId: 'c1', output: 'x' }] }] });
  });
  assert.equal(steps, true);
  // No answer arrived, whatever stopped the loop.
  assert.equal(endstop.outcome.isSuccess, false);
  assert.equal(endstop.outcome.modelCalls, 1);
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
    const parts = await streamed.during(() => partsOf(streamed.model(model([given]))));
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
    await endstop.during(() => partsOf(endstop.model({ ...inner, doStream })));
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
      assert.equal(endstop.tryCall(), false);
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
