"""The use cases: inspect, plan, apply, diff, verify, probe, clean. The only wiring, and the Python API."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from surgery_cli import reports
from surgery_cli.engine.progress import Listener, Progress
from surgery_cli.probe.settings import ProbeOptions
from surgery_cli.settings.run import Options
from surgery_cli.surgery.apply import apply
from surgery_cli.surgery.clean import clean
from surgery_cli.surgery.diff import diff
from surgery_cli.surgery.inspect import complete_path, inspect
from surgery_cli.surgery.plan import plan
from surgery_cli.surgery.seal import seal
from surgery_cli.surgery.verify import verify

__all__ = [
    "Listener",
    "Options",
    "ProbeOptions",
    "Progress",
    "apply",
    "clean",
    "complete_path",
    "diff",
    "inspect",
    "plan",
    "probe",
    "seal",
    "verify",
]


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
    from surgery_cli.surgery.probing import probe as probing  # loads JAX

    return probing.probe(checkpoint, model=model, inputs=tuple(inputs), options=options, say=say)
