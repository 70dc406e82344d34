"""Write into docs/promises.md what holds each promise, and what `make soak`, `fuzz` and `rescues` have counted.

`PYTHONPATH=. python docs/make_promises.py`
"""

import json
import re
import shlex
from pathlib import Path
from typing import Any

from tests.promises import PROMISES, Promise

DOCS = Path(__file__).parent
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
HOLDS, END_OF_HOLDS = "<!-- promises -->", "<!-- end of promises -->"
RESCUES, END_OF_RESCUES = "<!-- rescues -->", "<!-- end of rescues -->"
TESTS = DOCS.parent / "tests"
TITLES = {
    "calls": "a call that writes fails, does half, or is the last",
    "signals": "a signal comes, at a call or after any time",
    "meanwhile": "the source goes, or another run comes to the same place",
    "power": "the power goes, and what was not synced is lost",
    "filesystems": "the device fills, is another one, has no links, is read-only, or is another user's",
    "sealed flips": "a bit flips in a sealed result",
    "open flips": "a bit flips in one that is not sealed (unseen: what does harm outside of array values)",
}
BROKEN = ("torn", "source", "hang", "sentence", "flip", "other")


WORDS = {
    "torn": "torn",
    "source": "sources changed",
    "hang": "hangs",
    "sentence": "false sentences",
    "flip": "unseen flips",
    "other": "other",
    "bug": "tracebacks",
    "crash": "crashes",
    "memory": "over 2 GiB",
    "time": "over 20 s",
    "differs": "read otherwise",
    "refused by us alone": "refused though others read them",
    "lost though whole": "whole leaves lost",
    "wrong values": "wrong values",
}
"""What would break a promise, in the words of a cell."""


def counted(what: str) -> dict[str, Any]:
    """What a machine has written down."""
    found: dict[str, Any] = json.loads(
        (DOCS / "proof" / f"{what}.json").read_text(encoding="utf-8")
    )
    return found


def counts_of(promise: Promise) -> str:
    """How much was tried, and how much of that broke the promise; empty where nothing was counted."""
    words = shlex.split(promise.command)
    if not promise.breaks:
        return ""
    if words[:2] == ["make", "fuzz"]:
        rows, unit = [*counted("fuzz")["kinds"].values()], "inputs"
    elif words[:2] == ["make", "rescues"]:
        of_layouts = counted("rescues")["layouts"].items()
        rows = [row for name, row in of_layouts if name.startswith(promise.of)]
        unit = "tries"
    else:
        known = sections()
        asked = [
            f"{promise.of} {name}".lstrip()
            for name in words[words.index("--sections") + 1].split(",")
        ]
        rows, unit = [known[name] for name in asked if name in known], "trials"
    if not rows:
        return ""

    def total(what: str) -> int:
        return sum(row.get(what, 0) for row in rows)

    broken = ", ".join(f"{WORDS[what]} {total(what):,}" for what in promise.breaks)
    return f"{total(unit):,} {unit}: {broken}"


def sections() -> dict[str, dict[str, int]]:
    """What strikes, with its counts; flips in sealed results, and those in others, apart."""
    found: dict[str, dict[str, int]] = {}
    for name, row in counted("faults")["sections"].items():
        if name != "flips":
            found[name] = row
            continue
        for how in ("sealed", "open"):
            begin = f"state {how}: "
            states = {k.removeprefix(begin): n for k, n in row.items() if k.startswith(begin)}
            found[f"{how} flips"] = {**states, "trials": sum(states.values())}
        silent = found["sealed flips"]["flip"] = found["sealed flips"].get("silent", 0)
        found["open flips"]["flip"] = row.get("flip", 0) - silent
    return found


def of_flips(row: dict[str, int]) -> str:
    """What became of the flips in results without a seal."""
    return (
        f"Of the {row['trials']:,} flips in results that are not sealed, {row.get('found', 0):,} were found and"
        f" {row.get('silent and harmless', 0):,} changed nothing that Orbax reads."
        f" {row.get('silent, in values', 0):,} changed a value of an array, which"
        " nothing shows: that is what seals are for."
    )


def rescues() -> str:
    """The table of the last checkpoints that were damaged at random."""
    found = counted("rescues")
    columns = (
        "tries",
        "leaves",
        "whole",
        "partly",
        "lost",
        "surely whole",
        "lost though whole",
        "wrong values",
    )
    lines = [
        f"Program `{found['program']}`, {found['date']}:",
        "",
        f"| layout | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
    ]
    for name, row in sorted(found["layouts"].items()):
        lines.append(f"| {name} | {' | '.join(str(row.get(column, 0)) for column in columns)} |")
    return "\n".join(lines)


def figures() -> str:
    """The table of the last program that was struck."""
    counts = counted("faults")
    program = (
        f"Program `{counts['program']}` (git's name of the folder `surgery_cli`), {counts['date']}"
    )
    heads = (
        "trials",
        "torn",
        "source changed",
        "hangs",
        "false sentences",
        "unseen flips",
        "other",
    )
    lines = [
        f"{program}, {counts['seconds'] / 3600:.2f} hours:",
        "",
        f"| what strikes | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
    ]
    for name, row in sections().items():
        cells = [f"{row.get(what, 0):,}" for what in ("trials", *BROKEN)]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", of_flips(sections()["open flips"])])


def places_of_tests() -> dict[str, list[str]]:
    """In which files each test function stands, by its name."""
    found: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        for name in re.findall(
            r"^ *def (test_\w+)", file.read_text(encoding="utf-8"), re.MULTILINE
        ):
            found.setdefault(name, []).append(str(file.relative_to(DOCS.parent)))
    return found


def promises() -> str:
    """A table for each page that promises something."""
    places, lines = places_of_tests(), []
    for page_name, made in PROMISES.items():
        lines += [f"## {_title(page_name)}", "", "| promise | held by | counted |", "|---|---|---|"]
        for promise in made:
            held = [f"`{file}::{test}`" for test in promise.tests for file in places[test]]
            held += [f"`{promise.command}`"] * bool(promise.command)
            lines.append(f"| {promise.text} | {'<br>'.join(held)} | {counts_of(promise)} |")
        lines.append("")
    return "\n".join(lines)


def _title(page_name: str) -> str:
    if (
        page_name == "README.md"
    ):  # which is the first page of the site, and lies elsewhere in the repository
        return "The README"
    title = (DOCS / page_name).read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
    return f"[{title}]({page_name})"


def page() -> str:
    """The page with its promises and figures as they are now."""
    text = (DOCS / "promises.md").read_text(encoding="utf-8")
    for begin, end, content in (
        (HOLDS, END_OF_HOLDS, promises()),
        (BEGIN, END, figures()),
        (RESCUES, END_OF_RESCUES, rescues()),
    ):
        start, rest = text.split(begin)
        text = f"{start}{begin}\n{content}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    (DOCS / "promises.md").write_text(page(), encoding="utf-8")
