// What the adapters share: one run of a framework, its tap, and the rule when to stop.

import type { Call } from '../binding.js';
import { Detection } from '../detect.js';
import { ConfigError, EndstopStopped, VersionError } from '../errors.js';
import type { Outcome } from '../outcome.js';
import { Run, type RunOptions } from '../run.js';
import { Recording, within } from '../tap.js';

/** The settings of a run. */
export type Settings = Omit<RunOptions, 'inject'>;

/** What a framework must do after a response. */
export interface Fed {
  /** The outcome, if the framework must stop. */
  readonly stopped: Outcome | null;
  /** The calls that must not run if it continues, because they are cut. */
  readonly heldBack: readonly Call[];
}

/** One run of a framework. The adapters add the framework's hooks. */
export class Scope {
  /** The run. */
  readonly run: Run;
  /** What the tap saw since the last model call. */
  readonly recording = new Recording();
  /** True if the next model call was already asked for. */
  #asked = false;
  #failed = false;

  constructor(settings: Settings = {}) {
    this.run = new Run(settings);
  }

  /** The outcome, once the run has ended. */
  get outcome(): Outcome {
    return this.run.finished();
  }

  /** Aborts when the run ends, for example at its deadline. */
  get signal(): AbortSignal {
    return this.run.signal;
  }

  /**
   * Calls the framework, and ends the run with it. Returns what the framework returned. An exception
   * leaves this method, and ends the run as well; at `timeout` it is `EndstopStopped`.
   */
  async during<T>(body: () => T | Promise<T>): Promise<T> {
    let returned: { value: T } | null = null;
    const outcome = await this.run.during(async () => {
      returned = { value: await within(this.recording, body) };
    });
    if (returned === null) throw new EndstopStopped(outcome);
    return (returned as { value: T }).value;
  }

  /** Asks for a model call. Throws `EndstopStopped` if the run has ended. */
  beforeCall(streaming: boolean): void {
    if (!this.tryCall(streaming)) throw new EndstopStopped(this.outcome);
    this.#asked = false;
  }

  /** Asks for the next model call. False: the run has ended. */
  tryCall(streaming = false): boolean {
    if (this.#asked && this.run.running) return true;
    this.#asked = this.run.ask({ streaming, retry: this.#failed });
    this.#failed = false;
    this.recording.take();
    return this.#asked;
  }

  /**
   * Feeds the failure of a model call, and returns what must leave the framework. An SDK may fail on a
   * response that the tap understood, for example one that a filter cut; the response then counts.
   */
  failedCall(problem: unknown): unknown {
    if (problem instanceof EndstopStopped) return problem;
    const seen = this.#seen() ?? this.#seenError();
    if (seen !== null && seen.error === null) {
      const { stopped } = this.afterCall(null);
      if (stopped !== null && !stopped.isSuccess) return new EndstopStopped(stopped);
    } else {
      this.recording.take();
      this.run.failed(seen?.error ?? problem);
    }
    this.#failed = true;
    return problem;
  }

  /** Returns the last response that the tap saw; null if it saw none since the call was asked for. */
  #seen(): Detection | null {
    if (this.recording.last === null) this.recording.settle();
    return this.recording.last;
  }

  /** Returns the response that failed in mid-stream, if its bytes name the provider's error. */
  #seenError(): Detection | null {
    this.recording.abandon();
    const last = this.recording.last;
    return last?.error?.kind === 'incomplete_stream' ? null : last;
  }

  /**
   * Feeds the response of a model call: as the tap saw it, or else as the framework describes it.
   *
   * The framework must stop if the run has ended, and if the response is neither an answer nor a
   * request for tools. It would take such a response for an answer, or run a tool with half of its
   * arguments.
   */
  afterCall(described: Detection | null): Fed {
    const response = this.#seen() ?? described;
    this.recording.take();
    if (response === null) {
      throw new ConfigError('the tap saw no response; give the client the fetch of the tap: { fetch: tap() }');
    }
    const turn = this.run.turn(response);
    if (turn.outcome !== null) return { stopped: turn.outcome, heldBack: turn.heldBack };
    if (turn.ending !== null && turn.ending !== 'stop' && turn.ending !== 'submitted') {
      return { stopped: this.run.close(), heldBack: turn.heldBack };
    }
    return { stopped: null, heldBack: turn.heldBack };
  }
}

/** Throws `VersionError` unless the version is one of those that an adapter supports. */
export function requireVersion(what: string, found: unknown, supported: readonly string[], range: string): void {
  if (supported.includes(String(found))) return;
  throw new VersionError(
    `${what} ${String(found)} is not supported: expected ${supported.join(', ')}; the supported versions are ${range}`,
  );
}
