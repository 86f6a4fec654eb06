// Finds the compiled half of the package: in the package of this platform, or next to this file in a
// clone of the repository.

import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type * as Binding from './binding.js';
import { LoadError } from './errors.js';

/** The platforms for which packages exist. */
const PLATFORMS = [
  'darwin-arm64',
  'darwin-x64',
  'linux-arm64-gnu',
  'linux-x64-gnu',
  'win32-x64-msvc',
];

const BUILD = 'build it from a clone of the repository with crates/endstop-node/check';

/** Returns the name of this platform as the packages spell it. */
export function platform(): string {
  const name = `${process.platform}-${process.arch}`;
  if (process.platform === 'win32') return `${name}-msvc`;
  if (process.platform !== 'linux') return name;
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return `${name}-${report.header?.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}

function load(): typeof Binding {
  const name = platform();
  const local = join(__dirname, `endstop.${name}.node`);
  if (existsSync(local)) return require(local) as typeof Binding;
  if (!PLATFORMS.includes(name)) {
    throw new LoadError(
      `@endstop/node has no binary for ${name}, only for ${PLATFORMS.join(', ')}; ${BUILD}`,
    );
  }
  const own = (
    JSON.parse(readFileSync(join(__dirname, '..', 'package.json'), 'utf8')) as { version: string }
  ).version;
  let found: string;
  try {
    found = (require(`@endstop/node-${name}/package.json`) as { version: string }).version;
  } catch {
    throw new LoadError(
      `the package @endstop/node-${name} is missing: it is an optional dependency of ` +
        `@endstop/node; install without --omit=optional, and on this platform, or ${BUILD}`,
    );
  }
  if (found !== own) {
    throw new LoadError(
      `@endstop/node ${own} found @endstop/node-${name} ${found}; install both in one version`,
    );
  }
  return require(`@endstop/node-${name}`) as typeof Binding;
}

/** The compiled half. */
export const native: typeof Binding = load();
