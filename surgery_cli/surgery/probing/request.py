"""What is asked of the probe before a commit, by its form alone: an edit without a probe must not load JAX."""

from __future__ import annotations

import math

from surgery_cli.errors import PlanError
from surgery_cli.inputs.call_specs import call_spec
from surgery_cli.settings.declaration import given
from surgery_cli.settings.run import Options


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
