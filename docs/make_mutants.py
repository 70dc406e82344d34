"""Write docs/mutants.md from what was tried: `PYTHONPATH=. python docs/make_mutants.py`."""

import json
from pathlib import Path

from tests.mutants.explained import EXPLAINED

PAGE = Path(__file__).with_name("mutants.md")
RESULTS = PAGE.parent / "proof" / "mutants.json"

ABOVE = """\
# Mutants

Whether tests hold what they should is asked by changing the code in one place: a comparison turned around, a number one
higher, a branch exchanged, a call left out. The tests that hold the module must then fail. What survives either shows a
promise that no test holds, and then gets one in `tests/mutants/test_what_survived.py`, or nothing depends on it.

    make mutants N=10                                 # ten of each module, drawn at random
    make mutants N=100 ARGS="--modules tree.paths"    # all of one

A sample, with the few tests of each module that are quick: others may notice what these do not. Made by
`docs/make_mutants.py` from `docs/proof/mutants.json`.

| module | mutants | tried | noticed | nothing depends on it | left |
| --- | --- | --- | --- | --- | --- |
"""


def page() -> str:
    """What was tried, what survived, and why."""
    results = json.loads(RESULTS.read_text())
    rows, left = [], []
    for module, found in results.items():
        alive = [
            (place, change)
            for place, _, change in (one.partition(": ") for one in found["survived"])
        ]
        equal = [one for one in alive if (module, one[1]) in EXPLAINED]
        open_ = [one for one in alive if one not in equal]
        noticed = found["tried"] - len(alive)
        rows.append(
            f"| `{module}` | {found['mutants']} | {found['tried']} | {noticed} | {len(equal)} | {len(open_)} |"
        )
        left += [f"- `{module}`, {place}: `{change}`" for place, change in open_]
        left += [
            f"- `{module}`, {place}: `{change}`: {EXPLAINED[module, change]}"
            for place, change in equal
        ]
    said = "\n## What survived\n\n" + "\n".join(left)
    return ABOVE + "\n".join(rows) + "\n" + said + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
