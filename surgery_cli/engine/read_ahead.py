"""The inputs of a block that is streamed, one after the other: the next is read while one is computed with."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.forecast import bytes_to_read
from surgery_cli.engine.grid import BLOCK_BYTES
from surgery_cli.engine.held import Held
from surgery_cli.store.filesystem.interruptions import Threads

_LEAST_BYTES: Final = BLOCK_BYTES
"""Smaller inputs are read as they are needed: other blocks are in the making beside this one."""


class Input(NamedTuple):
    """What one step of a streamed block needs of a recipe; ``around`` is read, and let go, with ``window``."""

    recipe: Recipe
    window: Window
    around: Window


Hold = Callable[[Recipe, Window, Held, Window], None]
"""Reads what a window of a recipe is made of, unless it is held; see ``StoredReads.hold``."""


def each_held(
    inputs: Sequence[Input], hold: Hold, held: Held, again: frozenset[int], spare_bytes: int
) -> Generator[Input]:
    """The inputs in their order, each once all that it is made of is held.

    Meanwhile the next is read in another thread, if that takes no more than ``spare_bytes``. ``again``: the identities
    of stored leaves that stay held.
    """
    if not _is_worth_it(inputs, spare_bytes):
        for one in inputs:
            hold(one.recipe, one.window, held, one.around)
            yield one
        return

    def read(one: Input, beside: Held) -> Held:
        hold(one.recipe, one.window, beside, one.around)
        return beside

    def begun(one: Input) -> Future[Held]:
        stays = {part: values for part, values in held.stored.items() if part in again}
        return reader.submit(read, one, Held(stays))

    with Threads(1, thread_name_prefix="surgery-ahead") as reader:
        coming = [begun(inputs[0])]  # popped, as a future that is kept would keep what was read
        for one, following in zip(inputs, (*inputs[1:], None), strict=True):
            held.stored.update(coming.pop().result().stored)
            if following is not None:
                coming.append(begun(following))
            yield one


def _is_worth_it(inputs: Sequence[Input], spare_bytes: int) -> bool:
    """True if there is room for the largest input beside another, and it is large."""
    if spare_bytes < _LEAST_BYTES:  # small leaves, of which there may be many: nothing is looked at
        return False
    largest = max((sum(bytes_to_read(one.recipe, one.around)) for one in inputs), default=0)
    return _LEAST_BYTES <= largest <= spare_bytes
