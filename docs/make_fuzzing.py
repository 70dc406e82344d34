"""Write docs/fuzzing.md from what was counted and explained: `PYTHONPATH=. python docs/make_fuzzing.py`."""

import json
from pathlib import Path

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
take over 2 GiB or over 20 seconds. What is read is compared, leaf by leaf and bit by bit, with what Orbax, Flax,
safetensors or NumPy make of the same file; and of a sample of what is refused it is asked whether they read it. What
takes such a reader's whole process down, or takes it too long, is counted apart: it has no opinion then.

    make fuzz N=1000000             # gives every reader its share, and adds to the counts below
    make fuzz ARGS="--show msgpack 16990" SEED=2      # one input again, with its traceback

Made by `docs/make_fuzzing.py` from `docs/proof/fuzz.json`. A few hundred inputs are tried in every run of the tests.

"""

COLUMNS = (
    *(
        "input",
        "inputs",
        "read",
        "refused",
        "compared",
        "alike",
        "explained",
        "tracebacks, crashes",
    ),
    *("over 2 GiB", "over 20 s", "most memory", "longest"),
)

EXPLANATIONS = """
## Disagreements that are meant

"""


def page() -> str:
    """What was counted, and every disagreement with another reader that is meant."""
    known = json.loads(COUNTS.read_text())
    counts = known["kinds"]
    rows = [_row(kind, counts[kind]) for kind in SEEDS if kind in counts]
    every = {}
    for count in counts.values():
        for name, value in count.items():
            so_far = every.get(name, 0)
            every[name] = max(so_far, value) if name in MOST else so_far + value
    rows.append(_row("all", every))
    reasons = [
        f"- **{name}** ({', '.join(one.kinds)}): {one.why}\n" for name, one in EXPLAINED.items()
    ]
    asked = "`git rev-parse HEAD:surgery_cli`"
    of = f"Counted up to {known['date']}, of the program that git calls `{known['program']}` ({asked}).\n\n"
    return (
        ABOVE
        + of
        + "\n".join([f"| {' | '.join(COLUMNS)} |", "| --- " * len(COLUMNS) + "|", *rows])
        + "\n"
        + _without_opinion(every)
        + EXPLANATIONS
        + "".join(reasons)
    )


def _without_opinion(every) -> str:
    down = every.get("the judge ends its process", 0)
    long = every.get("judge took too long", 0) + every.get("the judge does not end", 0)
    return f"\nOf what was compared, {down:,} took the other reader's process down, and {long:,} took it too long.\n"


def _row(kind, count) -> str:
    def total(*starts):
        return sum(value for name, value in count.items() if name.startswith(starts))

    cells = (
        kind,
        *(f"{number:,}" for number in (
            total("inputs"), total("accepted"), total("refused, exit code", "refused by the system"), total("judged"),
            total("read alike"), total("explained"), total("bug", "crash"), total("memory"), total("time"),
        )),
        f"{count.get('peak_mib', 0)} MiB",
        f"{count.get('slowest_seconds', 0)} s",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page())
