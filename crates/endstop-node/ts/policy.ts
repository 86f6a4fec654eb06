// Termination policies, built in and written in JavaScript.

import type { CodeAnswer, NativePolicy, VerdictFields } from './binding.js';
import { bound, ConfigError } from './errors.js';
import { defined } from './detect.js';
import { native } from './native.js';
import type { Termination } from './vocabulary.js';

/** The decision of a policy about a step: continue, with or without a message, or stop. */
export class Verdict {
  private constructor(fields: Partial<VerdictFields>) {
    const none = { endsAs: null, answer: null, deliverable: null, policy: null, message: null };
    Object.assign(this, { stops: false, evidence: '', ...none, ...fields });
    Object.freeze(this);
  }

  /** A verdict that stops the run. */
  static stop(
    answer: string | null = null,
    options: { evidence?: string; endsAs?: Termination; deliverable?: unknown } = {},
  ): Verdict {
    const { evidence = '', endsAs = 'submitted', deliverable = null } = options;
    bound(() => native.checkPolicyEnd(endsAs));
    return new Verdict({ stops: true, endsAs, answer, evidence, deliverable });
  }

  /** A verdict that continues the run. */
  static proceed(): Verdict {
    return new Verdict({});
  }

  /**
   * A verdict that continues, and sends the model a message. The message is dropped if the framework
   * cannot add one.
   */
  static tell(message: string): Verdict {
    return new Verdict({ message });
  }

  /** @internal */
  static of(fields: VerdictFields): Verdict {
    const json = fields.deliverable as string | null;
    return new Verdict({ ...fields, deliverable: json === null ? null : JSON.parse(json) });
  }
}

export interface Verdict extends VerdictFields {}

/** The outcome of a step: a turn of the model with its tools. */
export interface Step {
  /** Kind of the step: `message`, `final`, `tool` or `code`. */
  readonly actionType: string;
  /** True if the step succeeded. */
  readonly success: boolean;
  /** Text of the step; null if it has none. */
  readonly output: string | null;
  /** Metadata of the step. */
  readonly metadata: Record<string, any>;
  /** The tool calls of the step, in order, with their results if these are known. */
  readonly calls: readonly {
    readonly name: string;
    readonly arguments: string;
    readonly success?: boolean;
    readonly result?: string;
  }[];
  /** The outputs of the step's own code, in call order. What tools return is in `calls`. */
  readonly outputs: readonly {
    readonly name: string;
    readonly actionType: string;
    readonly success: boolean;
    readonly output: string;
  }[];
}

/** The state of a run around a step. */
export interface Context {
  /** The run's task. */
  readonly task: string;
  /** Number of turns completed before this one, from 0. */
  readonly step: number;
  /** Named values, set by tools or by the caller. */
  readonly variables: Record<string, any>;
  /** Measurements, such as `last_reward`. */
  readonly metrics: Record<string, any>;
  /** Cost of the run so far in US dollars, if the price is known. */
  readonly costUsd: number | null;
  /** True if a message that the model did not write arrived since the previous step. */
  readonly messageArrived: boolean;
}

/** What a policy in code returns: nothing or false to continue, true or the answer to stop. */
export type Judgement = Verdict | boolean | string | null | undefined;

/** A policy in code. */
export type PolicyCode = (step: Step, context: Context) => Judgement;

/** A name, `name={json}`, or an object such as `{ any: ['final_pattern', { confidence: {} }] }`. */
export type PolicySpec = Policy | string | Specification;

/** An object, and not a function: `policy('name', code)` makes a policy of one. */
type Specification = { readonly [name: string]: any } & { readonly bind?: never };

let handleOf: (policy: Policy) => NativePolicy;

/** The exception that a policy in code threw last, for the caller that asked it. */
let thrown: { problem: unknown } | null = null;

/**
 * A rule that decides after each step if the run stops. A run works on its own copy, so one policy
 * can serve many runs.
 */
export class Policy {
  readonly #native: NativePolicy;

  static {
    handleOf = (policy) => policy.#native;
  }

  /** Builds a policy from a specification. */
  constructor(specification: PolicySpec) {
    this.#native = specification instanceof native.NativePolicy ? specification : build(specification);
  }

  /** The name that outcomes use. */
  get name(): string {
    return bound(() => this.#native.name);
  }

  /** One line about the policy. */
  get description(): string {
    return bound(() => this.#native.description);
  }

  /** The specification that the policy was built from; null for code. */
  get specification(): unknown {
    const json = bound(() => this.#native.specification);
    return json === null ? null : JSON.parse(json);
  }

  /**
   * Judges a step: a `Step`, or the text of a message. The policy keeps its state between calls,
   * until `reset`. An exception of the policy is thrown here.
   */
  shouldStop(step: Partial<Step> | string, context: Partial<Context> = {}): Verdict {
    const { actionType = 'message', success = true, output = null, metadata = {}, calls = [] } =
      typeof step === 'string' ? { output: step } : step;
    const { task = '', step: number = 0, variables = {}, metrics = {}, costUsd = null } = context;
    thrown = null;
    const judged = bound(() =>
      this.#native.shouldStop(
        JSON.stringify({ action_type: actionType, success, output, metadata, calls }),
        JSON.stringify({ task, step: number, variables, metrics, ...defined({ cost_usd: costUsd }) }),
      ),
    );
    if (judged.verdict !== null) return Verdict.of(judged.verdict);
    const problem = takeThrown();
    throw problem === null ? new ConfigError(judged.failed ?? 'the policy failed') : problem.problem;
  }

  /** Discards the state. */
  reset(): void {
    bound(() => this.#native.reset());
  }

  /** What `JSON.stringify` writes. A property of the object, so that `postMessage` refuses a policy. */
  readonly toJSON = (): unknown => this.specification ?? this.name;

  [Symbol.for('nodejs.util.inspect.custom')](): string {
    return `Policy { ${this.name}: ${this.description} }`;
  }

  /** Returns a policy that stops when one of both does. */
  or(other: PolicySpec): Policy {
    return new Policy(bound(() => this.#native.or(policyOf(other))));
  }

  /** Returns a policy that stops when both do for the same step. */
  and(other: PolicySpec): Policy {
    return new Policy(bound(() => this.#native.and(policyOf(other))));
  }

  /** Returns a policy that stops when this one does not. */
  not(): Policy {
    return new Policy(bound(() => this.#native.not()));
  }

  /** Returns a policy that stops as this one does, but not before `steps` turns are completed. */
  afterSteps(steps: number): Policy {
    return new Policy(bound(() => this.#native.afterSteps(steps)));
  }

  /** Returns a policy that stops when this one does for the `steps`-th step in a row. */
  sustained(steps: number): Policy {
    return new Policy(bound(() => this.#native.sustained(steps)));
  }
}

function build(specification: PolicySpec): NativePolicy {
  if (specification instanceof Policy) return handleOf(specification);
  if (typeof specification === 'string') return bound(() => native.NativePolicy.build(specification, false));
  if (typeof specification === 'object' && specification !== null) {
    return bound(() => native.NativePolicy.build(JSON.stringify(specification), true));
  }
  throw new ConfigError(
    `invalid \`policy\` of type ${typeof specification}: expected a Policy, a name, or a specification; ` +
      "make a policy of a function with policy('name', code)",
  );
}

/** Returns the kernel's form of a policy. */
export function policyOf(specification: PolicySpec): NativePolicy {
  return build(specification);
}

/** Takes the exception that a policy in code threw since the last call of this function. */
export function takeThrown(): { problem: unknown } | null {
  const taken = thrown;
  thrown = null;
  return taken;
}

/**
 * Makes a policy of a function. It returns nothing or false to continue, true or the answer to stop,
 * or a `Verdict`. An exception ends the run as `error_during_execution`, with the stack in the
 * outcome's `errorDiagnostic`.
 */
export function policy(name: string, code: PolicyCode, description = ''): Policy {
  if (typeof code !== 'function') throw notFunction(name, code);
  if (code.constructor.name === 'AsyncFunction') throw notFunction(name, Promise.resolve());
  return policyWithState(name, () => code, description);
}

function notFunction(name: string, given: unknown): ConfigError {
  return new ConfigError(
    `the policy \`${name}\` is ${kindOf(given)}; it must be a function: policy('${name}', (step, context) => …)`,
  );
}

/** Makes a policy with a state: `make` is called once for each run, and returns its function. */
export function policyWithState(name: string, make: () => PolicyCode, description = ''): Policy {
  if (typeof make !== 'function') throw notFunction(name, make);
  const factory = (): ((step: string, context: string) => CodeAnswer) => {
    let code: PolicyCode | null = null;
    return (step, context) => {
      try {
        code ??= make();
        return { verdict: verdictOf(name, code(readStep(step), readContext(context))), failed: null, stack: null };
      } catch (problem) {
        thrown = { problem };
        const isError = problem instanceof Error;
        return { verdict: null, failed: String(problem), stack: isError ? (problem.stack ?? null) : null };
      }
    };
  };
  return new Policy(native.NativePolicy.of(name, description, factory));
}

/** Reads what a policy in code returned. */
function verdictOf(name: string, returned: Judgement): VerdictFields {
  if (returned === undefined || returned === null || returned === false) return { ...Verdict.proceed() };
  if (returned === true) return { ...Verdict.stop() };
  if (typeof returned === 'string') return { ...Verdict.stop(returned) };
  if (returned instanceof Verdict) {
    const { deliverable } = returned;
    return { ...returned, deliverable: deliverable === null ? null : JSON.stringify(deliverable) };
  }
  throw new ConfigError(
    `the policy \`${name}\` returned ${kindOf(returned)}; expected nothing, a boolean, the answer as text, or a Verdict`,
  );
}

function kindOf(value: unknown): string {
  if (value instanceof Promise) return 'a promise, and a policy cannot wait';
  return `a value of type ${typeof value}`;
}

function readStep(json: string): Step {
  const step = JSON.parse(json) as Record<string, any>;
  return Object.freeze({
    actionType: step['action_type'] as string,
    success: step['success'] as boolean,
    output: (step['output'] ?? null) as string | null,
    metadata: (step['metadata'] ?? {}) as Record<string, any>,
    calls: (step['calls'] ?? []) as Step['calls'],
    outputs: ((step['outputs'] ?? []) as Record<string, any>[]).map((one) => ({
      name: one['name'] as string,
      actionType: one['action_type'] as string,
      success: one['success'] as boolean,
      output: one['output'] as string,
    })),
  });
}

function readContext(json: string): Context {
  const context = JSON.parse(json) as Record<string, any>;
  return Object.freeze({
    task: context['task'] as string,
    step: context['step'] as number,
    variables: context['variables'] as Record<string, any>,
    metrics: context['metrics'] as Record<string, any>,
    costUsd: (context['cost_usd'] ?? null) as number | null,
    messageArrived: Boolean(context['message_arrived']),
  });
}

/** Returns a policy that stops when at least `n` of these do. */
export function kOf(n: number, policies: readonly PolicySpec[]): Policy {
  return new Policy(bound(() => native.NativePolicy.kOf(n, policies.map(policyOf))));
}

/** Returns the names of the built-in policies. */
export function policyNames(): string[] {
  return native.policyNames();
}

/** Stops at an answer that the model declares: `FINAL(…)`, `FINAL_VAR(name)`, `SUBMIT(key=value)`. */
export const FINAL: Policy = new Policy('final_pattern');

/** Stops when the metric `last_reward`, or the sum of rewards, reaches a threshold. */
export const REWARD: Policy = new Policy('reward_threshold');

/** Stops at an answer whose confidence reaches a threshold. */
export const CONFIDENCE: Policy = new Policy('confidence');
