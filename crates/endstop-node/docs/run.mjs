// Compiles and runs the programs of the pages: node run.mjs TSC NODE ROOT
//
// A program is a fenced block `js` of the pages for Node. Each is complete, and runs as it is printed. Its
// model is a server on loopback, which calls each tool once with arguments by the tool's schema, and then
// answers, with JSON if the request has a schema.
import { spawn, spawnSync } from 'node:child_process';
import { createServer } from 'node:net';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { serve } from './server.mjs';

const [tsc, node, root] = process.argv.slice(2);
const here = dirname(fileURLToPath(import.meta.url));

/** Returns a value of a JSON schema. */
function valueOf(schema = {}) {
  if (schema.type === 'object') return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, one]) => [name, valueOf(one)]));
  return { number: 1, integer: 1, boolean: true, array: [] }[schema.type] ?? 'x';
}

/** Answers a request to chat completions or responses. */
function answer(body) {
  const said = body.messages ?? (Array.isArray(body.input) ? body.input : []);
  const isAnswered = said.some((one) => one.role === 'tool' || one.type === 'function_call_output');
  const tools = (body.tools ?? []).map((tool) => tool.function ?? tool).filter((tool) => tool.parameters !== undefined);
  if (tools.length > 0 && !isAnswered) return { calls: tools.map(({ name, parameters }) => [name, JSON.stringify(valueOf(parameters))]) };
  const schema = body.response_format?.json_schema?.schema ?? body.text?.format?.schema;
  return { text: schema === undefined ? 'It is done.' : JSON.stringify(valueOf(schema)) };
}

const files = [
  ...['docs/src/node.md', 'crates/endstop-node/README.md'].map((file) => join(root, file)),
  ...readdirSync(join(root, 'docs/src/node')).map((file) => join(root, 'docs/src/node', file)),
];
/** Returns the folder of a page's programs: that of Mastra has another version of the provider. */
const folderOf = (file) => (basename(file) === 'mastra.md' ? join(here, 'mastra', 'programs') : join(here, 'programs'));
for (const folder of new Set(files.map(folderOf))) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
}
const programs = [];
for (const file of files) {
  const blocks = [...readFileSync(file, 'utf8').matchAll(/^```js\n([^]*?)^```$/gm)];
  blocks.forEach(([, text], n) => {
    const program = join(folderOf(file), `${basename(dirname(file))}-${basename(file, '.md')}-${n + 1}.mjs`);
    writeFileSync(program, text);
    programs.push(program);
  });
}
if (programs.length === 0) throw new Error('the pages have no programs');

const settings = { allowJs: true, checkJs: true, strict: true, noEmit: true, module: 'nodenext', target: 'es2022', lib: ['es2023', 'esnext.disposable', 'dom'], types: ['node'], skipLibCheck: true };
writeFileSync(join(here, 'tsconfig.json'), JSON.stringify({ compilerOptions: settings, include: ['programs', 'mastra/programs'] }));
const compiled = spawnSync(tsc, ['--project', here], { encoding: 'utf8', cwd: here });
process.stdout.write(compiled.stdout);
let failed = compiled.status === 0 ? 0 : 1;
console.log(`tsc: ${programs.length} programs, ${failed === 0 ? 'no errors' : 'errors'}`);

/** The messages of a client. */
const CHAT = JSON.stringify({ messages: [{ id: 'a', role: 'user', parts: [{ type: 'text', text: 'Hi.' }] }] });
/** Calls the route handler that a program exports. */
const ROUTE = `
const { POST } = await import(process.argv[1]);
const response = await POST(new Request('http://localhost/chat', { method: 'POST', body: ${JSON.stringify(CHAT)} }));
console.log(await response.text());`;

const server = await serve({ default: answer });
const environment = { ...process.env, OPENAI_API_KEY: 'x', OPENAI_BASE_URL: server.url, OPENAI_AGENTS_DISABLE_TRACING: '1', LANGSMITH_TRACING: 'false', MASTRA_TELEMETRY_DISABLED: '1' };

/** Returns a port that is free now. */
async function freePort() {
  const probe = createServer();
  await new Promise((resolve) => probe.listen(0, '127.0.0.1', resolve));
  const { port } = probe.address();
  await new Promise((resolve) => probe.close(resolve));
  return port;
}

/** Sends a chat to a program that serves, as soon as it does. */
async function chat(port) {
  for (let tries = 0; tries < 300; tries++) {
    try {
      const headers = { 'content-type': 'application/json' };
      return await (await fetch(`http://127.0.0.1:${port}/chat`, { method: 'POST', headers, body: CHAT })).text();
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  return 'Error: the program does not listen';
}

for (const file of programs) {
  const name = basename(file);
  const text = readFileSync(file, 'utf8');
  const isRoute = text.includes('export async function POST');
  const serves = text.includes('.listen(');
  const port = await freePort();
  const given = isRoute ? ['--input-type=module', '-e', ROUTE, file] : [file];
  const child = spawn(node, given, { cwd: here, env: { ...environment, PORT: String(port) }, timeout: 60_000 });
  let printed = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (part) => { printed += part; });
  const closed = new Promise((resolve) => child.on('close', (status, signal) => resolve(status ?? signal)));
  if (serves) {
    printed += await chat(port);
    child.kill();
  }
  const code = await closed;
  const calls = server.take().requests;
  const isAnswered = !(isRoute || serves) || (calls > 0 && printed.includes('{"type":"data-endstop","data":{"termination":"stop"'));
  const isRight = (serves ? code === 'SIGTERM' : code === 0) && isAnswered && !/Error/.test(printed);
  if (!isRight) failed += 1;
  console.log(`${isRight ? 'ok    ' : 'WRONG '} ${name}: ${calls} model calls${isRight ? '' : `, ended with ${code}\n${printed}`}`);
}
server.close();
process.exit(failed === 0 ? 0 : 1);
