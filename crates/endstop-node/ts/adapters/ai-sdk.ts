// Vercel AI SDK: a model that reports the true finish, and a condition that stops the loop.
//
//   import { generateText } from 'ai';
//   import { Endstop } from '@endstop/node/ai-sdk';
//
//   const endstop = new Endstop({ maxTurns: 25, maxBudgetUsd: 2 });
//   const result = await endstop.during(() =>
//     generateText({ model: endstop.model(openai('gpt-5')), tools, prompt, ...endstop.hooks() }),
//   );
//   endstop.outcome.termination          // one ending
//
// At a limit, the SDK returns the steps so far. A response that must not be used (truncated, filtered,
// cut, an unknown finish value) throws `EndstopStopped`, with the outcome; a stream ends with an error
// part. Read a stream inside of `during`, because the run ends with it.
//
// Blind spots without the adapter, all of which it covers: a stream that was cut ends with the finish
// reason `other`, like an answer; a truncated or filtered answer is `text`; `stopWhen` counts steps,
// and says neither why it stopped nor what the loop cost. With the tap in the provider
// (`createOpenAI({ fetch: tap() })`) the run sees the bytes; without it, what the model reports.

import { type Detection, response } from '../detect.js';
import { EndstopStopped } from '../errors.js';
import type { Outcome } from '../outcome.js';
import { requireVersion, Scope } from './base.js';

const SUPPORTED = ['v2', 'v3', 'v4'];
const RANGE = 'ai >=5 <8';

/** A part of a message or of a stream, whose fields depend on its type and on the SDK's version. */
interface Part {
  readonly type: string;
  readonly [field: string]: any;
}

/** The response of a model that does not stream. */
interface Generated {
  readonly content: readonly Part[];
  readonly finishReason: unknown;
  readonly usage: Record<string, any>;
  readonly response?: { readonly modelId?: string | undefined };
}

/** A language model of the SDK: what this adapter uses of `LanguageModelV2` to `LanguageModelV4`. */
interface Model {
  readonly specificationVersion: string;
  doGenerate(options: any): PromiseLike<any>;
  doStream(options: any): PromiseLike<any>;
}

/** A finished step of the SDK. */
interface Step {
  readonly content: readonly Part[];
}

/** A condition that ends the SDK's loop. */
type Condition = (options: any) => boolean | PromiseLike<boolean>;

/** One run of `generateText` or `streamText`, or of an agent of the SDK. */
export class Endstop extends Scope {
  /** Returns the model under the run: it reports the true finish, and runs no cut call. */
  model<M extends object>(model: M): M {
    const inner = model as unknown as Model;
    requireVersion("the model's specification", inner.specificationVersion, SUPPORTED, RANGE);
    return new Proxy(model, {
      get: (target, name) => {
        if (name === 'doGenerate') {
          return (params: any) => this.#generate(params, () => inner.doGenerate(params));
        }
        if (name === 'doStream') {
          return (params: any) => this.#stream(params, () => inner.doStream(params));
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  /** The same as a middleware, for `wrapLanguageModel`. */
  readonly middleware: any = {
    specificationVersion: 'v4' as const,
    wrapGenerate: (given: { doGenerate: () => PromiseLike<any>; params: any; model: Model }) => {
      requireVersion("the model's specification", given.model.specificationVersion, SUPPORTED, RANGE);
      return this.#generate(given.params, given.doGenerate);
    },
    wrapStream: (given: { doStream: () => PromiseLike<any>; params: any; model: Model }) => {
      requireVersion("the model's specification", given.model.specificationVersion, SUPPORTED, RANGE);
      return this.#stream(given.params, given.doStream);
    },
  };

  /**
   * Returns the settings for `generateText`, `streamText` and agents. Other conditions may stop the
   * loop as well.
   */
  hooks(...others: Condition[]): {
    stopWhen: Condition;
    onStepFinish: (step: any) => void;
    abortSignal: AbortSignal;
  } {
    return {
      stopWhen: this.stopWhen(...others),
      onStepFinish: this.onStepFinish,
      abortSignal: this.signal,
    };
  }

  /** Returns a condition that stops the loop if the next model call is refused. */
  stopWhen(...others: Condition[]): Condition {
    return async (options: { steps: readonly Step[] }) => {
      const last = options.steps.at(-1);
      if (last !== undefined) this.onStepFinish(last);
      for (const other of others) {
        if (await other(options)) return true;
      }
      return !this.tryCall();
    };
  }

  /** Feeds the results of a step's tools. */
  readonly onStepFinish = (step: any): void => {
    for (const part of (step as Step).content) {
      if (part.type === 'tool-result') this.run.result(part['toolCallId'], part['output']);
      if (part.type === 'tool-error') {
        this.run.result(part['toolCallId'], textOf(part['error']), { status: 'error' });
      }
    }
  };

  async #generate(params: any, call: () => PromiseLike<any>): Promise<any> {
    this.#beforeCall(params, false);
    let generated: Generated;
    try {
      generated = (await call()) as Generated;
    } catch (problem) {
      throw this.failedCall(problem);
    }
    const { stopped } = this.afterCall(described(generated));
    if (stopped === null) return generated;
    const whole = generated.content.filter((part) => part.type !== 'tool-call');
    if (!stopped.isSuccess) throw new EndstopStopped(stopped);
    // An answer was declared next to a call: the loop ends with the answer.
    const isCall = whole.length < generated.content.length;
    return isCall ? { ...generated, content: whole, finishReason: natural(generated.finishReason) } : generated;
  }

  async #stream(params: any, call: () => PromiseLike<any>): Promise<any> {
    this.#beforeCall(params, true);
    try {
      const result = await call();
      const parts = (result.stream as ReadableStream<Part>).pipeThrough(this.#watch());
      return { ...result, stream: parts };
    } catch (problem) {
      throw this.failedCall(problem);
    }
  }

  /** Asks for a call, after the results of tools in its prompt. */
  #beforeCall(params: { prompt?: readonly { role: string; content: any }[] }, streaming: boolean): void {
    const messages = params.prompt ?? [];
    const end = messages.slice(messages.findLastIndex((message) => message.role === 'assistant') + 1);
    for (const message of end) {
      if (message.role !== 'tool') continue;
      for (const part of message.content as Part[]) {
        if (part.type === 'tool-result') this.run.result(part['toolCallId'], outputOf(part['output']));
      }
    }
    this.beforeCall(streaming);
  }

  /**
   * Passes the parts of a stream. Calls wait for the finish, because the SDK runs a tool as soon as
   * its call arrives, and only the finish says if the call is whole.
   */
  #watch(): TransformStream<Part, Part> {
    const seen: Part[] = [];
    const waiting: Part[] = [];
    let isOver = false;
    const end = (finish: Part | null, controller: TransformStreamDefaultController<Part>): void => {
      isOver = true;
      const { stopped } = this.afterCall(describedStream(seen, finish));
      if (stopped !== null && !stopped.isSuccess) return fail(stopped, controller);
      if (stopped === null) waiting.forEach((part) => controller.enqueue(part));
      const isCall = stopped !== null && waiting.length > 0;
      if (finish !== null) {
        controller.enqueue(isCall ? { ...finish, finishReason: natural(finish['finishReason']) } : finish);
      }
    };
    const fail = (outcome: Outcome, controller: TransformStreamDefaultController<Part>): void => {
      isOver = true;
      controller.enqueue({ type: 'error', error: new EndstopStopped(outcome) });
      controller.terminate();
    };
    return new TransformStream({
      transform: (part, controller) => {
        if (isOver) return;
        if (part.type === 'finish') return end(part, controller);
        if (part.type === 'error') {
          // The finish that follows is made up.
          isOver = true;
          const failed = this.failedCall(part['error']);
          controller.enqueue({ ...part, error: failed });
          return controller.terminate();
        }
        if (part.type === 'text-delta' || part.type === 'tool-call' || part.type === 'response-metadata') seen.push(part);
        if (part.type === 'text-delta' && !this.run.delta(String(part['delta'] ?? ''))) {
          return fail(this.outcome, controller);
        }
        if (part.type === 'tool-call') waiting.push(part);
        else controller.enqueue(part);
      },
      flush: (controller) => {
        if (!isOver) end(null, controller);
      },
    });
  }
}

/** Describes a response by the model's own fields. */
function described(generated: Generated): Detection {
  const { content, finishReason, usage } = generated;
  const texts = content.filter((part) => part.type === 'text').map((part) => String(part['text']));
  const calls = content.filter((part) => part.type === 'tool-call' && part['providerExecuted'] !== true);
  return describe(texts.join(''), calls, finishReason, usage, generated.response?.modelId);
}

/** Describes a streamed response by its parts. */
function describedStream(seen: readonly Part[], finish: Part | null): Detection {
  const texts = seen.filter((part) => part.type === 'text-delta').map((part) => String(part['delta'] ?? ''));
  const calls = seen.filter((part) => part.type === 'tool-call' && part['providerExecuted'] !== true);
  const model = seen.find((part) => part.type === 'response-metadata')?.['modelId'] as string | undefined;
  return describe(texts.join(''), calls, finish?.['finishReason'], finish?.['usage'] ?? {}, model);
}

function describe(
  text: string,
  calls: readonly Part[],
  finishReason: unknown,
  usage: Record<string, any>,
  model: string | undefined,
): Detection {
  return response({
    text,
    finish: finishOf(finishReason),
    calls: calls.map((call) => ({ id: call['toolCallId'], name: call['toolName'], arguments: call['input'] })),
    inputTokens: countOf(usage['inputTokens']),
    outputTokens: countOf(usage['outputTokens']),
    cachedInputTokens: usage['cachedInputTokens'] ?? usage['inputTokens']?.cacheRead,
    model,
  });
}

/** Returns the provider's finish value. The SDK has made up `unknown` and `other` if there is none. */
function finishOf(given: unknown): string | null {
  if (typeof given === 'object' && given !== null) {
    const { raw, unified } = given as { raw?: string | null; unified?: string };
    // A refusal has the value of an answer on the wire, and the SDK knows better.
    return unified === 'content-filter' ? 'content_filter' : (raw ?? null);
  }
  const known: Record<string, string> = { 'content-filter': 'content_filter', 'tool-calls': 'tool_calls' };
  const value = String(given ?? 'unknown');
  return value === 'unknown' ? null : (known[value] ?? value);
}

/** Returns the finish of an answer, in the form of the SDK's version. */
function natural(given: unknown): unknown {
  return typeof given === 'object' ? { ...given, unified: 'stop' } : 'stop';
}

/** Reads a count, which later versions of the SDK split into parts. */
function countOf(given: unknown): number | undefined {
  const count = typeof given === 'object' && given !== null ? (given as { total?: number }).total : given;
  return typeof count === 'number' ? count : undefined;
}

/** Returns the output of a tool in a prompt. */
function outputOf(output: unknown): unknown {
  const isTyped = typeof output === 'object' && output !== null && 'value' in output;
  return isTyped ? (output as { value: unknown }).value : output;
}

function textOf(problem: unknown): string {
  return problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem);
}
