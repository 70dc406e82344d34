"""Gradients beside the activations: what they are at each call and param, and which are dead or exploding."""

from __future__ import annotations

import statistics
from typing import Final

import msgspec

from surgery_cli.probing.interface import documents
from surgery_cli.probing.model.calls import Slot
from surgery_cli.probing.trace.statistics import Measured
from surgery_cli.probing.use_case.rows import statistics_of
from surgery_cli.probing.use_case.running import Probed

_EXPLODING: Final = 1e3
"""A gradient that is this many times the median of all is marked."""

_STATES: Final = ("batch_stats", "BatchStat", "cache", "Cache")
"""Collections that are no params: nothing trains them, so that no gradient there means nothing."""


def with_gradients(found: documents.Probe, probed: Probed) -> documents.Probe:
    """The document with gradients beside the activations, and marks of what is dead or exploding."""
    gradients = probed.gradients
    if gradients is None:
        return found
    by_name = {s.name: gradients.sites.get(s.point.position) for s in probed.wanted}
    shown = [m for m in by_name.values() if m is not None]
    for row in found.sites:
        measured = by_name.get(row.name)
        if measured is not None and row.ran:
            row.gradient = statistics_of(measured)
            row.marks += _marks(measured, shown)
    of_params = [gradients.variables[slot] for slot in trained_params(probed)]
    params = []
    for slot in trained_params(probed):
        measured = gradients.variables[slot]
        gradient = statistics_of(measured)
        assert gradient is not None
        value = probed.variables[slot]
        params.append(
            documents.ProbeParam(
                path=str(probed.session.binding.leaves[slot]),
                shape=tuple(value.shape),
                dtype=str(value.dtype),
                gradient=gradient,
                marks=_marks(measured, of_params),
            )
        )
    return msgspec.structs.replace(found, loss=gradients.loss, params=params)


def trained_params(probed: Probed) -> list[Slot]:
    """The variables of the checkpoint that have a gradient, without states that nothing trains."""
    gradients = probed.gradients
    return [
        slot
        for slot in (gradients.variables if gradients is not None else ())
        if slot in probed.session.binding.leaves and slot[0] not in _STATES
    ]


def _marks(measured: Measured, others: list[Measured]) -> list[str]:
    if measured.non_finite:
        return []  # the counts say it
    if measured.size and measured.zeros == measured.size:
        return ["dead"]
    sizes = [m.rms for m in others if m.rms > 0 and not m.non_finite]
    if sizes and measured.rms > _EXPLODING * statistics.median(sizes):
        return ["exploding"]
    return []
