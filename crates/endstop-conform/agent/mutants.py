#!/usr/bin/env python3
"""Negative controls: the agent with one fault for each id, which the check of that id has to find.

    python3 mutants.py ID FLAGS TASK      the agent with the fault of the id
    python3 mutants.py                    lists the ids, and what each does wrong

A mutant changes behaviour only: it does not know which case it is in. The faults are in the folder `faults`.
"""
import sys

from faults import MUTANTS, accountable, clean, ends, honest, protocols  # noqa: F401, the files fill the table


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
