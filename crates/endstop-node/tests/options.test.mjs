// Options: a value that an option does not take is an error at once, with the fix.
import assert from 'node:assert/strict';
import { inspect } from 'node:util';
import { test } from 'node:test';
import { ConfigError, detect, FINAL, policy, Price, response, Run, StreamDecoder } from '@endstop/node';
import { Endstop } from '@endstop/node/ai-sdk';
import { chat, tool } from './bodies.mjs';

/** Asserts that each of these throws a ConfigError whose message matches. */
function refused(cases) {
  for (const [make, pattern] of cases) {
    assert.throws(make, (e) => e instanceof ConfigError && pattern.test(e.message), `${make} ${pattern}`);
  }
}

const both = (options) => [() => new Run(options), () => new Run({ limits: options }), () => new Endstop(options)];

test('a number that is none is an error', () => {
  const unset = Number(process.env.ENDSTOP_NOT_SET);
  for (const name of ['maxTurns', 'max_turns', 'maxBudgetUsd', 'maxTokens', 'timeoutMs', 'maxUnproductiveTurns']) {
    for (const value of [unset, Infinity, -Infinity, -1, '3', 3n, {}, [], [3], new Number(3), true, () => 3, Symbol('x')]) {
      refused(both({ [name]: value }).map((make) => [make, new RegExp(`\`${name}\`: expected .*number`)]));
    }
  }
  refused(both({ maxTurns: 2.5 }).map((make) => [make, /whole number/]));
  refused(both({ maxTurns: unset }).map((make) => [make, /found NaN/]));
});

test('null switches a limit off and undefined does not', () => {
  const turns = (options) => {
    const run = new Run({ maxUnproductiveTurns: null, ...options });
    let calls = 0;
    while (calls < 40 && run.go()) run.result(run.turn(tool(++calls, `{"text":"${calls}"}`)).calls[0], `${calls}`);
    return calls;
  };
  assert.equal(turns({ maxTurns: null }), 40);
  assert.equal(turns({ maxTurns: undefined, limits: { maxTurns: undefined } }), 25);
  assert.equal(turns({ limits: undefined }), 25);
  assert.equal(turns({ maxTurns: 3 }), 3);
  assert.equal(turns({ limits: { max_turns: 3 } }), 3);
  const inherited = new Run(Object.create({ maxTurns: 0 }));
  assert.equal(inherited.go(), false);
});

test('a limit is given once', () => {
  refused([
    [() => new Run({ maxTurns: 3, limits: { maxTurns: 3 } }), /`maxTurns`: given twice/],
    [() => new Run({ max_turns: 3, limits: { maxTurns: 4 } }), /given twice/],
    [() => new Run({ timeout: '1s', timeoutMs: 3 }), /given twice/],
    [() => new Run({ limits: { max_turns: 3, maxTurns: 3 } }), /given twice/],
  ]);
  assert.ok(new Run({ maxTurns: 3, limits: { timeout: '1s' } }).running);
});

test('the unit of a time is in its type', () => {
  for (const value of [30_000, 0, NaN, '30000', '', ' 30 ', '1.5']) {
    refused(both({ timeout: value }).map((make) => [make, /`timeout`: expected text with a unit such as '30s'.*`timeoutMs`/]));
  }
  refused([
    [() => new Run({ timeoutMs: '30s' }), /milliseconds/],
    [() => new Run({ timeout: '30 parsecs' }), /90s/],
    [() => new Run({ timeout: '-3s' }), /90s/],
    [() => new Run({ maxTurnsMs: 3 }), /unknown/],
  ]);
  const clock = () => 0;
  for (const options of [{ timeout: '30s' }, { timeout: ' 0.5m ' }, { timeoutMs: 30_000 }, { timeout_ms: 30_000 }]) {
    assert.equal(new Run({ ...options, clock }).wakeInMs, 30_000);
  }
  for (const timeout of [null, undefined, 'off']) assert.equal(new Run({ timeout, clock }).wakeInMs, null);
});

test('an unknown option names the nearest', () => {
  refused([
    [() => new Run({ limit: { maxTurns: 3 } }), /option `limit` of Run: .*did you mean.*limits/],
    [() => new Run({ maxTurn: 3 }), /`maxTurn`.*did you mean.*maxTurns/],
    [() => new Run({ limits: { maxTurn: 3 } }), /max_turns/],
    [() => new Run({ __proto__: { polcy: 'final_pattern' } }), /did you mean.*policy/],
    [() => new Run({ constructor: 3 }), /unknown/],
    [() => new Endstop({ limit: {} }), /did you mean.*limits/],
    [() => new Endstop({ maxTurn: 3 }), /maxTurns/],
    [() => new Run().go({ retri: true }), /did you mean.*retry/],
    [() => new Run().spent({ tokens: 3 }), /unknown/],
    [() => new Run().result('x', 'y', { state: 'ok' }), /did you mean.*status/],
    [() => new Run().observe({ metric: {} }), /did you mean.*metrics/],
    [() => new Run().setLimits({ maxTurn: 3 }), /max_turns/],
    [() => new Run().setLimits({ maxTurns: NaN }), /found NaN/],
    [() => detect('{}', { apis: 'x' }), /did you mean.*api/],
    [() => new StreamDecoder({ header: {} }), /did you mean.*headers/],
    [() => response({ finish: 'stop', txt: 'x' }), /did you mean.*text/],
    [() => new Price({ input: 1, output: 2, cached: 3 }), /unknown/],
  ]);
  // The names that no run of the package can have are not among the choices.
  assert.throws(() => new Run({ limits: { maxTurn: 3 } }), (e) => !/verify_rounds/.test(e.message));
  refused([[() => new Run({ verifyRounds: 3 }), /verifyRounds/], [() => new Run({ limits: { verifyRounds: 3 } }), /has no effect/]]);
});

test('options of the adapters are checked, too', async () => {
  refused([
    [() => new Endstop({ allow: ['maxTurns'] }), /give its text as `resume`/],
    [() => new Endstop({ resume: 3 }), /invalid parked run 3/],
    [() => new Endstop({ onEnd: 3 }), /`onEnd` 3: expected a function/],
    [() => new Endstop().hooks(() => true), /\{ stopWhen: condition \}/],
    [() => new Endstop().hooks({ stopwhen: () => true }), /did you mean.*stopWhen/],
    [() => new Endstop().hooks({ stopWhen: 3 }), /`stopWhen` 3/],
    [() => new Endstop().hooks({ stopWhen: [() => true, 3] }), /`stopWhen` 3/],
    [() => new Endstop().hooks({ onFinish: 'x' }), /`onFinish` "x"/],
  ]);
  const endstop = new Endstop();
  for (const settings of [{ maxTurn: 3 }, { timeout: 3 }, { maxTurns: NaN }]) await assert.rejects(endstop.during(() => 'x', settings), ConfigError);
});

test('options of another type are errors', () => {
  for (const options of [null, 3, 'x', [], new Map([['maxTurns', 3]]), new Set()]) {
    refused([[() => new Run(options), /expected an object/]]);
    if (options !== null) refused([[() => new Run({ limits: options }), /`limits`/]]);
  }
  refused([
    [() => new Run({ task: 3 }), /`task` 3: expected text/],
    [() => new Run({ model: {} }), /`model`/],
    [() => new Run({ price: 3 }), /`price` 3/],
    [() => new Run({ price: { input: 3, output: 15 } }), /`price`/],
    [() => new Price({ input: NaN, output: 3 }), /`input` NaN/],
    [() => new Price({ input: 3 }), /`output` undefined/],
    [() => new Price({ input: 3, output: -1 }), /`output` -1/],
    [() => new Price({ input: 3, output: 1 }).cost(NaN, 1), /`inputTokens` NaN/],
    [() => new Run({ inject: 'yes' }), /`inject`/],
    [() => new Run({ variables: new Map() }), /`variables`/],
    [() => new Run({ variables: { a: NaN } }), /`variables.a` NaN/],
    [() => new Run({ variables: { a: () => 3 } }), /`variables.a` a function/],
    [() => new Run({ signal: {} }), /`signal`.*AbortSignal/],
    [() => new Run({ clock: 5 }), /`clock`/],
    [() => new Run({ clock: () => NaN }), /`clock`/],
    [() => new Run({ clock: () => 'x' }), /`clock`/],
    [() => new Run().go({ promptBytes: NaN }), /`promptBytes` NaN/],
    [() => new Run().go({ retry: 1 }), /`retry` 1/],
    [() => new Run().spent({ costUsd: NaN }), /`costUsd` NaN/],
    [() => new Run().spent({ inputTokens: -1 }), /`inputTokens` -1/],
    [() => new Run().observe({ metrics: { last_reward: Infinity } }), /`metrics.last_reward` Infinity/],
    [() => response({ finish: 'stop', inputTokens: Infinity }), /`inputTokens` Infinity/],
    [() => detect('{}', { status: '200' }), /`status` "200"/],
  ]);
});

test('a promise is no response and no result', () => {
  const run = new Run();
  run.go();
  const late = Promise.resolve(chat('x'));
  refused([
    [() => run.turn(late), /promise: await it/],
    [() => detect([late]), /promise/],
    [() => detect((async function* () {})()), /StreamDecoder/],
    [() => detect(() => 'x'), /a function/],
  ]);
  const [call] = run.turn(tool()).calls;
  refused([
    [() => run.result(call, late), /a promise; await it/],
    [() => run.result(call, { then: () => {} }), /a promise/],
    [() => run.result(call, { found: late }), /`found` is a promise/],
    [() => run.result(call, [late]), /a promise/],
    [() => run.result(call, new Response('x')), /read it first/],
    [() => run.result(call, () => 3), /a function/],
    [() => run.result(undefined, 'x'), /invalid call undefined/],
    [() => { const loop = {}; loop.loop = loop; run.result(call, loop); }, /cannot be written as JSON/],
  ]);
  assert.ok(run.result(call, { map: new Map([['a', 1]]), set: new Set([2]), big: 3n, not: NaN }));
  assert.match(JSON.stringify(run.close().messages), /\{\\"map\\":\{\\"a\\":1\},\\"set\\":\[2\],\\"big\\":\\"3\\",\\"not\\":null\}/);
});

test('a policy cannot wait, which is said at once', () => {
  refused([
    [() => policy('late', async () => true), /`late` is a promise, and a policy cannot wait/],
    [() => policy('none', true), /must be a function/],
    [() => new Run({ policy: 3 }), /policy/],
    [() => new Run({ policy: null, limits: { maxTurns: 'x' } }), /maxTurns/],
  ]);
});

test('runs and policies print what they are, and stay in their thread', () => {
  const run = new Run();
  assert.match(inspect(run), /^Run \{\s+running: true,\s+ending: null,\s+turns: 0/);
  assert.match(inspect({ run }, { depth: 0 }), /Run \[?/);
  assert.match(inspect(FINAL), /^Policy \{ final_pattern: ./);
  assert.deepEqual(JSON.parse(JSON.stringify(run)), { running: true, ending: null, turns: 0, costUsd: 0, outcome: null });
  for (const one of [run, FINAL]) assert.throws(() => structuredClone(one), { name: 'DataCloneError' });
  const outcome = run.close();
  assert.equal(structuredClone({ ...outcome }).termination, outcome.termination);
});
