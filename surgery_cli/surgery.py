"""The use cases: inspect, plan, apply, diff, verify. The only wiring, and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from surgery_cli import reports
from surgery_cli.plan import Plan


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What every command that plans or writes may be told, beside the plan.

    ``memory_bytes`` bounds the bytes in flight. ``optimizer`` is the policy for twins where an edit names none.
    """

    step: int | None = None
    item: str | None = None
    as_step: int | None = None
    params: str | None = None
    seed: int | None = None
    device: str = "host"
    mesh: str | None = None
    memory_bytes: int = 4 << 30
    optimizer: str | None = None
    allow_non_finite: bool = False
    force: bool = False
    link: Literal["auto", "reflink", "hard", "never"] = "auto"
    compact: Literal["auto", "always", "never"] = "auto"
    expected_draft: str | None = None
    """``apply --draft sha256:…``."""


class Progress(msgspec.Struct, frozen=True):
    """An event of a running command: what is going on, and how much of it is done."""

    stage: str
    done_bytes: int
    total_bytes: int
    path: str = ""


Listener = Callable[[Progress], None]


def inspect(
    checkpoint: str,
    patterns: Sequence[str] = (),
    *,
    step: int | None = None,
    item: str | None = None,
    params: str | None = None,
    stats: bool = False,
    digests: bool = False,
    optimizer: bool = False,
    listener: Listener | None = None,
) -> reports.Inspection:
    """What is in a checkpoint; from metadata alone unless ``stats`` or ``digests`` ask for values."""
    raise NotImplementedError


def plan(
    source: str, plan: Plan, *, destination: str | None = None, options: Options = Options()
) -> reports.Preview:
    """What ``apply`` would do; writes nothing. With a ``destination``, checks that it can be used."""
    raise NotImplementedError


def apply(
    source: str,
    destination: str,
    plan: Plan,
    *,
    options: Options = Options(),
    listener: Listener | None = None,
) -> reports.Report:
    """Write ``destination``: ``source`` with the plan applied, verified before it appears."""
    raise NotImplementedError


def diff(
    a: str,
    b: str,
    patterns: Sequence[str] = (),
    *,
    step: int | None = None,
    item: str | None = None,
    structure: bool = False,
    rtol: float = 0.0,
    atol: float = 0.0,
    memory_bytes: int = 1 << 30,
    listener: Listener | None = None,
) -> reports.Difference:
    """Structure and values of two checkpoints; NaN equals NaN."""
    raise NotImplementedError


def verify(
    checkpoint: str,
    *,
    step: int | None = None,
    item: str | None = None,
    like: str | None = None,
    like_manifest: Path | None = None,
    listener: Listener | None = None,
) -> reports.Verdict:
    """Read every byte and check it against digests on record; or compare the structure with another's."""
    raise NotImplementedError


def complete_path(checkpoint: str, prefix: str) -> list[str]:
    """Printed paths of nodes and leaves that continue ``prefix`` by one key; empty if it cannot be opened."""
    raise NotImplementedError
