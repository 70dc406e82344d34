"""What a result must pass before it appears, where one is asked for, and the form of what is asked.

The probe is such a gate. It is handed in: an edit without one must not load JAX.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

from surgery_cli.errors import PlanError
from surgery_cli.inputs.batch_files import batch_file
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.call_specs import call_spec
from surgery_cli.settings.declaration import given
from surgery_cli.settings.run import Options
from surgery_cli.store.open.checkpoint import Checkpoint


class Passed(Protocol):
    """What a result that may appear is said to be, and the bytes that were read to know it."""

    @property
    def note(self) -> str: ...
    @property
    def bytes_read(self) -> int: ...


class Gate(Protocol):
    """Stands before the commit."""

    def check(self, result: Checkpoint) -> Passed:
        """Raises a SurgeryError if the result may not appear."""


OpenGate: TypeAlias = Callable[[Checkpoint, Options, Callable[[str], None]], Gate]
"""Makes the gate that options ask for, for a source, before anything is written; and says what it imports."""


def files_of_probe(options: Options) -> dict[str, Path]:
    """The files that a probe is told of, by what was said: code of the user's, but not what it imports; batches."""
    if options.probe is None:
        return {}
    settings = options.probe_options
    called = filter(None, (options.probe, settings.model_b, settings.loss))
    batches = {text: batch_file(text) for text in options.probe_inputs}
    return {
        **{text: call_spec(text).file for text in called},
        **{text: path_at(file) for text, file in batches.items() if file is not None},
    }


def check_probe(options: Options) -> None:
    """Look at the form of ``probe``, ``probe_inputs`` and ``tolerance``; nothing of the user's is imported.

    Raises:
        PlanError: one says something only together with another, or the tolerance is not a size.
        SurgeryError: ``probe`` is not ``FILE.py:NAME``, or there is no such file.
    """
    tolerance, settings = options.tolerance, options.probe_options
    if options.probe is None:
        of_probe = [s for s in given(options).values() if s.needs == "probe"]
        for declared in (*of_probe, *given(settings).values()):
            raise PlanError(
                f"`{declared.option}` says something only together with `--probe`",
                fix="name the model: `--probe train.py:CNN`",
            )
        return
    for spec in (options.probe, settings.model_b, settings.loss):
        if spec is not None:
            call_spec(spec)
    if settings.loss is not None and not settings.grad:
        raise PlanError("`--loss` says something only together with `--grad`")
    if tolerance is not None and not (0 <= tolerance < math.inf):
        raise PlanError(
            f"`--tolerance {tolerance}` is not a relative size",
            why="it is how far the outputs may be apart: 0 or more",
            fix="e.g. `--tolerance 1e-5`",
        )
