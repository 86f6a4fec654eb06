#!/usr/bin/env python3
"""The scenarios of crates/endstop-restate/tests/suite on each driver, with a real Restate server, as a table.

    python3 bench/restate/scenarios.py LAB --out bench/restate/SCENARIOS.md

LAB is a folder for the server, which is installed from npm. Without npm, or if the server cannot be installed, the script prints
a notice and ends with status 0. Further arguments go to cargo, for example `--release`. Everything listens on loopback. An
expectation that does not hold ends with status 1, and with the name of the scenario.
"""

import argparse
import os
import pathlib
import subprocess
import sys

from run import install

HEAD = """# The same scenarios on each driver

Written by `bench/restate/scenarios.py`; see there for the command. Server {version}.

Each row is a reported failure of other agents, with the number of [the page of them](../../docs/src/scenarios.md), and what a
correct system does. Its runs use a scripted model server on a socket, over two formats (`openai-chat`, `anthropic-messages`) unless
the row is about one of them. `embedded` is a run of the library with a journal in SQLite, `stepped` a durable run that is driven
one step at a time without an engine, `Restate` a worker of a real server. A cell is `holds` if all expectations of the row hold
there and its endings, model calls and started tool bodies are those of the third column; calls whose number depends on the
moment of a stop are not counted. These hold for every run, besides the expectations of its row: exactly one ending, after which
nothing is reported; category, exit status and success agree with it; a replay of the journal gives the same outcome; and the
strictest checker of provider formats accepts the conversation and its continuation.

"""

TAIL = """
These parts of the scenarios do not depend on the driver, and are tested once:

| | part | why it is the same | tests |
|---|---|---|---|
| C2, C34 to C38 | the formats of other providers | both drivers call the same provider, which decodes a response before a driver sees it | `crates/endstop-wire/tests/it` |
| C7 | lists of endings in other programs | the category is a function of the ending | `crates/endstop/tests/it/scenarios/answers.rs` `unknown_ending_is_a_failure` |
| C8 | stops at hooks, approvals and compactions | the code of the driver is the same; only the journal differs | `crates/endstop/tests/it/scenarios/cancelling.rs` `stop_keeps_its_kind_in_phases` |
| C11, C12 | the exit status of the command | it is that of the outcome; `endstop serve` and a worker have none for a run | `crates/endstop-cli/tests/it/signals.rs` `interrupt_during_stream_cancels` |
| C16 | acknowledgements by run id | they belong to the HTTP API | `crates/endstop-serve/tests/it/stops.rs` |
| C19 | the instant between the stop and the start of a body | one lock orders them, whatever the journal | `crates/endstop/tests/it/late_starts.rs` `nothing_starts_after_thread_stop_journal` |
| C20, C21 | the host of the tools is killed | the keeper of commands watches its host, which is `endstop run`, `serve` or a worker | `crates/endstop-cli/tests/it/killed.rs` `sigkill_leaves_no_process` |
| C22 | process trees on Windows | the commands are started by the same crate; not run on Windows here | `crates/endstop-process/src/tree/job.rs` |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lab", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, help="a file for the table")
    args, more = parser.parse_known_args()
    lab = args.lab.resolve()
    lab.mkdir(parents=True, exist_ok=True)
    server = install(lab)
    if server is None:
        return
    rows = lab / "scenarios.md"
    rows.unlink(missing_ok=True)
    environment = {**os.environ, "ENDSTOP_RESTATE_SERVER": str(server), "ENDSTOP_SCENARIO_TABLE": str(rows)}
    command = ["cargo", "test", "-p", "endstop-restate", "--features", "engine", "--test", "suite", *more]
    status = subprocess.run([*command, "--", "scenarios_hold_on_restate", "--nocapture"], env=environment).returncode
    if status != 0 or not rows.exists():
        sys.exit(status or 1)
    version = subprocess.run([server, "--version"], capture_output=True, text=True).stdout.split()[1]
    text = HEAD.format(version=version) + rows.read_text() + TAIL
    if args.out:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
