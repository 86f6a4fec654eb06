"""Runs full-screen programs under `endstop guard` in tmux, as a person uses them, and compares the terminal before and
after.

    python3 bench/guard/terminal.py LAB --endstop target/release/endstop [--program NAME]... [--case NAME]... [--out FILE]

LAB is the folder of `run.py`. The screens are left in LAB/run, one file for each step.
"""
import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor

import formats
import install
import trial
from clients import CLIENTS, KEY, MODEL, write
from provider import Provider
from results import Results

# Seconds that a program gets to start, to answer and to end, on a loaded machine.
LONGEST = 120
TIMEOUT, GRACE = 120, 5
SIZE = (110, 34)
TASK = "Run the first step."
# What tmux knows of a terminal. It does not know if pastes are bracketed, so that is tried.
FLAGS = ["alternate_on", "cursor_flag", "insert_flag", "keypad_cursor_flag", "keypad_flag", "mouse_any_flag",
         "mouse_button_flag", "mouse_sgr_flag", "mouse_standard_flag", "origin_flag", "wrap_flag", "scroll_region_upper",
         "scroll_region_lower"]


class Program:
    """`command` is what a person types, `ready` is on its screen when it waits, and `leave` are the keys that end it."""

    def __init__(self, client, command, files, ready, leave):
        self.client = next(known for known in CLIENTS if known.name == client)
        self.tools = self.client.more.get("tools", True)
        self.name, self.command, self.files, self.ready, self.leave = client, command, files, re.compile(ready), leave


def claude(home, work, base):
    write(home, ".claude.json", {
        "hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {work: {"hasTrustDialogAccepted": True}}})
    write(home, ".claude/settings.json", {"permissions": {"allow": ["Bash"]}})
    return {"ANTHROPIC_BASE_URL": base, "ANTHROPIC_API_KEY": KEY, "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def codex(home, work, base):
    write(home, ".codex/auth.json", {"auth_mode": "apikey", "OPENAI_API_KEY": KEY})
    with open(f"{home}/.codex/config.toml", "w") as file:
        file.write(f'openai_base_url = "{base}/v1"\nmodel = "gpt-5.1-codex"\napproval_policy = "never"\n'
                   f'sandbox_mode = "danger-full-access"\ncheck_for_update_on_startup = false\n'
                   f'[projects."{work}"]\ntrust_level = "trusted"\n')
    return {}


def gemini(home, work, base):
    write(home, ".gemini/settings.json", {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}, "ui": {"hideTips": True}})
    return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": base, "GEMINI_CLI_TRUST_WORKSPACE": "true"}


def opencode(home, work, base):
    config = {"autoupdate": False, "model": f"anthropic/{MODEL}"}
    return {"ANTHROPIC_BASE_URL": f"{base}/v1", "ANTHROPIC_API_KEY": KEY, "OPENCODE_CONFIG_CONTENT": json.dumps(config)}


def aider(home, work, base):
    return {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{base}/v1", "AIDER_MODEL": "openai/gpt-4o", "AIDER_YES_ALWAYS": "true",
            "AIDER_CHECK_UPDATE": "false", "AIDER_SHOW_MODEL_WARNINGS": "false", "AIDER_ANALYTICS_DISABLE": "true",
            "AIDER_GITIGNORE": "false", "AIDER_SHOW_RELEASE_NOTES": "false"}


PROGRAMS = [
    Program("Claude Code", "claude", claude, r"shift\+tab to cycle", ["/exit", "Enter"]),
    Program("codex", "codex", codex, r"(?m)^› ", ["/quit", "Enter"]),
    Program("Gemini CLI", "gemini --yolo", gemini, r"Type your message", ["/quit", "Enter"]),
    Program("opencode", "opencode", opencode, r"Ask anything|ctrl\+p commands|tab agents|Build", ["C-c"]),
    Program("aider", "aider", aider, r"(?m)^> *$", ["/exit", "Enter"]),
]


class Screen:
    """A terminal with a shell."""

    def __init__(self, place, environment, work):
        self.socket, self.place, self.step = f"endstop-{uuid.uuid4().hex[:8]}", place, 0
        shell = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "bash", "--noprofile", "--norc"]
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(SIZE[0]), "-y", str(SIZE[1]), "-c", work, *shell)
        self.tmux("set", "-g", "history-limit", "5000")
        # The prompt of this shell leaves the modes alone, so that they are those of the programs.
        self.line("PS1='ready$ '; bind 'set enable-bracketed-paste off'; clear")
        self.until(lambda text: text.startswith("ready$"))

    def tmux(self, *words):
        done = subprocess.run(["tmux", "-L", self.socket, *words], capture_output=True, text=True, check=True)
        return done.stdout

    def text(self, whole=False):
        return self.tmux("capture-pane", "-p", *(["-S", "-"] if whole else []))

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def line(self, text):
        self.tmux("send-keys", "-l", text)
        self.keys("Enter")

    def until(self, good, longest=LONGEST):
        """Waits until the screen is as asked. Returns it, or raises with what it shows."""
        ends = time.monotonic() + longest
        while time.monotonic() < ends:
            text = self.text()
            if good(text):
                return text
            time.sleep(0.1)
        self.keep("unexpected")
        raise TimeoutError(f"the screen after {longest} s: {' / '.join(self.text().split())[-300:]}")

    def still(self, good=lambda text: True, longest=LONGEST):
        """Waits until the screen is as asked and does not change for a second."""
        def unchanged(text):
            time.sleep(1)
            return good(text) and self.text() == text
        return self.until(unchanged, longest)

    def keep(self, name):
        self.step += 1
        with open(os.path.join(self.place, f"{self.step:02}-{name}.txt"), "w") as file:
            file.write(self.text(whole=True).rstrip() + "\n")

    def modes(self):
        values = self.tmux("display-message", "-p", " ".join(f"#{{{flag}}}" for flag in FLAGS)).split()
        return dict(zip(FLAGS, values))

    def state(self):
        """The modes of the terminal, asked at the prompt of the shell."""
        modes = self.modes()
        self.line("clear; stty -a; echo done-$((40+2))")
        text = self.until(lambda text: "done-42" in text)
        modes["stty"] = text[:text.index("done-42")]
        self.line("clear; cat -v")
        self.until(lambda text: text.strip() == "")
        self.tmux("set-buffer", "pasted")
        self.tmux("paste-buffer", "-p")
        modes["paste"] = self.until(lambda text: "pasted" in text).strip()
        self.keys("Enter", "C-d")
        self.line("clear")
        self.until(lambda text: text.strip() == "ready$")
        return modes

    def close(self):
        socket = self.tmux("display-message", "-p", "#{socket_path}").strip()
        self.tmux("kill-server")
        # tmux leaves it behind.
        if os.path.exists(socket):
            os.remove(socket)


class Session:
    """A program under guard on a screen."""

    def __init__(self, screen, program, provider, place):
        self.screen, self.program, self.provider, self.place = screen, program, provider, place

    def start(self, command):
        self.screen.line(f"clear; {command}; echo status=$?")
        self.screen.still(self.program.ready.search)
        self.screen.keep("started")

    def say(self, text):
        """Types a message, and waits for the call that it causes."""
        before = len(self.main())
        self.screen.tmux("send-keys", "-l", text)
        self.screen.until(lambda shown: text in shown)
        self.screen.still()
        self.screen.keys("Enter")
        return before

    def ask(self, text):
        """Says something, and waits for the whole answer."""
        before = self.say(text)
        self.screen.until(lambda _: len(self.main()) > before)
        self.screen.still(lambda shown: "All done" in shown and self.program.ready.search(shown))
        self.screen.keep("answered")

    def main(self):
        return [call for call in self.provider.calls() if call["kind"] == "main"]

    def ended(self, longest=LONGEST):
        self.screen.until(lambda text: re.search(r"^status=\d+", text, re.M), longest)
        self.screen.keep("ended")

    def has_ended(self):
        return re.search(r"^status=\d+", self.screen.text(), re.M)

    def leave(self):
        for key in self.program.leave:
            self.screen.keys(*([key] if key in ("Enter", "C-c") else ["-l", key]))
            self.screen.still()
            if self.has_ended():
                break
        self.ended()


def turns(session):
    """Stopped while it waits: the answer to the next message is the reason, and the message after it closes the program."""
    session.ask(TASK)
    if not session.program.tools:
        # Each of its answers is one call.
        session.ask("The second step.")
    session.say("Now go on.")
    session.screen.still(lambda text: "Run stopped by endstop" in text)
    session.screen.keep("stopped")
    text = " ".join(re.sub(r"[│┃▌╭╰╮╯─]", " ", session.screen.text()).split())
    faults = [] if re.search(r"to continue, run `?[\w -]+`? under", text) else ["the sentence does not say how to continue"]
    time.sleep(GRACE + 4)
    if session.has_ended():
        return [*faults, "closed while its user reads"]
    session.say("One more step.")
    session.ended()
    return faults


def one(session):
    """One Ctrl-C stops the answer, and the next question is answered."""
    session.say(TASK)
    session.screen.until(lambda _: session.main())
    time.sleep(2)
    session.screen.keys("C-c")
    if session.program.leave == ["C-c"]:
        # The key that leaves it, also during an answer.
        session.ended()
        return []
    session.screen.still()
    session.screen.keep("interrupted")
    session.ask("Now go on.")
    session.leave()
    return []


def two(session):
    """Two Ctrl-C within two seconds end it."""
    session.say(TASK)
    session.screen.until(lambda _: session.main())
    time.sleep(2)
    for _ in range(2):
        session.screen.keys("C-c")
        time.sleep(0.5)
    try:
        session.ended(20)
    except TimeoutError:
        # The first key stopped its answer; now it waits, and asks for two more.
        for _ in range(2):
            session.screen.keys("C-c")
            time.sleep(0.5)
        session.ended()
    return []


SUSPENDED = re.compile(r"Stopped [\s\S]*status=148")


def suspended(session):
    """Ctrl-Z, another command, fg, and another size."""
    for _ in range(2):
        # Gemini CLI asks for the key twice.
        session.screen.keys("C-z")
        time.sleep(2)
        if SUSPENDED.search(session.screen.text()):
            break
    session.screen.until(SUSPENDED.search, 20)
    session.screen.keep("suspended")
    faults = []
    session.screen.line("echo between-$((40+2))")
    session.screen.until(lambda text: "between-42" in text)
    if "echo between-" not in session.screen.text():
        faults.append("no echo while it is suspended")
    session.screen.line("clear; fg; echo status=$?")
    session.screen.still(session.program.ready.search)
    session.screen.keep("resumed")
    return faults + resized(session)


def resized(session):
    for width, height in ((80, 24), SIZE):
        session.screen.tmux("resize-window", "-x", str(width), "-y", str(height))
        session.screen.still(session.program.ready.search)
    session.screen.keep("resized")
    session.ask(TASK)
    session.leave()
    return []


def late(session):
    """The time is over in the middle of the second answer: Gemini CLI stores no session without one."""
    session.ask(TASK)
    session.provider.scenario["hang"] = 0
    before = session.say("Now go on.")
    session.screen.until(lambda _: len(session.main()) > before)
    time.sleep(2)
    session.screen.keep("waits")
    session.ended(TIMEOUT + GRACE + LONGEST)
    return []


STUCK = {"turns": 1, "hang": 0}
# Case: what happens, the provider, the options of guard, the ending, the status.
CASES = {
    "turns": (turns, {"turns": 2}, f"--max-turns 2 --grace {GRACE}s", ["error_max_turns"], 20),
    "one Ctrl-C": (one, STUCK | {"hangs": 1}, "", ["stop", "cancelled"], 0),
    "two Ctrl-C": (two, STUCK, "", ["cancelled"], None),
    "Ctrl-Z, fg, resize": (suspended, {"turns": 1}, "", ["stop"], 0),
    "timeout": (late, {"turns": 1}, f"--timeout {TIMEOUT}s --grace {GRACE}s", ["error_timeout"], 20),
}


KEYS = [(program.name, case) for program in PROGRAMS for case in CASES]


def attempt(lab, results, folders, program, case):
    try:
        cells, faults = observe(lab, results.endstop, folders[program.client.group], program, case)
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[2:3]
        cells, faults = [""] * 6, [f"{' '.join(frame.name for frame in at)}: {type(error).__name__}: {error}"]
    row = results.put("terminal", (program.name, case), cells, faults)
    print(" | ".join(row["cells"]), file=sys.stderr, flush=True)


def observe(lab, endstop, folder, program, case):
    act, scenario, options, endings, status = CASES[case]
    place = os.path.join(lab, "run", re.sub(r"\W+", "-", f"terminal {program.name} {case}"))
    shutil.rmtree(place, ignore_errors=True)
    home, work = os.path.join(place, "home"), os.path.join(place, "work")
    for one_of in (home, work, os.path.join(place, "tmp")):
        os.makedirs(one_of)
    trial.repository(work)
    mark = uuid.uuid4().hex
    binaries = os.path.join(folder, "node_modules", ".bin") if program.client.kind == "npm" else os.path.join(folder, "bin")
    environment = {"HOME": home, "LANG": "C.UTF-8", "TERM": "tmux-256color", "SHELL": "/bin/bash", "GUARD_BENCH": mark,
                   "NO_PROXY": "127.0.0.1,localhost", "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": os.path.join(place, "tmp"),
                   "PATH": os.pathsep.join([os.path.dirname(endstop), trial.path(lab), binaries])}
    with Provider(scenario | {"tools": program.tools}, os.path.join(lab, "venv", "sdk", "bin", "python")) as provider:
        environment |= program.files(home, work, provider.base)
        screen = Screen(place, environment, work)
        try:
            session = Session(screen, program, provider, place)
            before = screen.state()
            session.start(f"endstop guard {options} --events ../events -- {program.command}")
            faults = act(session)
            # The reports of the mouse and the like that a broken terminal sends come late.
            screen.still()
            card = screen.text(whole=True)
            left = [line for _, line in trial.remaining(mark) if line.split()[0] not in ("bash",)]
            screen.line("echo ok-$((40+2))")
            shown = screen.until(lambda text: "ok-42" in text)
            echo = "ready$ echo ok-" in shown
            after = screen.state()
            differ = sorted(name for name in before if before[name] != after[name])
            outcome = last(os.path.join(place, "events"))
            exit_status = int(re.findall(r"(?m)^status=(\d+)", card)[-1])
            faults += [f"other modes: {', '.join(differ)}"] if differ else []
            faults += [] if echo else ["no echo"]
            faults += [f"left: {line}" for line in left]
            ending = outcome.get("termination")
            faults += [] if ending in endings else [f"ending {ending}, expected {' or '.join(endings)}"]
            faults += [] if status in (None, exit_status) else [f"exit {exit_status}, expected {status}"]
            faults += [] if legible(card) else ["the card is not alone on its lines"]
            resumed = ""
            if status == 20:
                resumed, wrong = resume(session, card)
                faults += wrong
        finally:
            screen.close()
            for pid, _ in trial.remaining(mark):
                os.kill(pid, signal.SIGKILL)
    return ["equal" if not differ else ", ".join(differ), "yes" if echo else "no", f"`{ending}`", str(exit_status), str(len(left)),
            resumed], faults


def last(path):
    with open(path) as file:
        return json.loads(file.read().splitlines()[-1])


def legible(text):
    """`True` if the card is the last thing on the screen, and nothing is on its lines that the program has drawn."""
    card = re.search(r"(?m)^── stopped: .*\n(  .*\n)+status=\d+$", text)
    return card is not None and not re.search(r"[│┃╹▀]", card[0])


def resume(session, card):
    """Runs the command that the card prints, and asks something."""
    joined = card[:card.rindex("\nstatus=")]
    found = re.findall(r"endstop guard [^\n`]*-- [\w -]+", joined)
    if not found:
        return "none", ["the card has no command to continue"]
    command = found[-1].strip()
    session.start(command)
    session.provider.scenario.pop("hang", None)
    before = len(session.provider.calls())
    session.ask("Once more, please.")
    calls = [call for call in session.provider.calls()[before:] if call["kind"] == "main"]
    faults = [] if any(TASK in json.dumps(call["body"]) for call in calls) else ["the resumed session is another one"]
    session.screen.keep("continued")
    session.leave()
    return f"`{command}`", faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lab")
    parser.add_argument("--endstop", default="endstop")
    parser.add_argument("--program", action="append", help="part of a name; the default is all")
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--out")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    # It writes the page of all tables, and therefore imports this module.
    from run import page
    lab, endstop = os.path.abspath(options.lab), os.path.abspath(options.endstop)
    results, folders = Results(lab, endstop), install.all_groups(lab)
    wanted = [program for program in PROGRAMS if folders[program.client.group] and
              any(part.lower() in program.name.lower() for part in options.program or [""])]
    with ThreadPoolExecutor(options.workers) as pool:
        jobs = [pool.submit(attempt, lab, results, folders, program, case) for program in wanted
                for case in options.case or CASES]
        [job.result() for job in jobs]
    return page(results, folders, options.out)


if __name__ == "__main__":
    sys.exit(main())
