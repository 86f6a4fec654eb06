// A run of a framework's loop, or of a loop in JavaScript, under the kernel.

import type { inspect, InspectOptions } from 'node:util';
import type { AskFields, Call, ModelError, NativeRun, OutcomeFields, Progress } from './binding.js';
import type { SpentFields, TurnFields, Usage } from './binding.js';
import { type Body, bytesOf, defined, Detection, type DetectOptions } from './detect.js';
import { factsOf, freezeCalls, freezeSignal, nativeOf, StreamDecoder } from './detect.js';
import { bound, ConfigError } from './errors.js';
import { failureOf } from './failure.js';
import { native } from './native.js';
import { Outcome } from './outcome.js';
import { type PolicySpec, policyOf } from './policy.js';
import { contentOf, jsonOf, type Kinds, limitsOf, readOptions, shown } from './options.js';
import { Price } from './price.js';
import type { ErrorClass, Limits, Termination, ToolStatus } from './vocabulary.js';

/** The options of a run, and its limits by name, for example `{ maxTurns: 25, timeout: '10m' }`. */
export interface RunOptions extends Limits {
  /** Limits in an object of their own. Null switches a limit off; each is given once. */
  readonly limits?: Limits | undefined;
  /** A policy, a name, or a specification. */
  readonly policy?: PolicySpec | undefined;
  /** The task, which policies see. */
  readonly task?: string | undefined;
  /** The model, `provider/model`, whose price is looked up. */
  readonly model?: string | undefined;
  /** A price, or text such as `in=3,out=15`. It takes precedence. */
  readonly price?: Price | string | undefined;
  /** True if the loop adds the messages of `notes()` to its next request. */
  readonly inject?: boolean | undefined;
  /** Named values for policies. */
  readonly variables?: Record<string, unknown> | undefined;
  /** Cancels the run when it aborts. */
  readonly signal?: AbortSignal | undefined;
  /** A clock in milliseconds, which replaces the real one. */
  readonly clock?: (() => number) | undefined;
}

const OPTIONS: Kinds<Omit<RunOptions, keyof Limits>> = {
  limits: 'object',
  policy: 'any',
  task: 'text',
  model: 'text',
  price: 'any',
  inject: 'boolean',
  variables: 'object',
  signal: 'signal',
  clock: 'function',
};
const ASK: Kinds<AskOptions> = { input: 'any', retry: 'boolean', promptBytes: 'amount', outputCap: 'amount', streaming: 'boolean' };
const RESULT: Kinds<ResultOptions> = { status: 'text', variables: 'object', metrics: 'object', halt: 'text' };
const SPENT: Kinds<SpentFields> = { inputTokens: 'amount', outputTokens: 'amount', costUsd: 'amount', turns: 'amount' };

/** A response that was fed to a run. */
export interface Turn extends Omit<TurnFields, 'outcome'> {
  /** The outcome, if the run has ended. */
  readonly outcome: Outcome | null;
}

/** The result of a tool, besides its output. */
export interface ResultOptions {
  /** Status of the call. */
  readonly status?: Exclude<ToolStatus, 'skipped'> | undefined;
  /** Named values for policies. */
  readonly variables?: Record<string, unknown> | undefined;
  /** Measurements for policies, such as `last_reward`. */
  readonly metrics?: Record<string, unknown> | undefined;
  /** A reason to end the run as `error_halted`. */
  readonly halt?: string | undefined;
}

/** A model call that the caller is about to make. */
export interface AskOptions extends Omit<AskFields, 'input'> {
  /** Messages of the user that continue the conversation. */
  readonly input?: string | readonly string[] | undefined;
}

/**
 * A run of an agent's loop under the kernel: it observes the model's responses and the results of
 * tools, and says when to stop, and why.
 *
 * `during` closes the run at the end of a function; `using` does so at the end of a block.
 */
export class Run {
  readonly #native: NativeRun;
  readonly #clock: () => number;
  readonly #began: number;
  /** Created when the signal is asked for, because most runs need none. */
  #aborts: AbortController | null = null;
  #outcome: Outcome | null = null;

  constructor(options: RunOptions = {}) {
    const own = readOptions('Run', options, OPTIONS, true);
    const { limits, policy, task, model, price, inject, variables, signal } = options;
    this.#clock = options.clock ?? (() => performance.now());
    const fields = defined({
      limits: limitsOf(limits, own),
      task,
      model,
      price: price === undefined || price === null ? undefined : { ...Price.of(price) },
      inject,
      variables: jsonOf('variables', variables ?? undefined),
    });
    const rule = policy === undefined || policy === null ? undefined : policyOf(policy);
    this.#native = bound(() => new native.NativeRun(fields, rule));
    this.#began = this.#clock();
    this.#now();
    if (signal?.aborted === true) this.cancel();
    else signal?.addEventListener('abort', () => this.cancel(), { once: true });
  }

  /**
   * Asks if a plain loop may call the model. False: the run has ended.
   *
   * Ends the run if the last response was an answer, or no answer at all (truncated, filtered),
   * unless `input` continues the conversation, or `retry` repeats the last call.
   */
  go(options: AskOptions = {}): boolean {
    return this.#continues(this.#step((at) => this.#native.ask(at, true, askOf(options))));
  }

  /**
   * Reports that a framework is about to call the model. False: it must not, because the run has
   * ended. Unlike `go`, this continues after an answer, because the framework decides about that.
   */
  ask(options: AskOptions = {}): boolean {
    return this.#continues(this.#step((at) => this.#native.ask(at, false, askOf(options))));
  }

  /**
   * Feeds the model's response, and returns the calls that may run. `given` is anything that `detect`
   * reads, a `Detection`, or a `StreamDecoder`, which is then finished.
   */
  turn(given: Body | Detection | StreamDecoder, options: DetectOptions = {}): Turn {
    const found = given instanceof StreamDecoder ? given.finish() : given;
    const fields =
      found instanceof Detection
        ? this.#step((at) => this.#native.turn(at, nativeOf(found)))
        : this.#step((at) => this.#native.body(at, bytesOf(found), factsOf(options)));
    freezeCalls(fields.calls);
    freezeCalls(fields.heldBack);
    freezeSignal(fields.signal);
    Object.freeze(fields.usage);
    if (fields.error !== null) Object.freeze(fields.error);
    const outcome = fields.outcome === null ? null : this.#ended(fields.outcome);
    return Object.freeze({ ...fields, outcome });
  }

  /** Feeds streamed text while it arrives. False: stop reading, the run has ended. */
  delta(text: string, kind: 'text' | 'reasoning' | 'refusal' | 'call' | 'arguments' = 'text'): boolean {
    return this.#continues(this.#step((at) => this.#native.delta(at, text, kind)));
  }

  /**
   * Feeds the failure of a model call: an exception of an SDK, a `ModelError`, or a message with its
   * kind. The loop may retry it. False: the run has ended.
   */
  failed(problem: unknown, kind?: ErrorClass): boolean {
    const error: ModelError = failureOf(problem, kind);
    return this.#continues(this.#step((at) => this.#native.failed(at, error)));
  }

  /**
   * Feeds the result of a tool call. `call` is a `Call` or its id. An output other than text is
   * written as JSON; an `Error` is an error. The result of a call that is not open is ignored. False:
   * the run has ended.
   */
  result(call: Call | string, output: unknown, options: ResultOptions = {}): boolean {
    const failed = output instanceof Error;
    readOptions('result', options, RESULT);
    const report = defined({
      status: options.status ?? (failed ? 'error' : 'ok'),
      content: failed ? `${output.name}: ${output.message}` : contentOf(output),
      variables: jsonOf('variables', options.variables),
      metrics: jsonOf('metrics', options.metrics),
      halt: options.halt,
    });
    const id = typeof call === 'string' ? call : call?.id;
    if (typeof id !== 'string') throw new ConfigError(`invalid call ${shown(call)}: expected a Call or its id`);
    return this.#continues(this.#step((at) => this.#native.result(at, id, report)));
  }

  /** Feeds named values and measurements for policies, such as `last_reward`. */
  observe(given: { variables?: Record<string, unknown>; metrics?: Record<string, unknown> }): boolean {
    readOptions('observe', given, { variables: 'object', metrics: 'object' });
    const [variables, metrics] = [jsonOf('variables', given.variables), jsonOf('metrics', given.metrics)];
    return this.#continues(this.#step((at) => this.#native.observe(at, variables, metrics)));
  }

  /** Adds what a nested run, such as a sub-agent, has spent. Its turns count towards `max_turns`. */
  spent(given: SpentFields): boolean {
    readOptions('spent', given, SPENT);
    return this.#continues(this.#step((at) => this.#native.spent(at, given)));
  }

  /**
   * Changes limits of the run. What was spent so far counts against the new ones; limits that are
   * not given have their defaults.
   */
  setLimits(limits: Limits): boolean {
    const json = limitsOf(limits);
    return this.#continues(this.#step((at) => this.#native.setLimits(at, json)));
  }

  /** Checks the clock. False: the run has ended. */
  tick(): boolean {
    return this.#continues(this.#step((at) => this.#native.tick(at)));
  }

  /**
   * Returns the messages of Endstop that belong into the next request, and forgets them. Empty
   * unless the run was created with `inject: true`.
   */
  notes(): string[] {
    return bound(() => this.#native.notes());
  }

  /** Cancels the run. Returns the outcome, or null if the run is in use by its own policy. */
  cancel(): Outcome | null {
    const fields = this.#step((at) => this.#native.cancel(at));
    return fields === null ? null : this.#ended(fields);
  }

  /** Terminates the run. Returns as `cancel` does. */
  terminate(): Outcome | null {
    const fields = this.#step((at) => this.#native.terminate(at));
    return fields === null ? null : this.#ended(fields);
  }

  /**
   * Reports that code around the run failed, for example a hook of the framework. Ends the run as
   * `error_during_execution`.
   */
  fault(name: string, message: string): Outcome {
    return this.#ended(this.#step((at) => this.#native.fault(at, name, message)));
  }

  /**
   * Reports that the loop is gone, and returns the outcome. The ending of the last response becomes
   * final if `ok`. A loop that ends with an error, described by `detail`, or with an open call is
   * never a success. A run that has ended keeps its outcome.
   */
  close(ok = true, detail = ''): Outcome {
    return this.#outcome ?? this.#ended(this.#step((at) => this.#native.close(at, ok, detail)));
  }

  /**
   * Runs a loop, and closes the run at its end: with the last answer, with the exception that left
   * the loop, or as cancelled. At `timeout` the run ends as `error_timeout`, and the exception of
   * what `signal` aborted does not leave this method.
   */
  async during(loop: (run: this) => unknown): Promise<Outcome> {
    const timer = this.#armed();
    try {
      await loop(this);
      return this.close();
    } catch (problem) {
      const timedOut = this.#outcome?.termination === 'error_timeout' && isAbort(problem);
      this.#closeAfter(problem);
      if (timedOut) return this.close();
      throw problem;
    } finally {
      timer?.stop();
    }
  }

  /** Aborts when the run ends. Pass it to the model call, so that the deadline reaches it. */
  get signal(): AbortSignal {
    if (this.#aborts === null) {
      this.#aborts = new AbortController();
      const { outcome } = this;
      if (outcome !== null) this.#abort(outcome);
    }
    return this.#aborts.signal;
  }

  /** The outcome; null while the run continues. */
  get outcome(): Outcome | null {
    if (this.#outcome !== null) return this.#outcome;
    const { outcome } = this.#progress();
    return outcome === null ? null : this.#ended(outcome);
  }

  /** Returns the outcome, and throws `ConfigError` if the run has not ended. */
  finished(): Outcome {
    const { outcome } = this;
    if (outcome !== null) return outcome;
    throw new ConfigError('the run has not ended, so it has no outcome; call close()');
  }

  /** True while the run continues. */
  get running(): boolean {
    return this.outcome === null;
  }

  /**
   * The ending that the run has if its loop ends now: that of the last response, if it was an answer
   * or failed; null while the model waits for its tools.
   */
  get ending(): Termination | null {
    return this.#outcome?.termination ?? this.#progress().ending;
  }

  /** Number of responses that became part of the conversation. */
  get turns(): number {
    return this.#outcome?.turns ?? this.#progress().turns;
  }

  /** Token usage so far. */
  get usage(): Usage {
    return this.#outcome?.usage ?? this.#progress().usage;
  }

  /** Known cost so far in US dollars. */
  get costUsd(): number {
    return this.#outcome?.costUsd ?? this.#progress().costUsd;
  }

  /** Milliseconds until `tick` must be called, because a deadline comes then; null without one. */
  get wakeInMs(): number | null {
    const at = this.#outcome === null ? this.#progress().wakeAt : null;
    return at === null ? null : Math.max(0, at - this.#now());
  }

  /** Ends the run at the end of a `using` block, if nothing else has. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** What `JSON.stringify` writes. A property of the object, so that `postMessage` refuses a run. */
  readonly toJSON = (): object => {
    const { running, ending, turns, costUsd } = this;
    return { running, ending, turns, costUsd, outcome: this.outcome };
  };

  [Symbol.for('nodejs.util.inspect.custom')](_: number, options: InspectOptions, show: typeof inspect): string {
    return `${this.constructor.name} ${show(this.toJSON(), options)}`;
  }

  #now(): number {
    const now = this.#clock() - this.#began;
    if (Number.isFinite(now)) return now;
    throw new ConfigError('invalid `clock`: expected a function that returns milliseconds as a finite number');
  }

  #step<T>(call: (at: number) => T): T {
    return bound(() => call(this.#now()));
  }

  #progress(): Progress {
    return bound(() => this.#native.progress());
  }

  /** Stores the outcome as soon as a step reports the end. */
  #continues(running: boolean): boolean {
    if (!running) void this.outcome;
    return running;
  }

  #ended(fields: OutcomeFields): Outcome {
    if (this.#outcome === null) {
      this.#outcome = new Outcome(fields);
      this.#abort(this.#outcome);
    }
    return this.#outcome;
  }

  #abort(outcome: Outcome): void {
    this.#aborts?.abort(new DOMException(`the run ended as ${outcome.termination}`, 'AbortError'));
  }

  #closeAfter(problem: unknown): void {
    if (isAbort(problem)) this.cancel();
    else this.close(false, problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem));
  }

  /** Starts the run's deadline. */
  #armed(): { stop: () => void } | null {
    const wait = this.wakeInMs;
    if (wait === null) return null;
    let timer: NodeJS.Timeout;
    const due = (): void => {
      const left = this.tick() ? this.wakeInMs : null;
      // The clock of the timer was ahead of the run's.
      if (left !== null) timer = setTimeout(due, left + 1);
    };
    timer = setTimeout(due, wait);
    return { stop: () => clearTimeout(timer) };
  }
}

function isAbort(problem: unknown): boolean {
  return problem instanceof Error && problem.name === 'AbortError';
}

function askOf(options: AskOptions): AskFields {
  readOptions('a model call', options, ASK);
  const { input, ...rest } = options;
  return defined({ ...rest, input: typeof input === 'string' ? [input] : input && [...input] });
}
