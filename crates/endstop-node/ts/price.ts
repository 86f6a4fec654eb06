// Prices of models.

import type { PriceFields } from './binding.js';
import { bound, ConfigError } from './errors.js';
import { defined } from './detect.js';
import { native } from './native.js';
import { amount, type Kinds, readOptions, shown } from './options.js';

/** The price of a model in US dollars per million tokens. */
export interface PriceOptions extends Partial<Omit<PriceFields, 'input' | 'output'>>, Pick<PriceFields, 'input' | 'output'> {}

const OPTIONS: Kinds<PriceOptions> = {
  input: 'amount',
  output: 'amount',
  cachedInput: 'amount',
  cacheWrite: 'amount',
  exact: 'boolean',
  contextWindow: 'amount',
  source: 'text',
};

/** The price of a model in US dollars per million tokens. It is frozen. */
export class Price {
  constructor(given: PriceOptions) {
    readOptions('Price', given, OPTIONS);
    amount('input', given.input);
    amount('output', given.output);
    const fields = { cachedInput: null, cacheWrite: null, exact: true, contextWindow: null, source: 'given by the user' };
    Object.assign(this, fields, defined(given));
    Object.freeze(this);
    this.cost(0, 0);
  }

  /** Reads text such as `in=3,out=15`. */
  static parse(text: string): Price {
    return new Price(bound(() => native.readPrice(text)));
  }

  /** Returns a price that was given as such, or as text. */
  static of(given: Price | string): Price {
    if (typeof given === 'string') return Price.parse(given);
    if (given instanceof Price) return given;
    throw new ConfigError(`invalid \`price\` ${shown(given)}: expected a Price, or text such as 'in=3,out=15'`);
  }

  /** Returns the cost in US dollars of this many tokens. */
  cost(inputTokens: number, outputTokens: number, cachedInputTokens = 0): number {
    const given = { inputTokens, outputTokens, cachedInputTokens };
    for (const [name, count] of Object.entries(given)) amount(name, count);
    return bound(() => native.costOf({ ...this }, inputTokens, outputTokens, cachedInputTokens));
  }
}

export interface Price extends PriceFields {}

/**
 * Returns the price of a model (`provider/model`) from the catalogue, or null if it has none.
 *
 * Prices are upper bounds: if a price depends on the size of the prompt or on the hour, the highest
 * is used.
 */
export function price(model: string): Price | null {
  const found = bound(() => native.priceOf(model));
  return found === null ? null : new Price(found);
}
