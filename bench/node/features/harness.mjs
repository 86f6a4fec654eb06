// Runs the scenarios of one framework under its adapter against the scripted server, and prints a line of
// JSON for each: its ending, the calls on the wire and those that were booked, the server's bill and the
// run's cost, and the tool bodies that ran with cut arguments.
//
// A scenario whose run waits is parked, and has the ending `parked`. A scenario with `again` continues it:
// in this process, and in another one that gets the state by its arguments.

import { spawn } from 'node:child_process';
import { PRICE, serve } from './server.mjs';

process.env.OPENAI_API_KEY = 'x';
process.env.OPENAI_AGENTS_DISABLE_TRACING = '1';
process.env.LANGSMITH_TRACING = 'false';
process.env.MASTRA_TELEMETRY_DISABLED = '1';
process.env.DO_NOT_TRACK = '1';
process.on('unhandledRejection', () => {});
console.error = () => {};
console.warn = () => {};
globalThis.AI_SDK_LOG_WARNINGS = false;

/** The arguments of the tool bodies that ran. */
const ran = [];

/** The body of the tools. */
export function echo(text) {
  ran.push(text);
  return `echo: ${text}`;
}

/** A step of a script that calls a tool. */
export const call = (text, name = 'echo', id = undefined) => ({ calls: [[name, JSON.stringify({ text }), id]] });
const CUT = [{ calls: [['echo', '{"text":"hel']], finish: 'length' }];

/** The scripts that the scenarios of all frameworks share. */
export const SCRIPTS = {
  text: [{ text: 'All is done here.' }],
  cached: [{ text: 'All is done here.', cached: true }],
  once: [call('x'), { text: 'Done.' }],
  twice: [{ calls: [['echo', '{"text":"a"}'], ['echo', '{"text":"b"}']] }, { text: 'Done.' }],
  one: [call('1'), { text: 'Done.' }],
  two: [call('2'), { text: 'Done.' }],
  three: [call('3'), { text: 'Done.' }],
  loop: Array.from({ length: 40 }, (_, n) => call(String(n))),
  city: [{ text: '{"name":"Paris"}' }],
  citycut: [{ text: '{"nam', finish: 'length' }],
  cut: [{ text: 'Half of it', finish: 'length' }],
  cutcall: CUT,
  danger: [call('x', 'danger', 'call_d'), { text: 'Done.' }],
  main: [call('x', 'sub'), { text: 'Done.' }],
  sub: [call('x'), { text: 'Sub.' }],
  subloop: Array.from({ length: 40 }, (_, n) => call(String(n))),
  bad: [{ status: 400, text: 'bad' }],
  busy: [{ status: 429, text: 'slow' }, { text: 'Done.' }],
  hang: [{ text: 'a b c d e f', hang: true }],
  judge: [{ text: 'fine' }],
  judgecut: [{ text: 'fi', finish: 'length' }],
};

const argument = process.argv[2] ?? '';
/** The state with which another process continues a scenario; null in the first process. */
const given = argument.startsWith('{') ? JSON.parse(argument) : null;

/**
 * Runs scenarios. Each is `{ name, expect, settings, run }` and, if it continues, `again(endstop, value)`;
 * `make(settings)` makes the adapter's object. `isOpen` marks runs that end in the middle of a response,
 * whose cost is unknown.
 */
export async function main({ framework, Endstop, scenarios, scripts = {} }) {
  const server = given === null ? await serve({ ...SCRIPTS, ...scripts }) : null;
  process.env.OPENAI_BASE_URL = server?.url ?? given.url;
  if (given !== null) {
    const found = scenarios.find((one) => one.name === given.name);
    const endstop = new Endstop({ resume: given.parked });
    await endstop.during(() => found.again(endstop, given.value)).catch(() => {});
    console.log(JSON.stringify({ row: rowOf(endstop) }));
    process.exit(0);
  }
  const only = argument === '' ? null : argument.split(',');
  for (const { name, expect, settings = {}, run, again, isOpen = false } of scenarios) {
    if (only !== null && !only.includes(name)) continue;
    server.take();
    ran.length = 0;
    const seen = [];
    const endstop = new Endstop({ price: PRICE, onEnd: (outcome) => seen.push(outcome), ...settings });
    let left = null;
    let value;
    try {
      value = await soon(run(endstop, server));
    } catch (problem) {
      left = problem;
    }
    const print = (row, more) => {
      const { requests, dollars, aborted } = server.take();
      const cut = ran.filter((text) => text === 'hel').length;
      console.log(JSON.stringify({ framework, scenario: name, expect, ...row, requests, billed: dollars, aborted, cut, isOpen, ended: seen.length, threw: left?.constructor?.name ?? null, ...more }));
    };
    if (again === undefined) {
      print(rowOf(endstop), {});
      continue;
    }
    const { parked } = endstop;
    // Counted with the request before it.
    const before = server.take({ continues: true });
    const more = { parked: parked !== null, before: before.requests };
    const other = await elsewhere({ name, parked, value, url: server.url });
    const taken = server.take();
    print({ ...other, expect }, { ...more, requests: before.requests + taken.requests, billed: before.dollars + taken.dollars, ended: seen.length + 1, scenario: `${name}, in another process` });
    // The same process has taken the state already if it parked it, so it parks once more.
    const first = new Endstop({ price: PRICE, ...settings });
    const second = await run(first, server);
    const resumed = new Endstop({ resume: first.parked, onEnd: (outcome) => seen.push(outcome) });
    await soon(resumed.during(() => again(resumed, second))).catch((problem) => { left = problem; });
    print(rowOf(resumed), { ...more, scenario: `${name}, continued` });
  }
  server.close();
  process.exit(0);
}

/** Waits for a scenario, and fails if it lasts too long. */
function soon(promise) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new RangeError('the scenario lasts too long')), 20_000); });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function rowOf(endstop) {
  const { outcome } = endstop.run;
  if (outcome === null) return { ending: endstop.parked === null ? 'running' : 'parked', booked: null, cost: null };
  return { ending: outcome.termination, booked: outcome.modelCalls, cost: outcome.costUsd, upper: outcome.costUpperUsd, unknown: outcome.costUnknown, evidence: outcome.evidence.slice(0, 100), deliverable: outcome.deliverable };
}

/** Continues a scenario in another process, and returns its row. */
async function elsewhere(state) {
  const child = spawn(process.execPath, [process.argv[1], JSON.stringify(state)], { env: process.env, stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  for await (const chunk of child.stdout) text += chunk;
  const line = text.split('\n').find((one) => one.startsWith('{"row"'));
  return line === undefined ? { ending: 'crashed', booked: null, cost: null } : JSON.parse(line).row;
}

/** Returns the types of the parts of a stream of UI messages, and the data of the ending. */
export async function partsOf(response) {
  const lines = (await response.text()).split('\n\n').filter((line) => line.startsWith('data: {'));
  return lines.map((line) => JSON.parse(line.slice(6)));
}

/** Throws unless the condition holds, so that the scenario has no ending of its own. */
export function must(condition, what) {
  if (!condition) throw new TypeError(`scenario: ${what}`);
}
