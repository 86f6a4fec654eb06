// A run of a framework's loop, or of a loop in JavaScript, under the kernel.

import type { inspect, InspectOptions } from 'node:util';
import type { AskFields, Call, ModelError, NativeHandle, NativeRun, OutcomeFields, Progress } from './binding.js';
import type { Delta, SpentFields, TurnFields, Usage } from './binding.js';
import { type Body, bytesOf, defined, Detection, type DetectOptions } from './detect.js';
import { factsOf, freezeCalls, freezeSignal, nativeOf, StreamDecoder } from './detect.js';
import { bound, ConfigError } from './errors.js';
import { failureOf } from './failure.js';
import { native } from './native.js';
import { Outcome } from './outcome.js';
import { type PolicySpec, policyOf } from './policy.js';
import { contentOf, jsonOf, type Kinds, limitName, limitsOf, readOptions, shown } from './options.js';
import { Price } from './price.js';
import type { ErrorClass, LimitName, Limits, Termination, ToolStatus } from './vocabulary.js';

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
  /** True if the loop awaits `wait()` before each model call, which `maxRate` and `waitForWindow` need. */
  readonly waits?: boolean | undefined;
  /** Limits on the calls of single tools, for example `{ shell: 20 }`. */
  readonly maxCalls?: Readonly<Record<string, number>> | undefined;
  /** Named values for policies. */
  readonly variables?: Record<string, unknown> | undefined;
  /** Cancels the run when it aborts. */
  readonly signal?: AbortSignal | undefined;
  /** A clock in milliseconds, which replaces the real one. */
  readonly clock?: (() => number) | undefined;
  /** Called once with the outcome. If it throws, the process gets a warning. */
  readonly onEnd?: ((outcome: Outcome) => unknown) | undefined;
}

/** The options of a run that continues a parked one. Its task, model, price and variables are those of that. */
export interface ResumeOptions extends Limits, Pick<RunOptions, 'limits' | 'policy' | 'signal' | 'clock' | 'onEnd'> {
  /** The limits that may be looser than those of the parked run, by their names. */
  readonly allow?: readonly LimitName[] | undefined;
}

/** An ending that the loop of a framework declares, because only the framework knows it. */
export type Declared =
  /** An answer that is not a text: of an output tool, or a structured one. It is not null, and not blank. */
  | { readonly ended: 'submitted'; readonly deliverable: unknown }
  /** A limit of the framework on turns, money or tokens. */
  | { readonly ended: 'error_max_turns' | 'error_max_budget_usd' | 'error_max_tokens' }
  /** Another limit of the framework, or a guardrail; `detail` begins with its name. */
  | { readonly ended: 'error_halted' };

const OPTIONS: Kinds<Omit<RunOptions, keyof Limits>> = {
  limits: 'object',
  policy: 'any',
  task: 'text',
  model: 'text',
  price: 'any',
  inject: 'boolean',
  waits: 'boolean',
  maxCalls: 'object',
  variables: 'object',
  signal: 'signal',
  clock: 'function',
  onEnd: 'function',
};
const RESUME: Kinds<Omit<ResumeOptions, keyof Limits>> = {
  limits: 'object',
  policy: 'any',
  signal: 'signal',
  clock: 'function',
  onEnd: 'function',
  allow: 'list',
};
const ASK: Kinds<AskOptions> = { input: 'any', retry: 'boolean', promptBytes: 'amount', outputCap: 'amount', streaming: 'boolean' };
const RESULT: Kinds<ResultOptions> = { status: 'text', variables: 'object', metrics: 'object', halt: 'text' };
const SPENT: Kinds<SpentFields> = { inputTokens: 'amount', outputTokens: 'amount', costUsd: 'amount', costUnknown: 'boolean', turns: 'count', modelCalls: 'count' };

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

/** Starts a run of the kernel. */
function begin(options: RunOptions): NativeRun {
  const own = readOptions('Run', options, OPTIONS, true);
  const { limits, policy, task, model, price, inject, waits, maxCalls, variables } = options;
  const fields = defined({
    limits: limitsOf(limits, own),
    task,
    model,
    price: price === undefined || price === null ? undefined : { ...Price.of(price) },
    inject,
    waits,
    maxCalls: jsonOf('maxCalls', maxCalls ?? undefined),
    variables: jsonOf('variables', variables ?? undefined),
  });
  const rule = policy === undefined || policy === null ? undefined : policyOf(policy);
  return bound(() => new native.NativeRun(fields, rule));
}

/** Milliseconds until a pause is looked at again: a stop, the deadline or another limit may have ended it. */
const LOOK = 50;

/** The steps of a run, for its handles. */
interface Steps {
  step<T>(call: (at: number) => T): T;
  continues(running: boolean): boolean;
  ended(fields: OutcomeFields): Outcome;
}

/** A handle for model calls, one at a time: of a run, or of a conversation that is next to others. */
abstract class Calls {
  /** The run of the kernel. @internal */
  protected abstract readonly native: NativeRun;

  /** The handle of the calls; null: that of the run itself. @internal */
  protected abstract readonly handle: NativeHandle | null;

  /** Performs a step of the run. @internal */
  protected abstract step<T>(call: (at: number) => T): T;

  /** Stores the outcome as soon as a step reports the end. @internal */
  protected abstract continues(running: boolean): boolean;

  /** Stores the outcome. @internal */
  protected abstract ended(fields: OutcomeFields): Outcome;

  /**
   * Asks if a plain loop may call the model. False: the run has ended.
   *
   * Ends the run if the last response was an answer, or no answer at all (truncated, filtered),
   * unless `input` continues the conversation, or `retry` repeats the last call.
   */
  go(options: AskOptions = {}): boolean {
    return this.continues(this.step((at) => this.native.ask(at, true, askOf(options), this.handle)));
  }

  /**
   * Reports that a framework is about to call the model. False: it must not, because the run has
   * ended. Unlike `go`, this continues after an answer, because the framework decides about that.
   */
  ask(options: AskOptions = {}): boolean {
    return this.continues(this.step((at) => this.native.ask(at, false, askOf(options), this.handle)));
  }

  /**
   * Feeds the model's response, and returns the calls that may run. `given` is anything that `detect`
   * reads, a `Detection`, or a `StreamDecoder`, which is then finished.
   */
  turn(given: Body | Detection | StreamDecoder, options: DetectOptions = {}): Turn {
    const found = given instanceof StreamDecoder ? given.finish() : given;
    const fields =
      found instanceof Detection
        ? this.step((at) => this.native.turn(at, nativeOf(found), this.handle))
        : this.step((at) => this.native.body(at, bytesOf(found), factsOf(options), this.handle));
    freezeCalls(fields.calls);
    freezeCalls(fields.heldBack);
    freezeSignal(fields.signal);
    Object.freeze(fields.usage);
    if (fields.error !== null) Object.freeze(fields.error);
    const outcome = fields.outcome === null ? null : this.ended(fields.outcome);
    return Object.freeze({ ...fields, outcome });
  }

  /** Feeds streamed text while it arrives. False: stop reading, the run has ended. */
  delta(text: string, kind: Delta['kind'] = 'text'): boolean {
    return this.continues(this.step((at) => this.native.delta(at, text, kind, this.handle)));
  }

  /**
   * Feeds the failure of a model call: an exception of an SDK, a `ModelError`, or a message with its
   * kind. The loop may retry it. False: the run has ended.
   */
  failed(problem: unknown, kind?: ErrorClass): boolean {
    const error: ModelError = failureOf(problem, kind);
    return this.continues(this.step((at) => this.native.failed(at, error, this.handle)));
  }

  /**
   * Feeds the result of a tool call. `call` is a `Call` or its id. An output other than text is
   * written as JSON; an `Error` is an error. A result given to a `ModelCall` belongs to its conversation; given
   * to the `Run`, to the run's own if that waits for the id, else to the one that waits longest. A second result of
   * a call is ignored, and so is one of a call that was held back; the id of a call that no response has asked for
   * is an error. False: the run has ended.
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
    return this.continues(this.step((at) => this.native.result(at, id, report, this.handle)));
  }
}

/**
 * A model call of a conversation: of an agent, or of a branch that works at the same time as others. The
 * limits hold over all conversations of the run; repetition is detected in each. From `Run.call`.
 */
export class ModelCall extends Calls {
  protected readonly native: NativeRun;
  protected readonly handle: NativeHandle;
  readonly #run: Steps;

  /** @internal */
  constructor(native: NativeRun, handle: NativeHandle, run: Steps) {
    super();
    this.native = native;
    this.handle = handle;
    this.#run = run;
  }

  protected step<T>(call: (at: number) => T): T {
    return this.#run.step(call);
  }

  protected continues(running: boolean): boolean {
    return this.#run.continues(running);
  }

  protected ended(fields: OutcomeFields): Outcome {
    return this.#run.ended(fields);
  }

  /** Reports that no response will come. A call that is open has then failed. */
  close(): void {
    if (this.native.isParked() || !this.native.isOpen(this.handle)) return;
    this.failed('the call was closed before its response was fed', 'incomplete_stream');
  }

  /** Closes the call at the end of a `using` block. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * A run of an agent's loop under the kernel: it observes the model's responses and the results of
 * tools, and says when to stop, and why.
 *
 * `during` closes the run at the end of a function; `using` does so at the end of a block.
 */
export class Run extends Calls {
  protected readonly native: NativeRun;
  protected readonly handle = null;
  readonly #clock: () => number;
  readonly #began: number;
  readonly #onEnd: ((outcome: Outcome) => unknown) | undefined;
  /** The signal of the caller, and what stops listening to it. */
  readonly #caller: AbortSignal | undefined;
  readonly #listening = new AbortController();
  /** Created when the signal is asked for, because most runs need none. */
  #aborts: AbortController | null = null;
  #outcome: Outcome | null = null;
  #timer: { stop: () => void } | null = null;
  /** The run of the kernel that `resume` hands to the constructor. */
  static #resumed: NativeRun | null = null;

  constructor(options: RunOptions = {}) {
    super();
    const resumed = Run.#resumed;
    this.native = resumed ?? begin(options);
    this.#clock = options.clock ?? (() => performance.now());
    this.#onEnd = options.onEnd ?? undefined;
    // The time before a park counts, and the time in between does not.
    this.#began = this.#clock() - (resumed?.elapsed() ?? 0);
    this.#now();
    const signal = (this.#caller = options.signal ?? undefined);
    if (signal?.aborted === true) this.cancel();
    else signal?.addEventListener('abort', () => this.cancel(), { signal: this.#listening.signal });
  }

  /**
   * Continues a run that `park` wrote, also in another process: with its spending, turns, fingerprints
   * and open tool calls. The time in between does not count. A limit that is looser than the parked one
   * must be named in `allow`. A text can be taken once in a process.
   */
  static resume(text: string, options: ResumeOptions = {}): Run {
    const own = readOptions('Run.resume', options, RESUME, true);
    const { limits, policy, allow, ...rest } = options;
    const given = limits === undefined && Object.keys(own).length === 0 ? undefined : limitsOf(limits, own);
    const rule = policy === undefined || policy === null ? undefined : policyOf(policy);
    const names = (allow ?? []).map(limitName);
    if (typeof text !== 'string') throw new ConfigError(`invalid parked run ${shown(text)}: expected the text of \`park\``);
    const resumed = (Run.#resumed = bound(() => native.NativeRun.resume(text, given, names, rule)));
    try {
      const { signal, clock, onEnd } = rest;
      return new Run({ signal, clock, onEnd });
    } catch (problem) {
      // A clock failed: the text must not be lost.
      resumed.giveBack();
      throw problem;
    } finally {
      Run.#resumed = null;
    }
  }

  /**
   * Returns a handle for the model calls of a conversation, which may be open at the same time as those of
   * others. `of` names the agent or branch: its calls continue each other.
   */
  call(of = ''): ModelCall {
    const handle = bound(() => this.native.call(of));
    return new ModelCall(this.native, handle, {
      step: (call) => this.step(call),
      continues: (running) => this.continues(running),
      ended: (fields) => this.ended(fields),
    });
  }

  /**
   * Parks the run until a person or a client decides, and returns its state as text, which `resume` takes.
   * The run then neither runs nor has ended: it has no outcome, and every other call throws. The text has
   * the conversation in it, so store it where the conversation is stored.
   */
  park(): string {
    const text = this.step((at) => this.native.park(at));
    this.#timer?.stop();
    this.#listening.abort();
    return text;
  }

  /** True if the run is parked. */
  get parked(): boolean {
    return this.#outcome === null && this.native.isParked();
  }

  /** Feeds named values and measurements for policies, such as `last_reward`. */
  observe(given: { variables?: Record<string, unknown>; metrics?: Record<string, unknown> }): boolean {
    readOptions('observe', given, { variables: 'object', metrics: 'object' });
    const [variables, metrics] = [jsonOf('variables', given.variables), jsonOf('metrics', given.metrics)];
    return this.continues(this.step((at) => this.native.observe(at, variables, metrics)));
  }

  /**
   * Adds what a nested run, such as a sub-agent, has spent: the `Run` itself, of which each part is added once; a
   * `Detection` of one of its calls, which has the price of its own model; or numbers, whose turns count towards
   * `max_turns`.
   */
  spent(given: SpentFields | Detection | Run): boolean {
    if (given === this) throw new ConfigError('spent: pass another run, because this one has counted its own');
    if (given instanceof Run) return this.continues(this.step((at) => this.native.spentBy(at, given.native)));
    if (given instanceof Detection) return this.continues(this.step((at) => this.native.spentOn(at, nativeOf(given))));
    readOptions('spent', given, SPENT);
    return this.continues(this.step((at) => this.native.spent(at, given)));
  }

  /**
   * Changes limits of the run, and leaves the others as they are. What was spent so far counts against the
   * new ones.
   */
  setLimits(limits: Limits): boolean {
    const json = limitsOf(limits);
    return this.continues(this.step((at) => this.native.setLimits(at, json)));
  }

  /**
   * Asks if the model may be called again, before it is known that it will be. False: the run has ended, because
   * a limit is reached.
   */
  may(): boolean {
    return this.continues(this.step((at) => this.native.may(at)));
  }

  /**
   * Asks if a nested run, or another one that this run pays for, may call a model. False: the run has ended, also
   * because its money or tokens are spent, or its time is over. Its turns are no limit for others.
   */
  maySpend(): boolean {
    return this.continues(this.step((at) => this.native.maySpend(at)));
  }

  /** Checks the clock. False: the run has ended. */
  tick(): boolean {
    return this.continues(this.step((at) => this.native.tick(at)));
  }

  /**
   * Milliseconds for which the next model call must wait, for `maxRate` or a window of a subscription; null if it
   * may start now, or the run has ended. `wait` waits.
   */
  pauseMs(): number | null {
    if (this.#outcome !== null) return null;
    const left = this.step((at) => this.native.pause(at));
    if (left === null) void this.outcome;
    return left;
  }

  /**
   * Waits as long as the next model call must. A stop, the deadline, other limits and the caller's signal end the
   * wait. False: the run has ended.
   */
  async wait(signal?: AbortSignal): Promise<boolean> {
    for (let left = this.pauseMs(); left !== null && signal?.aborted !== true; left = this.pauseMs()) {
      const part = Math.min(left, LOOK);
      await new Promise((resolve) => setTimeout(resolve, part));
    }
    return this.running;
  }

  /**
   * Returns the messages of Endstop that belong into the next request, and forgets them. Empty
   * unless the run was created with `inject: true`.
   */
  notes(): string[] {
    return bound(() => this.native.notes());
  }

  /** True if a response of the run has asked for a tool call. @internal */
  hasAsked(id: string): boolean {
    return bound(() => this.native.hasAsked(id));
  }

  /** Cancels the run. Returns the outcome, or null if the run is in use by its own policy. */
  cancel(): Outcome | null {
    const fields = this.step((at) => this.native.cancel(at));
    return fields === null ? null : this.ended(fields);
  }

  /** Terminates the run. Returns as `cancel` does. */
  terminate(): Outcome | null {
    const fields = this.step((at) => this.native.terminate(at));
    return fields === null ? null : this.ended(fields);
  }

  /**
   * Reports that code around the run failed, for example a hook of the framework. Ends the run as
   * `error_during_execution`.
   */
  fault(name: string, message: string): Outcome {
    return this.ended(this.step((at) => this.native.fault(at, name, message)));
  }

  /**
   * Reports that the loop is gone, and returns the outcome. The ending of the last response becomes
   * final if `ok`, or the one that the loop declares; a response that was cut, filtered or failed is not
   * made a success by that. A loop that ends with an error, described by `detail`, or with an open call
   * is never a success. A run that has ended keeps its outcome.
   */
  close(ok = true, detail = '', declared?: Declared): Outcome {
    if (this.#outcome !== null) return this.#outcome;
    const json = declared?.ended === 'submitted' ? contentOf(declared.deliverable, true) : undefined;
    return this.ended(this.step((at) => this.native.close(at, ok, detail, declared?.ended, json)));
  }

  /**
   * Runs a loop, and closes the run at its end: with the last answer, with the exception that left
   * the loop, or as cancelled. At `timeout` the run ends as `error_timeout`, and the exception of
   * what `signal` aborted does not leave this method. Null: the loop has parked the run.
   */
  async during(loop: (run: this) => unknown): Promise<Outcome | null> {
    this.arm();
    try {
      await loop(this);
      return this.parked ? null : this.close();
    } catch (problem) {
      const timedOut = this.#outcome?.termination === 'error_timeout' && isAbort(problem);
      this.closeAfter(problem);
      if (timedOut) return this.close();
      throw problem;
    }
  }

  /** Closes the run after an exception that left its loop. @internal */
  closeAfter(problem: unknown, declared?: { detail: string } & Declared): Outcome {
    if (this.isLeft(problem)) this.cancel();
    if (declared !== undefined) return this.close(false, declared.detail, declared);
    return this.close(false, problem instanceof Error ? `${problem.name}: ${problem.message}` : String(problem));
  }

  /** True if the exception is that of a caller that aborted. @internal */
  isLeft(problem: unknown): boolean {
    const isReason = this.#caller?.aborted === true && problem === this.#caller.reason;
    return isReason || isAbort(problem);
  }

  /** Aborts when the run ends. Pass it to the model call, so that the deadline reaches it. */
  get signal(): AbortSignal {
    if (this.#aborts === null) {
      this.#aborts = new AbortController();
      const { outcome } = this;
      if (outcome === null) this.arm();
      else this.#abort(outcome);
    }
    return this.#aborts.signal;
  }

  /** The outcome; null while the run continues, and while it is parked. */
  get outcome(): Outcome | null {
    if (this.#outcome !== null || this.parked) return this.#outcome;
    const { outcome } = this.#progress();
    return outcome === null ? null : this.ended(outcome);
  }

  /** Returns the outcome, and throws `ConfigError` if the run has not ended. */
  finished(): Outcome {
    const { outcome } = this;
    if (outcome !== null) return outcome;
    if (this.parked) throw new ConfigError('the run is parked, so it has no outcome; take it with Run.resume');
    throw new ConfigError('the run has not ended, so it has no outcome; call close()');
  }

  /** True while the run continues. */
  get running(): boolean {
    return this.outcome === null && !this.parked;
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

  /** Known cost so far in US dollars; null if no part of it is known. */
  get costUsd(): number | null {
    return this.#outcome === null ? this.#progress().costUsd : this.#outcome.costUsd;
  }

  /** Milliseconds until `tick` must be called, because a deadline comes then; null without one. */
  get wakeInMs(): number | null {
    const at = this.#outcome === null ? this.#progress().wakeAt : null;
    return at === null ? null : Math.max(0, at - this.#now());
  }

  /** Ends the run at the end of a `using` block, if nothing else has. */
  [Symbol.dispose](): void {
    if (!this.parked) this.close();
  }

  /** What `JSON.stringify` writes. A property of the object, so that `postMessage` refuses a run. */
  readonly toJSON = (): object => {
    if (this.parked) return { running: false, parked: true };
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

  protected step<T>(call: (at: number) => T): T {
    return bound(() => call(this.#now()));
  }

  #progress(): Progress {
    return bound(() => this.native.progress());
  }

  /** Stores the outcome as soon as a step reports the end. */
  protected continues(running: boolean): boolean {
    if (!running) void this.outcome;
    return running;
  }

  protected ended(fields: OutcomeFields): Outcome {
    if (this.#outcome === null) {
      const outcome = (this.#outcome = new Outcome(fields));
      this.#timer?.stop();
      this.#listening.abort();
      this.#abort(outcome);
      if (this.#onEnd !== undefined) void notify(this.#onEnd, outcome);
    }
    return this.#outcome;
  }

  #abort(outcome: Outcome): void {
    this.#aborts?.abort(new DOMException(`the run ended as ${outcome.termination}`, 'AbortError'));
  }

  /** Starts the run's deadline, which `during` and the signal need. @internal */
  arm(): void {
    const wait = this.#timer === null ? this.wakeInMs : null;
    if (wait === null) return;
    let timer: NodeJS.Timeout;
    const due = (): void => {
      const left = this.tick() ? this.wakeInMs : null;
      // The clock of the timer was ahead of the run's.
      if (left !== null) timer = setTimeout(due, left + 1);
    };
    timer = setTimeout(due, wait);
    this.#timer = { stop: () => clearTimeout(timer) };
  }
}

/** Calls a function of the program with the outcome. The run has not failed if it throws. */
async function notify(onEnd: (outcome: Outcome) => unknown, outcome: Outcome): Promise<void> {
  try {
    await onEnd(outcome);
  } catch (problem) {
    process.emitWarning(problem instanceof Error ? problem : String(problem));
  }
}

function isAbort(problem: unknown): boolean {
  // `AbortSignal.timeout` has an exception of its own; a timeout of a client is of another class.
  if (problem instanceof DOMException) return problem.name === 'AbortError' || problem.name === 'TimeoutError';
  // The SDK of OpenAI does not name its errors.
  return problem instanceof Error && (problem.name === 'AbortError' || problem.constructor.name === 'APIUserAbortError');
}

function askOf(options: AskOptions): AskFields {
  readOptions('a model call', options, ASK);
  const { input, ...rest } = options;
  return defined({ ...rest, input: typeof input === 'string' ? [input] : input && [...input] });
}
