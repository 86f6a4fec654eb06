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
// cut, an unknown finish value) throws `EndstopStopped`, with the outcome; a stream has an error part, and
// `during` throws if the stream was read inside. A route returns its stream or `Response` from `during`:
// the run ends with it, a stream of UI messages carries the ending as the data part `data-endstop`, and a
// client that leaves cancels the run. Without `during`, `hooks()` end the run of one request.
//
// Blind spots without the adapter, all of which it covers: a stream that was cut ends with the finish
// reason `other`, like an answer; a truncated or filtered answer is `text`; `stopWhen` counts steps,
// and says neither why it stopped nor what the loop cost. With the tap in the provider
// (`createOpenAI({ fetch: tap() })`) the run sees the bytes; without it, what the model reports.

import { type Description, type Detection, response } from '../detect.js';
import { ConfigError } from '../errors.js';
import { type Kinds, readOptions, shown } from '../options.js';
import type { Outcome } from '../outcome.js';
import { type Attempt, type Ending, type Loop, numbersIn, requireVersion, type Result, Scope } from './base.js';

const SUPPORTED = ['v2', 'v3', 'v4'];
const RANGE = 'ai >=5 <8';
/** The data part of a stream of UI messages that has the ending. */
const PART = 'data-endstop';

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
  readonly providerMetadata?: Metadata | undefined;
}

/** The provider's own data about a response, by the name of the provider. */
type Metadata = Record<string, Record<string, any> | undefined>;

/** A language model of the SDK: what this adapter uses of `LanguageModelV2` to `LanguageModelV4`. */
interface Model {
  readonly specificationVersion: string;
  readonly provider?: string;
  doGenerate(options: any): PromiseLike<any>;
  doStream(options: any): PromiseLike<any>;
}

/** A finished step of the SDK. */
interface Step {
  readonly content: readonly Part[];
  readonly toolCalls?: readonly Part[];
}

/** A condition that ends the SDK's loop. */
type Condition = (options: any) => boolean | PromiseLike<boolean>;

/** The program's own settings for the SDK that the adapter has, too. */
export interface HookOptions {
  /** Other conditions that may stop the loop. */
  readonly stopWhen?: Condition | readonly Condition[] | undefined;
  readonly onStepFinish?: ((step: any) => unknown) | undefined;
  readonly onFinish?: ((event: any) => unknown) | undefined;
  readonly onError?: ((event: any) => unknown) | undefined;
  readonly onAbort?: ((event: any) => unknown) | undefined;
}

const HOOKS: Kinds<HookOptions> = { stopWhen: 'any', onStepFinish: 'function', onFinish: 'function', onError: 'function', onAbort: 'function' };

/** The settings for `generateText`, `streamText` and agents. */
export interface Hooks {
  readonly stopWhen: Condition;
  readonly onStepFinish: (step: any) => Promise<void>;
  readonly onFinish: (event: any) => Promise<void>;
  readonly onError: (event: any) => Promise<any>;
  readonly onAbort: (event: any) => Promise<void>;
  readonly abortSignal?: AbortSignal;
}

/** What the adapter remembers of a loop. */
interface Notes {
  /** The steps so far. */
  steps?: readonly Step[];
  /** The ending that the condition that fired stands for. */
  fired?: Ending;
  /** The settings of the last model call. */
  params?: { readonly toolChoice?: { type: string }; readonly responseFormat?: { type: string } };
  /** The text of the last response. */
  text?: string;
  /** True if a stream of UI messages has the ending. */
  isTold?: boolean;
  /** The form of the stream that is returned, if it is one of UI messages. */
  isUi?: 'bytes' | 'objects';
}

/** The run of `generateText` or `streamText`, or of an agent of the SDK, for each request. */
export class Endstop extends Scope {
  readonly hint: string = 'give the SDK `model: endstop.model(…)`, a model of a provider and not its name';

  /** The program's other conditions. */
  #conditions: readonly Condition[] = [];

  /** Returns the model under the run: it reports the true finish, and runs no cut call. */
  model<M extends object>(model: M): M {
    const inner = this.#checked(model);
    return new Proxy(model, {
      get: (target, name) => {
        if (name === 'doGenerate') {
          return (params: any) => this.#generate(params, (given) => inner.doGenerate(given), inner);
        }
        if (name === 'doStream') {
          return (params: any) => this.#stream(params, (given) => inner.doStream(given), inner);
        }
        const value: unknown = Reflect.get(target, name, target);
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
  }

  #checked(model: unknown): Model {
    if (typeof model === 'string') {
      throw new ConfigError(
        `invalid model \`${model}\`: a name has no hook; give the model of a provider, for example ` +
          `endstop.model(gateway('${model}')) with \`import { gateway } from 'ai'\`, or openai('…')`,
      );
    }
    const { specificationVersion: version, languageModel, doGenerate } = (model ?? {}) as Partial<Model> & { languageModel?: unknown };
    if (typeof doGenerate !== 'function' && (typeof model === 'function' || typeof languageModel === 'function')) {
      throw new ConfigError("invalid model: this is a provider; give one of its models, for example endstop.model(openai('gpt-5'))");
    }
    requireVersion("the model's specification", version, SUPPORTED, RANGE);
    return model as Model;
  }

  /** The same as a middleware, for `wrapLanguageModel`. */
  readonly middleware: any = {
    specificationVersion: 'v4' as const,
    wrapGenerate: (given: { doGenerate: () => PromiseLike<any>; params: any; model: Model }) => {
      this.#checked(given.model);
      return this.#generate(given.params, given.doGenerate, given.model);
    },
    wrapStream: (given: { doStream: () => PromiseLike<any>; params: any; model: Model }) => {
      this.#checked(given.model);
      return this.#stream(given.params, given.doStream, given.model);
    },
  };

  /**
   * Returns the settings for `generateText`, `streamText` and agents. The program's own go through here,
   * because one of each replaces the other: `hooks({ stopWhen: stepCountIs(5), onFinish })`.
   */
  hooks(own: HookOptions = {}): Hooks {
    if (typeof own === 'function') throw new ConfigError('invalid options of hooks: expected an object, such as { stopWhen: condition }');
    readOptions('hooks', own, HOOKS);
    const conditions = own.stopWhen === undefined ? [] : [own.stopWhen].flat();
    const { current } = this;
    // An agent is built once and has these for all of its requests, so they ask for the loop when they are
    // called. Outside of `during` the loop ends by them.
    const outside = (end: (loop: Loop) => unknown): void => {
      const { loop } = this;
      if (!loop.isInside) end(loop);
    };
    return {
      stopWhen: this.stopWhen(...conditions),
      onStepFinish: async (step) => {
        this.onStepFinish(step);
        await own.onStepFinish?.(step);
      },
      onFinish: async (event) => {
        outside((loop) => loop.returned(() => this.endingOf(loop, undefined)));
        await own.onFinish?.(event);
      },
      onError: async (event) => {
        outside((loop) => loop.threw(event?.error, (one) => this.endingAfter(one)));
        if (own.onError !== undefined) return own.onError(event);
        console.error(event?.error);
      },
      onAbort: async (event) => {
        outside((loop) => loop.left());
        await own.onAbort?.(event);
      },
      // The signal of one request; the model's calls have it in any case.
      ...(current === null ? {} : { abortSignal: current.signal }),
    };
  }

  /** Returns a condition that stops the loop if the next model call is refused, or another condition holds. */
  stopWhen(...others: Condition[]): Condition {
    for (const other of others) {
      if (typeof other !== 'function') throw new ConfigError(`invalid \`stopWhen\` ${shown(other)}: expected a condition of the SDK`);
    }
    this.#conditions = others;
    return async (options: { steps: readonly Step[] }) => {
      const loop = this.loop;
      const last = options.steps.at(-1);
      if (last !== undefined) this.onStepFinish(last);
      const notes: Notes = loop.notes;
      notes.steps = options.steps;
      notes.fired = await firedBy(others, options.steps);
      return notes.fired !== null || !loop.mayContinue();
    };
  }

  /** Feeds the results of a step's tools. */
  readonly onStepFinish = (step: any): void => {
    const loop = this.loop;
    const notes: Notes = loop.notes;
    if (notes.steps?.at(-1) !== step) notes.steps = [...(notes.steps ?? []), step as Step];
    this.#feed(loop, step);
  };

  #feed(loop: Loop, step: unknown): void {
    for (const { id, output, status } of this.resultsOf(step)) loop.result(id, output, { status });
  }

  /** Returns the results of a step's tools. */
  protected resultsOf(step: any): Result[] {
    return (step as Step).content.flatMap((part): Result[] => {
      if (part.type === 'tool-result') return [{ id: part['toolCallId'], output: part['output'], status: 'ok' }];
      if (part.type !== 'tool-error') return [];
      return [{ id: part['toolCallId'], output: textOf(part['error']), status: 'error' }];
    });
  }

  async #generate(params: any, call: (params: any) => PromiseLike<any>, model: Model): Promise<any> {
    const attempt = await this.#begin(params, false);
    let generated: Generated;
    try {
      generated = (await attempt.within(() => call(withSignal(params, attempt.loop.signal)))) as Generated;
    } catch (problem) {
      throw attempt.failed(problem);
    }
    const { stopped } = this.#finished(attempt, described(generated, model));
    if (stopped === null) return generated;
    const whole = generated.content.filter((part) => part.type !== 'tool-call');
    if (!stopped.isSuccess) throw attempt.loop.refused(stopped);
    // An answer was declared next to a call: the loop ends with the answer.
    const isCall = whole.length < generated.content.length;
    return isCall ? { ...generated, content: whole, finishReason: natural(generated.finishReason) } : generated;
  }

  async #stream(params: any, call: (params: any) => PromiseLike<any>, model: Model): Promise<any> {
    const attempt = await this.#begin(params, true);
    try {
      const result = await attempt.within(() => call(withSignal(params, attempt.loop.signal)));
      return { ...result, stream: this.#watch(attempt, result.stream as ReadableStream<Part>, model) };
    } catch (problem) {
      throw attempt.failed(problem);
    }
  }

  /** Begins a call, after the results of tools in its prompt. */
  async #begin(
    params: { prompt?: readonly { role: string; content: any }[]; abortSignal?: AbortSignal },
    streaming: boolean,
  ): Promise<Attempt> {
    const messages = params.prompt ?? [];
    const end = messages.slice(messages.findLastIndex((message) => message.role === 'assistant') + 1);
    const results = end.flatMap((message) => (message.role === 'tool' ? (message.content as Part[]).flatMap(resultOf) : []));
    const { loop } = this;
    const attempt = await loop.begin(results, streaming, params.abortSignal);
    const notes: Notes = loop.notes;
    notes.params = params as Notes['params'] & object;
    return attempt;
  }

  #finished(attempt: Attempt, found: Detection): ReturnType<Attempt['finished']> {
    const notes: Notes = attempt.loop.notes;
    notes.text = found.text;
    return attempt.finished(found);
  }

  /**
   * Passes the parts of a stream. Calls wait for the finish, because the SDK runs a tool as soon as
   * its call arrives, and only the finish says if the call is whole.
   */
  #watch(attempt: Attempt, stream: ReadableStream<Part>, model: Model): ReadableStream<Part> {
    const reader = stream.getReader();
    const seen: Part[] = [];
    const waiting: Part[] = [];
    const fail = (outcome: Outcome): Part[] => [{ type: 'error', error: attempt.loop.refused(outcome) }];
    /** Returns the last parts; null if more may follow. */
    const last = (part: Part | null): Part[] | null => {
      if (part?.type === 'error') return [{ ...part, error: attempt.failed(part['error']) }];
      if (part !== null && part.type !== 'finish') return null;
      const { stopped } = this.#finished(attempt, describedStream(seen, part, model));
      if (stopped !== null && !stopped.isSuccess) return fail(stopped);
      const parts = stopped === null ? waiting : [];
      const isCall = stopped !== null && waiting.length > 0;
      if (part === null) return parts;
      return [...parts, isCall ? { ...part, finishReason: natural(part['finishReason']) } : part];
    };
    const pull = async (controller: ReadableStreamDefaultController<Part>): Promise<void> => {
      for (;;) {
        let next: Awaited<ReturnType<typeof reader.read>>;
        try {
          next = await attempt.within(() => reader.read());
        } catch (problem) {
          return controller.error(attempt.failed(problem));
        }
        const part = next.done ? null : next.value;
        let ends = last(part);
        if (ends === null && part !== null) {
          if (part.type === 'text-delta' || part.type === 'tool-call' || part.type === 'response-metadata') seen.push(part);
          if (part.type === 'text-delta' && !attempt.delta(String(part['delta'] ?? ''))) {
            attempt.left();
            const outcome = attempt.loop.run.finished();
            if (outcome.termination === 'cancelled') return controller.error(attempt.loop.run.signal.reason);
            ends = fail(outcome);
          } else if (part.type === 'tool-call') {
            waiting.push(part);
            continue;
          } else {
            return controller.enqueue(part);
          }
        }
        ends?.forEach((one) => controller.enqueue(one));
        controller.close();
        // A finish that follows an error is made up.
        if (!next.done) await reader.cancel().catch(() => {});
        return;
      }
    };
    const cancel = async (reason: unknown): Promise<void> => {
      attempt.left();
      await reader.cancel(reason);
    };
    return new ReadableStream<Part>({ pull, cancel }, { highWaterMark: 0 });
  }

  protected override endingOf(loop: Loop, value: unknown): Ending {
    const notes: Notes = loop.notes;
    if (loop.isUnused) return null;
    const result = (typeof value === 'object' && value !== null ? value : {}) as { steps?: readonly Step[] };
    const steps = Array.isArray(result.steps) ? (result.steps as readonly Step[]) : (notes.steps ?? []);
    // A program without the hooks has the results here only.
    for (const step of steps) this.#feed(loop, step);
    const { content, toolCalls } = lastOf(steps);
    if (content.some((part) => part.type === 'tool-approval-request' && part['isAutomatic'] !== true)) return 'paused';
    const isStructured = notes.params?.responseFormat?.type === 'json';
    if (loop.run.ending === 'stop' && isStructured) return structured(value, notes.text ?? '');
    if (loop.run.ending !== null) return null;
    const { waiting } = loop;
    if (waiting.length === 0 || steps.length === 0) return notes.fired ?? stoppedBy(steps.length);
    const fired = notes.fired ?? firedOf(this.#conditions, steps);
    if (fired !== null) return fired;
    // A call without a result: of a tool of the client, or of one that is the answer.
    const open = toolCalls.find((call) => waiting.includes(call['toolCallId']));
    const choice = notes.params?.toolChoice?.type;
    const isAnswer = open !== undefined && (choice === 'required' || choice === 'tool');
    return isAnswer ? submitted(open['toolName'], open['input']) : 'paused';
  }

  protected override unread(loop: Loop, value: unknown): string | null {
    const isResult = typeof value === 'object' && value !== null && 'fullStream' in value;
    if (!isResult || !loop.isPending || !loop.run.running) return null;
    return (
      'the stream has not been read when `during` returns: return result.toUIMessageStreamResponse(), ' +
      'result.toUIMessageStream() or result.textStream from it, or read the stream inside'
    );
  }

  /** Adds the ending to a stream of UI messages, in front of its end. */
  protected override chunksOf(loop: Loop, chunk: unknown): unknown[] {
    const chunks = super.chunksOf(loop, chunk);
    const notes: Notes = loop.notes;
    const form = formOf(chunk);
    if (form !== null) notes.isUi = form;
    if (notes.isTold === true || notes.isUi === undefined || !(chunk === undefined || isEnd(chunk))) return chunks;
    notes.isTold = true;
    loop.returned(() => this.endingOf(loop, undefined));
    const part = { type: PART, data: this.dataOf(loop) };
    return [notes.isUi === 'bytes' ? new TextEncoder().encode(`data: ${JSON.stringify(part)}\n\n`) : part, ...chunks];
  }

  protected override isSilent(loop: Loop): boolean {
    return (loop.notes as Notes).isUi === undefined;
  }

  /** Returns what the client learns of the ending. The evidence stays on the server, because it may quote. */
  protected dataOf(loop: Loop): object {
    const { outcome } = loop.run;
    if (outcome === null) return { termination: null, category: null, isSuccess: false, isParked: loop.parked !== null };
    const { termination, category, isSuccess } = outcome;
    return { termination, category, isSuccess, isParked: false };
  }
}

/** Returns the form of the chunk that begins a stream of UI messages. */
function formOf(chunk: unknown): 'bytes' | 'objects' | null {
  if (chunk instanceof Uint8Array) return textAt(chunk, 'data: {"type":"start"') ? 'bytes' : null;
  return typeof chunk === 'object' && chunk !== null && (chunk as Part).type === 'start' && !('request' in chunk) ? 'objects' : null;
}

/** True for the chunks that end a stream of UI messages. */
function isEnd(chunk: unknown): boolean {
  if (chunk instanceof Uint8Array) return ['data: {"type":"finish"', 'data: {"type":"abort"', 'data: [DONE]'].some((one) => textAt(chunk, one));
  return ['finish', 'abort'].includes((chunk as Part).type);
}

function textAt(chunk: Uint8Array, text: string): boolean {
  const start = Buffer.from(chunk.buffer, chunk.byteOffset, Math.min(chunk.length, text.length + 1)).toString('latin1');
  // `finish-step` and `start-step` are other parts.
  return start.startsWith(text) && !start.slice(text.length).startsWith('-');
}

/** Returns the ending of an answer in a call. */
function submitted(name: string, deliverable: unknown): Ending {
  return { ended: 'submitted', deliverable, detail: `the tool \`${name}\` has the answer` };
}

/** Returns the ending of a loop that stopped after its tools, for a reason that only the program knows. */
function stoppedBy(steps: number): Ending {
  return { ended: 'error_max_turns', detail: `the SDK ended its loop after ${steps} steps, by its own \`stopWhen\`` };
}

/** Returns the ending of a structured answer. */
function structured(value: unknown, text: string): Ending {
  let deliverable: unknown;
  try {
    const result = value as { object?: unknown; output?: unknown; experimental_output?: unknown } | undefined;
    deliverable = result?.object ?? result?.output ?? result?.experimental_output ?? JSON.parse(text);
  } catch {
    return null; // Not an answer of the schema. The SDK throws when the program reads it.
  }
  return deliverable === null || deliverable === undefined ? null : { ended: 'submitted', deliverable, detail: 'a structured answer' };
}

/** Evaluates conditions, and returns the ending that the one that holds stands for. */
async function firedBy(conditions: readonly Condition[], steps: readonly Step[]): Promise<Ending> {
  for (const condition of conditions) {
    const read = new Set<string>();
    if (await condition({ steps: watched(steps, read) })) return meaning(condition, read, steps);
  }
  return null;
}

/** The same for conditions that the SDK did not evaluate, because a call had no result. */
function firedOf(conditions: readonly Condition[], steps: readonly Step[]): Ending {
  for (const condition of conditions) {
    const read = new Set<string>();
    try {
      if (condition({ steps: watched(steps, read) }) === true) return meaning(condition, read, steps);
    } catch {
      continue; // The SDK would not have called it either.
    }
  }
  return null;
}

/** Returns the steps, and notes what a condition reads of them: only that tells a limit from an answer in a call. */
function watched(steps: readonly Step[], read: Set<string>): readonly Step[] {
  const noted = <T extends object>(target: T): T =>
    new Proxy(target, {
      get: (of, name) => {
        if (typeof name === 'string') read.add(name);
        const value: unknown = Reflect.get(of, name, of);
        return typeof value === 'function' ? value.bind(of) : value;
      },
    });
  return steps.map(noted);
}

/** Returns the content and the calls of the last step. */
function lastOf(steps: readonly Step[]): { content: readonly Part[]; toolCalls: readonly Part[] } {
  const last = steps.at(-1);
  const content = last?.content ?? [];
  return { content, toolCalls: last?.toolCalls ?? content.filter((part) => part.type === 'tool-call') };
}

function meaning(condition: Condition, read: Set<string>, steps: readonly Step[]): Ending {
  if (read.size === 0) return { ended: 'error_max_turns', detail: `\`stopWhen\` ended the loop of the SDK after ${steps.length} steps` };
  const { content, toolCalls } = lastOf(steps);
  // Of several calls the one that the condition asks for.
  const isAsked = (call: Part): boolean => condition({ steps: [{ content: [call], toolCalls: [call], toolResults: [] }] }) === true;
  const called = toolCalls.length > 1 ? (toolCalls.find(isAsked) ?? toolCalls.at(-1)) : toolCalls[0];
  const isCall = called !== undefined && ['toolCalls', 'staticToolCalls', 'dynamicToolCalls', 'toolResults', 'content'].some((one) => read.has(one));
  if (!isCall) return { ended: 'error_halted', detail: `stopWhen: ${condition.name || 'a condition of the program'} ended the loop` };
  const result = content.find((part) => part.type === 'tool-result' && part['toolCallId'] === called['toolCallId']);
  return submitted(called['toolName'], result?.['output'] ?? called['input']);
}

/** Returns the parameters of a model call with the signal of the run, next to that of the program. */
function withSignal(params: { abortSignal?: AbortSignal }, own: AbortSignal): object {
  const { abortSignal } = params;
  if (abortSignal === undefined || abortSignal === own) return { ...params, abortSignal: own };
  // Node 18 cannot join signals.
  return typeof AbortSignal.any === 'function' ? { ...params, abortSignal: AbortSignal.any([abortSignal, own]) } : params;
}

/** Describes a response by the model's own fields. */
function described(generated: Generated, model: Model): Detection {
  const { content, finishReason, usage, providerMetadata } = generated;
  const texts = content.filter((part) => part.type === 'text').map((part) => String(part['text']));
  const calls = content.filter((part) => part.type === 'tool-call' && part['providerExecuted'] !== true);
  return describe(texts.join(''), calls, finishReason, countsOf(usage, providerMetadata ?? {}, model), generated.response?.modelId);
}

/** Describes a streamed response by its parts. */
function describedStream(seen: readonly Part[], finish: Part | null, from: Model): Detection {
  const texts = seen.filter((part) => part.type === 'text-delta').map((part) => String(part['delta'] ?? ''));
  const calls = seen.filter((part) => part.type === 'tool-call' && part['providerExecuted'] !== true);
  const model = seen.find((part) => part.type === 'response-metadata')?.['modelId'] as string | undefined;
  const counts = countsOf(finish?.['usage'] ?? {}, finish?.['providerMetadata'] ?? {}, from);
  return describe(texts.join(''), calls, finish?.['finishReason'], counts, model);
}

function describe(
  text: string,
  calls: readonly Part[],
  finishReason: unknown,
  counts: Partial<Description>,
  model: string | undefined,
): Detection {
  return response({
    text,
    finish: finishOf(finishReason),
    calls: calls.map((call) => ({ id: call['toolCallId'], name: call['toolName'], arguments: call['input'] })),
    model,
    ...numbersIn(counts),
  });
}

/**
 * Returns the counts of a response. Those of version 5 of the SDK are the provider's own: the input of Anthropic and Bedrock has no
 * cached tokens in it, and what they wrote to a cache is only in their data.
 */
function countsOf(usage: Record<string, any>, metadata: Metadata, model: Model): Partial<Description> {
  const { inputTokens: input, outputTokens: output } = usage;
  const raw = usage['raw'] ?? metadata['anthropic']?.['usage'];
  const cacheWrite1hTokens: number | undefined = raw?.cache_creation?.ephemeral_1h_input_tokens;
  if (typeof input === 'object' && input !== null) {
    const { total: inputTokens, cacheRead: cachedInputTokens, cacheWrite: cacheWriteTokens } = input;
    return { inputTokens, outputTokens: output?.total, cachedInputTokens, cacheWriteTokens, cacheWrite1hTokens, reasoningTokens: output?.reasoning };
  }
  const { cachedInputTokens, reasoningTokens, totalTokens } = usage;
  const cacheWriteTokens = metadata['anthropic']?.['cacheCreationInputTokens'] ?? metadata['bedrock']?.['usage']?.cacheWriteInputTokens;
  const isApart = /anthropic|bedrock/.test(model.provider ?? '');
  const all = (input ?? 0) + (output ?? 0) + (cachedInputTokens ?? 0) + (cacheWriteTokens ?? 0);
  return {
    inputTokens: input,
    outputTokens: output,
    cachedInputTokens,
    cacheWriteTokens,
    cacheWrite1hTokens,
    reasoningTokens,
    totalTokens: isApart ? all : totalTokens,
  };
}

/** The finish values of the SDK that stand for one of a provider. It makes up `unknown`, `other` and `error`. */
const FINISHES: Record<string, string> = { stop: 'stop', length: 'length', 'content-filter': 'content_filter', 'tool-calls': 'tool_calls' };

/** Returns the provider's finish value; null if there is none. */
function finishOf(given: unknown): string | null {
  if (typeof given === 'object' && given !== null) {
    const { raw, unified = '' } = given as { raw?: string | null; unified?: string };
    // A refusal has the value of an answer on the wire, and the SDK knows better. A complete response of
    // OpenAI's Responses has none.
    return unified === 'content-filter' ? 'content_filter' : (raw ?? FINISHES[unified] ?? null);
  }
  const value = String(given ?? 'unknown');
  return FINISHES[value] ?? (value === 'unknown' ? null : value);
}

/** Returns the finish of an answer, in the form of the SDK's version. */
function natural(given: unknown): unknown {
  return typeof given === 'object' ? { ...given, unified: 'stop' } : 'stop';
}

/** Returns the result of a tool in a prompt. */
function resultOf(part: Part): Result[] {
  if (part.type !== 'tool-result') return [];
  const { toolCallId: id, output } = part;
  const kind = (output as { type?: string } | undefined)?.type;
  const status = kind === 'execution-denied' ? 'denied' : kind === 'error-text' || kind === 'error-json' ? 'error' : 'ok';
  return [{ id, output: kind === 'execution-denied' ? ((output as { reason?: string }).reason ?? 'denied') : outputOf(output), status }];
}

/** Returns the output of a tool in a prompt. */
function outputOf(output: unknown): unknown {
  const isTyped = typeof output === 'object' && output !== null && 'value' in output;
  return isTyped ? (output as { value: unknown }).value : output;
}

function textOf(problem: unknown): string {
  return problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem);
}
