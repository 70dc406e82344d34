"""Recipes to values: what a leaf is made of is read and computed block by block; equal parts once."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from typing import Any, TypeAlias

import numpy as np

from surgery_cli.compute.c_order import in_c_order, put
from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.expression import InputSpecs, Made, Recipe, Stored
from surgery_cli.draft.kernel import Kit, Measurement, Place, Search, Window, broadcast_window
from surgery_cli.draft.reads import made_at_once
from surgery_cli.engine.composition import UNBOUNDED, Composition
from surgery_cli.engine.grid import inside, relative, tiles, window_shape, windows
from surgery_cli.engine.held import Band, Held
from surgery_cli.engine.measurements import (
    Block,
    Measurements,
    Taking,
    joined,
    measured_passes,
)
from surgery_cli.engine.read_ahead import Input, each_held
from surgery_cli.engine.reading import Readable, Values, put_together
from surgery_cli.engine.stored_reads import StoredReads

_Making: TypeAlias = Generator[tuple[Recipe, Window], Values | None, Values]
"""A block on its way: asks for blocks of the parts that it is made of, one by one, and ends with its values."""


class Evaluation:
    """One recipe being computed, block by block. Blocks may be asked for from threads, once all is measured.

    Raises (all methods that read):
        ValueRefusal: the values show that an edit must not be done.
        CheckpointError: a source cannot be read.
    """

    def __init__(
        self,
        recipe: Recipe,
        sources: Mapping[str, Readable],
        kit: Kit,
        block: tuple[int, ...],
        measurements: Measurements | None = None,
        memory_bytes: int = UNBOUNDED,
        spare_bytes: int = 0,
    ) -> None:
        """Nothing is read yet. ``memory_bytes``: see ``Composition``; ``spare_bytes``: see ``each_held``."""
        self.recipe = recipe
        self._spare_bytes = spare_bytes
        self._memory_bytes = memory_bytes
        self.composition = Composition(recipe, memory_bytes)
        self.block_shape = recipe.spec.shape if self.composition.is_whole else block
        self.windows: list[Window] = list(windows(recipe.spec.shape, self.block_shape))
        """The blocks of the leaf, in C order."""
        self._measurements = measurements or Measurements()
        self.stored = StoredReads(sources)
        self._kit = kit
        self._needed_again = self.composition.needed_again
        self._kept_again = self.composition.kept_again
        self._held: Held | None = Held() if len(self.windows) == 1 else None
        """What was read for the only block, of stored leaves that are needed again."""

    @property
    def unmeasured(self) -> list[Made]:
        """What it has to measure, inner measurements first; the rest is measured by others, or was."""
        return self._measurements.missing(self.composition.measured, self)

    def block(self, window: Window, band: Band | None = None) -> Values:
        """The values of one block, in the output's dtype, C-contiguous; what is missing is measured first.

        They keep nothing in memory but themselves. ``band`` has what was read for it.
        """
        for part in self.unmeasured:
            self._measurements.take(part, self, self.share)
        held = self._held or Held() if band is None else Held(band.stored)
        values = self._values(self.recipe, window, held)
        if self._held is not None:
            self._held = Held()
        values = in_c_order(values).reshape(window_shape(window))
        is_part = getattr(values.base, "nbytes", 0) > values.nbytes
        return values.copy() if is_part else values

    def share(self, taking: Taking, block: Block) -> Values:
        """What one block adds to a measurement, or to a pass of a search."""
        kernel, source = taking.part.kernel, taking.part.inputs[block.input]
        is_all = len(taking.blocks) == 1
        held = self._held if self._held is not None and is_all else Held()
        beside = () if isinstance(kernel, Search) else taking.part.inputs[1:]
        shares: list[tuple[Window, Values]] = []
        passes = measured_passes(taking.part, block, self._memory_bytes)
        for window in passes:
            now = held if len(passes) == 1 else Held(held.stored)
            parts = [
                (one, self._tiled(one, window, block.window, now)) for one in (source, *beside)
            ]
            for tile in self._tiles(window, is_whole=kernel.is_whole):
                blocks = [self._kit.put(values(tile), one.spec) for one, values in parts]
                shares.append((tile, self._share_of(taking, block, tile, blocks)))
                del blocks  # views, that would keep what they are of
                now.made.clear()
            if now is not held:
                now.stored.clear()
        self._drop(held)
        return joined(kernel, shares, block.window)

    def _share_of(self, taking: Taking, block: Block, tile: Window, blocks: list[Any]) -> Values:
        kernel, specs, source = taking.part.kernel, taking.specs, taking.part.inputs[block.input]
        if isinstance(kernel, Search):
            path = source.ref.path if isinstance(source, Stored) else source.path
            place = Place.of(path, specs, source.spec, tile)
            share = kernel.count_in(taking.known, block.input, blocks[0], self._kit, place)
        else:
            assert isinstance(kernel, Measurement)
            place = Place.of(taking.part.path, specs, source.spec, tile)
            share = kernel.measure(blocks, self._kit, place)
        fetched: Values = self._kit.fetch(share)
        return fetched

    def _tiled(
        self, part: Recipe, window: Window, of: Window, held: Held
    ) -> Callable[[Window], Values]:
        """What gives the tiles of a window of a part: computed as they are asked for, if that can be; read once.

        ``of`` is the block in which it lies.
        """

        def place(of: Window) -> Window:
            return broadcast_window(part.spec.shape, of)

        is_measured = isinstance(part, Made) and isinstance(part.kernel, Measurement)
        # a window of a stored unit may be a view of all of it: it is held by itself
        if isinstance(part, Stored) or (not is_measured and Composition(part).is_divisible):
            self.stored.hold(part, place(window), held, place(of))
            return lambda tile: self._part(part, place(tile), held)
        values = (self._part if is_measured else self._values)(part, place(window), held)
        return lambda tile: values[relative(place(tile), place(window))]

    def _drop(self, held: Held) -> None:
        """Let go of the stored leaves that nothing else is made of."""
        for part in held.stored.keys() - self._kept_again:
            del held.stored[part]

    def _values(self, recipe: Recipe, window: Window, held: Held) -> Values:
        """A block of the values of an expression.

        They are computed tile by tile, so that temporaries stay small and in the processor's cache.
        """
        of = self.composition if recipe is self.recipe else Composition(recipe, self._memory_bytes)
        if (rounded := self.stored.rounded(of, window, held, self._kit)) is not None:
            return rounded
        is_streamed = of.is_streamed
        parts = list(self._tiles(window, is_whole=not (of.is_divisible or is_streamed)))
        if len(passes := of.passes(window)) > 1:
            return self._in_passes(recipe, window, passes, held)
        if is_streamed and len(parts) > 1:
            return self._streamed(recipe, window, window, held)

        def made(tile: Window) -> Values:
            values = self._part(recipe, tile, held)
            held.made.clear()
            return values

        if len(parts) == 1:
            return made(window)
        self.stored.hold(recipe, window, held)
        out = put_together(window, ((tile, made(tile)) for tile in parts))
        self._drop(held)
        return out

    def _in_passes(
        self, recipe: Recipe, window: Window, passes: list[Window], held: Held
    ) -> Values:
        if held is self._held:  # what was read to be measured would stay whole beside all of this
            held.stored.clear()
        done = ((part, self._streamed(recipe, part, window, Held(held.stored))) for part in passes)
        return put_together(window, done)

    def _streamed(self, recipe: Recipe, window: Window, of: Window, held: Held) -> Values:
        """A part of a block of many leaves: each is read once, and goes into the sums of all tiles."""
        assert isinstance(recipe, Made)
        parts = list(self._tiles(window, is_whole=False))
        kernel, specs = recipe.kernel, tuple(one.spec for one in recipe.inputs)
        places = [Place.of(recipe.path, specs, recipe.spec, tile) for tile in parts]
        states = [kernel.begin(self._kit, place) for place in places]
        pieces = [list(kernel.pieces(tile, specs, recipe.spec)) for tile in parts]
        around = kernel.pieces(of, specs, recipe.spec)
        steps = zip(kernel.pieces(window, specs, recipe.spec), around, strict=True)
        inputs = [
            Input(recipe.inputs[piece.input], piece.read, whole.read) for piece, whole in steps
        ]
        again, spare = self._kept_again, self._spare_bytes
        with closing(each_held(inputs, self.stored.hold, held, again, spare)) as in_turn:
            for step, (source, _, _) in enumerate(in_turn):
                for number, place in enumerate(places):
                    piece = pieces[number][step]
                    values = self._part(source, piece.read, held)
                    block = self._kit.put(values, source.spec)
                    states[number] = kernel.add(
                        states[number], piece.input, block, self._kit, place
                    )
                    # views, that would keep all of this input while the next is read
                    del values, block
                    held.made.clear()
                self._drop(held)
        every = zip(parts, states, places, strict=True)
        results = ((tile, kernel.result(state, self._kit, place)) for tile, state, place in every)
        return put_together(window, ((tile, self._kit.fetch(made)) for tile, made in results))

    def _part(self, part: Recipe, window: Window, held: Held) -> Values:
        """A block of a part of the expression; no call within a call, as a plan may edit one leaf a thousand times."""
        unfinished = [self._making(part, window, held)]
        values: Values | None = None
        while unfinished:
            try:
                wanted, of = unfinished[-1].send(values)
            except StopIteration as made:
                values = made.value
                unfinished.pop()
            else:
                unfinished.append(self._making(wanted, of, held))
                values = None
        assert values is not None
        return in_c_order(values) if _is_arranged(part) else values

    def _making(self, part: Recipe, window: Window, held: Held) -> _Making:
        if isinstance(part, Stored):
            found = held.find(part, window)
            if found is None:
                found = self.stored.read(part, window)
                if id(part) in self._needed_again:
                    held.stored[id(part)] = (window, found)
            return found
        if isinstance(part.kernel, Measurement):
            return np.asarray(self._measurements.value(part)[window])
        made = made_at_once(part, window)
        key = (id(part), *((one.start, one.stop) for one in made))
        kept = held.whole if part.kernel.is_whole else held.made
        values = kept.get(key)
        if values is None:
            make = self._arranged if _is_arranged(part) else self._computed
            values = yield from make(part, made)
            if id(part) in self._needed_again or made != window:
                kept[key] = values
        return values if made == window else values[window]

    def _computed(self, part: Made, window: Window) -> _Making:
        kernel, specs = part.kernel, tuple(one.spec for one in part.inputs)
        place = Place.of(part.path, specs, part.spec, window)
        state = kernel.begin(self._kit, place)
        for piece in kernel.pieces(window, specs, part.spec):
            source = part.inputs[piece.input]
            values = yield source, piece.read
            assert values is not None
            if _is_arranged(source):
                values = in_c_order(values)
            block = self._kit.put(values, source.spec)
            state = kernel.add(state, piece.input, block, self._kit, place)
        made: Values = self._kit.fetch(kernel.result(state, self._kit, place))
        return made

    def _arranged(self, part: Made, window: Window) -> _Making:
        """A view where one piece is all that there is: maps that follow each other are copied once, at their end."""
        kernel, specs = part.kernel, InputSpecs(part)
        assert isinstance(kernel, Arrangement)
        shape = window_shape(window)
        values: Values | None = None
        for piece in kernel.pieces(window, specs, part.spec):
            moved = kernel.arrange((yield part.inputs[piece.input], piece.read), piece)
            if piece.write == window:
                return moved if moved.shape == shape else np.broadcast_to(moved, shape)
            if values is None:
                values = np.zeros(shape, moved.dtype)
            put(values, inside(piece.write, window), moved)
        assert values is not None
        return values

    def _tiles(self, window: Window, *, is_whole: bool) -> Iterator[Window]:
        return tiles(window, None if is_whole else self._kit.tile_elements)


def _is_arranged(part: Recipe) -> bool:
    """True if elements of a part only move: blocks of it are views, in any order."""
    return isinstance(part, Made) and isinstance(part.kernel, Arrangement)
