"""Runs the blocks of docs/src/recipes.md with real programs, against a scripted provider.

    python3 bench/guard/recipes.py LAB --endstop target/debug/endstop [--only NAME]...

LAB gets Claude Code and codex. The blocks are run as they are printed, but for the addresses of the providers. The status is 1
if the last command of a block fails.
"""
import argparse
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
}


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
        status, said = run(name, texts["file"] + texts[name], lab, [folder for folder, _, _ in folders], endstop)
        print(f"{name} ({versions}): {'good' if status == 0 else f'status {status}'}", flush=True)
        if status:
            failed = 1
            print(said[-3000:], file=sys.stderr)
    return failed


def run(name, text, lab, folders, endstop):
    with tempfile.TemporaryDirectory() as place, Provider({}, os.path.join(lab, "venv", "sdk", "bin", "python")) as provider:
        text = text.replace("https://api.anthropic.com", provider.base).replace("https://api.openai.com", provider.base)
        # Guard sends keys over http:// to this machine only, which the scripted provider is on.
        places = [os.path.join(folder, part) for folder in folders for part in ("bin", "node_modules/.bin")]
        tools = os.path.join(place, "tools")
        os.makedirs(tools)
        os.symlink(endstop, os.path.join(tools, "endstop"))
        path = install.with_node(lab, ":".join([tools, *places, os.environ["PATH"]]))
        environment = {"PATH": path, "HOME": place, "RUNNER_TEMP": place, "LANG": "C.UTF-8", "ANTHROPIC_API_KEY": KEY,
                       "OPENAI_API_KEY": KEY, "CODEX_API_KEY": KEY, "IS_SANDBOX": "1", "NO_PROXY": "127.0.0.1,localhost",
                       "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
        with tempfile.TemporaryFile("w+") as log:
            # Job control, as in the shell of a person: %1 is the first program in the background.
            done = subprocess.run(["bash", "-mc", text], cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                                  stderr=log, start_new_session=True, timeout=300, check=False)
            log.seek(0)
            return done.returncode, log.read()


if __name__ == "__main__":
    sys.exit(main())
