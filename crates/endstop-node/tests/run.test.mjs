import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { inspect } from 'node:util';
import { Worker } from 'node:worker_threads';
import {
  BusyError, ConfigError, detect, limitNames, Outcome, Run, StreamDecoder, Termination, Unsuccessful, defaultLimits,
} from '@endstop/node';
import { chat, CUT_STREAM, tool } from './bodies.mjs';

/** A clock that a test moves. */
function clock() {
  const moved = () => moved.now;
  moved.now = 100_000;
  return moved;
}

test('answer ends a plain loop', () => {
  const run = new Run();
  let calls = 0;
  while (run.go()) {
    calls += 1;
    for (const call of run.turn(calls === 1 ? tool() : chat('Done.')).calls) assert.ok(run.result(call, { ok: true }));
  }
  const { outcome } = run;
  assert.equal(outcome.termination, Termination.STOP);
  assert.deepEqual([outcome.turns, outcome.toolCalls, outcome.modelCalls, outcome.answer], [2, 1, 2, 'Done.']);
  assert.equal(outcome.exitStatus, 0);
  assert.equal(outcome.check(), outcome);
});

test('every ending is typed', () => {
  const cases = [
    [[chat('Half', { finish: 'length' })], 'error_output_truncated'],
    [[tool(1, '{"text":"hel', 'length')], 'error_output_truncated'],
    [[chat('Half', { finish: 'content_filter' })], 'error_content_filtered'],
    [[chat('Half', { finish: 'weird_reason' })], 'error_during_execution'],
    [[chat('')], 'error_no_progress'],
    [[CUT_STREAM], 'error_output_truncated'],
    [Array.from({ length: 9 }, (_, n) => tool(n)), 'error_no_progress'],
    [Array.from({ length: 9 }, (_, n) => tool(n, '{"text":"hel')), 'error_consecutive_mistakes'],
  ];
  for (const [bodies, ending] of cases) {
    const run = new Run();
    for (const body of bodies) {
      if (!run.go()) break;
      const turn = run.turn(body);
      if (ending !== 'error_no_progress') assert.equal(turn.calls.length, 0);
      for (const call of turn.calls) run.result(call, 'x');
    }
    const outcome = run.close();
    assert.equal(outcome.termination, ending);
    assert.equal(outcome.isSuccess, false);
    assert.throws(() => outcome.check(), Unsuccessful);
    assert.ok(outcome.evidence.length > 0 && String(outcome).startsWith(ending));
  }
});

test('limits end a run before the next call', () => {
  const run = new Run({ limits: { maxTurns: 2 } });
  assert.ok(run.go());
  run.result(run.turn(tool(1)).calls[0], 'a');
  assert.ok(run.go());
  run.result(run.turn(tool(2, '{"text":"y"}')).calls[0], 'b');
  assert.equal(run.go(), false);
  assert.equal(run.outcome.termination, 'error_max_turns');
  assert.equal(run.outcome.category, 'capacity');
  assert.equal(run.turn(chat('late')).stopped, true);
  assert.equal(run.close(), run.outcome);
});

test('budget is a ceiling', () => {
  const run = new Run({ limits: { max_budget_usd: 0.001 }, price: 'in=3,out=15' });
  let calls = 0;
  while (run.go()) run.result(run.turn(tool(++calls, `{"text":"${calls}"}`)).calls[0], `x${calls}`);
  assert.equal(run.outcome.termination, 'error_max_budget_usd');
  assert.ok(run.outcome.costUsd > 0 && calls < 4, String(calls));
});

test('cost of an unknown model is null', () => {
  const run = new Run();
  assert.equal(run.costUsd, 0);
  assert.ok(run.go());
  run.turn(chat('Hi', { model: 'unheard-of' }));
  assert.equal(run.costUsd, null);
  const outcome = run.close();
  assert.deepEqual([outcome.costUsd, outcome.costUnknown, outcome.toJSON().cost_usd], [null, true, null]);
});

test('unknown limit names the nearest', () => {
  assert.throws(() => new Run({ limits: { maxTurn: 3 } }), (e) => e instanceof ConfigError && /max_turns/.test(e.message));
  assert.throws(() => new Run({ limits: { maxTurns: 'many' } }), ConfigError);
  // A limit that only a loop of Endstop's own can enforce.
  assert.throws(
    () => new Run({ limits: { turnTimeout: '5m' } }),
    (e) => e instanceof ConfigError && /`turnTimeout`: has no effect/.test(e.message),
  );
  assert.throws(() => new Run({ price: 'cheap' }), ConfigError);
  assert.ok(limitNames().includes('max_turns') && defaultLimits().max_turns === 25);
});

test('close is always typed', () => {
  const started = new Run();
  assert.equal(started.close().termination, 'error_during_execution');
  const open = new Run();
  open.go();
  open.turn(tool());
  assert.equal(open.close().termination, 'error_during_execution');
  const answered = new Run();
  answered.go();
  answered.turn(chat('Done.'));
  assert.equal(answered.ending, 'stop');
  assert.equal(answered.close(false, 'TypeError: x').termination, 'error_during_execution');
});

test('failures are classified and retried', () => {
  const limited = Object.assign(new Error('slow down'), { status: 429, headers: new Headers({ 'retry-after': '1' }) });
  const reset = Object.assign(new TypeError('fetch failed'), { cause: Object.assign(new Error('read'), { code: 'ECONNRESET' }) });
  for (const [problem, kind] of [[limited, 'rate_limit'], [reset, 'incomplete_stream'], [new Error('odd'), 'unknown_error']]) {
    const run = new Run();
    run.go();
    assert.ok(run.failed(problem));
    assert.ok(run.go({ retry: true }));
    run.turn(chat('Done.'));
    assert.equal(run.close().termination, 'stop');
    const failed = new Run();
    failed.go();
    failed.failed(problem);
    const outcome = failed.close();
    assert.equal(outcome.termination, 'error_during_execution');
    assert.match(JSON.stringify(outcome), new RegExp(kind));
  }
  const refused = new Run();
  refused.go();
  refused.failed(Object.assign(new Error('no'), { statusCode: 401, responseBody: '{"error":{"message":"bad key"}}' }));
  assert.equal(refused.close().termination, 'error_provider_auth');
  assert.throws(() => new Run().failed('x', 'odd'), ConfigError);
});

test('during closes the run and keeps the exception', async () => {
  const good = new Run();
  const outcome = await good.during((run) => {
    run.go();
    run.turn(chat('Done.'));
  });
  assert.equal(outcome.termination, 'stop');
  const bad = new Run();
  await assert.rejects(bad.during(async (run) => { run.go(); throw new TypeError('mine'); }), /mine/);
  assert.equal(bad.outcome.termination, 'error_during_execution');
  assert.match(bad.outcome.evidence, /TypeError: mine/);
  const stopped = new Run();
  await assert.rejects(stopped.during(() => { throw new DOMException('no', 'AbortError'); }));
  assert.equal(stopped.outcome.termination, 'cancelled');
});

test('timeout aborts what listens to the signal', { timeout: 60_000 }, async () => {
  const run = new Run({ limits: { timeout: '50ms' } });
  const outcome = await run.during(async () => {
    run.go();
    await new Promise((_, reject) => run.signal.addEventListener('abort', () => reject(run.signal.reason)));
  });
  assert.equal(outcome.termination, 'error_timeout');
});

test('abort signal of the caller cancels the run', () => {
  const controller = new AbortController();
  const run = new Run({ signal: controller.signal });
  assert.ok(run.go());
  controller.abort();
  assert.equal(run.outcome.termination, 'cancelled');
  assert.equal(run.outcome.exitStatus, 130);
  assert.ok(run.signal.aborted);
  assert.equal(new Run({ signal: controller.signal }).outcome.termination, 'cancelled');
  assert.equal(new Run().terminate().exitStatus, 143);
});

test('own clock decides about the deadline', () => {
  const moved = clock();
  const run = new Run({ limits: { timeout: '10s' }, clock: moved });
  assert.equal(run.wakeInMs, 10_000);
  moved.now += 9_999;
  assert.ok(run.tick());
  moved.now += 2;
  assert.equal(run.tick(), false);
  assert.equal(run.outcome.termination, 'error_timeout');
});

test('using ends the run', () => {
  const run = new Run();
  run[Symbol.dispose]();
  assert.equal(run.outcome.termination, 'error_during_execution');
});

test('policy that calls its own run is refused', async () => {
  const { policy } = await import('@endstop/node');
  let caught = null;
  const run = new Run({
    policy: policy('again', () => {
      try { run.go(); } catch (problem) { caught = problem; }
      run.cancel();
    }),
  });
  run.go();
  run.turn(chat('Done.'));
  assert.ok(caught instanceof BusyError);
  run.close();
  assert.equal(run.outcome.termination, 'cancelled');
});

test('outcome survives its json', () => {
  const run = new Run({ task: 'Say hi.' });
  run.go();
  run.turn(chat('FINAL("42")'));
  const outcome = run.close();
  assert.equal(outcome.messages.length, 2);
  const read = Outcome.from(JSON.stringify(outcome));
  // The JSON has microseconds.
  assert.deepEqual({ ...read, durationMs: 0 }, { ...outcome, durationMs: 0 });
  assert.deepEqual(Outcome.from(outcome.toJSON()).toJSON(), outcome.toJSON());
  assert.throws(() => { outcome.termination = 'stop'; }, TypeError);
  assert.throws(() => { outcome.usage.inputTokens = 1; }, TypeError);
  assert.throws(() => Outcome.from('{}'), /invalid `outcome`/);
});

test('detection and decoder can be fed', () => {
  const run = new Run();
  run.go({ streaming: true });
  const decoder = new StreamDecoder();
  for (const delta of decoder.push(CUT_STREAM)) run.delta(delta.text, delta.kind);
  assert.equal(run.turn(decoder).ending, 'error_output_truncated');
  assert.ok(run.go({ input: 'Continue.' }));
  run.turn(detect(chat('Done.')));
  assert.equal(run.close().termination, 'stop');
  assert.throws(() => new Run().delta('x', 'odd'), ConfigError);
});

test('results and observations reach the run', () => {
  const run = new Run({ policy: 'reward_threshold', variables: { a: 1 } });
  run.go();
  const [call] = run.turn(tool()).calls;
  assert.throws(() => run.result(call, 'x', { status: 'fine' }), ConfigError);
  assert.throws(() => run.result('unknown', 'x'), (e) => e instanceof ConfigError && /no response here has asked for it/.test(e.message));
  run.result(call.id, new TypeError('no'));
  run.spent({ inputTokens: 10, outputTokens: 5, costUsd: 0.5, turns: 2 });
  assert.ok(run.observe({ metrics: { last_reward: 0.1 } }));
  assert.ok(run.costUsd >= 0.5 && run.usage.totalTokens >= 165);
  const halted = new Run();
  halted.go();
  halted.result(halted.turn(tool()).calls[0], 'x', { halt: 'enough' });
  halted.ask();
  assert.equal(halted.close().termination, 'error_halted');
  assert.equal(new Run().fault('hook', 'broke').termination, 'error_during_execution');
});

test('what a run has spent is added once', () => {
  const [outer, inner] = [new Run({ price: 'in=1000,out=0', maxTurns: 2 }), new Run({ price: 'in=1000,out=0' })];
  for (const spent of [0.1, 0.2]) {
    inner.result(inner.turn(tool(spent * 10, `{"text":"${spent}"}`)).calls[0], 'x');
    assert.ok(outer.spent(inner) && outer.spent(inner));
    assert.ok(Math.abs(outer.costUsd - spent) < 1e-9, String(outer.costUsd));
  }
  assert.ok(outer.turns === 0 && outer.maySpend() && outer.may());
  assert.throws(() => outer.spent(outer), (e) => e instanceof ConfigError && /pass another run/.test(e.message));
  const resumed = Run.resume(inner.park());
  outer.spent(resumed);
  resumed.turn(chat('42'));
  outer.spent(resumed);
  const outcome = outer.close();
  assert.ok(Math.abs(outcome.costUsd - 0.3) < 1e-9 && outcome.modelCalls === 3);
});

test('worker threads have runs of their own', async () => {
  const body = `
    const { Run, policy, detect } = require('@endstop/node');
    const { parentPort, workerData } = require('node:worker_threads');
    const stop = policy('third', (step, context) => context.step >= 2 && 'enough');
    let last;
    for (let n = 0; n < 50; n++) {
      const run = new Run({ policy: stop, task: 'x' });
      for (let turn = 0; run.go(); turn++) {
        const fed = run.turn(workerData.replace('"x', '"' + n + '-' + turn + '-'));
        for (const call of fed.calls) run.result(call, String(turn));
      }
      last = run.outcome;
    }
    parentPort.postMessage({ termination: last.termination, answer: last.answer, turns: last.turns });`;
  const workers = Array.from({ length: 4 }, () => new Promise((resolve, reject) => {
    const worker = new Worker(body, { eval: true, workerData: tool(1, '{"text":"x"}') });
    let message = null;
    worker.on('message', (sent) => { message = sent; });
    worker.on('error', reject);
    worker.on('exit', (code) => (code === 0 ? resolve(message) : reject(new Error(`exit ${code}`))));
  }));
  for (const message of await Promise.all(workers)) {
    assert.deepEqual(message, { termination: 'submitted', answer: 'enough', turns: 3 });
  }
});

test('memory stays flat over many turns', { timeout: 300_000 }, async () => {
  const short = async (runs) => {
    for (let n = 0; n < runs; n++) {
      const run = new Run();
      run.go();
      run.result(run.turn(detect(tool(1, '{"text":"x"}'))).calls[0], 'x');
      run.go();
      run.turn(chat('Done.'));
      run.close();
      // A loop that never waits keeps the collector from freeing the bindings.
      if (n % 100 === 0) await new Promise(setImmediate);
    }
  };
  const settled = async () => {
    for (let n = 0; n < 4; n++) {
      globalThis.gc();
      await new Promise(setImmediate);
    }
    return process.memoryUsage().rss / 1e6;
  };
  // Each run has two turns. A release build has time for all of them.
  const runs = Number(process.env.MEMORY_RUNS ?? '2000');
  await short(runs / 5);
  const before = await settled();
  await short(runs);
  const after = await settled();
  assert.ok(after - before < 20, `${before.toFixed(1)} MB, then ${after.toFixed(1)} MB`);
});

test('calls that are open at the same time are all booked once', async () => {
  const run = new Run({ price: 'in=3,out=15' });
  const branches = ['a', 'b', 'c'].map((of) => run.call(of));
  for (const call of branches) assert.ok(call.ask());
  branches.reverse().forEach((call, n) => assert.equal(call.turn(chat(`Branch ${n}.`)).ending, 'stop'));
  // A second call of one conversation while the first one is open gets a conversation of its own.
  const [one, two] = [run.call('a'), run.call('a')];
  assert.ok(one.ask() && two.ask());
  one.turn(chat('One.'));
  two.turn(chat('Two.'));
  const outcome = run.close();
  assert.deepEqual([outcome.termination, outcome.modelCalls, outcome.usage.totalTokens], ['stop', 5, 750]);
  assert.ok(Math.abs(outcome.costUsd - 5 * 0.00105) < 1e-9);
});

test('limits hold over all calls', () => {
  const run = new Run({ maxTurns: 3 });
  const branches = Array.from({ length: 9 }, (_, n) => run.call(`branch ${n}`));
  assert.equal(branches.filter((call) => call.ask()).length, 3);
  assert.equal(run.outcome.termination, 'error_max_turns');
});

test('a loop that swallows its failures has an end', () => {
  const refused = Object.assign(new Error('invalid key'), { status: 401 });
  const fails = [
    [() => {}, 6],
    [(run) => run.failed(new Error('outage')), 20],
    [(run) => run.failed(refused), 2],
    [(run) => run.call('x').ask(), 3],
  ];
  for (const [fail, most] of fails) {
    const run = new Run({ maxTurns: 3 });
    let calls = 0;
    while (run.go({ retry: true }) && calls < 1000) {
      calls += 1;
      fail(run);
    }
    assert.equal(calls, most);
    assert.equal(run.outcome.isSuccess, false);
  }
  const closed = new Run();
  let calls = 0;
  for (; calls < 1000; calls++) {
    const call = closed.call('x');
    if (!call.ask()) break;
    call[Symbol.dispose]();
  }
  assert.equal(calls, 6);
});

test('only a framework declares an ending, and no cut response becomes a success', () => {
  const open = (body = tool()) => {
    const run = new Run();
    run.go();
    run.turn(body);
    return run;
  };
  for (const deliverable of ['42', { n: 42 }, [1], 0, false]) {
    const outcome = open().close(true, '', { ended: 'submitted', deliverable });
    assert.equal(outcome.termination, 'submitted');
    assert.deepEqual(outcome.deliverable, deliverable);
    for (const body of [chat('Half', { finish: 'length' }), chat('Half', { finish: 'content_filter' }), CUT_STREAM, tool(1, '{"te', 'length')]) {
      const cut = open(body).close(true, '', { ended: 'submitted', deliverable });
      assert.ok(!cut.isSuccess && cut.deliverable === null, cut.termination);
    }
  }
  for (const blank of [null, '', ' ']) assert.equal(open().close(true, '', { ended: 'submitted', deliverable: blank }).isSuccess, false);
  for (const ended of ['error_max_turns', 'error_max_budget_usd', 'error_max_tokens']) {
    assert.equal(open().close(true, 'its own limit', { ended }).termination, ended);
  }
  const halted = open().close(true, 'Guardrail: no', { ended: 'error_halted' });
  assert.deepEqual([halted.termination, halted.decidedBy.name], ['error_halted', 'Guardrail']);
  for (const declared of [{ ended: 'stop' }, { ended: 'error_timeout' }, { ended: 'submitted' }, { ended: 'error_halted' }]) {
    assert.throws(() => open().close(true, '', declared), ConfigError, JSON.stringify(declared));
  }
  assert.throws(() => open().close(true, '', { ended: 'submitted', deliverable: Promise.resolve(1) }), /a promise/);
});

test('spending of another agent is no turn', () => {
  const run = new Run({ price: 'in=3,out=15', maxTurns: 1 });
  run.spent(detect(chat('x', { model: 'm' })));
  run.spent(detect(chat('x', { model: 'm' })));
  run.spent({ inputTokens: 1, outputTokens: 1, costUsd: 0.5, modelCalls: 2 });
  assert.ok(run.go());
  run.turn(chat('Done.'));
  const { termination, turns, modelCalls, costUsd, usage } = run.close();
  assert.deepEqual([termination, turns, modelCalls, usage.totalTokens], ['stop', 1, 5, 452]);
  assert.ok(Math.abs(costUsd - 0.5 - 3 * 0.00105) < 1e-9);
});

test('a parked run resumes once, on no looser limits', async () => {
  const moved = clock();
  const parked = (options = {}) => {
    const run = new Run({ maxTurns: 3, timeout: '10s', clock: moved, onEnd: () => assert.fail('it has no ending'), ...options });
    run.go();
    run.turn(tool(1));
    moved.now += 4_000;
    return run;
  };
  const run = parked();
  const text = run.park();
  assert.deepEqual([run.parked, run.running, run.outcome], [true, false, null]);
  for (const use of [() => run.go(), () => run.turn(chat('x')), () => run.close(), () => run.cancel(), () => run.park(), () => run.turns, () => run.finished(), () => run.result('c1', 'x')]) {
    assert.throws(use, (e) => e instanceof ConfigError && /the run is parked/.test(e.message), String(use));
  }
  assert.match(inspect(run), /parked: true/);
  run[Symbol.dispose]();
  moved.now += 1e9;
  const ended = [];
  const again = Run.resume(text, { clock: moved, onEnd: (outcome) => ended.push(outcome) });
  assert.equal(again.wakeInMs, 6_000);
  again.result('c1', 'x');
  assert.ok(again.go());
  again.turn(chat('Done.'));
  assert.equal(again.go(), false);
  assert.deepEqual([again.outcome.termination, again.outcome.turns, again.outcome.toolCalls, ended.length], ['stop', 2, 1, 1]);
  assert.throws(() => Run.resume(text), ConfigError);
  assert.throws(() => Run.resume(parked().park().replace('"max_turns":3', '"max_turns":9')), ConfigError);
  for (const broken of ['', '{}', 'null', 3, null, undefined, Promise.resolve('')]) assert.throws(() => Run.resume(broken), ConfigError);
  assert.throws(() => Run.resume(parked().park(), { maxTurns: 9 }), (e) => e instanceof ConfigError && /max_turns/.test(e.message));
  assert.throws(() => Run.resume(parked().park(), { maxTurn: 9 }), /maxTurns/);
  assert.throws(() => Run.resume(parked().park(), { allow: ['maxTurn'] }), /max_turns/);
  assert.throws(() => Run.resume(parked().park(), { task: 'x' }), /unknown/);
  for (const allow of [['timeout'], ['timeoutMs'], ['timeout_ms']]) assert.ok(Run.resume(parked().park(), { timeoutMs: 90_000, allow }).running);
  for (const allow of [['maxTurns'], ['max_turns']]) assert.ok(Run.resume(parked().park(), { maxTurns: 9, allow }).running);
  assert.ok(Run.resume(parked().park(), { limits: { maxTurns: 2 } }).running);
  const stopped = new AbortController();
  const cancelled = Run.resume(parked().park(), { signal: stopped.signal });
  stopped.abort();
  assert.equal(cancelled.outcome.termination, 'cancelled');
  assert.equal(await new Run().during((own) => { own.go(); own.turn(tool()); own.park(); }), null);
  // In another process.
  const script = `const { Run } = require('@endstop/node'); const run = Run.resume(process.argv[1]); run.result('c1', 'x'); run.go(); run.turn(${JSON.stringify(chat('Done.'))}); console.log(JSON.stringify([run.close().termination, run.turns]));`;
  const { stdout } = spawnSync(process.execPath, ['-e', script, parked().park()], { encoding: 'utf8' });
  assert.equal(stdout.trim(), '["stop",2]');
});

test('a failed resume does not use the text', () => {
  const run = new Run();
  run.go();
  run.turn(tool(1));
  const text = run.park();
  assert.throws(() => Run.resume(text, { clock: () => { throw new RangeError('no clock'); } }), RangeError);
  const again = Run.resume(text);
  assert.equal(again.turns, 1);
  assert.throws(() => Run.resume(text), /resumed before/);
  assert.throws(() => again.result('of another run', 'x'), /no response here has asked for it/);
  assert.ok(again.result('c1', 'x'));
  assert.ok(again.result('c1', 'x'), 'a second result is ignored');
});

test('a result belongs to the conversation it is given to', () => {
  const run = new Run();
  const [first, second] = [run.call('first'), run.call('second')];
  for (const call of [first, second]) {
    assert.ok(call.ask());
    assert.equal(call.turn(tool(1)).calls.length, 1);
  }
  assert.ok(second.result('c1', 'x'));
  assert.ok(run.result('c1', 'x'), 'the first one still waits');
  assert.throws(() => first.result('c2', 'x'), /no response here has asked for it/);
});

test('spending that reaches a ceiling ends the run', () => {
  for (const [limits, spent, ending] of [
    [{ maxBudgetUsd: 1 }, { costUsd: 1.5 }, 'error_max_budget_usd'],
    [{ maxTurns: 3 }, { costUsd: 0, turns: 2 }, 'error_max_turns'],
  ]) {
    const run = new Run(limits);
    run.go();
    run.turn(tool(1));
    assert.equal(run.spent(spent), false);
    assert.equal(run.outcome.termination, ending);
  }
  const answered = new Run({ maxBudgetUsd: 1 });
  answered.go();
  answered.turn(chat('42'));
  assert.ok(answered.spent({ costUsd: 2 }));
  assert.equal(answered.close().termination, 'stop');
});

test('changed limits leave the others', () => {
  const run = new Run({ maxTurns: 1 });
  assert.ok(run.setLimits({ maxTokens: 1_000_000 }));
  run.go();
  run.turn(tool(1));
  run.result('c1', 'x');
  assert.equal(run.go(), false);
  assert.equal(run.outcome.termination, 'error_max_turns');
});

test('cost without a known prompt has no bound', () => {
  const lost = (ask) => {
    const run = new Run({ price: 'in=1,out=1' });
    run.ask({ outputCap: 100, ...ask });
    run.failed('lost', 'incomplete_stream');
    return run.close(false).costUpperUsd;
  };
  assert.equal(lost({}), null);
  assert.ok(Math.abs(lost({ promptBytes: 400 }) - 500e-6) < 1e-9);
});

test('evidence is redacted', () => {
  const secret = `sk-ant-api03-${'a1B2'.repeat(23)}`;
  const run = new Run();
  run.go();
  run.turn(chat('half', { finish: secret }));
  const outcome = run.close();
  assert.match(outcome.evidence, /\[redacted\]/);
  assert.ok(!JSON.stringify(outcome.decidedBy).includes(secret));
});

test('the end is told once, and a listener that throws breaks nothing', async () => {
  const ended = [];
  const run = new Run({ onEnd: (outcome) => { ended.push(outcome); throw new Error('of the listener'); } });
  const warned = new Promise((resolve) => process.once('warning', resolve));
  run.go();
  run.turn(chat('Done.'));
  const outcome = run.close();
  run.close();
  run.cancel();
  assert.deepEqual(ended, [outcome]);
  assert.match((await warned).message, /of the listener/);
  // A signal that outlives its runs keeps none of them.
  const { signal } = new AbortController();
  let count = 0;
  const add = signal.addEventListener.bind(signal);
  signal.addEventListener = (type, listener, options) => { count += 1; options.signal.addEventListener('abort', () => { count -= 1; }); add(type, listener, options); };
  for (let n = 0; n < 5; n++) new Run({ signal }).close();
  assert.equal(count, 0);
});
