"""Runs the blocks of docs/src/recipes.md with real programs, against a scripted provider.

    python3 bench/guard/recipes.py LAB --endstop target/debug/endstop [--only NAME]...

LAB gets the programs. The blocks are run as they are printed, but for the addresses of the providers. The status is 1 if the
last command of a block fails, or if a cost is not that of the calls that the provider has answered. The blocks with LiteLLM run
again with a limit of one turn: the agent must fail then, and the provider must see one call.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

import install
from clients import KEY
from provider import Provider

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "src", "recipes.md")
# The packages of each recipe: their kind, their group, and the package whose version is printed.
NEEDS = {
    "claude": [("npm", "claude-code", "@anthropic-ai/claude-code")],
    "codex": [("npm", "codex", "@openai/codex")],
    "litellm-front": [("npm", "claude-code", "@anthropic-ai/claude-code"), ("venv", "litellm", "litellm")],
    "litellm-behind": [("npm", "claude-code", "@anthropic-ai/claude-code"), ("venv", "litellm", "litellm")],
    "phoenix": [("npm", "claude-code", "@anthropic-ai/claude-code"), ("venv", "phoenix", "arize-phoenix")],
}
# No client of the other tables needs these.
install.PIP |= {"litellm": ["litellm[proxy]==1.105.7"], "phoenix": ["arize-phoenix==20.26.1"]}
# Tokens of a call that are written to a cache, and read from it; the dollars of it for claude-sonnet-4-5.
CACHED = [200, 5000]
CALL_USD = (1000 * 3 + 200 * 3.75 + 5000 * 0.3 + 20 * 15) / 1e6


def blocks():
    with open(PAGE) as file:
        return dict(re.findall(r"<!-- recipe: (\S+) -->\n```sh\n(.*?)```", file.read(), re.S))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab")
    parser.add_argument("--endstop", default="endstop")
    parser.add_argument("--only", action="append", choices=NEEDS)
    options = parser.parse_args()
    lab, endstop = os.path.abspath(options.lab), os.path.abspath(options.endstop)
    install.group(lab, "npm", "node")
    texts, failed = blocks(), 0
    assert set(texts) == {"file", *NEEDS}, f"the page has {sorted(texts)}"
    for name in options.only or NEEDS:
        folders = [(install.group(lab, kind, group), kind, package) for kind, group, package in NEEDS[name]]
        if any(folder is None for folder, _, _ in folders):
            continue
        versions = ", ".join(f"{package} {install.version(*one)}" for one in folders for package in [one[2]])
        text, places = texts["file"] + texts[name], [folder for folder, _, _ in folders]
        for limited in (False, True) if name.startswith("litellm") else (False,):
            wrong, said = run(name, text.replace("max_turns = 60", "max_turns = 1") if limited else text, limited, lab, places, endstop)
            part = f"{name}, one turn" if limited else name
            print(f"{part} ({versions}): {wrong or 'good'}", flush=True)
            if wrong:
                failed = 1
                print(said[-3000:], file=sys.stderr)
    return failed


def run(name, text, limited, lab, folders, endstop):
    """Returns what was wrong, or `None`, and what the programs wrote."""
    python = os.path.join(lab, "venv", "sdk", "bin", "python")
    with tempfile.TemporaryDirectory() as place, Provider({"cached": CACHED}, python) as provider:
        text = text.replace("https://api.anthropic.com", provider.base).replace("https://api.openai.com", provider.base)
        # Guard sends keys over http:// to this machine only, which the scripted provider is on.
        places = [os.path.join(folder, part) for folder in folders for part in ("bin", "node_modules/.bin")]
        tools = os.path.join(place, "tools")
        os.makedirs(tools)
        os.symlink(endstop, os.path.join(tools, "endstop"))
        path = install.with_node(lab, ":".join([tools, *places, os.environ["PATH"]]))
        # LiteLLM asks for its newest prices, and Phoenix reports its use, which fails slowly without a network.
        environment = {"PATH": path, "HOME": place, "RUNNER_TEMP": place, "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": KEY,
                       "OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY, "IS_SANDBOX": "1", "NO_PROXY": "127.0.0.1,localhost",
                       "ANTHROPIC_BASE_URL": provider.base, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                       "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PHOENIX_TELEMETRY_ENABLED": "false"}
        with tempfile.TemporaryFile("w+") as log:
            # Job control, as in the shell of a person: %1 is the first program in the background.
            done = subprocess.run(["bash", "-mc", text], cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=log, start_new_session=True, timeout=900, check=False)
            log.seek(0)
            said = log.read()
        if limited:
            return judged(place, provider, endstop, "error_max_turns", done.returncode == 1), said
        if name == "phoenix":
            return traced(said, provider, done.returncode), said
        if name.startswith("litellm"):
            return judged(place, provider, endstop, "stop", done.returncode == 0), said
        return done.returncode and f"status {done.returncode}", said


def judged(place, provider, endstop, ending, fits):
    """Compares the record of a run, the agent's own view and the calls of the provider."""
    words = [endstop, "assert", os.path.join(place, "job.db"), "--json", "--termination", ending]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stdout or done.stderr
    cost = json.loads(done.stdout)["ending"]["cost_usd"]
    with open(os.path.join(place, "review.json")) as file:
        failed = json.load(file)["is_error"]
    calls = len(provider.calls())
    good = fits and failed == (ending != "stop") and calls == (3 if ending == "stop" else 1)
    return None if good and near(cost, calls * CALL_USD) else f"{done.stdout} {calls} calls, is_error {failed}"


def traced(said, provider, status):
    """Compares the runs that Phoenix shows with the calls of the provider: one of guard, and one of `run`."""
    runs = [json.loads(line) for line in said.splitlines() if line.startswith('{"endstop.')]
    good = status == 0 and [run["endstop.termination"] for run in runs] == ["stop", "stop"] and len(provider.calls()) == 4
    cost = sum(run["endstop.cost_usd"] for run in runs)
    return None if good and near(cost, 4 * CALL_USD) else f"status {status}, {runs}, {len(provider.calls())} calls"


def near(cost, expected):
    return abs(cost - expected) < 1e-9


if __name__ == "__main__":
    sys.exit(main())
