"""Write into docs/promises.md what holds each promise, and what `make soak` has counted.

`PYTHONPATH=. python docs/make_promises.py`
"""

import json
import re
from pathlib import Path

from tests.promises import PROMISES

DOCS = Path(__file__).parent
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
HOLDS, END_OF_HOLDS = "<!-- promises -->", "<!-- end of promises -->"
TESTS = DOCS.parent / "tests"
TITLES = {
    "calls": "a call that writes fails, does half, or is the last",
    "signals": "a signal comes, at a call or after any time",
    "meanwhile": "the source goes, or another run comes to the same place",
    "power": "the power goes, and what was not synced is lost",
    "filesystems": "the device fills, is another one, has no links, is read-only, or is another user's",
    "flips": "a bit flips in a result, sealed or not",
}
BROKEN = ("torn", "source", "hang", "sentence", "flip", "other")


def figures() -> str:
    """The table of the last program that was struck."""
    counts = json.loads((DOCS / "proof" / "faults.json").read_text(encoding="utf-8"))
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
        f"{program}, {counts['seconds'] / 3600:.2f} hours in {counts['soaks']} soaks:",
        "",
        f"| what strikes | {' | '.join(heads)} |",
        f"|---|{'---:|' * len(heads)}",
    ]
    for name, counted in counts["sections"].items():
        cells = [f"{counted.get(what, 0):,}" for what in ("trials", *BROKEN)]
        lines.append(f"| {TITLES[name]} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
        title = (DOCS / page_name).read_text(encoding="utf-8").split("\n", 1)[0].removeprefix("# ")
        lines += [f"## [{title}]({page_name})", "", "| promise | held by |", "|---|---|"]
        for text, tests, command in made:
            held = [f"`{file}::{test}`" for test in tests for file in places[test]]
            lines.append(f"| {text} | {'<br>'.join([*held, *[f'`{command}`'] * bool(command)])} |")
        lines.append("")
    return "\n".join(lines)


def page() -> str:
    """The page with its promises and figures as they are now."""
    text = (DOCS / "promises.md").read_text(encoding="utf-8")
    for begin, end, content in ((HOLDS, END_OF_HOLDS, promises()), (BEGIN, END, figures())):
        start, rest = text.split(begin)
        text = f"{start}{begin}\n{content}\n{end}{rest.split(end)[1]}"
    return text


if __name__ == "__main__":
    (DOCS / "promises.md").write_text(page(), encoding="utf-8")
