// Why an agent's run ended: one ending per run, typed, priced and explained.
//
//   const { detect } = require('@endstop/node');
//   detect('{"choices":[{"message":{"content":"Hi"},"finish_reason":"length"}]}').reason
//   // 'token_limit_reached'
//
// `detect` says why a model stopped its turn. `Run` puts a loop under the kernel, with limits and
// policies; its `Outcome` says how the run ended. `@endstop/node/tap` has a `fetch` that reads
// responses on their way, and `@endstop/node/ai-sdk` and others have the loops of frameworks.

import { bound } from './errors.js';
import { native } from './native.js';
import { LIMIT_NAMES } from './options.js';

export type { Call, DecidedBy, Delta, ModelError, Signal, Usage } from './binding.js';
export { detect, Detection, response, StreamDecoder } from './detect.js';
export type { Body, Description, DetectOptions } from './detect.js';
export { BusyError, ConfigError, EndstopError, EndstopStopped } from './errors.js';
export { FormatError, LoadError, Unsuccessful, VersionError } from './errors.js';
export { Outcome } from './outcome.js';
export { CONFIDENCE, FINAL, kOf, Policy, policy, policyNames, policyWithState, REWARD, Verdict } from './policy.js';
export type { Context, Judgement, PolicyCode, PolicySpec, Step } from './policy.js';
export { version } from './native.js';
export { Price, price } from './price.js';
export { Run } from './run.js';
export type { AskOptions, ResultOptions, RunOptions, Turn } from './run.js';
export { Category, Confidence, ErrorClass, SignalReason, Termination, ToolStatus } from './vocabulary.js';
export type { LimitName, Limits } from './vocabulary.js';

/** Returns the limits that apply if nothing is set, by the kernel's names. */
export function defaultLimits(): Record<string, number | string | boolean | null> {
  return JSON.parse(native.defaultLimits()) as Record<string, number | string | boolean | null>;
}

/** Returns the names of the limits that have an effect on a run. */
export function limitNames(): string[] {
  return [...LIMIT_NAMES];
}

/** Removes credentials from text: those of known formats, and the given keys wherever they occur. */
export function redact(text: string, keys: string[] = []): string {
  return bound(() => native.redact(text, keys));
}
