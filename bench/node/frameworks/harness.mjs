// Runs one framework over the scenarios of bench/python/server.py, without and with its adapter, and
// prints a line of JSON for each: how the run ended, the tool bodies that ran with cut arguments, the
// calls made.

const ROOT = `http://127.0.0.1:${process.env.MOCK_PORT ?? '8099'}`;
/** The base URL of the server. */
export const BASE = `${ROOT}/v1`;
process.env.OPENAI_API_KEY = 'x';
process.env.OPENAI_AGENTS_DISABLE_TRACING = '1';
process.env.LANGSMITH_TRACING = 'false';
process.env.MASTRA_TELEMETRY_DISABLED = '1';
process.env.DO_NOT_TRACK = '1';

const SCENARIOS = [
  'stop', 'length', 'lengthtool', 'cuttool', 'filter', 'refusal', 'cut', 'reset', 'unknown', 'empty', 'loop', 'turns', 'budget', 'concurrent',
];
/** Scenarios of the same call for ever, under other limits. */
const LIMITS = { turns: { maxTurns: 2 }, budget: { maxBudgetUsd: 0.002, price: 'in=3,out=15' } };
const AT_ONCE = ['stop', 'length', 'loop', 'filter'];
/** Milliseconds after which a run is reported as still running. */
const LIMIT = Number(process.env.LIMIT ?? '10') * 1e3;

/** The arguments of the tool bodies that ran. */
const ran = [];

/** The body of the tool. */
export function echo(text) {
  ran.push(text);
  return `echo: ${text}`;
}

/** Returns the fields of a row for an outcome of Endstop. */
export function ended(outcome) {
  return { ending: outcome.termination, evidence: outcome.evidence.slice(0, 80), tokens: outcome.usage.totalTokens };
}

/** Returns the fields of a row for the run that an adapter guards, whatever leaves it. */
export async function guarded(endstop, body) {
  try {
    await endstop.during(body);
  } catch (problem) {
    // An exception that is not typed is a fault of the adapter.
    if (endstop.run.outcome === null) throw problem;
  }
  return ended(endstop.outcome);
}

const get = async (path) => (await fetch(ROOT + path)).json();

async function concurrently(run, stream, guard) {
  if (!guard) return { ending: 'not run' };
  const rows = await Promise.all(AT_ONCE.map((name) => run(`m-${name}`, stream, true, new AbortController().signal)));
  return { ending: rows.map((row) => row.ending).join(' + ') };
}

/**
 * `run(model, stream, guard, signal, limits)` runs the framework once and returns the fields of a row.
 * The signal aborts a run that lasts too long; the limits are for the adapter.
 */
export async function main(framework, run, absent = []) {
  const only = process.argv.slice(2);
  for (const guard of [false, true]) {
    for (const mode of ['plain', 'stream']) {
      for (const scenario of SCENARIOS) {
        if ((only.length > 0 && !only.includes(scenario)) || absent.includes(mode) || absent.includes(scenario)) continue;
        await get('/reset');
        ran.length = 0;
        const row = { framework, guarded: guard, mode, scenario };
        const aborts = new AbortController();
        const began = performance.now();
        let timer;
        const late = new Promise((resolve) => {
          timer = setTimeout(() => {
            aborts.abort();
            resolve({ ending: 'still running' });
          }, LIMIT);
        });
        const streams = mode === 'stream';
        const limits = LIMITS[scenario];
        const model = limits === undefined ? `m-${scenario}` : 'm-loop';
        const once = async () => {
          if (scenario === 'concurrent') return concurrently(run, streams, guard);
          if (limits !== undefined && !guard) return { ending: 'not run' };
          return run(model, streams, guard, aborts.signal, limits);
        };
        try {
          Object.assign(row, await Promise.race([once(), late]));
        } catch (problem) {
          row.ending = performance.now() - began >= LIMIT ? 'still running' : `raised ${problem?.name ?? typeof problem}`;
          row.evidence = String(problem?.message).slice(0, 160);
        }
        clearTimeout(timer);
        // The scenario's only cut argument begins so.
        row.cut_bodies = ran.filter((text) => text === 'hel').length;
        row.bodies = ran.length;
        row.calls = Object.values(await get('/stats')).reduce((sum, calls) => sum + calls, 0);
        console.log(JSON.stringify(row));
      }
    }
  }
  process.exit(0); // Also if a framework keeps timers.
}

// What frameworks write to the console would mix with the rows.
process.on('unhandledRejection', () => {});
console.error = () => {};
console.warn = () => {};
