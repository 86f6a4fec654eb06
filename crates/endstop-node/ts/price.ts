// Prices of models.

import type { PriceFields } from './binding.js';
import { bound } from './errors.js';
import { defined } from './detect.js';
import { native } from './native.js';

/** The price of a model in US dollars per million tokens. It is frozen. */
export class Price {
  constructor(given: {
    /** Dollars per million prompt tokens. */
    input: number;
    /** Dollars per million generated tokens. */
    output: number;
    /** Dollars per million prompt tokens read from a cache; missing: as `input`. */
    cachedInput?: number | null;
    /** Dollars per million prompt tokens written to a cache; missing: as `input`. */
    cacheWrite?: number | null;
  }) {
    const fields = { cachedInput: null, cacheWrite: null, exact: true, contextWindow: null, source: 'given by the user' };
    Object.assign(this, fields, defined(given));
    Object.freeze(this);
    this.cost(0, 0);
  }

  /** Reads text such as `in=3,out=15`. */
  static parse(text: string): Price {
    return new Price(bound(() => native.readPrice(text)));
  }

  /** Returns the cost in US dollars of this many tokens. */
  cost(inputTokens: number, outputTokens: number, cachedInputTokens = 0): number {
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
