// The outcome of a run.

import type { OutcomeFields } from './binding.js';
import { bound, Unsuccessful } from './errors.js';
import { native } from './native.js';

/**
 * The ending of a run: one, typed, priced and explained.
 *
 * An outcome is an object whether the run succeeded or not, so `if (outcome)` says nothing: ask
 * `outcome.isSuccess`. It is frozen.
 */
export class Outcome {
  /** The declared answer of a submitted run; null: none was declared. */
  readonly deliverable: any;
  /** The proof of a run that made no progress: its repeated calls and results. */
  readonly noProgress: Record<string, any> | null;
  /** The conversation, valid for providers, in the kernel's JSON form. */
  readonly messages: readonly Record<string, any>[];
  readonly #json: string;

  /** @internal */
  constructor(fields: OutcomeFields) {
    const { json, ...shown } = fields;
    this.#json = json;
    const stored = this.toJSON();
    this.deliverable = stored['deliverable'] ?? null;
    this.noProgress = stored['no_progress_snapshot'] ?? null;
    this.messages = Object.freeze(stored['messages'] ?? []);
    Object.freeze(shown.also);
    Object.freeze(shown.usage);
    Object.freeze(shown.decidedBy);
    Object.assign(this, shown);
    Object.freeze(this);
  }

  /** Reads what `JSON.stringify` wrote, or `toJSON` returned, also that of an earlier version. */
  static from(stored: string | object): Outcome {
    const json = typeof stored === 'string' ? stored : JSON.stringify(stored);
    return new Outcome(bound(() => native.readOutcome(json)));
  }

  /** Returns the fields as the last line of `endstop run --json` has them. */
  toJSON(): Record<string, any> {
    return JSON.parse(this.#json) as Record<string, any>;
  }

  /** Returns the outcome if it is a success, and throws `Unsuccessful` otherwise. */
  check(): this {
    if (this.isSuccess) return this;
    throw new Unsuccessful(this);
  }

  toString(): string {
    return `${this.termination}: ${this.evidence}`;
  }
}

export interface Outcome extends Omit<OutcomeFields, 'json'> {}
