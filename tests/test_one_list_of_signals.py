"""The signals that end a run are listed in one place: who lists them anew forgets one some day."""

import re
from pathlib import Path

import surgery_cli

SOURCES = Path(surgery_cli.__file__).parent


def test_the_signals_that_end_a_run_are_listed_once() -> None:
    listing = [
        str(file.relative_to(SOURCES))
        for file in sorted(SOURCES.rglob("*.py"))
        if {"signal.SIGTERM", "signal.SIGHUP"} <= set(re.findall(r"signal\.\w+", file.read_text()))
    ]
    assert listing == ["inputs/ending_signals.py"]
