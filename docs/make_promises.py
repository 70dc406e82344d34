"""Writes the figures into docs/promises.md, from what `make soak` and `make fuzz` have counted."""

import json
from pathlib import Path

DOCS = Path(__file__).parent
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
TITLES = {
    "calls": "a call that writes fails, does half, or is the last",
    "signals": "a signal comes, at a call or after any time",
    "meanwhile": "the source goes, or another run comes to the same place",
    "power": "the power goes, and what was not synced is lost",
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


def page() -> str:
    """The page with its figures as they are now."""
    text = (DOCS / "promises.md").read_text(encoding="utf-8")
    start, rest = text.split(BEGIN)
    return f"{start}{BEGIN}\n{figures()}\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    (DOCS / "promises.md").write_text(page(), encoding="utf-8")
