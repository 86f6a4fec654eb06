"""Single facts about single clients: each check returns if it is as it should be, and what it saw."""
import base64
import json
import os
import signal

import compare
import trial
from clients import CLIENTS, KEY, Client, write
from install import NPM

DETAILS = []
SCHEMA = '{"type":"object","properties":{"answer":{"type":"string"}},"required":["answer"]}'


def check(client, title):
    def add(function):
        function.about = (client, title)
        DETAILS.append(function)
        return function
    return add


class Lab:
    """Runs one client in a place of its own."""

    def __init__(self, lab, folders, endstop, name, title, command=None):
        own = next(client for client in CLIENTS if client.name == name)
        self.client = Client(f"{name} {title}", own.kind, own.group, own.package, command or own.command, **own.more)
        self.lab, self.folder, self.endstop = lab, folders[own.group], endstop

    def direct(self, scenario, **more):
        return trial.run(self.lab, self.client, self.folder, scenario, **more)

    def guard(self, scenario, *options, **more):
        return trial.run(self.lab, self.client, self.folder, scenario, [self.endstop, *options], **more)


def kinds(result):
    return [request["kind"] for request in result.requests if request["format"]]


def agent(result):
    return (result.outcome or {}).get("agent", {})


def seen(result):
    made = agent(result)
    return (f"`{result.ending}`, exit {result.status}, agent {made.get('exit_status')}, {len(kinds(result))} calls, "
            f"{made.get('final_texts')} told, {made.get('refusals')} refused, {made.get('threads')} threads, {len(result.left)} left")


def told_once(lab, folders, endstop, name, options):
    result = Lab(lab, folders, endstop, name, "stop" + "".join(options)).guard({"turns": 60}, "--max-turns", "2", *options)
    return result, result.ending == "error_max_turns" and result.told == 1 and result.status == 20 and not result.left


@check("Claude Code", "a final text ends it with one call")
def claude_final(lab, folders, endstop):
    result, good = told_once(lab, folders, endstop, "Claude Code", [])
    return good and agent(result).get("exit_status") == 0 and "Run stopped by endstop" in result.out, seen(result)


@check("Claude Code", "402 ends it with one call")
def claude_refused(lab, folders, endstop):
    result, good = told_once(lab, folders, endstop, "Claude Code", ["--on-limit", "refuse"])
    return good and agent(result).get("exit_status") == 1, seen(result)


@check("Claude Code", "sub-agents in the background: untouched")
def claude_subs(lab, folders, endstop):
    return subs(lab, folders, endstop, "Claude Code", 2)


@check("Claude Code", "sub-agents in the background: turn limit")
def claude_subs_limit(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "Claude Code", "subs-limit")
    result = lab.guard({"subs": 2}, "--max-turns", "2")
    return result.ending == "error_max_turns" and result.status == 20 and not result.left and not result.hung, seen(result)


@check("Claude Code", "--json-schema: untouched")
def claude_schema(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "Claude Code", "schema")
    scenario = {"tool": ["StructuredOutput", {"answer": "yes"}], "turns": 1}
    direct = lab.direct(scenario, words=["--json-schema", SCHEMA])
    guarded = lab.guard(scenario, words=["--json-schema", SCHEMA])
    found = [fault for fault in compare.differences(direct, guarded) if "final text" not in fault]
    return not found and guarded.ending == "stop", "; ".join(found)[:300] or seen(guarded)


@check("Claude Code", "--json-schema: refused, not answered in prose")
def claude_schema_stop(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "Claude Code", "schema-stop")
    result = lab.guard({"turns": 60}, "--max-turns", "2", words=["--json-schema", SCHEMA])
    made = agent(result)
    return result.ending == "error_max_turns" and made.get("final_texts") == 0 and made.get("refusals", 9) <= 2, seen(result)


@check("Claude Code", "compaction is not a part of the conversation")
def claude_compaction(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "Claude Code", "compaction")
    # The client's window is larger than any prompt of this provider, so it is set to a smaller one.
    result = lab.guard({"turns": 4, "usage": [2, 90000]}, "--max-turns", "30",
                       variables={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000"})
    turns = (result.outcome or {}).get("turns", 0)
    texts = [json.dumps(request["body"]["messages"]) for request in result.requests if request["format"]]
    summaries = sum("Respond with TEXT ONLY" in text for text in texts)
    restarted = any("session is being continued" in text for text in texts)
    if not restarted:
        return False, f"not shown: the client did not compact; {seen(result)}"
    # The history restarts after the summary, in the same conversation. The summary offers tools, so it counts.
    good = summaries >= 1 and turns == len(texts) and agent(result).get("threads") == 1
    return good and result.ending == "stop", f"{turns} turns, {summaries} summaries; {seen(result)}"


def subs(lab, folders, endstop, name, count):
    lab = Lab(lab, folders, endstop, name, "subs")
    scenario = {"subs": count, "command": "sleep 5"}
    direct = lab.direct(scenario)
    guarded = lab.guard(scenario)
    made = [sorted(set(kinds(result))) for result in (direct, guarded)]
    good = guarded.ending == "stop" and "sub" in made[1] and made[0] == made[1] and direct.status == guarded.status
    return good and agent(guarded).get("threads", 0) >= 2 and not guarded.left, seen(guarded)


@check("codex", "its WebSocket is answered with 426")
def codex_426(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "codex", "426")
    direct, guarded = lab.direct({}), lab.guard({})
    sockets = [sum(request["method"] == "GET" and request["path"].endswith("/responses") for request in result.requests)
               for result in (direct, guarded)]
    return guarded.ending == "stop" and sockets[1] == 0, f"{sockets[0]} upgrades without guard, {sockets[1]} reached the provider with it"


@check("codex", "400 ends it with one call")
def codex_400(lab, folders, endstop):
    result, good = told_once(lab, folders, endstop, "codex", ["--on-limit", "refuse"])
    return good and agent(result).get("exit_status") == 1, seen(result)


@check("codex", "sub-agents")
def codex_subs(lab, folders, endstop):
    return subs(lab, folders, endstop, "codex", 1)


@check("codex", "base URL in its configuration file")
def codex_file(lab, folders, endstop):
    def command(folder, base, home):
        os.makedirs(f"{home}/.codex")
        with open(f"{home}/.codex/config.toml", "w") as file:
            file.write(f'openai_base_url = "{base}/v1"\n')
        words, variables = next(client for client in CLIENTS if client.name == "codex").command(folder, base, home)
        at = words.index("-c")
        return words[:at] + words[at + 2:], variables
    result = Lab(lab, folders, endstop, "codex", "file", command).guard({"turns": 60}, "--max-turns", "2")
    return result.ending == "error_max_turns" and len(kinds(result)) == 2, seen(result)


@check("codex", "zstd bodies of a ChatGPT login")
def codex_zstd(lab, folders, endstop):
    def command(folder, base, home):
        words, _ = next(client for client in CLIENTS if client.name == "codex").command(folder, base, home)
        claims = {"email": "a@b.c", "exp": 4_000_000_000,
                  "https://api.openai.com/auth": {"chatgpt_plan_type": "pro", "chatgpt_account_id": "acc", "chatgpt_user_id": "u"}}
        part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        token = f"eyJhbGciOiJub25lIn0.{part}.c2ln"
        write(home, ".codex/auth.json", {"auth_mode": "chatgpt", "OPENAI_API_KEY": None, "last_refresh": "2026-11-22T00:00:00Z",
                                         "tokens": {"id_token": token, "access_token": token, "refresh_token": "r", "account_id": "acc"}})
        return words, {}
    result = Lab(lab, folders, endstop, "codex", "zstd", command).guard({"turns": 60}, "--max-turns", "2")
    packed = sum(dict(request["headers"]).get("content-encoding") == "zstd" for request in result.requests)
    return result.ending == "error_max_turns" and packed == 2, f"{packed} packed bodies; {seen(result)}"


def started(_provider, work):
    return os.path.exists(os.path.join(work, "started"))


def with_signal(lab, folders, endstop, name, title, number, settle=0):
    lab = Lab(lab, folders, endstop, name, title)
    return lab.guard({"turns": 60, "command": "touch started; sleep 400"}, when=started, settle=settle,
                     act=lambda process: process.send_signal(number))


def terminated(name):
    @check(name, "SIGTERM to guard leaves nothing")
    def term(lab, folders, endstop):
        result = with_signal(lab, folders, endstop, name, "term", signal.SIGTERM)
        return result.ending == "terminated" and result.status == 143 and not result.left, seen(result)


def killed(name):
    @check(name, "kill -9 of guard leaves nothing")
    def kill(lab, folders, endstop):
        result = with_signal(lab, folders, endstop, name, "kill", signal.SIGKILL, settle=15)
        leaks = planted(result)
        return not result.left and not leaks, f"{len(result.left)} left {result.left} {leaks}".strip()


AGENTS = ["Claude Code", "codex", "Gemini CLI", "opencode", "Qwen Code", "pi"]
for each in AGENTS:
    terminated(each)
    killed(each)


def planted(result):
    """Files of guard with the key; clients store it in their own."""
    found = []
    for folder, _, names in os.walk(os.path.join(result.place, "tmp")):
        for name in names:
            try:
                with open(os.path.join(folder, name), "rb") as file:
                    found += [name] if KEY.encode() in file.read() and "endstop" in folder else []
            except OSError:
                continue
    return found


@check("Gemini CLI", "the API key is selected without the user's settings")
def gemini_settings(lab, folders, endstop):
    def command(folder, base, home):
        words, variables = next(client for client in CLIENTS if client.name == "Gemini CLI").command(folder, base, home)
        os.remove(f"{home}/.gemini/settings.json")
        return words, variables
    lab = Lab(lab, folders, endstop, "Gemini CLI", "settings", command)
    direct, guarded = lab.direct({}), lab.guard({})
    return guarded.status == 0 and guarded.ending == "stop", f"exit {direct.status} without guard; {seen(guarded)}"


@check("Gemini CLI", "a stopped sub-agent asks once more")
def gemini_chance(lab, folders, endstop):
    result = Lab(lab, folders, endstop, "Gemini CLI", "chance").guard({"subs": 1}, "--max-turns", "2")
    return result.ending == "error_max_turns" and result.told <= 4 and not result.hung, seen(result)


@check("opencode", "base URL in its configuration")
def opencode_config(lab, folders, endstop):
    def command(folder, base, home):
        words, variables = next(client for client in CLIENTS if client.name == "opencode").command(folder, base, home)
        config = {"autoupdate": False, "provider": {"anthropic": {"options": {"baseURL": f"{base}/v1", "apiKey": KEY}}}}
        del variables["ANTHROPIC_BASE_URL"]
        return words, variables | {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}
    result = Lab(lab, folders, endstop, "opencode", "config", command).guard({"turns": 60}, "--max-turns", "2")
    return result.ending == "error_max_turns" and kinds(result).count("main") == 2, seen(result)


@check("opencode", "base URL without /v1")
def opencode_short(lab, folders, endstop):
    def command(folder, base, home):
        words, variables = next(client for client in CLIENTS if client.name == "opencode").command(folder, base, home)
        return words, variables | {"ANTHROPIC_BASE_URL": base}
    lab = Lab(lab, folders, endstop, "opencode", "short", command)
    direct, guarded = lab.direct({}), lab.guard({})
    paths = [sorted({request["path"] for request in result.requests if request["format"]}) for result in (direct, guarded)]
    # The client leaves out the version, and guard restores it, because Anthropic's API has no other path.
    good = guarded.ending == "stop" and paths[1] == ["/v1/messages"]
    return good, f"paths without guard {paths[0]}, with it {paths[1]}"


@check("opencode", "child sessions")
def opencode_subs(lab, folders, endstop):
    return subs(lab, folders, endstop, "opencode", 1)


@check("Qwen Code", "sub-agents in the background")
def qwen_subs(lab, folders, endstop):
    return subs(lab, folders, endstop, "Qwen Code", 1)


@check("pi", "a stream that stops in a tool call does not run it")
def pi_cut(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "pi", "cut")
    command = "touch was-run; touch " + "x" * 200
    result = lab.guard({"turns": 2, "hang": 0, "command": command}, "--timeout", "10s")
    ran = os.path.exists(os.path.join(result.place, "work", "was-run"))
    return result.ending == "error_timeout" and not ran, f"{'run' if ran else 'not run'}; {seen(result)}"


@check("pi", "it continues after a tool call that the provider cut")
def pi_length(lab, folders, endstop):
    result = Lab(lab, folders, endstop, "pi", "length").guard({"turns": 3, "cut": "length"})
    return result.ending == "stop" and len(kinds(result)) > 1, seen(result)


@check("openai (Python), Responses", "previous_response_id is one conversation")
def chained(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "openai (Python), Responses", "chain")
    whole = lab.guard({}, variables={"CHAIN": "1"})
    result = lab.guard({"turns": 60}, "--max-turns", "2", variables={"CHAIN": "1"})
    good = whole.ending == "stop" and agent(whole).get("threads") == 1 and (whole.outcome or {}).get("turns") == 3
    return good and result.ending == "error_max_turns" and len(kinds(result)) == 2, seen(result)


@check("openai (Python)", "a stream without usage is marked, and the budget holds")
def no_usage(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "openai (Python)", "no-usage")
    result = lab.guard({"turns": 60}, "--max-budget-usd", "0.01", "--price", "in=3,out=15", variables={"NO_USAGE": "1"})
    upper = (result.outcome or {}).get("cost_upper_usd")
    return result.ending == "error_max_budget_usd", f"cost {(result.outcome or {}).get('cost')}, at most {upper}; {seen(result)}"


@check("openai-agents", "a structured answer is refused, not replaced by prose")
def structured(lab, folders, endstop):
    lab = Lab(lab, folders, endstop, "openai-agents", "structured")
    result = lab.guard({"turns": 60}, "--max-turns", "2", variables={"STRUCTURED": "1"})
    made = agent(result)
    return result.ending == "error_max_turns" and made.get("final_texts") == 0 and made.get("refusals") == 1, seen(result)


# Every client of the table must have a group, or its checks would be skipped without a notice.
assert set(NPM) >= {client.group for client in CLIENTS if client.kind == "npm"}
