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
// If the run must not continue, `EndstopStopped` leaves the runner, with the outcome. Read a stream
// inside of `during`, because the run ends with it.
//
// Blind spots without the adapter, all of which it covers: a truncated or filtered answer, and a stream
// that was cut, are final outputs; a call that was cut is answered with an error until `maxTurns`. A
// response of the SDK has no finish value, so the adapter reads the tap. It does not see the calls of
// a client without the tap, and realtime sessions.

import { EndstopStopped, VersionError } from '../errors.js';
import { Scope } from './base.js';

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

/** One run of a `Runner`. */
export class Endstop extends Scope {
  /** Returns the provider, whose models are under the run. */
  provider<P extends Provider>(provider: P): P {
    if (typeof provider?.getModel !== 'function') {
      throw new VersionError(`the model provider has no method getModel; the supported versions are ${RANGE}`);
    }
    return new Proxy(provider, {
      get: (target, name) => {
        if (name === 'getModel') return async (model?: string) => this.model((await target.getModel(model)) as Model);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  /** Returns the model under the run. */
  model<M extends object>(model: M): M {
    const inner = model as unknown as Model;
    if (typeof inner?.getResponse !== 'function' || typeof inner.getStreamedResponse !== 'function') {
      throw new VersionError(
        `the model has no methods getResponse and getStreamedResponse; the supported versions are ${RANGE}`,
      );
    }
    return new Proxy(model, {
      get: (target, name) => {
        if (name === 'getResponse') return (request: any) => this.#respond(inner, request);
        if (name === 'getStreamedResponse') return (request: any) => this.#stream(inner, request);
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  async #respond(model: Model, request: { input: unknown }): Promise<unknown> {
    this.#beforeCall(request, false);
    let answer: unknown;
    try {
      answer = await model.getResponse(request);
    } catch (problem) {
      throw this.failedCall(problem);
    }
    this.#afterCall();
    return answer;
  }

  async *#stream(model: Model, request: { input: unknown }): AsyncIterable<unknown> {
    this.#beforeCall(request, true);
    const events = model.getStreamedResponse(request)[Symbol.asyncIterator]();
    let last: unknown = null;
    for (;;) {
      let next: IteratorResult<unknown>;
      try {
        next = await events.next();
      } catch (problem) {
        throw this.failedCall(problem);
      }
      if (next.done === true) break;
      // The runner runs the tools of this event, so it waits until the bytes are judged.
      if ((next.value as { type?: string }).type === 'response_done') last = next.value;
      else yield next.value;
    }
    this.#afterCall();
    if (last !== null) yield last;
  }

  /** Asks for a call, after the results of tools in its input. */
  #beforeCall(request: { input: unknown }, streaming: boolean): void {
    for (const item of Array.isArray(request.input) ? (request.input as Item[]) : []) {
      if (item.type !== 'function_call_result' || item.callId === undefined) continue;
      this.run.result(item.callId, contentOf(item.output));
    }
    this.beforeCall(streaming);
  }

  #afterCall(): void {
    const { stopped } = this.afterCall(null);
    if (stopped !== null && !stopped.isSuccess) throw new EndstopStopped(stopped);
  }
}

/** Returns the text of a result. */
function contentOf(output: unknown): unknown {
  const isText = typeof output === 'object' && output !== null && 'text' in output;
  return isText ? (output as { text: unknown }).text : output;
}
