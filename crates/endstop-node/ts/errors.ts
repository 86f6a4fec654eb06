// The exceptions of the package.
//
// How a run ended is an `Outcome` and never an exception, except through `Outcome.check`.

import type { Outcome } from './outcome.js';

/** The base of the exceptions of this package. */
export class EndstopError extends Error {
  constructor(message: string, options?: { cause?: unknown }) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** An invalid limit, policy, price or argument. The message names it, and the choices. */
export class ConfigError extends EndstopError {}

/** A response in an unknown or ambiguous format; pass `api`. */
export class FormatError extends EndstopError {}

/** An object that another call is using: a policy that calls its own run. */
export class BusyError extends EndstopError {}

/** A framework whose version the adapter does not support. */
export class VersionError extends EndstopError {}

/** A platform without a binary, or a package that was installed without it. */
export class LoadError extends EndstopError {}

/** A run that did not succeed, from `Outcome.check`. */
export class Unsuccessful extends EndstopError {
  constructor(readonly outcome: Outcome) {
    super(`the run ended as ${outcome.termination}: ${outcome.evidence}`);
  }
}

/** The run has ended, so that the framework must not continue; `outcome` says how. */
export class EndstopStopped extends EndstopError {
  constructor(readonly outcome: Outcome) {
    super(`Endstop: ${outcome.termination}: ${outcome.evidence}`);
  }
}

const CLASSES: Record<string, new (message: string) => EndstopError> = {
  ENDSTOP_CONFIG: ConfigError,
  ENDSTOP_FORMAT: FormatError,
  ENDSTOP_BUSY: BusyError,
};

/** Calls the binding, and turns its errors into the classes of this package. */
export function bound<T>(call: () => T): T {
  try {
    return call();
  } catch (problem) {
    const kind = CLASSES[(problem as { code?: string }).code ?? ''];
    throw kind === undefined ? problem : new kind((problem as Error).message);
  }
}
