"""The contract of a computation: which parts of its inputs a block needs, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import msgspec

from surgery_cli.tree.dtypes import Rounding, is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

Window = tuple[slice, ...]
"""A part of a leaf: along every axis from where to where."""


class Place(NamedTuple):
    """Where a block stands among the values that are made, and what these and the inputs are as a whole.

    ``path`` is where the leaf stood when the edit named it; random values go by it, so that a later rename does not
    change them.
    """

    path: LeafPath
    inputs: tuple[LeafSpec, ...]
    output: LeafSpec
    start: tuple[int, ...]
    """Offset of the block, in elements."""
    shape: tuple[int, ...]
    """Shape of the block."""

    @classmethod
    def of(
        cls, path: LeafPath, inputs: tuple[LeafSpec, ...], output: LeafSpec, window: Window
    ) -> Place:
        """The place of a window of the output."""
        start = tuple(one.start for one in window)
        return cls(path, inputs, output, start, tuple(one.stop - one.start for one in window))

    @property
    def is_all(self) -> bool:
        """True if the block is the whole."""
        return self.shape == self.output.shape


class Kit(Protocol):
    """Arithmetic on one device; kernels are written once against it (see ``compute/``).

    The engine hands blocks over with ``put`` and takes results back with ``fetch``: NumPy in, NumPy out. Kernels
    compute inside ``in_float32``, ``in_float64`` and ``apply`` only, so that the kit can hold the precision there.
    """

    @property
    def xp(self) -> Any:
        """The array namespace: ``numpy`` or ``jax.numpy``."""

    @property
    def tile_elements(self) -> int | None:
        """How many elements are best computed at once (what fits into a cache); None for whole blocks."""

    def put(self, block: Any, spec: LeafSpec) -> Any:
        """A NumPy block of a leaf on the device (spread over the mesh, if there is one), bit for bit."""

    def fetch(self, array: Any) -> Any:
        """What a kernel returned (a measurement, too) as a NumPy array, bit for bit."""

    def in_float32(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        """``function(leaf)`` computed in float32 (wider dtypes stay as they are), cast back once."""

    def in_float64(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        """``function(leaf)`` computed in float64 or complex128, and left there: for measurements."""

    def apply(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """``function(*arrays)`` in the dtypes that the arrays have."""

    def widened(self, leaf: Any) -> Any:
        """The leaf in the dtype in which it is computed: float32 for narrower floats."""

    def cast(self, leaf: Any, dtype: str) -> Any:
        """Convert to ``dtype`` by name, rounding to nearest even, once."""

    def rounds_alike(self, rounding: Rounding) -> bool:
        """True if TensorStore, which decodes, makes the very same of a number as ``cast``, wherever that is finite."""

    def add_scaled(self, total: Any, block: Any, factor: float) -> Any:
        """``total + factor * block`` in float64 or complex128; without a ``total`` (None), it begins one.

        ``total`` may be written over.
        """

    def quotient(self, total: Any, divisor: float, dtype: str) -> Any:
        """``total / divisor`` in ``dtype`` by name, rounded to nearest even, once. ``total`` may be written over."""

    def draw(self, distribution: str, seed: int, at: Place, **bounds: float) -> Any:
        """Random values of one block: float64 [block's shape], always drawn on the host, in NumPy.

        Each element depends on (seed, path, its C-order index in the leaf) only. ``distribution`` is ``uniform``
        (in [0, 1)), ``normal`` (standard), ``truncated_normal`` (standard, between ``lower`` and ``upper``).
        """

    def orthogonal(self, seed: int, at: Place, column_axis: int, *, is_delta: bool) -> Any:
        """A whole random leaf, float64 [leaf's shape], on the host: orthonormal along ``column_axis`` or across it.

        ``is_delta``: only the centre of the spatial axes, all but the last two, is not 0.
        """


class Piece(NamedTuple):
    """A part of a block: the window of an input (by its number) that it is made of, and where it goes in the output.

    ``write`` may hold the numbers of places along one axis, as a list, in place of a slice, where these do not follow
    each other. ``index`` is whatever else a kernel needs to arrange what was read.
    """

    input: int
    read: Window
    write: tuple[Any, ...]
    index: Any = None


class Kernel(msgspec.Struct, frozen=True, tag_field="kernel", omit_defaults=True):
    """A computation; its tag and fields are its canonical form. Subclasses give ``compute``, and the hooks they need.

    Elementwise over inputs that broadcast to the output, unless ``pieces`` says otherwise; it must, of all others.
    Values are rounded once, by the last kernel of an edit, to the dtype of the leaf.
    """

    keeps_places: ClassVar[bool] = True
    """False if elements do not stand where they stood in what they are made of."""
    keeps_inputs: ClassVar[bool] = True
    """False if ``add`` takes what it needs of an input at once, so that no two of many stand in memory together."""

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def author(self) -> str:
        """Who else makes the values, for messages; '' for a computation of ours."""
        return ""

    @property
    def is_whole(self) -> bool:
        """True if the leaf cannot be made in blocks."""
        return False

    @property
    def is_repeatable(self) -> bool:
        """True if it gives the same again whenever it is asked, whatever was asked before."""
        return True

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        """For ``is_whole``: the most that it holds at once beside the block of ``leaf`` that it is given.

        None if that is not known; the engine then assumes much.
        """
        return None

    def state_bytes(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> int:
        """Where ``keeps_inputs`` is False: what the state holds for each element of the output, in bytes.

        One sum in float64 or complex128, unless the kernel says otherwise.
        """
        return 16 if is_complex(output.dtype) else 8

    def is_identity(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        """True if the values of the first input, as they are stored, are the output."""
        return False

    def is_rounding(self, inputs: Sequence[LeafSpec], output: LeafSpec) -> bool:
        """True if the output is the one input, each element rounded to its dtype, wherever all of it is finite."""
        return False

    def after(self, inner: Kernel) -> Kernel | None:
        """The one kernel that does what ``inner`` and then this one does; None if there is none."""
        return None

    def pieces(self, out: Window, inputs: Sequence[LeafSpec], output: LeafSpec) -> Iterator[Piece]:
        """What a block needs, input by input: of each what belongs to it where it broadcasts to the output."""
        for number, spec in enumerate(inputs):
            if not broadcasts(
                spec.shape, output.shape
            ):  # its window would be a crop of the input, or none
                raise TypeError(
                    f"kernel '{self.name}' makes {output.shape} of {spec.shape} and says no pieces"
                )
            yield Piece(number, broadcast_window(spec.shape, out), out)

    def begin(self, kit: Kit, at: Place) -> Any:
        """The state before the first input."""
        return []

    def add(self, state: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        """The state after the block of one more input, by its number."""
        state.append(block)
        return state

    def result(self, state: Any, kit: Kit, at: Place) -> Any:
        """The values of the block, [its shape], in the dtype of ``at.output``."""
        return self.compute(state, kit, at)

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        """The values of the block from those of all inputs, in order: [broadcast to the block's shape] each."""
        raise NotImplementedError


class Nothing(Kernel, frozen=True, tag="nothing"):
    """A container without leaves: it holds no values."""


class Measurement(Kernel, frozen=True):
    """What is measured of a leaf as a whole: [reduced axes of size 1, or no axes at all], float64, once for all users.

    It is taken of blocks of the first input, to which others broadcast. It may have further axes at its end: the
    products of many leaves, say, two by two.
    """

    @property
    def combine(self) -> str:
        """The NumPy ufunc that joins the shares of blocks: ``add``, ``maximum`` or ``hypot``.

        All of them have 0 as their neutral element: shares are never negative where the largest is asked for.
        """
        return "add"

    def axes(self, ndim: int) -> tuple[int, ...]:
        """The axes that are reduced, counted from the first; all of them by default."""
        return tuple(range(ndim))

    def measure(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        """The share of a block: [its shape, reduced axes of size 1, then further axes if there are any]."""
        raise NotImplementedError

    def finish(self, measured: Any, at: Place) -> Any:
        """Look at the whole measurement once, before anything is made of it; ``at`` is all of the leaf.

        Raises:
            ValueRefusal: the edit must not be done with these values (a zero norm).
        """
        return measured


class Search(Measurement, frozen=True):
    """What is found among the elements of all inputs, in passes, each of which narrows down what the next looks for.

    Whole numbers are counted, so that neither the blocks nor their order matter.
    """

    def passes(self, inputs: Sequence[LeafSpec]) -> int:
        """How many passes it usually takes; for the forecast."""
        return 1

    def most_passes(self, inputs: Sequence[LeafSpec]) -> int:
        """How many it takes at most, whatever the values."""
        return self.passes(inputs)

    def start(self, inputs: Sequence[LeafSpec]) -> Any:
        """What is known before the first pass."""
        raise NotImplementedError

    def count_in(self, known: Any, number: int, block: Any, kit: Kit, at: Place) -> Any:
        """The counts of a block of an input, by its number: integers, of one shape for a whole pass.

        ``at`` is where the block stands in its input, ``at.output``; ``at.path`` where that stands.
        """
        raise NotImplementedError

    def narrowed(self, known: Any, counts: Any, inputs: Sequence[LeafSpec]) -> Any:
        """What is known after a pass, from the counts of all its blocks."""
        raise NotImplementedError

    def found(self, known: Any) -> Any:
        """The result, once what is known tells it; else None."""
        raise NotImplementedError


def broadcasts(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """True if each element of ``whole`` belongs to one of an array of this shape.

    >>> broadcasts((1, 8), (3, 4, 8)), broadcasts((6, 4), (3, 4)), broadcasts((3, 4), (4,))
    (True, False, False)
    """
    axes = zip(reversed(shape), reversed(whole), strict=False)
    return len(shape) <= len(whole) and all(n in (1, size) for n, size in axes)


def broadcast_window(shape: tuple[int, ...], window: Window) -> Window:
    """The part of an array that belongs to a window of what it broadcasts to.

    >>> broadcast_window((1, 8), (slice(3, 4), slice(2, 6), slice(0, 4)))
    (slice(0, 1, None), slice(0, 4, None))
    """
    last = window[len(window) - len(shape) :]
    if 1 not in shape:
        return last
    return tuple(slice(0, 1) if n == 1 else part for n, part in zip(shape, last, strict=True))
