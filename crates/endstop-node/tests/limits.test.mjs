// Limits that pause a run, count its tools or read a subscription, and the warning before a limit.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ConfigError, Run } from '@endstop/node';
import { Endstop as AiSdk } from '@endstop/node/ai-sdk';
import { Endstop as LangChain } from '@endstop/node/langchain';
import { Endstop as Agents } from '@endstop/node/openai-agents';
import { tap } from '@endstop/node/tap';
import { chat, tool } from './bodies.mjs';

const MINUTE = 60_000;
const URL = 'http://localhost/v1/chat/completions';

/** A clock that a test moves. */
function clock() {
  const moved = () => moved.now;
  moved.now = 100_000;
  return moved;
}

/** A clock that moves by itself, so that a test of a minute takes a second. */
const fast = () => performance.now() * 60;

/** Spends the 150 tokens of a response. */
function spent(options) {
  const run = new Run({ maxRate: '100 tokens/m', waits: true, ...options });
  assert.ok(run.go());
  run.result(run.turn(tool()).calls[0], 'x');
  return run;
}

/** A response of a subscription, of whose window a share is used. */
function ofWindow(used, resetInSeconds) {
  const prefix = 'anthropic-ratelimit-unified-5h';
  const reset = String(Math.floor(Date.now() / 1000) + resetInSeconds);
  return [tool(), { headers: { [`${prefix}-status`]: 'allowed', [`${prefix}-utilization`]: used, [`${prefix}-reset`]: reset } }];
}

test('a rate pauses a run', () => {
  const moved = clock();
  const run = spent({ clock: moved });
  assert.equal(run.pauseMs(), MINUTE);
  moved.now += 20_000;
  assert.equal(run.pauseMs(), 40_000);
  moved.now += 40_000;
  assert.equal(run.pauseMs(), null);
  assert.ok(run.go());
  run.turn(chat('Done.'));
  // An answer ends the run, and does not wait.
  assert.equal(run.close().termination, 'stop');
});

test('a rate in dollars counts what others spend', () => {
  const run = new Run({ maxRate: '$2/h', waits: true, clock: clock(), price: 'in=3,out=15' });
  assert.ok(run.go());
  run.spent({ costUsd: 2.5, costUnknown: true });
  assert.equal(run.pauseMs(), 60 * MINUTE);
  run.turn(chat('Done.'));
  const { costUsd, costUnknown } = run.close();
  assert.ok(costUnknown && Math.abs(costUsd - 2.50105) < 1e-9);
});

test('a wait ends with the pause', async () => {
  const began = performance.now();
  const run = spent({ clock: fast });
  assert.ok(await run.wait());
  assert.ok(run.go());
  const waited = performance.now() - began;
  assert.ok(waited >= 1000 && waited < 30_000, String(waited));
});

test('a stop ends a wait', async () => {
  for (const [stop, ending] of [
    [(run) => run.cancel(), 'cancelled'],
    [(run) => run.terminate(), 'terminated'],
    [(run) => run.setLimits({ maxRate: null }), null],
  ]) {
    const run = spent();
    setTimeout(() => stop(run), 100);
    const began = performance.now();
    assert.equal(await run.wait(), ending === null);
    assert.ok(performance.now() - began < 30_000);
    assert.equal(run.outcome?.termination ?? null, ending);
  }
  const caller = new AbortController();
  const run = spent();
  setTimeout(() => caller.abort(), 100);
  assert.equal(await run.wait(caller.signal), true);
});

test('a deadline ends a wait', async () => {
  const moved = clock();
  for (const ask of [(run) => run.go(), (run) => run.call('other').ask()]) {
    const run = spent({ timeout: '30s', clock: moved });
    assert.equal(run.pauseMs(), null, 'the deadline comes first');
    assert.equal(ask(run), false);
    const { termination, retryAfterMs } = run.finished();
    assert.deepEqual([termination, retryAfterMs], ['error_timeout', MINUTE]);
  }
  const run = spent({ timeout: '61s', clock: moved });
  assert.equal(run.pauseMs(), MINUTE);
  moved.now += 61_000;
  assert.equal(run.pauseMs(), null);
  assert.equal(await run.wait(), false);
  assert.equal(run.outcome.termination, 'error_timeout');
});

test('the pause of a parked run continues', () => {
  const moved = clock();
  const text = spent({ clock: moved }).park();
  // The time in between does not count.
  moved.now += 1_000_000;
  assert.equal(Run.resume(text, { clock: moved }).pauseMs(), MINUTE);
  const other = new Run();
  other.go();
  other.result(other.turn(tool()).calls[0], 'x');
  const parked = other.park();
  assert.throws(() => Run.resume(parked, { maxRate: '$1/h' }), (e) => e instanceof ConfigError && /max_rate.*`waits`/.test(e.message));
});

test('a window pauses or ends a run', () => {
  for (const waits of [false, true]) {
    const run = new Run({ maxWindow: '5h=80%', waitForWindow: waits, waits });
    assert.ok(run.go());
    const [body, options] = ofWindow('0.81', 600);
    run.result(run.turn(body, options).calls[0], 'x');
    if (waits) {
      assert.ok(run.pauseMs() > 590_000 && run.pauseMs() <= 600_000);
      continue;
    }
    assert.equal(run.pauseMs(), null);
    assert.equal(run.go(), false);
    const { termination, category, retryAfterMs, decidedBy, evidence } = run.finished();
    assert.deepEqual([termination, category], ['error_max_window', 'capacity']);
    assert.ok(retryAfterMs > 590_000 && retryAfterMs <= 600_000);
    assert.deepEqual([decidedBy.layer, decidedBy.name], ['limit', 'max_window']);
    assert.match(evidence, /81%.*80%/);
  }
});

test('tool calls are limited', () => {
  const two = chat(null, { finish: 'tool_calls', calls: [['c1', 'echo', '{}'], ['c2', 'shell', '{}']] });
  for (const [options, said] of [
    [{ maxToolCalls: 1 }, '1 of 1 tool calls; `shell` was not started'],
    [{ maxCalls: { shell: 0 } }, '0 of 0 calls of `shell`; another one was not started'],
  ]) {
    const run = new Run(options);
    assert.ok(run.go());
    const { calls, heldBack } = run.turn(two);
    assert.deepEqual([calls, heldBack.map((call) => call.id)], [[], ['c1', 'c2']]);
    const { termination, category, isSuccess, evidence } = run.finished();
    assert.deepEqual([termination, category, isSuccess, evidence], ['error_max_tool_calls', 'capacity', false, said]);
  }
  // As many as allowed, and then an answer.
  const run = new Run({ maxToolCalls: 2, maxCalls: { echo: 1 } });
  assert.ok(run.go());
  for (const call of run.turn(two).calls) run.result(call, 'x');
  assert.ok(run.go());
  run.turn(chat('Done.'));
  assert.ok(run.close().isSuccess);
});

test('the model is warned of a limit', () => {
  const run = new Run({ maxTurns: 5, warnModel: true, inject: true, maxUnproductiveTurns: null });
  const notes = [];
  for (let n = 0; n < 5; n++) {
    assert.ok(run.go());
    notes.push(run.notes());
    run.result(run.turn(tool(n, `{"text":"${n}"}`)).calls[0], `${n}`);
  }
  assert.deepEqual(notes.map((one) => one.length), [0, 0, 0, 0, 1]);
  assert.match(notes[4][0], /1 of 5 turns/);
});

test('a bad value of a limit names the field', () => {
  for (const [options, pattern] of [
    [{ maxRate: '$2/day' }, /max_rate.*neither `m` nor `h`/],
    [{ maxRate: 2 }, /`maxRate`: expected text/],
    [{ maxWindow: '5h=300%' }, /max_window/],
    [{ maxToolCalls: -1 }, /`maxToolCalls`: expected a whole number/],
    [{ waitForWindow: 'yes' }, /`waitForWindow`: expected true or false/],
    [{ maxCalls: { shell: -1 } }, /`maxCalls`: `shell`: expected a whole number/],
    [{ maxCalls: { shell: NaN } }, /`maxCalls\.shell` NaN/],
    [{ maxCalls: 3 }, /`maxCalls` 3: expected an object/],
  ]) {
    for (const make of [() => new Run({ waits: true, ...options }), () => new AiSdk(options)]) {
      assert.throws(make, (e) => e instanceof ConfigError && pattern.test(e.message), `${pattern}`);
    }
  }
  for (const options of [{ maxRate: '$2/h' }, { waitForWindow: true }]) {
    assert.throws(() => new Run(options), (e) => e instanceof ConfigError && /cannot be held back.*`waits`/.test(e.message));
  }
});

test('each adapter holds a call', async () => {
  const settings = { maxRate: '100 tokens/m', clock: fast };
  const asked = [];
  const note = () => asked.push(performance.now());
  const post = tap(async () => (note(), new Response(chat('Hi'))));
  const send = async () => (await post(URL, { method: 'POST', body: '{}' })).json();
  const usage = { input_tokens: 100, output_tokens: 50 };
  const message = { getType: () => 'ai', text: 'Hi', tool_calls: [], response_metadata: { finish_reason: 'stop' }, usage_metadata: usage };
  const adapters = [
    async () => {
      const endstop = new Agents(settings);
      const model = endstop.model({ getResponse: send, async *getStreamedResponse() { yield { type: 'response_done', response: await send() }; } });
      await endstop.during(async () => {
        await model.getResponse({ input: [] });
        for await (const _ of model.getStreamedResponse({ input: [] }));
        return { newItems: [], finalOutput: 'Hi' };
      });
      return endstop;
    },
    async () => {
      const endstop = new LangChain(settings);
      const { wrapModelCall } = endstop.middleware((config) => config);
      const call = () => wrapModelCall({ messages: [] }, async () => (note(), message));
      await endstop.during(async () => ({ messages: [await call(), await call()] }));
      return endstop;
    },
    async () => {
      const endstop = new AiSdk(settings);
      const doGenerate = async () => {
        await send();
        return { content: [{ type: 'text', text: 'Hi' }], finishReason: 'stop', usage: {}, warnings: [] };
      };
      const model = endstop.model({ specificationVersion: 'v2', doGenerate, doStream: doGenerate });
      await endstop.during(async () => {
        await model.doGenerate({ prompt: [] });
        await model.doGenerate({ prompt: [] });
      });
      return endstop;
    },
    // The request of a sub-agent, which the tap sees.
    async () => {
      const endstop = new Agents(settings);
      const model = endstop.model({ getResponse: send, async *getStreamedResponse() {} });
      await endstop.during(async () => {
        await model.getResponse({ input: [] });
        await send();
        return { newItems: [], finalOutput: 'Hi' };
      });
      return endstop;
    },
  ];
  for (const adapter of adapters) {
    asked.length = 0;
    const { outcome } = await adapter();
    assert.deepEqual([outcome.termination, outcome.modelCalls, asked.length], ['stop', 2, 2], String(adapter));
    // The spending is known a little after the call began.
    assert.ok(asked[1] - asked[0] >= 1000, String(adapter));
  }
});

test('a caller that aborts ends the wait of an adapter', async () => {
  const endstop = new Agents({ maxRate: '100 tokens/m' });
  const post = tap(async (_, { signal }) => (signal?.throwIfAborted(), new Response(chat('Hi'))));
  const send = async ({ signal }) => (await post(URL, { method: 'POST', body: '{}', signal })).json();
  const model = endstop.model({ getResponse: send, async *getStreamedResponse() {} });
  const caller = new AbortController();
  const began = performance.now();
  await assert.rejects(endstop.during(async () => {
    await model.getResponse({ input: [] });
    setTimeout(() => caller.abort(), 100);
    await model.getResponse({ input: [], signal: caller.signal });
  }));
  assert.ok(performance.now() - began < 30_000);
  assert.deepEqual([endstop.outcome.termination, endstop.outcome.turns], ['cancelled', 1]);
});

test('a run inside of another one charges what is known of its cost', async () => {
  const outer = new Agents({ price: 'in=3,out=15' });
  let ended = null;
  const inner = new LangChain({ onEnd: (outcome) => (ended = outcome) });
  const priced = { model_name: 'gpt-4o', finish_reason: 'stop' };
  const answer = (fields) => ({ getType: () => 'ai', text: 'Hi', tool_calls: [], ...fields });
  const usage_metadata = { input_tokens: 100, output_tokens: 50 };
  const { wrapModelCall } = inner.middleware((config) => config);
  const call = (response) => wrapModelCall({ messages: [] }, async () => response);
  await outer.during(async () => {
    await outer.model({ getResponse: async () => (await tap(async () => new Response(chat('Hi')))(URL, { method: 'POST', body: '{}' })).json(), async *getStreamedResponse() {} }).getResponse({ input: [] });
    await inner.during(async () => {
      const first = await call(answer({ response_metadata: priced, usage_metadata }));
      // Without a usage: nothing is known of its cost.
      return { messages: [first, await call(answer({ response_metadata: priced }))] };
    }, { model: 'openai/gpt-4o' });
    return { newItems: [], finalOutput: 'Hi' };
  });
  const known = ended.costUsd;
  assert.ok(known > 0 && ended.costUnknown);
  assert.ok(outer.outcome.costUnknown && Math.abs(outer.outcome.costUsd - 0.00105 - known) < 1e-9, String(outer.outcome.costUsd));
});
