// The live page. Text of runs, models and tools is set with textContent only, so nothing in it can
// become an element. Every request goes to the server of the page.
"use strict";

const $ = (id) => document.getElementById(id);
const state = {
  token: null, // in memory only
  filter: "",
  older: null, // the `before` of the next page
  agents: new Map(),
  run: null, // the id of the shown run
  shown: null, // the shown run
  reader: null, // the AbortController of its event stream
  confirmed: null,
};
const LONGEST_SHOWN = 20000;
const MOST_ITEMS = 2000;

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = shortened(String(text));
  if (kind) made.className = kind;
  return made;
}

function shortened(text) {
  return text.length > LONGEST_SHOWN ? text.slice(0, LONGEST_SHOWN) + "\n… (shortened)" : text;
}

function money(usd) {
  return typeof usd === "number" ? "$" + usd.toFixed(4) : "no price";
}

function problem(text) {
  $("problem").textContent = text || "";
  $("problem").hidden = !text;
}

// Sends a request; answers with the JSON body, or throws the server's message.
async function ask(method, path, body) {
  const headers = {};
  if (state.token) headers["Authorization"] = "Bearer " + state.token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method, headers, cache: "no-store", credentials: "omit", redirect: "error",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.status === 401) {
    signIn();
    throw new Error("a token is required");
  }
  const read = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(read?.error?.message || "the server answered " + answer.status);
  return read;
}

function signIn() {
  $("sign-in").hidden = false;
  $("main").hidden = true;
  $("forget").hidden = true;
  $("token").focus();
}

// ---- the list ----

function mark(run) {
  const ended = run.state === "ended";
  const words = ended ? run.termination : run.stopping ? "stopping" : run.state;
  const kind = ended ? run.category : "soft" + (run.state === "running" ? " working" : "");
  return element("span", words, "mark " + (kind || ""));
}

function row(run) {
  const item = element("li");
  const button = element("button");
  button.type = "button";
  button.dataset.run = run.run_id;
  const head = element("span", null, "row-head");
  head.append(mark(run), element("span", (run.turns ?? 0) + " turns, " + money(run.cost_usd), "soft"));
  const waits = run.approvals ? " (waits for approval)" : run.queue_position ? " (place " + run.queue_position + ")" : "";
  button.append(head, element("span", run.agent + waits, "soft"), element("span", run.task, "row-task"));
  button.setAttribute("aria-current", String(run.run_id === state.run));
  item.append(button);
  return item;
}

async function refresh(more) {
  const parts = ["limit=50"];
  if (state.filter) parts.push(state.filter);
  if (more && state.older) parts.push("before=" + encodeURIComponent(state.older));
  const page = await ask("GET", "/v1/runs?" + parts.join("&"));
  const focused = document.activeElement?.dataset?.run;
  const items = page.runs.map(row);
  if (more) $("runs").append(...items);
  else $("runs").replaceChildren(...items);
  state.older = page.next;
  $("more").hidden = !page.next;
  $("empty").hidden = $("runs").children.length > 0;
  const running = page.runs.filter((run) => run.state === "running").length;
  const cost = page.runs.reduce((sum, run) => sum + (run.cost_usd || 0), 0);
  $("totals").textContent = running + " running, " + page.runs.length + " shown, " + money(cost);
  // The focus stays on the run that it was on, for the keyboard.
  if (focused) [...document.querySelectorAll("#runs button")].find((b) => b.dataset.run === focused)?.focus();
}

// ---- one run ----

function pair(list, name, value, gauge) {
  const group = element("div");
  group.append(element("dt", name));
  const shown = element("dd", value);
  if (gauge) {
    const bar = element("progress");
    bar.max = 1;
    bar.value = Math.min(1, gauge);
    bar.setAttribute("aria-label", name);
    shown.append(bar);
  }
  group.append(shown);
  list.append(group);
}

function limit(run, name) {
  const own = state.agents.get(run.agent)?.limits || {};
  const value = run.limits?.[name] ?? run.limits?.[name + "_ms"] ?? own[name] ?? own[name + "_ms"];
  return typeof value === "number" && value > 0 ? value : null;
}

function showGauges(run) {
  const list = $("gauges");
  list.replaceChildren();
  const turns = run.turns ?? 0;
  const most = limit(run, "max_turns");
  pair(list, "Turns", most ? turns + " of " + most : String(turns), most ? turns / most : 0);
  const ceiling = limit(run, "max_budget_usd");
  const cost = run.cost_usd || 0;
  pair(list, "Cost now", money(run.cost_usd) + (ceiling ? " of " + money(ceiling) : ""), ceiling ? cost / ceiling : 0);
  const until = run.ended_ms || Date.now();
  const seconds = run.started_ms ? Math.max(0, until - run.started_ms) / 1000 : 0;
  const time = limit(run, "timeout");
  pair(list, "Time", seconds.toFixed(1) + " s" + (time ? " of " + time / 1000 + " s" : ""), time ? (seconds * 1000) / time : 0);
}

function showRun(run) {
  state.shown = run;
  $("detail-title").textContent = run.agent + " " + run.run_id;
  const line = $("detail-state");
  line.replaceChildren(mark(run));
  if (run.queue_position) line.append(" place " + run.queue_position + " of the queue");
  const from = run.branched_from;
  if (from) line.append(" branch of run " + from.run_id + " after turn " + from.turn);
  $("detail-task").textContent = shortened(run.task);
  const ended = run.state === "ended";
  $("cancel").hidden = $("terminate").hidden = ended;
  showGauges(run);
  if (ended) $("approvals").replaceChildren();
  $("ending").hidden = !ended;
  if (!ended) return;
  const rows = $("ending-rows");
  rows.replaceChildren();
  pair(rows, "Ended as", run.termination + " (" + run.category + ")");
  const by = run.outcome?.decided_by;
  if (by) pair(rows, "Decided by", [by.layer, by.name, by.decision].filter(Boolean).join(", "));
  pair(rows, "Why", run.evidence);
  if (run.outcome?.verified !== null && run.outcome?.verified !== undefined) {
    pair(rows, "Verified", run.outcome.verified ? "yes" : "no");
  }
  for (const call of run.outcome?.no_progress_snapshot?.calls ?? []) {
    pair(rows, "Repeats", shortened(call.name + "(" + call.arguments + ") → " + call.result));
  }
  if (run.next) pair(rows, "Next", run.next + "; more: endstop explain " + run.run_id);
  const answer = run.outcome?.deliverable ?? run.outcome?.last_text;
  if (answer !== null && answer !== undefined) {
    pair(rows, "Answer", "");
    const text = typeof answer === "string" ? answer : JSON.stringify(answer, null, 2);
    rows.lastChild.lastChild.append(element("pre", text));
  }
}

async function reloadRun() {
  const id = state.run;
  if (!id) return;
  const run = await ask("GET", "/v1/runs/" + encodeURIComponent(id));
  if (state.run === id) showRun(run);
}

function addItem(title, text, kind) {
  const item = element("li");
  item.append(element("span", title, "mark " + (kind || "")));
  if (text) item.append(element("pre", text));
  const list = $("timeline");
  list.append(item);
  while (list.children.length > MOST_ITEMS) list.firstChild.remove();
  return item;
}

function approval(event) {
  const box = element("div", null, "approval");
  box.dataset.request = event.request_id;
  box.append(element("p", "The agent asks to run " + event.name + ":"), element("pre", event.canonical));
  const allow = element("button", "Allow");
  const deny = element("button", "Deny", "danger");
  allow.type = deny.type = "button";
  allow.className = "allow";
  const decide = (decision) => () =>
    confirmed(
      decision === "allow" ? "Allow this call of " + event.name + "?" : "Deny this call of " + event.name + "?",
      decision === "allow" ? "Allow" : "Deny", event.canonical, decision === "deny",
      async (reason) => {
        const body = { request_id: event.request_id, decision };
        if (decision === "deny" && reason) body.reason = reason;
        await ask("POST", "/v1/runs/" + encodeURIComponent(state.run) + "/answer", body);
        box.remove();
        addItem(decision === "allow" ? "You allowed " + event.name : "You denied " + event.name);
      });
  allow.addEventListener("click", decide("allow"));
  deny.addEventListener("click", decide("deny"));
  box.append(allow, deny);
  // A resumed run asks again under the same id.
  closeApproval(event.request_id);
  $("approvals").append(box);
}

function closeApproval(request) {
  for (const box of [...$("approvals").children]) {
    if (request === undefined || box.dataset.request === String(request)) box.remove();
  }
}

let streamed = null; // the item with the text of the current turn

function onEvent(event) {
  const own = !event.path;
  const nested = own ? "" : "in " + event.path.join(" / ") + ": ";
  switch (event.type) {
    case "turn_started":
      streamed = null;
      closeApproval();
      addItem(nested + "Turn " + (event.turn ?? "") + (event.attempt > 1 ? ", attempt " + event.attempt : ""), null, "soft");
      break;
    case "text_delta":
      if (!streamed) streamed = addItem(nested + "Text", " ");
      if (streamed.lastChild.textContent.length < LONGEST_SHOWN) streamed.lastChild.append(event.text);
      break;
    case "turn_finished":
      if (streamed) streamed.remove();
      streamed = null;
      if (event.text) addItem(nested + "Text", event.text);
      break;
    case "tool_started":
      addItem(nested + "Tool " + event.name, event.arguments);
      break;
    case "tool_finished":
      addItem(nested + "Result of " + event.name + ": " + event.status + " (" + event.duration_ms + " ms)", event.content, event.status === "ok" ? "" : "capacity");
      break;
    case "approval_requested":
      approval(event);
      break;
    case "parked":
      addItem("Parked: the run waits for a decision" + (event.request?.tool ? " about " + event.request.tool : ""), null, "soft");
      break;
    case "decided":
      // Other requests that were open are asked again.
      closeApproval();
      break;
    case "attempt_failed":
      addItem(nested + "Attempt " + event.attempt + " failed", event.error?.message, "retryable");
      break;
    case "message_injected":
      addItem(nested + "Message from the loop", event.text, "soft");
      break;
    case "rule_hit":
      addItem(nested + "Rule " + event.hit?.rule + " (" + event.hit?.mode + ")", event.hit?.evidence, "capacity");
      break;
    case "verified":
      addItem(nested + (event.passed ? "Verifier accepted" : "Verifier rejected"), event.output, event.passed ? "success" : "capacity");
      break;
    case "stopping":
      addItem("Stopping: " + event.reason, null, "soft");
      break;
    case "warning":
      addItem("Warning", event.message, "capacity");
      break;
    case "hand_over":
      addItem("Hand-over", event.text);
      break;
    case "compacted":
      addItem("The conversation was shortened: " + event.before + " to " + event.after + " messages", null, "soft");
      break;
    case "finished":
      closeApproval();
      addItem("Ended: " + event.outcome?.termination, event.outcome?.decided_by?.evidence, "mark");
      break;
    default:
      break;
  }
  if (["turn_finished", "usage", "finished", "approval_requested", "turn_started", "parked", "decided"].includes(event.type)) {
    reloadRun().catch(() => {});
  }
}

// Follows the events of a run. A stream that breaks is opened again after the last event.
async function follow(id) {
  state.reader?.abort();
  const reader = new AbortController();
  state.reader = reader;
  let last = 0;
  let wait = 500;
  while (!reader.signal.aborted) {
    try {
      const headers = { "Last-Event-ID": String(last) };
      if (state.token) headers["Authorization"] = "Bearer " + state.token;
      const answer = await fetch("/v1/runs/" + encodeURIComponent(id) + "/events", {
        headers, cache: "no-store", credentials: "omit", redirect: "error", signal: reader.signal,
      });
      if (answer.status === 204) return;
      if (!answer.ok) throw new Error("the events answered " + answer.status);
      wait = 500;
      let finished = false;
      for await (const event of parsed(answer.body)) {
        if (event.id) last = Number(event.id);
        if (reader.signal.aborted) return;
        const data = JSON.parse(event.data);
        onEvent(data);
        finished ||= data.type === "finished";
      }
      if (finished) return void (await refresh().catch(() => {}));
    } catch (error) {
      if (reader.signal.aborted) return;
    }
    await new Promise((done) => setTimeout(done, wait));
    wait = Math.min(wait * 2, 10000);
  }
}

// Splits the bytes of an event stream into events.
async function* parsed(body) {
  const source = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await source.read();
    if (done) return;
    text += value;
    let end;
    while ((end = text.indexOf("\n\n")) >= 0) {
      const event = {};
      for (const line of text.slice(0, end).split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) event[line.slice(0, at)] = line.slice(at + 2);
      }
      text = text.slice(end + 2);
      if (event.data) yield event;
    }
  }
}

async function openRun(id) {
  state.run = id;
  $("detail").hidden = !id;
  $("none").hidden = Boolean(id);
  document.body.classList.toggle("one-run", Boolean(id));
  for (const button of document.querySelectorAll("#runs button")) {
    button.setAttribute("aria-current", String(button.dataset.run === id));
  }
  state.reader?.abort();
  if (!id) return;
  $("timeline").replaceChildren();
  $("approvals").replaceChildren();
  streamed = null;
  await reloadRun();
  $("detail-title").focus();
  follow(id);
  await refresh();
}

// ---- confirmation ----

function confirmed(text, yes, what, reason, work) {
  $("confirm-text").textContent = text;
  $("confirm-what").textContent = what || "";
  $("confirm-what").hidden = !what;
  $("confirm-reason-row").hidden = !reason;
  $("confirm-reason").value = "";
  $("confirm-yes").textContent = yes;
  state.confirmed = work;
  $("confirm").showModal();
  // The harmless choice has the focus, so that Enter changes nothing by accident.
  $("confirm-no").focus();
}

function stop(how) {
  const text = how === "cancel" ? "Cancel this run? Its tools get time to end." : "Terminate this run at once?";
  confirmed(text, how === "cancel" ? "Cancel the run" : "Terminate the run", null, false, async () => {
    showRun({ ...(await ask("POST", "/v1/runs/" + encodeURIComponent(state.run) + "/" + how)) });
    await refresh();
  });
}

function guarded(work) {
  return (event) => {
    Promise.resolve(work(event)).then(() => problem(""), (error) => problem(error.message));
  };
}

// ---- beginning ----

async function begin() {
  const { agents } = await ask("GET", "/v1/agents");
  state.agents = new Map(agents.map((agent) => [agent.name, agent]));
  $("agent").replaceChildren(...agents.map((agent) => element("option", agent.name)));
  $("sign-in").hidden = true;
  $("main").hidden = false;
  $("forget").hidden = !state.token;
  await refresh();
  await route();
}

function route() {
  const found = location.hash.match(/^#run=([A-Za-z0-9_-]{1,64})$/);
  return openRun(found ? found[1] : null);
}

$("use-token").addEventListener("click", guarded(() => {
  state.token = $("token").value.trim() || null;
  $("token").value = "";
  return begin();
}));
$("token").addEventListener("keydown", (event) => { if (event.key === "Enter") $("use-token").click(); });
$("forget").addEventListener("click", () => { state.token = null; location.reload(); });
$("filters").addEventListener("click", guarded((event) => {
  const filter = event.target.dataset.filter;
  if (filter === undefined) return;
  state.filter = filter;
  for (const button of $("filters").children) {
    button.setAttribute("aria-pressed", String(button === event.target));
  }
  return refresh();
}));
$("runs").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) location.hash = "run=" + button.dataset.run;
});
$("runs").addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const buttons = [...document.querySelectorAll("#runs button")];
  buttons[buttons.indexOf(document.activeElement) + step]?.focus();
});
$("more").addEventListener("click", guarded(() => refresh(true)));
$("start-run").addEventListener("click", guarded(async () => {
  const run = await ask("POST", "/v1/runs", { agent: $("agent").value, task: $("task").value });
  $("task").value = "";
  await refresh();
  location.hash = "run=" + run.run_id;
}));
$("back").addEventListener("click", () => { location.hash = ""; });
$("cancel").addEventListener("click", () => stop("cancel"));
$("terminate").addEventListener("click", () => stop("terminate"));
$("confirm-yes").addEventListener("click", guarded(async () => {
  const work = state.confirmed;
  const reason = $("confirm-reason").value.trim();
  $("confirm").close();
  if (work) await work(reason);
}));
$("confirm-no").addEventListener("click", () => $("confirm").close());
$("confirm").addEventListener("close", () => { state.confirmed = null; });
addEventListener("hashchange", guarded(route));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && state.run && !$("confirm").open) location.hash = "";
});
setInterval(() => {
  if (!$("main").hidden && !document.hidden && !$("runs").contains(document.activeElement)) refresh().catch(() => {});
}, 3000);
setInterval(() => {
  if (state.run && state.shown?.state === "running" && state.shown.run_id === state.run) showGauges(state.shown);
}, 1000);
begin().catch((error) => problem(error.message));
