"""What a run measures of leaves, each of it once, whoever needs it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np

from surgery_cli.draft.expression import Made, Stored
from surgery_cli.draft.kernel import Kernel, Measurement, Place, Search, Window, broadcast_window
from surgery_cli.draft.reads import reads
from surgery_cli.engine.composition import Composition, Measured, room_for_parts
from surgery_cli.engine.grid import (
    block_bytes,
    block_shape,
    tiles,
    window_shape,
    windows,
)
from surgery_cli.engine.reading import Values


class Block(NamedTuple):
    """A block over which a measurement is taken: of which input, by its number, and where in it."""

    input: int
    window: Window


class Taking:
    """A measurement in the making: shares of blocks, in any order, from any thread; of a search, pass after pass."""

    def __init__(self, part: Made, owner: object) -> None:
        self.part = part  # whose identity it goes by, and which is kept alive
        self.owner = owner
        self.blocks = measured_blocks(part)
        self.is_begun = False
        self.value: Future[Values] = Future()
        kernel = part.kernel
        self.specs = tuple(one.spec for one in part.inputs)
        self.known = kernel.start(self.specs) if isinstance(kernel, Search) else None
        self._shares: list[tuple[Window, Values]] = []
        self._counts: Values | None = None
        self._lock = threading.Lock()
        self._end_if_found()

    def passes(self) -> Iterator[list[Block]]:
        """Pass after pass, the blocks whose shares are to be added before the next is asked for."""
        while not self.value.done():
            yield self.blocks
            self._end_pass()

    def add(self, block: Block, share: Values) -> None:
        """The share of one of the ``blocks``."""
        with self._lock:
            if not isinstance(self.part.kernel, Search):
                self._shares.append((block.window, share))
            else:
                self._counts = share if self._counts is None else self._counts + share

    def _end_pass(self) -> None:
        """All shares are there: the measurement is done, or narrowed down to what the next pass looks for."""
        kernel = self.part.kernel
        if isinstance(kernel, Search):
            self.known = kernel.narrowed(self.known, self._counts, self.specs)
            self._counts = None
            self._end_if_found()
            return
        assert isinstance(kernel, Measurement)
        leaf = self.specs[0]
        whole = tuple(slice(0, n) for n in leaf.shape)
        in_order = sorted(self._shares, key=lambda share: [part.start for part in share[0]])
        at = Place(self.part.path, self.specs, leaf, (0,) * len(whole), leaf.shape)
        value = kernel.finish(joined(kernel, in_order, whole), at)
        self.value.set_result(value.reshape(self.part.spec.shape))

    def _end_if_found(self) -> None:
        kernel = self.part.kernel
        found = kernel.found(self.known) if isinstance(kernel, Search) else None
        if found is not None:
            self.value.set_result(np.asarray(found, self.part.spec.dtype))


class Measurements:
    """The measurements of a run, by the part of an expression that they are the values of."""

    def __init__(self) -> None:
        self._known: dict[int, Taking] = {}
        self._lock = threading.Lock()

    def missing(self, measured: Sequence[Measured], to: object) -> list[Made]:
        """What is to be measured, inner measurements first, but for what another evaluation sees to as a whole."""
        known = (self._known.get(id(one.part)) for one in measured)
        needed = zip(measured, known, strict=True)
        orders = (one.order for one, taking in needed if taking is None or taking.owner is to)
        return list({id(part): part for order in orders for part in order}.values())

    def assign(self, part: Made, to: object) -> Taking:
        """The measurement, which this evaluation is to take unless another one has it already."""
        with self._lock:
            if id(part) not in self._known:
                self._known[id(part)] = Taking(part, to)
            return self._known[id(part)]

    def take(self, part: Made, by: object, share: Callable[[Taking, Block], Values]) -> None:
        """See that a measurement is there: take it, or wait for who does, which was asked to before."""
        taking = self.assign(part, by)
        with self._lock:
            is_mine = taking.owner is by and not taking.is_begun
            taking.is_begun |= is_mine
        if not is_mine:
            taking.value.result()
            return
        try:
            for blocks in taking.passes():
                for block in blocks:
                    taking.add(block, share(taking, block))
        except BaseException as error:
            taking.value.set_exception(error)
            raise

    def value(self, part: Made) -> Values:
        """What was measured."""
        return self._known[id(part)].value.result()


def measured_blocks(part: Made) -> list[Block]:
    """The blocks over which a measurement is taken: of the first input, or of all."""
    count = len(part.inputs) if isinstance(part.kernel, Search) else 1
    return [Block(n, window) for n in range(count) for window in measured_windows(part, n)]


def measured_windows(part: Made, number: int) -> list[Window]:
    """The blocks of an input over which a measurement is taken."""
    recipe = part.inputs[number]
    leaf = recipe.spec
    is_whole = part.kernel.is_whole or Composition(recipe).is_whole
    shape = leaf.shape if is_whole else block_shape(leaf, leaf.write_shape)
    return list(windows(leaf.shape, shape))


def inputs_read(part: Made, block: Block) -> list[tuple[Stored, Window]]:
    """What is read for one block of a measurement, each window once."""
    others = () if isinstance(part.kernel, Search) else part.inputs[1:]
    beside = [(other, broadcast_window(other.spec.shape, block.window)) for other in others]
    found = {
        (id(stored), *((one.start, one.stop) for one in read)): (stored, read)
        for recipe, window in ((part.inputs[block.input], block.window), *beside)
        for stored, read in reads(recipe, window)
    }
    return list(found.values())


def measured_passes(part: Made, block: Block, memory_bytes: int) -> list[Window]:
    """The parts of a block that are measured one after the other, what they are made of being read anew for each.

    There are several only where many leaves are measured beside each other, a stored unit makes blocks large, and
    memory has no room for all of them.
    """
    sizes = [block_bytes(stored.spec, window) for stored, window in inputs_read(part, block)]
    read, largest = sum(sizes), max(sizes, default=0)
    most = room_for_parts(memory_bytes, largest)
    if isinstance(part.kernel, Search) or part.kernel.is_whole or read <= most:
        return [block.window]
    made = [Composition(one) for one in part.inputs if isinstance(one, Made)]
    if not all(one.is_divisible and not one.moves_elements for one in made):
        return [block.window]
    count = math.prod(window_shape(block.window))
    return list(tiles(block.window, max(count * most // read, 1)))


def joined(kernel: Kernel, shares: Sequence[tuple[Window, Values]], whole: Window) -> Values:
    """The measurement of ``whole`` from those of its parts: [its shape, reduced axes of size 1]; counts of a search."""
    if len(shares) == 1:
        return shares[0][1]
    if isinstance(kernel, Search):
        counts = shares[0][1].copy()
        for _, share in shares[1:]:
            counts += share
        return counts
    assert isinstance(kernel, Measurement)
    join = getattr(np, kernel.combine)
    axes = kernel.axes(len(whole))
    shape = tuple(1 if i in axes else n for i, n in enumerate(window_shape(whole)))
    first = shares[0][1]
    total = np.zeros((*shape, *first.shape[len(shape) :]), first.dtype)
    for window, share in shares:
        at = tuple(
            slice(0, 1) if i in axes else slice(part.start - all_.start, part.stop - all_.start)
            for i, (part, all_) in enumerate(zip(window, whole, strict=True))
        )
        total[at] = join(total[at], share)
    return total
