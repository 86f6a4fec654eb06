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
// A run that must not continue jumps to the end of the graph, with an answer for each open call, so
// that the provider accepts the history. Read a stream inside of `during`, because the run ends with it.
//
// Blind spots without the adapter, all of which it covers: a truncated or filtered answer and a cut
// stream are ordinary messages; a streamed call that was cut is repaired to valid JSON, and the tool
// runs with half of its arguments; a loop ends with `GraphRecursionError`. Without the tap, a refusal
// of a streamed response and the half of a call that LangChain repaired are not seen.

import { type Detection, response } from '../detect.js';
import { VersionError } from '../errors.js';
import type { Outcome } from '../outcome.js';
import { within } from '../tap.js';
import { Scope } from './base.js';

const RANGE = 'langchain >=1 <2';

/** What this adapter uses of LangChain's messages. */
interface Message {
  readonly text?: string;
  readonly content?: unknown;
  readonly status?: string;
  readonly tool_call_id?: string;
  readonly tool_calls?: readonly { id?: string; name: string; args: unknown }[];
  readonly invalid_tool_calls?: readonly { id?: string; name?: string; args?: string }[];
  readonly response_metadata?: Record<string, any>;
  readonly additional_kwargs?: Record<string, any>;
  readonly usage_metadata?: { input_tokens: number; output_tokens: number };
  getType?(): string;
}

/** The part of the graph's state that this adapter reads. */
interface State {
  readonly messages: readonly Message[];
}

/** One run of an agent. */
export class Endstop extends Scope {
  /** Makes the middleware, by LangChain's `createMiddleware`. */
  middleware<C extends (config: any) => any>(createMiddleware: C): ReturnType<C> {
    if (typeof createMiddleware !== 'function') {
      throw new VersionError(`langchain has no createMiddleware; the supported versions are ${RANGE}`);
    }
    return createMiddleware({
      name: 'Endstop',
      beforeModel: { canJumpTo: ['end'], hook: (state: State) => this.#beforeModel(state) },
      wrapModelCall: (request: unknown, handler: (request: unknown) => Promise<unknown>) =>
        this.#call(() => handler(request)),
      afterModel: { canJumpTo: ['end'], hook: (state: State) => this.#afterModel(state) },
    }) as ReturnType<C>;
  }

  #beforeModel(state: State): object | undefined {
    // The results of the turn before stand together at the end of the history.
    for (let at = state.messages.length - 1; at >= 0; at--) {
      const message = state.messages[at] as Message;
      if (message.getType?.() !== 'tool') break;
      const status = message.status === 'error' ? 'error' : 'ok';
      this.run.result(message.tool_call_id ?? '', message.text ?? message.content, { status });
    }
    return this.tryCall() ? undefined : { jumpTo: 'end' };
  }

  async #call(handler: () => Promise<unknown>): Promise<unknown> {
    // Taken in `beforeModel`, which had the results of the tools.
    this.beforeCall(false);
    try {
      return await within(this.recording, handler);
    } catch (problem) {
      throw this.failedCall(problem);
    }
  }

  #afterModel(state: State): object | undefined {
    const message = state.messages.at(-1);
    if (message?.getType?.() !== 'ai') return undefined;
    const { stopped, heldBack } = this.afterCall(described(message));
    const calls = message.tool_calls ?? [];
    if (stopped !== null) {
      return { jumpTo: 'end', messages: calls.map((call) => notRun(call, reasonOf(stopped))) };
    }
    // LangChain repairs the JSON of a cut call and would run it; it runs no call with an answer.
    const cut = calls.filter((call) => heldBack.some((held) => held.id === call.id));
    return { messages: cut.map((call) => notRun(call, 'the arguments are cut')) };
  }
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
    inputTokens: message.usage_metadata?.input_tokens,
    outputTokens: message.usage_metadata?.output_tokens,
    model: (facts['model_name'] ?? facts['model']) as string | undefined,
  });
}
