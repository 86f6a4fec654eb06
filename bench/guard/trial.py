"""One run of one client against the provider, with or without guard."""
import json
import os
import re
import shutil
import signal
import subprocess
import time
import uuid

from install import with_node
from provider import Provider

# Longest time that a client gets to start and to end.
LONGEST = 300
INTERRUPT, NO_SIGNAL = "interrupt", None


class Trial:
    """What happened."""

    def __init__(self, **facts):
        self.__dict__.update(facts)

    @property
    def ending(self):
        return (self.outcome or {}).get("termination", "none")

    @property
    def told(self):
        agent = (self.outcome or {}).get("agent", {})
        return agent.get("final_texts", 0) + agent.get("refusals", 0)


def run(lab, client, folder, scenario, guard=None, when=None, variables=None, words=None, act=None, settle=0):
    """Runs a client. `guard` has the options of guard. `when(provider, home)` tells when to act: `act`
    gets the process, and by default sends SIGINT, as Ctrl-C does. `settle` is the time that the last
    processes have to end after guard."""
    place = os.path.join(lab, "run", re.sub(r"\W+", "-", client.name))
    shutil.rmtree(place, ignore_errors=True)
    home, work = os.path.join(place, "home"), os.path.join(place, "work")
    for folder_of in (home, work, os.path.join(place, "tmp")):
        os.makedirs(folder_of)
    repository(work)
    mark = uuid.uuid4().hex
    with Provider(scenario, os.path.join(lab, "venv", "sdk", "bin", "python")) as provider:
        command, own = client.command(folder, provider.base, home)
        command += words or []
        environment = {"PATH": path(lab), "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb", "SHELL": "/bin/bash",
                       "GUARD_BENCH": mark, "NO_PROXY": "127.0.0.1,localhost", "PYTHONDONTWRITEBYTECODE": "1",
                       "TMPDIR": os.path.join(place, "tmp")}
        environment |= own | (variables or {})
        if guard is not None:
            command = [guard[0], "--json", "guard", *guard[1:], "--", *command]
        files = [open(os.path.join(place, name), "wb") for name in ("out", "err")]
        began = time.monotonic()
        # A terminal's Ctrl-C reaches the whole foreground group; a session of its own stands for one.
        process = subprocess.Popen(command, env=environment, cwd=work, stdin=subprocess.DEVNULL, stdout=files[0],
                                   stderr=files[1], start_new_session=True)
        acted = None
        hung = False
        while process.poll() is None:
            if when and acted is None and when(provider, work):
                acted = time.monotonic()
                (act or interrupt)(process)
            if time.monotonic() - began > LONGEST:
                hung = True
                end(process)
            time.sleep(0.02)
        ended = time.monotonic()
        left = remaining(mark)
        while settle and left and time.monotonic() - ended < settle:
            # A killed guard cannot wait for its keeper, so this does.
            time.sleep(0.1)
            left = remaining(mark)
        for pid, _ in left:
            os.kill(pid, signal.SIGKILL)
        [file.close() for file in files]
        requests = list(provider.requests)
    out, err = (open(os.path.join(place, name), errors="replace").read() for name in ("out", "err"))
    calls = [request["at"] for request in requests if request["format"]]
    last = acted or (calls[-1] if calls else began)
    return Trial(client=client, status=process.returncode, out=out, err=err, requests=requests, place=place,
                 outcome=outcome(out), left=[line for _, line in left], seconds=ended - last, wall=ended - began, hung=hung)


def path(lab):
    own = "/usr/local/bin:/usr/bin:/bin"
    node = shutil.which("node")
    return with_node(lab, f"{os.path.dirname(node)}:{own}" if node else own)


def repository(work):
    with open(os.path.join(work, "README.md"), "w") as file:
        file.write("# scratch\n")
    date = {"GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z"}
    for command in (["init", "-q"], ["add", "-A"], ["-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=work, env=os.environ | date, check=True, capture_output=True)


def interrupt(process):
    os.killpg(process.pid, signal.SIGINT)


def end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()


def remaining(mark):
    """The processes of this trial that still live."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                marked = f"GUARD_BENCH={mark}".encode() in file.read()
            with open(f"/proc/{name}/cmdline", "rb") as file:
                line = file.read().replace(b"\0", b" ").decode(errors="replace")[:120]
        except OSError:
            continue
        if marked and line:
            found.append((int(name), line))
    return found


def outcome(out):
    for line in reversed(out.splitlines()):
        # Gemini CLI does not end its last line, so guard's can begin inside it.
        at = line.find('{"type":"outcome"')
        if at >= 0:
            try:
                return json.loads(line[at:])
            except ValueError:
                return None
    return None
