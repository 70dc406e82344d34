"""The table of docs/costs.md, from what `bench.py --json` wrote.

`summary.py FILE.json…`: medians; several files are one table, a later one replacing rows of the same key.
"""

import json
import statistics
import sys
from pathlib import Path

from rows import COPY, LOOP, ORBAX, SURGERY

Runs = list[dict[str, float]]


def median(runs: Runs, quantity: str) -> float:
    return statistics.median(run[quantity] for run in runs)


def seconds(value: float) -> str:
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def megabytes(value: float) -> str:
    if value < 50_000:
        return "0"
    return f"{value / 1e6:,.1f} MB" if value < 1e8 else f"{value / 1e6:,.0f} MB"


def other(runs: Runs | None, ours: float) -> str:
    """Wall time of another contender, how many times ours, and its peak memory."""
    if runs is None:
        return ""
    wall = median(runs, "wall_seconds")
    return f"{seconds(wall)} ({wall / ours:.1f} ×, {megabytes(median(runs, 'peak_bytes'))})"


def row_text(name: str, contenders: dict[str, Runs]) -> str:
    ours = contenders[SURGERY]
    wall = median(ours, "wall_seconds")
    copy = contenders.get(COPY)
    cells = [
        name,
        f"**{seconds(wall)}**",
        megabytes(median(ours, "peak_bytes")),
        megabytes(median(ours, "new_bytes")),
        other(contenders.get(ORBAX), wall),
        "" if copy is None else seconds(median(copy, "wall_seconds")),
        other(contenders.get(LOOP), wall),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    rows = {}
    for file in sys.argv[1:]:
        for row in json.loads(Path(file).read_text())["rows"]:
            rows[row["key"]] = row
    print(
        "| work | `surgery` | peak | new bytes | script with Orbax | `cp -r` | bare TensorStore loop |"
    )
    print("|---|---|---|---|---|---|---|")
    for row in rows.values():
        print(row_text(row["name"], row["contenders"]))


if __name__ == "__main__":
    main()
