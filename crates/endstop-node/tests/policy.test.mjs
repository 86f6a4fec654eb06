import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  CONFIDENCE, ConfigError, FINAL, kOf, Policy, policy, policyNames, policyWithState, REWARD, Run, Verdict,
} from '@endstop/node';
import { chat, tool } from './bodies.mjs';

test('final pattern finds a declared answer', () => {
  assert.equal(FINAL.shouldStop("FINAL('42')").answer, '42');
  assert.equal(FINAL.shouldStop('No answer yet.').stops, false);
  const verdict = FINAL.shouldStop('SUBMIT(answer="x", n=1)');
  assert.deepEqual(verdict.deliverable, { answer: 'x', n: 1 });
  assert.equal(verdict.endsAs, 'submitted');
  assert.throws(() => { verdict.stops = false; }, TypeError);
});

test('declared answer submits a run', () => {
  const run = new Run({ policy: FINAL });
  run.go();
  const turn = run.turn(chat("I think FINAL('42')", { finish: 'stop' }));
  assert.ok(turn.stopped);
  assert.equal(turn.outcome.termination, 'submitted');
  assert.equal(turn.outcome.answer, '42');
  assert.equal(run.go(), false);
});

test('combinators combine', () => {
  const yes = policy('yes', () => true);
  const no = policy('no', () => undefined);
  assert.equal(yes.or(no).shouldStop('x').stops, true);
  assert.equal(yes.and(no).shouldStop('x').stops, false);
  assert.equal(yes.not().shouldStop('x').stops, false);
  assert.equal(no.not().shouldStop('x').stops, true);
  assert.equal(kOf(2, [yes, no, yes]).shouldStop('x').stops, true);
  assert.equal(kOf(3, [yes, no, yes]).shouldStop('x').stops, false);
  assert.throws(() => kOf(4, [yes]), ConfigError);
  assert.equal(yes.afterSteps(2).shouldStop('x', { step: 1 }).stops, false);
  assert.equal(yes.afterSteps(2).shouldStop('x', { step: 2 }).stops, true);
  const sustained = yes.sustained(2);
  assert.deepEqual([sustained.shouldStop('x').stops, sustained.shouldStop('x').stops], [false, true]);
  assert.equal(FINAL.or('confidence').and(REWARD.or(CONFIDENCE).not()).shouldStop("FINAL('1')").stops, true);
});

test('specification builds a policy', () => {
  const built = new Policy({ any: ['final_pattern', { confidence: { confidence_threshold: 0.9 } }] });
  assert.equal(built.shouldStop("FINAL('1')").answer, '1');
  assert.ok(JSON.stringify(built.specification).includes('confidence_threshold'));
  assert.equal(policy('mine', () => true).specification, null);
  assert.throws(() => new Policy('final_patern'), (e) => e instanceof ConfigError && /final_pattern/.test(e.message));
  assert.throws(() => new Policy({ confidence: { threshold: 1 } }), ConfigError);
  assert.throws(() => new Run({ policy: () => true }), /policy\('name', code\)/);
  assert.ok(policyNames().includes('final_pattern'));
});

test('function sees the step and the context', () => {
  const seen = [];
  const run = new Run({
    task: 'Count.',
    variables: { goal: 3 },
    policy: policy('watch', (step, context) => {
      seen.push([step.actionType, step.output, step.calls[0]?.result, step.outputs.length, context.task, context.step, context.variables.goal]);
      return context.step === 1 ? Verdict.stop(null, { evidence: 'enough', deliverable: { n: 2 } }) : undefined;
    }, 'Watches.'),
  });
  for (let turn = 1; run.go(); turn++) run.result(run.turn(tool(turn, `{"text":"${turn}"}`)).calls[0], `out ${turn}`);
  assert.deepEqual(seen.map((one) => one.slice(2)), [['out 1', 0, 'Count.', 0, 3], ['out 2', 0, 'Count.', 1, 3]]);
  const { outcome } = run;
  assert.deepEqual([outcome.termination, outcome.answer, outcome.evidence], ['submitted', '{"n":2}', 'enough']);
  assert.deepEqual(outcome.deliverable, { n: 2 });
  assert.equal(outcome.decidedBy.name, 'watch');
});

test('verdict may name another ending', () => {
  const run = new Run({ policy: policy('halt', () => Verdict.stop(null, { endsAs: 'error_halted', evidence: 'no more' })) });
  run.go();
  run.result(run.turn(tool()).calls[0], 'x');
  assert.equal(run.go(), false);
  assert.equal(run.outcome.termination, 'error_halted');
  assert.throws(() => Verdict.stop(null, { endsAs: 'stop' }), /error_halted/);
  assert.equal(Verdict.tell('go on').message, 'go on');
});

test('policy that throws ends the run', () => {
  const key = 'sk-abcdef1234567890';
  const broken = policy('broken', () => { throw new RangeError(`no ${key}`); });
  assert.throws(() => broken.shouldStop('x'), RangeError);
  const run = new Run({ policy: broken });
  run.go();
  run.result(run.turn(tool()).calls[0], 'x');
  run.ask();
  const outcome = run.close();
  assert.equal(outcome.termination, 'error_during_execution');
  assert.match(outcome.errorDiagnostic, /RangeError[^]*policy.test.mjs/);
  assert.ok(!JSON.stringify(outcome).includes(key));
});

test('policy cannot return other values', () => {
  for (const value of [7, {}, [], Promise.resolve(true)]) {
    assert.throws(() => policy('odd', () => value).shouldStop('x'), /expected nothing, a boolean/);
  }
});

test('each run has its own state', () => {
  let made = 0;
  const counting = policyWithState('count', () => {
    made += 1;
    let steps = 0;
    return () => ++steps >= 2 && `after ${steps}`;
  });
  for (let n = 0; n < 3; n++) {
    const run = new Run({ policy: counting });
    let turns = 0;
    while (run.go()) run.result(run.turn(tool(++turns, `{"text":"${turns}"}`)).calls[0], `x${turns}`);
    assert.equal(turns, 2);
    assert.equal(run.outcome.answer, 'after 2');
  }
  assert.equal(made, 3);
});
