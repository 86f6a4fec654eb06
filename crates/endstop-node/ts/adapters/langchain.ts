// LangChain and LangGraph: a middleware for `createAgent`.
//
//   import { createAgent, createMiddleware } from 'langchain';
//   import { tap } from '@endstop/node/tap';
//   import { Endstop } from '@endstop/node/langchain';
//
//   const model = new ChatOpenAI({ configuration: { fetch: tap() } });
//   const endstop = new Endstop({ maxTurns: 25, maxBudgetUsd: 2 });
//   const agent = createAgent({ model, tools, middleware: [endstop.middleware(createMiddleware)] });
//   const state = await endstop.during(() => agent.invoke({ messages: [['user', 'Go.']] }));
//   endstop.outcome.termination          // one ending
//
// The agent is built once and serves any number of requests at the same time; each call of `during` is a
// run of its own, and `onEnd` has each outcome. A run that must not continue jumps to the end of the graph,
// with an answer for each open call, so that the provider accepts the history. Read a stream inside of
// `during`. An interrupt parks the run: `endstop.parked` is the text for `resume`:
//
//   await endstop.during(() => agent.invoke(new Command({ resume }), config), { resume: parked });
//
// Blind spots without the adapter, all of which it covers: a truncated or filtered answer and a cut
// stream are ordinary messages; a streamed call that was cut is repaired to valid JSON, and the tool
// runs with half of its arguments; a loop ends with `GraphRecursionError`. Without the tap, a refusal
// of a streamed response and the half of a call that LangChain repaired are not seen.

import { type Description, type Detection, response } from '../detect.js';
import { ConfigError, VersionError } from '../errors.js';
import type { Outcome } from '../outcome.js';
import type { Declared } from '../run.js';
import { type Ending, type Fed, type Loop, numbersIn, type Result, Scope } from './base.js';

const RANGE = 'langchain >=1.2.20 <2';

/** What this adapter uses of LangChain's messages. */
interface Message {
  readonly text?: string;
  readonly content?: unknown;
  readonly status?: string;
  readonly tool_call_id?: string;
  readonly name?: string;
  readonly tool_calls?: readonly { id?: string; name: string; args: unknown }[];
  readonly invalid_tool_calls?: readonly { id?: string; name?: string; args?: string }[];
  readonly response_metadata?: Record<string, any>;
  readonly additional_kwargs?: Record<string, any>;
  readonly usage_metadata?: Usage;
  getType?(): string;
}

/** The part of the graph's state that this adapter reads. */
interface State {
  readonly messages: readonly Message[];
  readonly structuredResponse?: unknown;
}

/** A model call of an agent. */
interface Request {
  readonly messages: readonly Message[];
  readonly runtime?: { readonly signal?: AbortSignal };
}

/** Parts of a count, by name. */
type Details = Readonly<Record<string, number | undefined>>;

/** The counts of a message. Cached tokens are part of the input, and reasoning is part of the output. */
interface Usage {
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly total_tokens?: number;
  readonly input_token_details?: Details;
  readonly output_token_details?: Details;
}

/** What the adapter remembers of a loop. */
interface Notes {
  /** What the graph must do after each response. */
  fed?: WeakMap<object, Fed>;
  /** The state at the end of the agent. */
  state?: State;
}

/** The run of an agent, for each request. */
export class Endstop extends Scope {
  readonly hint: string = 'give the agent `middleware: [endstop.middleware(createMiddleware)]`';

  /** Makes the middleware, by LangChain's `createMiddleware`. */
  middleware<C extends (config: any) => any>(createMiddleware: C): ReturnType<C> {
    if (typeof createMiddleware !== 'function') {
      throw new VersionError(`langchain has no createMiddleware; the supported versions are ${RANGE}`);
    }
    return createMiddleware({
      name: 'Endstop',
      beforeModel: { canJumpTo: ['end'], hook: (state: State) => this.#beforeModel(state) },
      wrapModelCall: (request: Request, handler: (request: unknown) => Promise<unknown>) =>
        this.#call(request, handler),
      afterModel: { canJumpTo: ['end'], hook: (state: State) => this.#afterModel(state) },
      afterAgent: (state: State) => {
        (this.#loop().notes as Notes).state = state;
      },
    }) as ReturnType<C>;
  }

  #loop(): Loop {
    const { current } = this;
    if (current !== null && !current.isOver) return current;
    throw new ConfigError('the agent runs outside of a run: call it inside of endstop.during(() => agent.invoke(…)), once for each request');
  }

  #beforeModel(state: State): object | undefined {
    const loop = this.#loop();
    for (const { id, output, status } of resultsOf(state.messages)) loop.result(id, output, { status });
    return loop.mayContinue() ? undefined : { jumpTo: 'end' };
  }

  async #call(request: Request, handler: (request: unknown) => Promise<unknown>): Promise<unknown> {
    const loop = this.#loop();
    const attempt = await loop.begin(resultsOf(request.messages), false, request.runtime?.signal);
    let answer: unknown;
    try {
      answer = await attempt.within(() => handler(request));
    } catch (problem) {
      throw attempt.failed(problem);
    }
    const message = messageOf(answer);
    const notes: Notes = loop.notes;
    const fed = attempt.finished(message === null ? null : described(message));
    if (message !== null) (notes.fed ??= new WeakMap()).set(message, fed);
    // The graph ends with its history, and `during` throws.
    if (fed.stopped !== null) loop.refused(fed.stopped);
    return answer;
  }

  #afterModel(state: State): object | undefined {
    const loop = this.#loop();
    const message = state.messages.at(-1);
    const fed = message === undefined ? undefined : (loop.notes as Notes).fed?.get(message);
    if (message === undefined || fed === undefined) {
      const { outcome } = loop.run;
      return outcome === null || outcome.isSuccess ? undefined : { jumpTo: 'end' };
    }
    const { stopped, heldBack } = fed;
    const calls = message.tool_calls ?? [];
    if (stopped !== null) {
      return { jumpTo: 'end', messages: calls.map((call) => notRun(call, reasonOf(stopped))) };
    }
    // LangChain repairs the JSON of a cut call and would run it; it runs no call with an answer.
    const cut = calls.filter((call) => heldBack.some((held) => held.id === call.id));
    return { messages: cut.map((call) => notRun(call, 'the arguments are cut')) };
  }

  protected override endingOf(loop: Loop, value: unknown): Ending {
    const returned = (typeof value === 'object' && value !== null ? value : {}) as Partial<State> & { __interrupt__?: unknown[] };
    if ((returned.__interrupt__?.length ?? 0) > 0) return 'paused';
    const state = Array.isArray(returned.messages) ? returned : ((loop.notes as Notes).state ?? {});
    const { structuredResponse, messages = [] } = state;
    const waited = loop.waiting;
    for (const { id, output, status } of messages.flatMap(resultOf)) {
      if (waited.includes(id)) loop.result(id, output, { status });
    }
    if (structuredResponse !== undefined && structuredResponse !== null) {
      return { ended: 'submitted', deliverable: structuredResponse, detail: 'a structured answer' };
    }
    if (loop.run.ending !== null || loop.isUnused) return null;
    if (loop.waiting.length > 0) return 'paused';
    const last = messages.at(-1);
    const broken = last?.invalid_tool_calls ?? [];
    if (broken.length > 0 && (last?.tool_calls ?? []).length === 0) {
      // LangChain ends with such a message as with an answer.
      loop.run.close(false, `the arguments of a tool call are not JSON: ${broken.map((call) => call.name).join(', ')}`);
      return null;
    }
    const isResult = last?.getType?.() === 'tool' && waited.includes(last.tool_call_id ?? '');
    if (isResult && last.status !== 'error') {
      const deliverable = last.text ?? last.content;
      return { ended: 'submitted', deliverable, detail: `the tool \`${last.name}\` has the answer` };
    }
    // A middleware has jumped to the end, with a message of its own.
    const text = last?.text ?? '';
    if (/^Model call limits? /.test(text)) return { ended: 'error_max_turns', detail: `ModelCallLimitMiddleware: ${text}` };
    const name = /^Tool call limit/i.test(text) ? 'ToolCallLimitMiddleware' : 'jumpTo end';
    return { ended: 'error_halted', detail: `${name}: ${text}` };
  }

  protected override endingAfter(problem: unknown): (Declared & { detail: string }) | undefined {
    if (!(problem instanceof Error)) return undefined;
    const { name, message } = problem;
    const detail = `${name}: ${message}`;
    if (['GraphRecursionError', 'ModelCallLimitMiddlewareError'].includes(name)) return { ended: 'error_max_turns', detail };
    return ['ToolCallLimitExceededError', 'PIIDetectionError'].includes(name) ? { ended: 'error_halted', detail } : undefined;
  }
}

/** Returns the results of tools at the end of a history. */
function resultsOf(messages: readonly Message[]): Result[] {
  const end = messages.slice(messages.findLastIndex((message) => message.getType?.() === 'ai') + 1);
  return end.flatMap(resultOf);
}

function resultOf(message: Message): Result[] {
  if (message.getType?.() !== 'tool') return [];
  const { tool_call_id: id = '', text, content, status } = message;
  return [{ id, output: text ?? content, status: status === 'error' ? 'error' : 'ok' }];
}

/** Returns the model's message in what a model call of the agent returned. */
function messageOf(answer: unknown): Message | null {
  if (typeof answer !== 'object' || answer === null) return null;
  if ((answer as Message).getType?.() === 'ai') return answer as Message;
  return (answer as State).messages?.find((message) => message.getType?.() === 'ai') ?? null;
}

function reasonOf(outcome: Outcome): string {
  return `${outcome.termination}: ${outcome.evidence}`;
}

function notRun(call: { id?: string; name: string }, reason: string): object {
  const { id, name } = call;
  return { role: 'tool', content: `Not run: ${reason}.`, tool_call_id: id ?? '', name, status: 'error' };
}

/** Describes a message of the model. */
function described(message: Message): Detection {
  const facts = message.response_metadata ?? {};
  const finish: unknown = facts['finish_reason'] ?? facts['stop_reason'] ?? facts['finishReason'];
  const { tool_calls: whole = [], invalid_tool_calls: invalid = [] } = message;
  const calls = whole.map((call) => ({ id: call.id ?? '', name: call.name, arguments: call.args }));
  // Arguments that LangChain could not read are evidence that the call was cut.
  const broken = invalid.map((call) => ({ id: call.id ?? '', name: call.name ?? '', arguments: call.args ?? '' }));
  return response({
    text: message.text ?? '',
    finish: typeof finish === 'string' ? finish : null,
    calls: [...calls, ...broken],
    refusal: message.additional_kwargs?.['refusal'] as string | undefined,
    model: (facts['model_name'] ?? facts['model']) as string | undefined,
    ...numbersIn(countsOf(message.usage_metadata ?? {})),
  });
}

/** Returns the counts of a message. */
function countsOf(usage: Usage): Partial<Description> {
  // A service tier stands before the name: `flex_cache_read`.
  const part = (details: Details | undefined, name: string): number =>
    Object.entries(details ?? {}).reduce((sum, [key, count]) => (key === name || key.endsWith(`_${name}`) ? sum + (count ?? 0) : sum), 0);
  const given = usage.input_token_details;
  // Of Anthropic these two replace the sum, or stand next to it.
  const hour = part(given, 'ephemeral_1h_input_tokens');
  const written = hour + part(given, 'ephemeral_5m_input_tokens');
  return {
    inputTokens: usage.input_tokens,
    outputTokens: usage.output_tokens,
    cachedInputTokens: part(given, 'cache_read'),
    cacheWriteTokens: written > 0 ? written : part(given, 'cache_creation'),
    cacheWrite1hTokens: hour,
    reasoningTokens: part(usage.output_token_details, 'reasoning'),
    totalTokens: usage.total_tokens,
  };
}
