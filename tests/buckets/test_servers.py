"""Servers that stand for services are for this machine alone."""

import sys
from contextlib import suppress
from pathlib import Path

import pytest

LISTENS = "0A"
LOOPBACK = {"0100007F", "00000000000000000000000001000000"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nobody_else_reaches_them(service):
    held = set()
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held.add(str(number.readlink()).removeprefix("socket:[").rstrip("]"))
    addresses = []
    for table in ("tcp", "tcp6"):
        lines = Path("/proc/self/net", table).read_text().splitlines()[1:]
        rows = [line.split() for line in lines]
        addresses += [
            row[1].partition(":")[0] for row in rows if row[3] == LISTENS and row[9] in held
        ]
    assert addresses
    assert set(addresses) <= LOOPBACK
