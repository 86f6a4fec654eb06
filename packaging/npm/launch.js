#!/usr/bin/env node
// Starts the `endstop` binary of this platform, which is in an optional dependency. There is no install
// script, so that `--ignore-scripts` changes nothing.
'use strict';

const { spawn } = require('node:child_process');
const { constants } = require('node:os');
const { dirname, join } = require('node:path');
const own = require('./package.json');

const platform = `${process.platform}-${process.arch}`;
const name = `@endstop/cli-${platform}`;
const BUILD = 'build it with `cargo install --path crates/endstop-cli` in a clone of the repository';

/** True on a Linux with another C library than glibc, which the binaries need. */
function lacksGlibc() {
  return process.platform === 'linux' && process.report.getReport().header.glibcVersionRuntime === undefined;
}

function failWithoutBinary(what) {
  const known = Object.keys(own.optionalDependencies).map((one) => one.slice('@endstop/cli-'.length));
  fail(`there is no binary for ${what}, only for ${known.join(', ')}, on Linux with glibc 2.31 or later; ${BUILD}`);
}

/** Returns the path of the binary, or exits with a message. */
function findBinary() {
  if (own.optionalDependencies[name] === undefined) failWithoutBinary(platform);
  let manifest;
  try {
    manifest = require.resolve(`${name}/package.json`);
  } catch {
    if (lacksGlibc()) failWithoutBinary(`${platform} without glibc`);
    fail(
      `the package ${name} is missing. It is an optional dependency: install without --omit=optional or ` +
        `--no-optional, and on this platform; or ${BUILD}`,
    );
  }
  const { version } = require(manifest);
  if (version !== own.version) {
    fail(`endstop ${own.version} found ${name} ${version}; install both in one version, for example with npm install endstop@${own.version}`);
  }
  return join(dirname(manifest), process.platform === 'win32' ? 'endstop.exe' : 'endstop');
}

function fail(message) {
  console.error(`error: ${message}`);
  // The command's status for a fault that is not the caller's.
  process.exit(70);
}

const child = spawn(findBinary(), process.argv.slice(2), { stdio: 'inherit' });

// A terminal sends Ctrl-C to the binary as well, for which a second one means something else.
const hasTerminal = [process.stdin, process.stdout, process.stderr].some((stream) => stream.isTTY);
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) {
  process.on(signal, () => {
    if (signal !== 'SIGINT' || !hasTerminal) child.kill(signal);
  });
}
child.on('error', (problem) => {
  // The missing file is then the loader of glibc. Asked only here, because the report takes a while.
  if (problem.code === 'ENOENT' && lacksGlibc()) failWithoutBinary(`${platform} without glibc`);
  fail(`${name} cannot be started: ${problem.message}`);
});
child.on('exit', (status, signal) => {
  // A process that a signal ended has 128 and its number, as in a shell.
  process.exitCode = signal === null ? status : 128 + (constants.signals[signal] ?? 0);
});
