#!/usr/bin/env node
// Drives `endstop acp` with the official ACP client of npm, whose schemas check every message of the agent.
//
//     npm install --prefix LAB @agentclientprotocol/sdk
//     node bench/serve/acp_client.mjs LAB target/debug/endstop
//
// A scripted model server calls `shell`, and the client allows a call, denies one, cancels a run, and gets each stop reason.
// Without the package it prints a notice and succeeds.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [lab, endstop] = process.argv.slice(2).map((path) => resolve(path));
let acp;
try {
  acp = await import(pathToFileURL(join(lab, "node_modules/@agentclientprotocol/sdk/dist/v1/stable/acp.js")));
} catch (missing) {
  console.log(`skipped: ${missing.message.split("\n")[0]}; npm install @agentclientprotocol/sdk`);
  process.exit(0);
}

const failed = [];
function check(name, good, detail = "") {
  console.log(`${good ? "good" : "FAILED"}  ${name}  ${detail}`);
  if (!good) failed.push(name);
}

// The SDK reports a message that its schemas reject here.
const rejected = [];
console.error = (...parts) => rejected.push(parts.map(String).join(" ").slice(0, 300));

// The model: the task names what it does.
const model = createServer((request, response) => {
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    const messages = JSON.parse(body).messages;
    const task = messages.findLast((message) => message.role === "user").content;
    const text = typeof task === "string" ? task : task.map((part) => part.text).join("");
    const done = messages.at(-1).role === "tool";
    const [word, command] = text.split(":");
    const calls = word === "call" && !done ? command : word === "loop" ? "true" : null;
    const delta = calls === null ? { content: "Done." } : { tool_calls: [{ index: 0, id: `c${messages.length}`, type: "function", function: { name: "shell", arguments: JSON.stringify({ command: calls }) } }] };
    const finish = { cut: "length", filtered: "content_filter" }[word] ?? (calls === null ? "stop" : "tool_calls");
    const chunks = [{ choices: [{ index: 0, delta }] }, { choices: [{ index: 0, delta: {}, finish_reason: finish }] }, { choices: [], usage: { prompt_tokens: 10, completion_tokens: 5 } }];
    response.writeHead(word === "fail" ? 400 : 200, { "content-type": "text/event-stream" });
    response.end(word === "fail" ? '{"error":{"message":"no"}}' : chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join("") + "data: [DONE]\n\n");
  });
});
await new Promise((listening) => model.listen(0, "127.0.0.1", listening));

const folder = mkdtempSync(join(tmpdir(), "acp-"));
const environment = { ...process.env, HOME: folder, XDG_STATE_HOME: folder, XDG_CONFIG_HOME: folder };
const options = ["--model", "script", "--base-url", `http://127.0.0.1:${model.address().port}/v1`, "--max-turns", "3", "--max-retries", "0"];
const agent = spawn(endstop, ["acp", ...options], { cwd: folder, env: environment, stdio: ["pipe", "pipe", "pipe"] });
let log = "";
agent.stderr.on("data", (part) => (log += part));
const exited = new Promise((exit) => agent.on("exit", (code, signal) => exit(code ?? signal)));
// Every line of the agent, before the SDK reads it.
const lines = [];
let rest = "";
const [shown, seen] = Readable.toWeb(agent.stdout).tee();
(async () => {
  const decoder = new TextDecoder();
  for await (const part of seen) {
    rest += decoder.decode(part, { stream: true });
    const parts = rest.split("\n");
    rest = parts.pop();
    lines.push(...parts.map((line) => JSON.parse(line)));
  }
})();

const asked = [];
let decide = () => ({ outcome: { outcome: "cancelled" } });
const app = acp.client({ name: "check" }).onRequest(acp.methods.client.session.requestPermission, async (context) => {
  asked.push(context.params);
  return decide(context.params);
});
const choose = (kind) => (params) => ({ outcome: { outcome: "selected", optionId: params.options.find((option) => option.kind === kind).optionId } });

const deadline = setTimeout(() => {
  console.log(`FAILED  it hangs\n${log}`);
  process.exit(1);
}, 120_000);

await app.connectWith(acp.ndJsonStream(Writable.toWeb(agent.stdin), shown), async (context) => {
  const initialized = await context.request(acp.methods.agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} });
  check("initialize", initialized.protocolVersion === acp.PROTOCOL_VERSION, JSON.stringify(initialized.agentInfo ?? {}));
  await context.buildSession(folder).withSession(async (session) => {
    const run = async (text, during) => {
      const updates = [];
      const answer = session.prompt(text).catch((error) => ({ error }));
      if (!during) {
        const end = await answer;
        return { end, updates };
      }
      for (;;) {
        const message = await session.nextUpdate();
        if (message.kind === "stop") return { end: await answer, updates };
        updates.push(message.update);
        await during(message.update);
      }
    };
    const termination = (end) => (end.error ? end.error.data?.termination ?? end.error.data?.endstop?.termination : end._meta?.endstop?.termination);

    decide = choose("allow_once");
    let { end, updates } = await run("call:echo allowed", () => {});
    check("permission: allowed", end.stopReason === "end_turn" && asked.length === 1, `${asked[0].toolCall.title}; ${asked[0].options.map((option) => option.kind)}`);
    check("permission: the output is shown", JSON.stringify(updates).includes("allowed"), [...new Set(updates.map((update) => update.sessionUpdate))].join());
    decide = choose("reject_once");
    ({ end, updates } = await run("call:echo denied > denied", () => {}));
    const states = updates.flatMap((update) => update.status ?? []);
    check("permission: denied", end.stopReason === "end_turn" && states.includes("failed"), states.join());
    decide = () => ({ outcome: { outcome: "cancelled" } });
    ({ end } = await run("call:echo dismissed", () => {}));
    check("permission: dismissed", ["end_turn", "cancelled"].includes(end.stopReason), end.stopReason);

    decide = choose("allow_once");
    let cancelled = false;
    ({ end } = await run("call:sleep 60", async (update) => {
      if (!cancelled && update.status === "in_progress") {
        cancelled = true;
        await context.notify(acp.methods.agent.session.cancel, { sessionId: session.sessionId });
      }
    }));
    check("cancel", cancelled && end.stopReason === "cancelled", termination(end));

    for (const [text, reason, ending] of [
      ["answer", "end_turn", "stop"],
      ["loop", "max_turn_requests", "error_max_turns"],
      ["cut", "max_tokens", "error_output_truncated"],
      ["filtered", "refusal", "error_content_filtered"],
      ["fail", undefined, "error_provider_rejected"],
    ]) {
      ({ end } = await run(text));
      check(`stop reason: ${reason ?? "a JSON-RPC error"}`, end.stopReason === reason && termination(end) === ending, termination(end) ?? JSON.stringify(end.error?.data ?? end));
    }
  });
});
agent.stdin.end();
check("the end of the input ends the agent", (await exited) === 0, String(await exited));
check("the schemas accepted every message", rejected.length === 0, `${lines.length} messages, ${lines.filter((line) => line.method === "session/update").length} updates ${rejected[0] ?? ""}`);
model.close();
rmSync(folder, { recursive: true, force: true });
clearTimeout(deadline);
console.log(failed.length ? `${failed.length} checks failed: ${failed.join(", ")}` : "all checks are good");
process.exit(failed.length ? 1 : 0);
