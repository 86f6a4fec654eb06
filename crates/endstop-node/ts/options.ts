// Reads options: an unknown name, a value of the wrong type and NaN are errors.
//
// JSON has neither NaN nor infinity, and drops functions. A limit that is read from an unset variable of
// the environment would otherwise be off in silence.

import { ConfigError } from './errors.js';
import { native } from './native.js';
import type { Limits } from './vocabulary.js';

/** The types of options. */
export type Kind = 'text' | 'boolean' | 'amount' | 'count' | 'object' | 'function' | 'signal' | 'list' | 'any';

/** The names of options, with their types. */
export type Kinds<T> = { readonly [N in keyof T]-?: Kind };

const EXPECTED: Record<Kind, string> = {
  text: 'text',
  boolean: 'true or false',
  amount: 'a number, 0 or more',
  count: 'a whole number, 0 or more',
  object: 'an object',
  function: 'a function',
  signal: 'an AbortSignal',
  list: 'an array',
  any: 'anything',
};

/** The limits by each of their names. */
const LIMITS = new Map(
  native.limitTable().flatMap((limit) => {
    const { name, kind, choices, obstacle } = limit;
    const given = { name, kind: kind as 'ms' | typeof kind, choices, obstacle };
    const own = [name, camel(name)].map((one) => [one, given] as const);
    if (kind !== 'time') return own;
    const inMs = { ...given, name: `${name}_ms`, kind: 'ms' as const };
    return [...own, [`${name}_ms`, inMs] as const, [camel(`${name}_ms`), inMs] as const];
  }),
);

/** The names of the limits that have an effect on a run of this package. */
export const LIMIT_NAMES = native.limitTable().flatMap(({ name, obstacle }) => (obstacle === null ? [name] : []));

function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** Returns the kernel's name of a limit. */
export function limitName(name: string): string {
  const limit = LIMITS.get(name);
  if (limit === undefined) throw new ConfigError(`limit \`${name}\`: ${native.unknownName(name, LIMIT_NAMES)}`);
  return limit.name.replace(/_ms$/, '');
}

/** Describes a value for a message, without its content if that may be long. */
export function shown(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 60 ? `${value.slice(0, 60)}…` : value);
  if (typeof value === 'bigint') return `${value}n`;
  if (typeof value === 'function') return 'a function';
  if (typeof value !== 'object' || value === null) return String(value);
  if (isThenable(value)) return 'a promise';
  return Array.isArray(value) ? 'an array' : `an object of type ${value.constructor?.name ?? 'Object'}`;
}

/** Checks that options are an object with names, and returns them, also the inherited ones. */
function entriesOf(where: string, given: unknown): [string, unknown][] {
  if (typeof given !== 'object' || given === null || Symbol.iterator in given) {
    throw new ConfigError(`invalid ${where} ${shown(given)}: expected an object such as { maxTurns: 25 }`);
  }
  const entries: [string, unknown][] = [];
  for (const name in given) entries.push([name, (given as Record<string, unknown>)[name]]);
  return entries.filter(([, value]) => value !== undefined);
}

/**
 * Checks the options of a call. `others` names the class of unknown names that the caller reads itself,
 * which are returned.
 */
export function readOptions(where: string, given: object, kinds: Readonly<Record<string, Kind>>, others = false): Record<string, unknown> {
  const rest: Record<string, unknown> = {};
  for (const [name, value] of entriesOf(`options of ${where}`, given)) {
    const kind = Object.hasOwn(kinds, name) ? kinds[name] : undefined;
    if (kind !== undefined) {
      if (value !== null && !isOf(kind, value)) {
        throw new ConfigError(`invalid \`${name}\` ${shown(value)}: expected ${EXPECTED[kind]}`);
      }
    } else if (others && LIMITS.has(name)) {
      rest[name] = value;
    } else {
      const choices = [...Object.keys(kinds), ...(others ? LIMIT_NAMES.map(camel) : [])];
      throw new ConfigError(`option \`${name}\` of ${where}: ${native.unknownName(name, choices)}`);
    }
  }
  return rest;
}

function isOf(kind: Kind, value: unknown): boolean {
  switch (kind) {
    case 'text':
      return typeof value === 'string';
    case 'boolean':
      return typeof value === 'boolean';
    case 'amount':
      return isAmount(value);
    case 'count':
      return isAmount(value) && value <= 0xffff_ffff && Number.isInteger(value);
    case 'object':
      // A Map has no names, and would be empty in silence.
      return typeof value === 'object' && !(Symbol.iterator in (value as object));
    case 'function':
      return typeof value === 'function';
    case 'signal':
      return value instanceof AbortSignal;
    case 'list':
      return Array.isArray(value);
    case 'any':
      return true;
  }
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0;
}

/** Checks a number that counts tokens, dollars or milliseconds. */
export function amount(name: string, value: unknown): number {
  if (isAmount(value)) return value;
  throw new ConfigError(`invalid \`${name}\` ${shown(value)}: expected ${EXPECTED.amount}`);
}

/**
 * Reads limits, given in an object and as options, and returns them as JSON by the kernel's names. A
 * limit that is given twice is an error.
 */
export function limitsOf(limits: Limits | undefined, options: Record<string, unknown> = {}): string {
  const read: Record<string, unknown> = {};
  for (const [name, value] of [...entriesOf('`limits`', limits ?? {}), ...entriesOf('options', options)]) {
    const limit = LIMITS.get(name);
    // Of a name that only other runs know, the reason is better than a list of names.
    if (limit === undefined) throw new ConfigError(`limit \`${name}\`: ${native.unknownName(name, LIMIT_NAMES)}`);
    if (limit.obstacle !== null) throw new ConfigError(`limit \`${name}\`: ${limit.obstacle}`);
    const unit = limit.name.replace(/_ms$/, '');
    const twice = Object.keys(read).find((one) => one.replace(/_ms$/, '') === unit);
    if (twice !== undefined) throw new ConfigError(`limit \`${name}\`: given twice; give each limit once, in \`limits\` or as an option`);
    read[limit.name] = checked(name, limit.kind, value, limit.choices);
  }
  return JSON.stringify(read);
}

function checked(name: string, kind: 'count' | 'usd' | 'time' | 'ms' | 'switch' | 'text' | 'choice', value: unknown, choices: string[]): unknown {
  if (value === null || value === 'off') return value;
  const wrong = (expected: string): ConfigError =>
    new ConfigError(`limit \`${name}\`: expected ${expected}, found ${shown(value)}`);
  switch (kind) {
    case 'count':
      if (!isAmount(value) || !Number.isInteger(value)) throw wrong('a whole number, 0 or more; null switches the limit off');
      return value;
    case 'usd':
      if (!isAmount(value)) throw wrong('a number of US dollars, 0 or more; null switches the limit off');
      return value;
    case 'ms':
      if (!isAmount(value)) throw wrong('a number of milliseconds, 0 or more; null switches the limit off');
      return Math.ceil(value);
    case 'time': {
      // A number of seconds in one language is one of milliseconds in the other.
      const text = typeof value === 'string' ? value.trim() : '';
      if (/^[0-9.]*$/.test(text)) {
        throw wrong(`text with a unit such as '30s' or '500ms', or a number of milliseconds as \`${name.includes('_') ? `${name}_ms` : `${name}Ms`}\``);
      }
      return text;
    }
    case 'switch':
      if (typeof value !== 'boolean') throw wrong('true or false');
      return value;
    case 'text':
      if (typeof value !== 'string') throw wrong('text; null switches the limit off');
      return value;
    case 'choice':
      if (!choices.includes(value as string)) throw wrong(`one of ${choices.join(', ')}`);
      return value;
  }
}

/** Writes named values as JSON. What JSON drops or makes null of is an error. */
export function jsonOf(name: string, given: Record<string, unknown> | undefined): string | undefined {
  if (given === undefined) return undefined;
  return JSON.stringify(given, (key, value: unknown) => {
    const isLost =
      (typeof value === 'number' && !Number.isFinite(value)) || ['function', 'symbol', 'bigint'].includes(typeof value);
    if (isLost || isUnread(value)) {
      throw new ConfigError(`invalid \`${name}.${key}\` ${shown(value)}: expected a value of JSON`);
    }
    return plain(value);
  });
}

/** Writes the output of a tool as text: text as it is, unless it must be JSON as well. */
export function contentOf(output: unknown, isJson = false): string {
  if (typeof output === 'string' && !isJson) return output;
  if (isUnread(output)) {
    const fix = isThenable(output) ? 'await it first' : 'read it first';
    throw new ConfigError(`invalid result of a tool: ${shown(output)}; ${fix}`);
  }
  const seen = (key: string, value: unknown): unknown => {
    if (isUnread(value)) throw new ConfigError(`invalid result of a tool: \`${key}\` is ${shown(value)}; await it first`);
    return typeof value === 'bigint' ? String(value) : plain(value);
  };
  try {
    return JSON.stringify(output, seen) ?? '';
  } catch (problem) {
    if (problem instanceof ConfigError) throw problem;
    throw new ConfigError(`invalid result of a tool: it cannot be written as JSON: ${(problem as Error).message}`);
  }
}

/** Returns the content of a Map or Set, of which JSON would make an empty object. */
function plain(value: unknown): unknown {
  if (value instanceof Map) return Object.fromEntries(value);
  return value instanceof Set ? [...value] : value;
}

function isThenable(value: unknown): boolean {
  return typeof value === 'object' && value !== null && typeof (value as { then?: unknown }).then === 'function';
}

/** True for what has not been waited for or read yet: JSON would make an empty object of it. */
export function isUnread(value: unknown): boolean {
  if (typeof value === 'function') return true;
  if (typeof value !== 'object' || value === null) return false;
  if (isThenable(value) || Symbol.asyncIterator in value) return true;
  return typeof (value as { arrayBuffer?: unknown }).arrayBuffer === 'function';
}
