"""The use cases: inspect, plan, apply, diff, verify, probe. The only wiring, and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from surgery_cli import reports
from surgery_cli.engine.progress import Listener, Progress
from surgery_cli.plan import Plan
from surgery_cli.surgery.preparation import Options
from surgery_cli.surgery.probing.options import ProbeOptions

__all__ = [
    "Listener",
    "Options",
    "ProbeOptions",
    "Progress",
    "apply",
    "complete_path",
    "diff",
    "inspect",
    "plan",
    "probe",
    "verify",
]


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
    from surgery_cli.surgery import inspection

    return inspection.inspect(
        checkpoint,
        patterns,
        step=step,
        item=item,
        params=params,
        stats=stats,
        digests=digests,
        optimizer=optimizer,
        listener=listener,
    )


def plan(
    source: str,
    plan: Plan,
    *,
    destination: str | None = None,
    options: Options = Options(),
    say: Callable[[str], None] = lambda _: None,
) -> reports.Preview:
    """What ``apply`` would do; writes nothing. With a ``destination``, checks that it can be used.

    ``say`` is told what code of the user's is about to be imported (``options.like_init``).
    """
    from surgery_cli.surgery import application

    return application.preview(source, plan, destination, options, say)


def apply(
    source: str,
    destination: str,
    plan: Plan,
    *,
    options: Options = Options(),
    listener: Listener | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> reports.Report:
    """Write ``destination``: ``source`` with the plan applied, verified before it appears."""
    from surgery_cli.surgery import application

    return application.apply(source, destination, plan, options, listener, say)


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
    listener: Listener | None = None,
) -> reports.Difference:
    """Structure and values of two checkpoints; NaN equals NaN."""
    from surgery_cli.surgery import comparison

    return comparison.diff(
        a,
        b,
        patterns,
        step=step,
        item=item,
        structure=structure,
        rtol=rtol,
        atol=atol,
        listener=listener,
    )


def verify(
    checkpoint: str,
    *,
    step: int | None = None,
    item: str | None = None,
    like: str | None = None,
    like_init: str | None = None,
    like_manifest: Path | None = None,
    listener: Listener | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> reports.Verdict:
    """Read every byte and check it against digests on record; or compare the structure with another's.

    ``like_init`` is ``FILE.py:FUNCTION`` of the training script: would a restore into its pytree work, and exactly?
    """
    from surgery_cli.surgery import checking

    return checking.verify(
        checkpoint,
        step=step,
        item=item,
        like=like,
        like_init=like_init,
        like_manifest=like_manifest,
        listener=listener,
        say=say,
    )


def probe(
    checkpoint: str,
    *,
    model: str,
    inputs: Sequence[str] = (),
    options: ProbeOptions = ProbeOptions(),
    say: Callable[[str], None] = lambda _: None,
) -> reports.Probe:
    """Run the user's model on a checkpoint and a batch, and look inside.

    ``model`` is ``FILE.py:NAME`` or ``FILE.py:NAME(ARGUMENTS)``; this is where the user's code is imported, which
    ``say`` announces. ``inputs`` are specs (``float32[8,28,28,1]``) or files.
    """
    from surgery_cli.surgery.probing import probe as probing

    return probing.probe(checkpoint, model=model, inputs=tuple(inputs), options=options, say=say)


def complete_path(checkpoint: str, prefix: str) -> list[str]:
    """Printed paths of nodes and leaves that continue ``prefix`` by one key; empty if it cannot be opened."""
    from surgery_cli.surgery import inspection

    return inspection.complete_path(checkpoint, prefix)
