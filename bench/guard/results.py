"""The rows of the tables, one file each in the lab, and the page that they make. A row that is run again
replaces the one before; rows of another build of Endstop are in another folder.
"""
import datetime
import hashlib
import json
import os
import re
import subprocess

CASES = ["client", "case", "calls", "calls after", "seconds", "exit", "left", "ending", "agent", "as expected"]
DETAILS = ["client", "subject", "result", "as expected"]
TERMINAL = ["program", "case", "modes", "echo", "ending", "exit", "left", "resume", "as expected"]


class Results:
    def __init__(self, lab, endstop):
        self.endstop = endstop
        with open(endstop, "rb") as file:
            build = hashlib.file_digest(file, "sha256").hexdigest()[:12]
        self.folder = os.path.join(lab, "results", build)

    def put(self, table, key, cells, faults):
        """`faults` is empty if all is as expected."""
        os.makedirs(os.path.join(self.folder, table), exist_ok=True)
        row = {"on": datetime.date.today().isoformat(), "cells": [*key, *cells, said(faults)], "good": not faults}
        with open(self.place(table, key), "w") as file:
            json.dump(row, file)
        return row

    def get(self, table, keys):
        rows = []
        for key in keys:
            if os.path.exists(self.place(table, key)):
                with open(self.place(table, key)) as file:
                    rows.append(json.load(file))
        return rows

    def place(self, table, key):
        return os.path.join(self.folder, table, re.sub(r"\W+", "-", " ".join(key)) + ".json")

    def page(self, versions, cases, details, terminal):
        """`versions` has a client and its version each, the others the keys of their rows."""
        tables = [self.get("cases", cases), self.get("details", details), self.get("terminal", terminal)]
        days = sorted({row["on"] for rows in tables for row in rows})
        version = subprocess.run([self.endstop, "--version"], capture_output=True, text=True).stdout.strip()
        lines = ["# Real clients under guard", "",
                 f"{' to '.join(dict.fromkeys([days[0], days[-1]]))}, {version}, against the provider of this folder on the "
                 "loopback interface. Written by `run.py` and `terminal.py`.", "",
                 *table(["client", "version"], [[str(cell) for cell in pair] for pair in versions]),
                 "",
                 "- untouched: the same task with and without guard gives the same exit status, final text and requests, but "
                 "for the fields that `compare.py` lists.",
                 "- turns: `--max-turns 2`. dollars: `--max-budget-usd 0.07`. timeout: `--timeout` in a stream that stops. "
                 "loop: `--watch stop:stuck`. Ctrl-C: SIGINT while a tool runs.",
                 "- calls after: calls that the client made after the stop, which guard answered; none reached the provider.",
                 "- seconds: from the last call, the deadline or the signal to the end of guard.", ""]
        lines += table(CASES, [row["cells"] for row in tables[0]])
        if tables[1]:
            lines += ["", "## One by one", "", *table(DETAILS, [row["cells"] for row in tables[1]])]
        if tables[2]:
            lines += ["", "## At a terminal", "", *TERMINAL_WORDS, "", *table(TERMINAL, [row["cells"] for row in tables[2]])]
        return "\n".join(lines) + "\n", all(row["good"] for rows in tables for row in rows)


TERMINAL_WORDS = [
    "Full-screen programs in tmux, with keys as a person types them.",
    "",
    "- turns: `--max-turns 2` is reached while the program waits. The next message is answered with the reason and how to go "
    "on, the program stays open while its user reads, and the message after it closes the program.",
    "- one Ctrl-C: in the middle of an answer; the next question is answered, and the program is left by its own key or "
    "command. Ctrl-C is that key of opencode.",
    "- two Ctrl-C: within two seconds, and further ones until the program has ended.",
    "- Ctrl-Z, fg, resize: at the prompt; then a question is answered, and the program is left.",
    "- timeout: `--timeout` in the middle of the second answer.",
    "- modes: what `stty -a`, the variables of tmux (alternate screen, cursor, keypad, mouse, scroll region …) and a paste "
    "show at the shell's prompt before and after. echo: typed characters are shown.",
    "- resume: the command of the card, which must stand below the picture of the program, on lines of its own. It is run "
    "as it is printed, and the next request must have the messages of the session before.",
]


def table(names, rows):
    numbers = ("calls", "calls after", "seconds", "exit", "left")
    rules = ["--:" if name in numbers else "---" for name in names]
    return [f"| {' | '.join(names)} |", f"|{'|'.join(rules)}|", *(f"| {' | '.join(row)} |" for row in rows)]


def said(faults):
    text = "; ".join(faults).replace("|", "\\|").replace("\n", " ")
    return f"**no**: {text[:300]}" if faults else "yes"
