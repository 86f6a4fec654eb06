"""Installs the SDKs at the pinned versions, in a folder outside the repository.

    python, node, versions = install.sdks("SCRATCH")
    script = install.beside("SCRATCH", "read.mjs")   # next to the packages, for Node
"""
import json
import os
import shutil
import subprocess
import sys
import venv

HERE = os.path.dirname(os.path.abspath(__file__))
PINNED = ("requirements.txt", "package.json", "package-lock.json")


def sdks(scratch):
    """Returns the two interpreters and the versions by name. An existing installation is reused."""
    python = os.path.join(scratch, "venv", "bin", "python")
    node = os.path.join(scratch, "node_modules", "node", "bin", "node")
    pins = {name: open(os.path.join(HERE, name)).read() for name in PINNED}
    stamp = os.path.join(scratch, "installed.json")
    if not os.path.exists(stamp) or json.load(open(stamp)) != pins:
        os.makedirs(scratch, exist_ok=True)
        for name in PINNED:
            shutil.copy(os.path.join(HERE, name), scratch)
        venv.create(os.path.join(scratch, "venv"), with_pip=True, clear=True)
        run([python, "-m", "pip", "install", "--quiet", "--no-deps", "-r", "requirements.txt"], scratch)
        run(["npm", "ci", "--no-audit", "--no-fund", "--silent"], scratch)
        with open(stamp, "w") as file:
            json.dump(pins, file)
    versions = {"Python": run([python, "-c", "import platform; print(platform.python_version())"], scratch).strip()}
    for line in pins["requirements.txt"].splitlines():
        name, version = line.split("==")
        if name in ("openai", "anthropic"):
            versions[f"`{name}` (Python)"] = version
    versions["Node"] = run([node, "--version"], scratch).strip().lstrip("v")
    for name in ("openai", "@anthropic-ai/sdk"):
        versions[f"`{name}` (Node)"] = json.loads(pins["package.json"])["dependencies"][name]
    return python, node, versions


def beside(scratch, name):
    """Copies the script next to `node_modules`, because Node looks for packages there."""
    return shutil.copy(os.path.join(HERE, name), scratch)


def run(command, folder):
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout
