"""What is asked of the probe before a commit, by its form alone: an edit without a probe must not load JAX."""

from __future__ import annotations

import math

from surgery_cli.errors import PlanError
from surgery_cli.probe.call_specs import call_spec
from surgery_cli.surgery.preparation import Options


def check_probe(options: Options) -> None:
    """Look at the form of ``probe``, ``probe_inputs`` and ``tolerance``; nothing of the user's is imported.

    Raises:
        PlanError: one says something only together with another, or the tolerance is not a size.
        SurgeryError: ``probe`` is not ``FILE.py:NAME``, or there is no such file.
    """
    tolerance, settings = options.tolerance, options.probe_options
    if options.probe is None:
        given = {
            "--input": options.probe_inputs,
            "--tolerance": tolerance is not None,
            "--model-b": settings.model_b is not None,
            "--call": settings.call,
            "--vmap": settings.vmap_axis,
            "--ensemble": settings.ensemble,
            "--rng": settings.streams,
            "--bind": settings.bind,
            "--grad": settings.grad,
            "--loss": settings.loss is not None,
        }
        for name, is_given in given.items():
            if is_given:
                raise PlanError(
                    f"`{name}` says something only together with `--probe`",
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
