// Finds the compiled half of the package: in the package of this platform, or next to this file in a
// clone of the repository.
//
// Both places are found from this file. A bundler that copies the code elsewhere is therefore an error
// that names the setting, because the search would fail with a message about a missing package.

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

const NAME = '@endstop/node';
const BUILD = 'build it from a clone of the repository with crates/endstop-node/check';

/** Returns the name of this platform as the packages spell it. */
export function platform(): string {
  const name = `${process.platform}-${process.arch}`;
  if (process.platform === 'win32') return `${name}-msvc`;
  if (process.platform !== 'linux') return name;
  const report = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return `${name}-${report.header?.glibcVersionRuntime === undefined ? 'musl' : 'gnu'}`;
}

/** The part of a `package.json` that is read here. */
interface Manifest {
  readonly name?: string;
  readonly version: string;
}

/** Returns the manifest of this package, which is in the folder above its code. */
function readManifest(): Manifest {
  // In a bundle `__dirname` is missing, made up, or the folder of the bundle.
  if (typeof __dirname === 'string') {
    try {
      const file = join(__dirname, '..', 'package.json');
      const manifest = JSON.parse(readFileSync(file, 'utf8')) as Manifest;
      if (manifest.name === NAME) return manifest;
    } catch (problem) {
      if (isDenied(problem)) throw problem;
      // The folder has no manifest.
    }
  }
  throw new LoadError(
    `the code of ${NAME} was copied into a bundle, where it cannot find its binary: ` +
      `mark ${NAME} as external in the settings of the bundler (of Next.js: serverExternalPackages: ['${NAME}'] ` +
      'in next.config), and install it where the bundle runs',
  );
}

/** True if the permissions of the process forbid what an addon needs. */
function isDenied(problem: unknown): boolean {
  const { name, code } = problem as { name?: string; code?: string };
  const names = ['NotCapable', 'PermissionDenied'];
  return names.includes(String(name)) || ['ERR_ACCESS_DENIED', 'ERR_DLOPEN_DISABLED'].includes(String(code));
}

function denied(problem: unknown): LoadError {
  const flags =
    'Deno' in globalThis
      ? 'start Deno with --allow-ffi --allow-read --allow-sys'
      : 'start Node with --allow-addons and --allow-fs-read for the folder of the packages';
  return new LoadError(`the permissions of the process forbid the binary of ${NAME}: ${flags}`, { cause: problem });
}

/** Loads a file or package. A pattern such as `@endstop/node-${name}` would make webpack search for files. */
function requireAny(id: string): unknown {
  return require(id);
}

/** Loads the binary, and says why it cannot be loaded. */
function loaded(id: string): typeof Binding {
  try {
    return requireAny(id) as typeof Binding;
  } catch (problem) {
    if (isDenied(problem)) throw problem;
    throw new LoadError(`the binary ${id} cannot be loaded: ${(problem as Error).message}; ${BUILD}`, { cause: problem });
  }
}

function load(version: string): typeof Binding {
  const name = platform();
  const local = join(__dirname, `endstop.${name}.node`);
  if (existsSync(local)) return loaded(local);
  if (!PLATFORMS.includes(name)) {
    throw new LoadError(
      `@endstop/node has no binary for ${name}, only for ${PLATFORMS.join(', ')}; ${BUILD}`,
    );
  }
  let found: string;
  try {
    found = (requireAny(`@endstop/node-${name}/package.json`) as Manifest).version;
  } catch (problem) {
    if (isDenied(problem)) throw problem;
    throw new LoadError(
      `the package @endstop/node-${name} is missing: it is an optional dependency of ` +
        `@endstop/node; install without --omit=optional, and on this platform, or ${BUILD}`,
    );
  }
  if (found !== version) {
    throw new LoadError(
      `@endstop/node ${version} found @endstop/node-${name} ${found}; install both in one version`,
    );
  }
  return loaded(`@endstop/node-${name}`);
}

/** Reads the manifest, and loads the binary of the same version. */
function loadAll(): { version: string; native: typeof Binding } {
  try {
    const { version } = readManifest();
    return { version, native: load(version) };
  } catch (problem) {
    throw isDenied(problem) ? denied(problem) : problem;
  }
}

/** Version of the package, and its compiled half. */
export const { version, native } = loadAll();
