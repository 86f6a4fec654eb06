"""Installs the clients into a lab folder, each group of packages once. A group that cannot be
installed is reported, and its clients are skipped.
"""
import json
import os
import shutil
import subprocess
import sys

# Folder below `npm/`: packages.
NPM = {
    # First: with an older Node, npm chooses older clients.
    "node": ["node@22"],
    "claude-code": ["@anthropic-ai/claude-code"],
    "codex": ["@openai/codex"],
    "gemini-cli": ["@google/gemini-cli"],
    "opencode-ai": ["opencode-ai"],
    "qwen-code": ["@qwen-code/qwen-code"],
    "pi-coding-agent": ["@earendil-works/pi-coding-agent"],
    "openai": ["openai", "@anthropic-ai/sdk"],
    "ai": ["ai", "@ai-sdk/openai"],
    "copilot": ["@github/copilot"],
}
# Folder below `venv/`: packages.
PIP = {
    "sdk": ["openai", "anthropic", "google-genai", "zstandard"],
    "agents": ["openai-agents", "langchain", "langchain-openai", "langgraph"],
    "autogen": ["autogen-agentchat", "autogen-ext[openai]"],
    "crew": ["crewai"],
    "aider": ["aider-chat"],
    "mini": ["mini-swe-agent"],
}
# Group: why it cannot be installed.
REASONS = {}


def all_groups(lab):
    """Installs what is missing. Returns the folder of each group, or `None`."""
    return {name: group(lab, kind, name) for kind, names in (("npm", NPM), ("venv", PIP)) for name in names}


def group(lab, kind, name):
    """Installs a group. Returns its folder, or `None` with a notice if that is not possible."""
    folder = os.path.join(lab, kind, name)
    stamp = os.path.join(folder, "installed")
    if os.path.exists(stamp):
        return folder
    os.makedirs(folder, exist_ok=True)
    if kind == "npm":
        with open(os.path.join(folder, "package.json"), "w") as file:
            json.dump({"private": True}, file)
        commands = [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", *NPM[name]]]
    else:
        python = os.path.join(folder, "bin", "python")
        commands = [[sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PIP[name]]]
    for command in commands:
        if shutil.which(command[0]) is None:
            return skipped(name, f"{command[0]} is not installed")
        environment = os.environ | {"PATH": with_node(lab, os.environ["PATH"])}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            return skipped(name, (done.stderr.strip().splitlines() or ["no message"])[-1])
    open(stamp, "w").close()
    return folder


def with_node(lab, path):
    """The search path with the Node of this lab, if it is installed."""
    folder = os.path.join(lab, "npm", "node", "node_modules", "node", "bin")
    return os.pathsep.join([folder, path]) if os.path.isdir(folder) else path


def newest(kind, package):
    """The newest version of a package in its registry, or `None` if that cannot be asked."""
    if kind == "npm":
        done = subprocess.run(["npm", "view", package, "version"], capture_output=True, text=True)
        return done.stdout.strip() or None
    name = package.split("[")[0]
    command = [sys.executable, "-m", "pip", "index", "versions", name, "--disable-pip-version-check"]
    done = subprocess.run(command, capture_output=True, text=True)
    first = done.stdout.partition("\n")[0]
    return first[first.find("(") + 1:first.find(")")] if "(" in first else None


def skipped(name, reason):
    REASONS[name] = reason
    print(f"skipped: {name} cannot be installed: {reason}", file=sys.stderr)
    return None


def version(folder, kind, package):
    """The version of an installed package."""
    package = package.split("@")[0] if not package.startswith("@") else package
    if kind == "npm":
        path = os.path.join(folder, "node_modules", package, "package.json")
        return json.load(open(path))["version"]
    python = os.path.join(folder, "bin", "python")
    program = f"import importlib.metadata as m; print(m.version({package.split('[')[0]!r}))"
    return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()
