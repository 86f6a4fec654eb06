// Mastra: an agent's model under the run, and a condition that stops its loop.
//
//   import { Agent } from '@mastra/core/agent';
//   import { Endstop } from '@endstop/node/mastra';
//
//   const endstop = new Endstop({ maxTurns: 25, maxBudgetUsd: 2 });
//   const agent = new Agent({ name, instructions, tools, model: endstop.model(openai('gpt-5')) });
//   const result = await endstop.during(() => agent.generate('Go.', endstop.hooks()));
//   endstop.outcome.termination          // one ending
//
// The model is one of the Vercel AI SDK, and so is the adapter; a model by name (`'openai/gpt-5'`) has
// no hook, and can be put behind `endstop guard`. Read a stream inside of `during`.

import { Endstop as AiSdk } from './ai-sdk.js';
import type { Ending, Loop, Result } from './base.js';

/** A finished step of Mastra: its results are in a payload, but in those of the SDK for `stopWhen`. */
interface Step {
  readonly toolResults?: readonly {
    readonly toolCallId?: string;
    readonly output?: { readonly value?: unknown };
    readonly payload?: { readonly toolCallId: string; readonly result: unknown; readonly isError?: boolean };
  }[];
}

/** What this adapter reads of what `generate` and `stream` return. */
interface Output {
  readonly finishReason?: unknown;
  readonly object?: unknown;
  readonly tripwire?: { readonly reason?: string } | undefined;
}

/** The run of an agent, for each request. */
export class Endstop extends AiSdk {
  override readonly hint: string = 'give the agent `model: endstop.model(…)`, a model of a provider and not its name';

  protected override resultsOf(step: any): Result[] {
    return ((step as Step).toolResults ?? []).map(({ toolCallId = '', output, payload }) => ({
      id: payload?.toolCallId ?? toolCallId,
      output: payload?.result ?? output?.value,
      status: payload?.isError === true ? 'error' : 'ok',
    }));
  }

  protected override endingOf(loop: Loop, value: unknown): Ending {
    const output = (typeof value === 'object' && value !== null ? value : {}) as Output;
    if (output.finishReason === 'suspended') return 'paused';
    const { tripwire } = output;
    if (tripwire !== undefined && tripwire !== null) return { ended: 'error_halted', detail: `tripwire: ${tripwire.reason ?? ''}` };
    return super.endingOf(loop, value);
  }
}
