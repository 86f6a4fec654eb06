#!/usr/bin/env python3
"""Negative controls: the agent with one fault for each name, which the check of that id has to find, and agents that differ and
are right, which it has to pass.

    python3 mutants.py NAME FLAGS TASK    the agent with the fault of the name
    python3 mutants.py                    lists the names, and what each does

A name begins with the id of a check. `-acp` and `-a2a` are servers, `+word` is right, and `-warn` is a fault of which the check only
warns. A mutant changes behaviour only: it does not know which case it is in. The faults are in the folder `faults`.
"""
import sys

from faults import MUTANTS, accountable, clean, ends, honest, protocols, right  # noqa: F401, the files fill the table


def main():
    if len(sys.argv) < 2:
        for name, (what, _, _) in MUTANTS.items():
            print(f"{name:8}  {what}")
        return 0
    name = sys.argv[1]
    if name not in MUTANTS:
        print(f"unknown mutant `{name}`: expected one of {', '.join(MUTANTS)}", file=sys.stderr)
        return 2
    _, change, program = MUTANTS[name]
    change()
    return program.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
