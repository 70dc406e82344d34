"""A run that is about to write: everything that was decided and opened, and what does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from surgery_cli import reports
from surgery_cli.engine.checked_source import Recorded
from surgery_cli.engine.execution import Execution
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.engine.shared_execution import SharedExecution
from surgery_cli.engine.sights import judged_recipes
from surgery_cli.planning import Plan
from surgery_cli.settings.run import Options
from surgery_cli.store.export.step import ExportWriter
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.filesystem.links import Linker
from surgery_cli.store.write.bucket_leftovers import BucketLeftover
from surgery_cli.store.write.built_files import Stood
from surgery_cli.store.write.journal import Head, Input, Journal
from surgery_cli.store.write.leftovers import Leftover
from surgery_cli.store.write.shared_step import SharedStepWriter
from surgery_cli.store.write.step import StepWriter
from surgery_cli.surgery.gate import Gate
from surgery_cli.surgery.many_hosts import Company
from surgery_cli.surgery.preparation import Prepared


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What is written, from what, and with what."""

    prepared: Prepared
    plan: Plan
    """With what options say above it."""
    options: Options
    preview: reports.Preview | None = None
    """Becomes the report, which the first process makes."""
    kit: Any
    gate: Gate | None = None
    linker: Linker
    memory_bytes: int
    recorded: dict[str, Recorded]
    inputs: dict[str, Input] = {}
    """What is read, and held against the result, as it was before anything of it was."""
    head: Head | None = None
    """What a run must make that goes on from this one; None if none is to."""
    left: Leftover | BucketLeftover | None = None
    """What this one goes on from."""
    stood: Stood | None = None
    """What was at the destination before that was checked, if it may be replaced."""
    stale: Path | None = None
    """A record beside it, of what has gone since."""
    company: Company | None = None
    """Of a run on many hosts."""


def step_writer(run: Run, new: Path, *, buffered: bool) -> StepWriter:
    """What builds the result at ``new``; ``buffered``: see ``StepWriter``."""
    if (asked := run.plan.output) is not None:
        return ExportWriter(*_where(run, new), form=FORMATS[asked.format], request=asked)
    return StepWriter(*_where(run, new), **_how(run), buffered=buffered)


def shared_step_writer(run: Run, new: Path) -> SharedStepWriter:
    """What builds this process's share of it there."""
    assert run.company is not None
    share = run.company.share
    return SharedStepWriter(
        *_where(run, new), number=share.number, copies=share.copies, **_how(run)
    )


def _where(run: Run, new: Path) -> tuple[Any, ...]:
    return run.prepared.checkpoint, run.prepared.plans, new, run.linker


def _how(run: Run) -> dict[str, Any]:
    return {
        "compact": run.prepared.compact,
        "made": run.prepared.draft.items.made,
        "as_step": run.options.as_step,
        "left_out": run.prepared.left_out,
    }


def execution_of(run: Run, listener: Listener | None, journal: Journal | None) -> Execution:
    """What makes the values of the result; ``journal`` keeps what is done for a run that goes on from here."""
    meter = Meter(listener, "writing", _value_bytes(run.prepared, run.memory_bytes))
    return Execution(
        run.prepared.sources, run.kit, meter=meter, journal=journal, **_bounds_and_rules(run)
    )


def shared_execution_of(run: Run, listener: Listener | None) -> SharedExecution:
    """What makes this process's share of them."""
    assert run.company is not None
    share = run.company.share
    meter = Meter(listener, "writing", share.own_bytes)
    return SharedExecution(
        run.prepared.sources, run.kit, share=share, meter=meter, **_bounds_and_rules(run)
    )


def _bounds_and_rules(run: Run) -> dict[str, Any]:
    return {
        "memory_bytes": run.memory_bytes,
        "allow_non_finite": run.options.allow_non_finite,
        "recorded": run.recorded,
        "checks": run.prepared.draft.checks,
        "judging_bytes": None if run.company is None else run.company.judging_bytes,
        "is_alone": len(run.prepared.functions) > 0,
    }


def _value_bytes(prepared: Prepared, memory_bytes: int) -> int:
    """Bytes of the values that pass through memory: to be written, or to be judged as they stood before."""
    every = [leaf for plan in prepared.plans.values() for leaf in plan.computed]
    whole = [leaf for leaf in every if leaf.is_read_whole]
    judged = judged_recipes(prepared.draft.checks, whole, memory_bytes)
    partly = sum(leaf.written_bytes for leaf in every if not leaf.is_read_whole)
    return partly + sum(one.spec.bytes for one in (*whole, *judged))
