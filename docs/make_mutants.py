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

    make mutants N=10 SEED=2                          # ten of each module, drawn at random, added to the table below
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
        alive = found["survived"]
        why = [EXPLAINED.get((module, one["code"], one["change"])) for one in alive]
        equal = sum(reason is not None for reason in why)
        noticed = found["tried"] - len(alive)
        rows.append(
            f"| `{module}` | {found['mutants']} | {found['tried']} | {noticed} | {equal} | {len(alive) - equal} |"
        )
        for one, reason in sorted(
            zip(alive, why, strict=True), key=lambda pair: pair[1] is not None
        ):
            said = f": {reason}" if reason else ""
            left.append(f"- `{module}`: `{one['code']}`: `{one['change']}`{said}")
    said = "\n## What survived\n\n" + "\n".join(left)
    return ABOVE + "\n".join(rows) + "\n" + said + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
