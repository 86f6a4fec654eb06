// OpenAI Agents SDK: a model under the run.
//
//   import { Agent, OpenAIProvider, Runner } from '@openai/agents';
//   import { tap } from '@endstop/node/tap';
//   import { Endstop } from '@endstop/node/openai-agents';
//
//   const openAIClient = new OpenAI({ fetch: tap() });             // once
//   const endstop = new Endstop({ maxTurns: 25, maxBudgetUsd: 2 });
//   const runner = new Runner({ modelProvider: endstop.provider(new OpenAIProvider({ openAIClient })) });
//   const result = await endstop.during(() => runner.run(agent, 'Go.', { signal: endstop.signal }));
//   endstop.outcome.termination          // one ending
//
// If the run must not continue, `EndstopStopped` leaves `during`, with the outcome. Return the result of
// the runner from `during`, or give it `endstop.runner(runner)`: an answer of a tool, a structured output
// and interruptions are seen in it only. A run with interruptions is parked: `endstop.parked` is the text
// for `resume`. Read a stream inside of `during`, or return `result.toStream()`.
//
// Blind spots without the adapter, all of which it covers: a truncated or filtered answer, and a stream
// that was cut, are final outputs; a call that was cut is answered with an error until `maxTurns`. A
// response of the SDK has no finish value, so the adapter reads the tap. It does not see the calls of
// a client without the tap, and realtime sessions.

import { VersionError } from '../errors.js';
import type { Declared } from '../run.js';
import { type Attempt, type Ending, type Loop, type Result, Scope } from './base.js';

const RANGE = '@openai/agents >=0.11 <1';

/** What this adapter uses of the SDK's `Model`. */
interface Model {
  getResponse(request: any): Promise<any>;
  getStreamedResponse(request: any): AsyncIterable<any>;
}

/** What this adapter uses of the SDK's `ModelProvider`. */
interface Provider {
  getModel(name?: string): Promise<any> | any;
}

/** An item of the conversation. */
interface Item {
  readonly type?: string;
  readonly callId?: string;
  readonly status?: string;
  readonly output?: unknown;
}

/** What this adapter reads of a `RunResult`. */
interface RunResult {
  readonly interruptions?: readonly unknown[];
  readonly finalOutput?: unknown;
  readonly newItems?: readonly { readonly type: string; readonly rawItem?: Item }[];
  readonly completed?: Promise<void>;
  readonly cancelled?: boolean;
  readonly toStream?: () => unknown;
}

/** The run of a `Runner`, for each request. */
export class Endstop extends Scope {
  readonly hint: string = 'give the runner `modelProvider: endstop.provider(…)`, or the agent `model: endstop.model(…)`';

  /** Returns the runner, whose results the adapter sees, whatever `during` returns. */
  runner<R extends { run: (...given: any[]) => Promise<any> }>(runner: R): R {
    if (typeof runner?.run !== 'function') {
      throw new VersionError(`the runner has no method run; the supported versions are ${RANGE}`);
    }
    const run = async (...given: unknown[]): Promise<unknown> => (this.loop.notes['result'] = await runner.run(...given));
    return proxied(runner, { run });
  }

  /** Returns the provider, whose models are under the run. */
  provider<P extends Provider>(provider: P): P {
    if (typeof provider?.getModel !== 'function') {
      throw new VersionError(`the model provider has no method getModel; the supported versions are ${RANGE}`);
    }
    return proxied(provider, { getModel: async (name?: string) => this.model((await provider.getModel(name)) as Model) });
  }

  /** Returns the model under the run. */
  model<M extends object>(model: M): M {
    const inner = model as unknown as Model;
    if (typeof inner?.getResponse !== 'function' || typeof inner.getStreamedResponse !== 'function') {
      throw new VersionError(
        `the model has no methods getResponse and getStreamedResponse; the supported versions are ${RANGE}`,
      );
    }
    return proxied(model, {
      getResponse: (request: any) => this.#respond(inner, request),
      getStreamedResponse: (request: any) => this.#stream(inner, request),
    });
  }

  async #respond(model: Model, request: { input: unknown; signal?: AbortSignal }): Promise<unknown> {
    const attempt = await this.loop.begin(resultsOf(request.input), false, request.signal);
    let answer: unknown;
    try {
      answer = await attempt.within(() => model.getResponse(request));
    } catch (problem) {
      throw attempt.failed(problem);
    }
    finish(attempt);
    return answer;
  }

  async *#stream(model: Model, request: { input: unknown; signal?: AbortSignal }): AsyncIterable<unknown> {
    const attempt = await this.loop.begin(resultsOf(request.input), true, request.signal);
    const events = attempt.within(() => model.getStreamedResponse(request)[Symbol.asyncIterator]());
    let last: unknown = null;
    let isRead = false;
    try {
      for (;;) {
        let next: IteratorResult<unknown>;
        try {
          next = await attempt.within(() => events.next());
        } catch (problem) {
          isRead = true;
          throw attempt.failed(problem);
        }
        if (next.done === true) break;
        // The runner runs the tools of this event, so it waits until the bytes are judged.
        if ((next.value as { type?: string }).type === 'response_done') last = next.value;
        else yield next.value;
      }
      isRead = true;
    } finally {
      if (!isRead) {
        attempt.left();
        await events.return?.();
      }
    }
    finish(attempt);
    if (last !== null) yield last;
  }

  protected override async unread(loop: Loop, value: unknown): Promise<string | null> {
    const result = resultIn(loop, value);
    if (result?.toStream === undefined || result.completed === undefined || result.cancelled === true) return null;
    const isRead = await Promise.race([result.completed.then(() => true, () => true), new Promise((resolve) => setImmediate(resolve, false))]);
    return isRead
      ? null
      : 'the stream has not been read when `during` returns: read it inside, wait for `result.completed`, or return result.toStream()';
  }

  protected override endingOf(loop: Loop, value: unknown): Ending {
    const result = resultIn(loop, value);
    if (result?.cancelled === true) return 'left';
    if ((result?.interruptions?.length ?? 0) > 0) return 'paused';
    const waited = loop.waiting.length > 0;
    for (const item of result?.newItems ?? []) {
      const { callId, output } = item.rawItem ?? {};
      const isOpen = item.type === 'tool_call_output_item' && callId !== undefined && loop.waiting.includes(callId);
      if (isOpen) loop.result(callId, contentOf(output));
    }
    const { finalOutput } = result ?? {};
    if (loop.isUnused) return null;
    if (finalOutput !== undefined && finalOutput !== null) {
      if (waited) return { ended: 'submitted', deliverable: finalOutput, detail: 'a tool has the answer' };
      const isStructured = typeof finalOutput === 'object' && loop.run.ending === 'stop';
      return isStructured ? { ended: 'submitted', deliverable: finalOutput, detail: 'a structured answer' } : null;
    }
    if (!waited) return null;
    return {
      ended: 'error_halted',
      detail: 'during: it returned while tool calls were open; return the result of the runner, or use endstop.runner(runner)',
    };
  }

  protected override endingAfter(problem: unknown): (Declared & { detail: string }) | undefined {
    if (!(problem instanceof Error)) return undefined;
    // Not `error.name`, which the SDK does not set.
    const name = problem.constructor.name;
    if (name === 'MaxTurnsExceededError') return { ended: 'error_max_turns', detail: `${name}: ${problem.message}` };
    return name.endsWith('TripwireTriggered') ? { ended: 'error_halted', detail: `${name}: ${problem.message}` } : undefined;
  }
}

/** Returns an object with some methods replaced. */
function proxied<T extends object>(target: T, methods: Record<string, unknown>): T {
  return new Proxy(target, {
    get: (of, name) => {
      if (typeof name === 'string' && Object.hasOwn(methods, name)) return methods[name];
      const value: unknown = Reflect.get(of, name, of);
      return typeof value === 'function' ? value.bind(of) : value;
    },
  });
}

/** Returns the result of the runner that `during` returned, or that the runner of the adapter noted. */
function resultIn(loop: Loop, value: unknown): RunResult | undefined {
  const isResult = typeof value === 'object' && value !== null && 'newItems' in value;
  return isResult ? (value as RunResult) : (loop.notes['result'] as RunResult | undefined);
}

/** Returns the results of tools in the input of a model call. */
function resultsOf(input: unknown): Result[] {
  return (Array.isArray(input) ? (input as Item[]) : []).flatMap((item) => {
    if (item.type !== 'function_call_result' || item.callId === undefined) return [];
    return [{ id: item.callId, output: contentOf(item.output) }];
  });
}

function finish(attempt: Attempt): void {
  const { stopped } = attempt.finished(null);
  if (stopped !== null && !stopped.isSuccess) throw attempt.loop.refused(stopped);
}

/** Returns the text of a result. */
function contentOf(output: unknown): unknown {
  const isText = typeof output === 'object' && output !== null && 'text' in output;
  return isText ? (output as { text: unknown }).text : output;
}
