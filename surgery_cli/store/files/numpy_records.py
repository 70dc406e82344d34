"""The records of NumPy's scalars and arrays in pickles: losses and random states, as training scripts keep them.

Source: ``numpy._core.multiarray`` (``scalar``, ``_reconstruct``), ``numpy._core.numeric._frombuffer``; the states of
``numpy.dtype`` and ``numpy.ndarray``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.store.files.pickle_values import NotPlain, NotRead, Record, Stateful
from surgery_cli.tree.dtypes import is_known

if TYPE_CHECKING:
    import numpy as np

_CODE: Final = re.compile(r"[biufc]\d{1,2}|\?")
_ORDERS: Final = ("<", ">", "|", "=")


class NumpyDtype(Stateful):
    """A dtype of numbers; its byte order comes with its state."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str):
            raise NotPlain("its pickle has a NumPy dtype without a name")
        if not _CODE.fullmatch(code):
            raise NotRead(
                f"its pickle speaks of NumPy's dtype '{code[:20]}', which is none of numbers"
            )
        self._code = code
        self._order = "|"

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in _ORDERS:
            raise NotPlain("its pickle has a NumPy dtype without a byte order")
        self._order = state[1]

    def values(self, raw: Any, shape: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        """An array of these bytes, in this machine's order."""
        import numpy as np

        dtype = self._dtype
        if not isinstance(raw, bytes):
            raise NotPlain("its pickle has a NumPy array of something else than numbers")
        if not all(isinstance(n, int) and n >= 0 for n in shape) or len(shape) > 32:
            raise NotPlain("its pickle has a NumPy array without a shape")
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise NotPlain(
                f"a NumPy array in it has {len(raw)} bytes, and its shape asks for others"
            )
        try:
            values = np.frombuffer(raw, dtype).reshape(shape)
        except ValueError:  # too large beside an axis of none
            raise NotPlain("its pickle has a NumPy array without a shape") from None
        return values.astype(dtype.newbyteorder("="), copy=False)

    def __str__(self) -> str:
        """As NumPy prints it."""
        return str(self._dtype)

    @property
    def _dtype(self) -> np.dtype[Any]:
        import numpy as np

        try:
            dtype = np.dtype(self._order + self._code)
        except TypeError:  # no number has so many bytes
            raise NotPlain(f"its pickle has the NumPy dtype '{self._code}'") from None
        if not is_known(dtype.name):
            raise NotRead(f"its pickle has NumPy numbers of the dtype '{dtype.name}'")
        return dtype


class NumpyArray(Stateful):
    """An array, or a scalar; its values come with its state."""

    def __init__(self, values: np.ndarray[Any, Any] | None = None) -> None:
        self._values = values

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], NumpyDtype):
            raise NotPlain("its pickle has a NumPy array without values")
        _, shape, dtype, is_fortran, raw = state
        if not isinstance(shape, tuple):
            raise NotPlain("its pickle has a NumPy array without a shape")
        self._values = _ordered(dtype, raw, shape, is_fortran=bool(is_fortran))

    @property
    def values(self) -> np.ndarray[Any, Any]:
        if self._values is None:
            raise NotPlain("its pickle has a NumPy array without values")
        return self._values


def _scalar(dtype: Any, raw: Any) -> NumpyArray:
    if not isinstance(dtype, NumpyDtype):
        raise NotPlain("its pickle has a NumPy scalar without a dtype")
    return NumpyArray(dtype.values(raw, ()))


def _reconstruct(*_: Any) -> NumpyArray:
    return NumpyArray()


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any, axes: Any = None) -> NumpyArray:
    """What protocol 5 has in place of ``_reconstruct``; ``axes``: how the array stands to its bytes in C order."""
    if not isinstance(dtype, NumpyDtype) or not isinstance(shape, tuple):
        raise NotPlain("its pickle has a NumPy array without a dtype or a shape")
    if order in ("C", "F"):
        return NumpyArray(_ordered(dtype, raw, shape, is_fortran=order == "F"))
    if order != "K" or not isinstance(axes, tuple) or sorted(axes) != list(range(len(shape))):
        raise NotPlain("its pickle has a NumPy array whose axes have no order")
    return NumpyArray(dtype.values(raw, shape).transpose(axes))


def _ordered(
    dtype: NumpyDtype, raw: Any, shape: tuple[Any, ...], *, is_fortran: bool
) -> np.ndarray[Any, Any]:
    return dtype.values(raw, shape[::-1]).T if is_fortran else dtype.values(raw, shape)


NUMPY_RECORDS: Final[dict[str, Record | None]] = {
    "numpy.dtype": NumpyDtype,
    "numpy.ndarray": None,
    **{
        f"numpy.{core}.{name}": record
        for core in ("core", "_core")
        for name, record in (
            ("multiarray.scalar", _scalar),
            ("multiarray._reconstruct", _reconstruct),
            ("numeric._frombuffer", _from_buffer),
        )
    },
}
"""By the names that NumPy 1 and NumPy 2 give them."""
