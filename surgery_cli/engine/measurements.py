"""What a run measures of leaves, each of it once, whoever needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

import numpy as np

from surgery_cli.draft.expression import Made, Recipe, parts
from surgery_cli.draft.kernel import Measurement, Place, Window
from surgery_cli.engine.grid import block_shape, window_shape, windows
from surgery_cli.engine.reading import Values


class Measurements:
    """The measurements of a run, by the part of an expression that they are the values of."""

    def __init__(self) -> None:
        self._known: dict[int, _Entry] = {}
        self._lock = threading.Lock()

    def assign(self, part: Made, to: object) -> bool:
        """Let one evaluation take a measurement, unless another has it already; True if it is this one's."""
        with self._lock:
            return self._known.setdefault(id(part), _Entry(part, to)).owner is to

    def take(self, part: Made, by: object, share: Callable[[Made, Window], Values]) -> None:
        """See that a measurement is there: take it, or wait for who does, which was asked to before."""
        self.assign(part, by)
        entry = self._known[id(part)]
        with self._lock:
            is_mine = entry.owner is by and not entry.is_begun
            entry.is_begun |= is_mine
        if not is_mine:
            entry.value.result()
            return
        try:
            self.conclude(part, [share(part, window) for window in measured_windows(part)])
        except BaseException as error:
            entry.value.set_exception(error)
            raise

    def conclude(self, part: Made, shares: Sequence[Values]) -> None:
        """Join the shares of ``measured_windows``, in their order, and let the kernel look at the whole."""
        kernel, leaf = part.kernel, part.inputs[0].spec
        assert isinstance(kernel, Measurement)
        whole = tuple(slice(0, n) for n in leaf.shape)
        taken = list(zip(measured_windows(part), shares, strict=True))
        specs = tuple(one.spec for one in part.inputs)
        at = Place(part.path, specs, leaf, (0,) * len(whole), leaf.shape)
        self._known[id(part)].is_begun = True
        value = kernel.finish(joined(kernel, taken, whole), at).reshape(part.spec.shape)
        self._known[id(part)].value.set_result(value)

    def value(self, part: Made) -> Values:
        """What was measured."""
        return self._known[id(part)].value.result()


class _Entry:
    """A measurement, and whose it is to take; it keeps the part, whose identity it goes by, alive."""

    def __init__(self, part: Made, owner: object) -> None:
        self.part = part
        self.owner = owner
        self.is_begun = False
        self.value: Future[Values] = Future()


def measured_parts(recipe: Recipe) -> list[Made]:
    """What is measured for a recipe, inner measurements first."""
    every = (part for part in parts(recipe) if isinstance(part, Made))
    return [part for part in every if isinstance(part.kernel, Measurement)]


def measured_windows(part: Made) -> list[Window]:
    """The blocks of the first input over which a measurement is taken."""
    leaf = part.inputs[0].spec
    shape = leaf.shape if part.kernel.is_whole else block_shape(leaf, leaf.write_shape)
    return list(windows(leaf.shape, shape))


def joined(kernel: Measurement, shares: Sequence[tuple[Window, Values]], whole: Window) -> Values:
    """The measurement of ``whole`` from those of its parts: [its shape, reduced axes of size 1]."""
    if len(shares) == 1:
        return shares[0][1]
    join = getattr(np, kernel.combine)
    axes = kernel.axes(len(whole))
    shape = tuple(1 if i in axes else n for i, n in enumerate(window_shape(whole)))
    total = np.zeros(shape, shares[0][1].dtype)
    for window, share in shares:
        at = tuple(
            slice(0, 1) if i in axes else slice(part.start - all_.start, part.stop - all_.start)
            for i, (part, all_) in enumerate(zip(window, whole, strict=True))
        )
        total[at] = join(total[at], share)
    return total
