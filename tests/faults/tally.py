"""What came of trials, counted; and the file in which the counts of one program add up, for the docs."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.faults.machine import Verdict

ROOT = Path(__file__).parents[2]
COUNTS = ROOT / "docs" / "proof" / "faults.json"
PROMISES = ("torn", "source", "hang", "sentence", "flip")
"""What a complaint may be about, by name; any other is counted as `other`."""


class Tally:
    """Counts by section: trials, what stood afterwards, and promises that were broken."""

    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def add(self, section: str, verdict: Verdict) -> None:
        counted = self.counts.setdefault(section, Counter())
        counted["trials"] += 1
        counted[f"state {verdict.state}"] += 1
        for promise in {p if p in PROMISES else "other" for p, _ in verdict.complaints}:
            counted[promise] += 1

    def table(self) -> str:
        """A line a section."""
        heads = ("trials", "old", "new", *PROMISES, "other")
        rows = [("", *heads)]
        for section, counted in self.counts.items():
            old, new = (
                sum(n for name, n in counted.items() if name.startswith(f"state {state}"))
                for state in ("old", "new")
            )
            shown = {**counted, "old": old, "new": new}
            rows.append((section, *(f"{shown.get(head, 0):,}" for head in heads)))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                (str.ljust if n == 0 else str.rjust)(cell, width)
                for n, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        )

    def save(self, file: Path, seconds: float) -> None:
        """Add what was counted to what the file has of the same program."""
        current = program()
        known = json.loads(file.read_text()) if file.exists() else {}
        if known.get("program") != current:
            known = {"program": current, "soaks": 0, "seconds": 0, "sections": {}}
        for section, counted in self.counts.items():
            before = Counter(known["sections"].get(section, {}))
            known["sections"][section] = dict(sorted((before + counted).items()))
        known["soaks"] += 1
        known["seconds"] += round(seconds)
        known["date"] = datetime.now(UTC).date().isoformat()
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


def program() -> str:
    """Which program it was: git's name for the folder of its source, as it was committed."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD:surgery_cli"]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
