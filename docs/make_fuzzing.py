"""Write docs/fuzzing.md from what was counted and explained: `PYTHONPATH=. python docs/make_fuzzing.py`."""

import json
from pathlib import Path

from tests.fuzz import counts
from tests.fuzz.__main__ import MOST
from tests.fuzz.explained import EXPLAINED
from tests.fuzz.seeds import SEEDS

PAGE = Path(__file__).with_name("fuzzing.md")
COUNTS = PAGE.parent / "proof" / "fuzz.json"

ABOVE = """\
# Fuzzing

Every reader is given what nobody writes: real files of each format, changed in their bytes, in their numbers, in
their JSON, in their words; checksums of manifests, nodes and records are made good again, so that what is behind them
is read, too. An input may be refused, with exit code 1, 2 or 3 and what to do, or read. None may end in a traceback,
take over 2 GiB or over 20 seconds; each stands in one column of the first table. What is read is compared, leaf by leaf
and bit by bit, with what Orbax, Flax, safetensors or NumPy make of the same file; and of a sample of what is refused it
is asked whether they read it. What takes such a reader's whole process down, or takes it too long, has no opinion.

    make fuzz N=1000000             # gives every reader its share, and adds to the counts below
    make fuzz ARGS="--show msgpack 16990" SEED=2      # one input again, with its traceback

Made by `docs/make_fuzzing.py` from `docs/proof/fuzz.json`. A few hundred inputs are tried in every run of the tests.

"""

OUTCOMES = {
    "inputs": ("inputs",),
    "read": counts.READ,
    "refused": counts.REFUSED,
    "tracebacks, crashes": counts.FAILED,
    "over 2 GiB": counts.MEMORY,
    "over 20 s": counts.TIME,
}
OPINIONS = {
    "asked": ("judged",),
    "alike": counts.ALIKE,
    "refused by both": counts.BOTH_REFUSE,
    "explained": counts.EXPLAINED,
    "not explained": counts.OTHERWISE,
    "no opinion": counts.NO_OPINION,
}

MOST_TITLES = {"peak_mib": "most memory", "slowest_seconds": "longest"}
UNITS = {"peak_mib": "MiB", "slowest_seconds": "s"}

AGAINST = """
## What others made of the same

What is read, up to a number, and a sample of what is refused: each that another reader was asked about stands in one
column. What is read here and refused there is explained where every value is the one that the other reader makes of the
undamaged file, `verify` tells of the damage, and its cause is one of those below. What is not explained ends the run
with exit code 1.

"""

EXPLANATIONS = """
## Disagreements that are meant

"""


def page() -> str:
    """What was counted, and every disagreement with another reader that is meant."""
    known = json.loads(COUNTS.read_text())
    rows = {kind: known["kinds"][kind] for kind in SEEDS if kind in known["kinds"]}
    every = {}
    for count in rows.values():
        for name, value in count.items():
            so_far = every.get(name, 0)
            every[name] = max(so_far, value) if name in MOST else so_far + value
    judged = {kind: count for kind, count in rows.items() if count.get("judged")}
    reasons = [
        f"- **{name}** ({', '.join(one.kinds)}): {one.why}\n" for name, one in EXPLAINED.items()
    ]
    asked = "`git rev-parse HEAD:surgery_cli`"
    of = f"Counted up to {known['date']}, of the program that git calls `{known['program']}` ({asked}).\n\n"
    return (
        ABOVE
        + of
        + _table(OUTCOMES, rows | {"all": every}, MOST)
        + _without_a_run(rows)
        + AGAINST
        + _table(OPINIONS, judged | {"all": every})
        + _without_opinion(every)
        + EXPLANATIONS
        + "".join(reasons)
    )


def _without_a_run(rows) -> str:
    missing = [kind for kind in SEEDS if kind not in rows]
    return f"\nNot counted yet of this program: {', '.join(missing)}.\n" if missing else ""


def _without_opinion(every) -> str:
    down = every.get("the judge ends its process", 0)
    long = every.get("judge took too long", 0) + every.get("the judge does not end", 0)
    return (
        f"\nOf those without an opinion, {down:,} took the other reader's process down, and {long:,} took it too long;"
        " the others are files that it does not read at all: folders, orders.\n"
    )


def _table(columns, rows, most=()) -> str:
    titles = ["input", *columns, *(MOST_TITLES[name] for name in most)]
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for kind, count in rows.items():
        cells = [f"{counts.total(count, names):,}" for names in columns.values()]
        cells += [f"{count.get(name, 0)} {UNITS[name]}" for name in most]
        lines.append(f"| {' | '.join([kind, *cells])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
