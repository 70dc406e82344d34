"""Everything that shapes a probe; apart from the use case, so that reading options loads nothing heavy."""

from __future__ import annotations

from typing import Any

import msgspec


class ProbeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that shapes a probe.

    ``bind`` places collections by name, ``params`` is short for the model's params. ``call`` are static arguments of
    the model's call, ``streams`` seeds of random streams by name. ``ensemble`` counts the models whose variables the
    checkpoint stacks on a first axis; each runs on the same inputs. ``at``, ``only`` and ``methods`` choose rows by the
    module's path, its class and the method. ``run`` names a method or submodule to be run on its own, and
    ``model_inputs`` are then the whole model's, where it takes others; ``until`` is a call after which the run stops.
    ``grad`` differentiates ``loss`` (``FILE.py:NAME``; by default a random projection of the output). ``against`` is
    another checkpoint on the same batch, of ``model_b`` where that is another model; ``tolerance`` is relative, None
    for that of the dtypes. ``save`` and ``plot`` are files to be written.
    """

    step: int | None = None
    item: str | None = None
    params: str | None = None
    bind: dict[str, str] = {}
    call: dict[str, Any] = {}
    streams: dict[str, int] = {}
    seed: int = 0
    vmap_axis: str = ""
    ensemble: int = 0
    run: str = ""
    model_inputs: tuple[str, ...] = ()
    until: str = ""
    at: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    shapes: bool = False
    grad: bool = False
    loss: str | None = None
    against: str | None = None
    model_b: str | None = None
    tolerance: float | None = None
    save: str | None = None
    plot: str | None = None
    device: str = "cpu"
