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

/** A finished step of Mastra: its results are in a payload, but in those of the SDK for `stopWhen`. */
interface Step {
  readonly toolResults?: readonly {
    readonly toolCallId?: string;
    readonly output?: { readonly value?: unknown };
    readonly payload?: { readonly toolCallId: string; readonly result: unknown; readonly isError?: boolean };
  }[];
}

/** One run of an agent. */
export class Endstop extends AiSdk {
  /** Feeds the results of a step's tools. */
  override readonly onStepFinish = (step: any): void => {
    for (const { toolCallId = '', output, payload } of (step as Step).toolResults ?? []) {
      const status = payload?.isError === true ? 'error' : 'ok';
      this.run.result(payload?.toolCallId ?? toolCallId, payload?.result ?? output?.value, { status });
    }
  };
}
