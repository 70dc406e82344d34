"""The records of NumPy's scalars and arrays in pickles: losses and random states, as training scripts keep them.

Source: ``numpy._core.multiarray`` (``scalar``, ``_reconstruct``); the states of ``numpy.dtype`` and ``numpy.ndarray``.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

from surgery_cli.store.files.pickle_values import NotPlain, Record, Stateful
from surgery_cli.tree.dtypes import is_known

if TYPE_CHECKING:
    import numpy as np

_CODE: Final = re.compile(r"[biufc]\d{1,2}|\?")
_ORDERS: Final = ("<", ">", "|", "=")


class _Dtype(Stateful):
    """A dtype of numbers; its byte order comes with its state."""

    def __init__(self, code: Any, *_: Any) -> None:
        if not isinstance(code, str) or not _CODE.fullmatch(code):
            raise NotPlain("its pickle has a NumPy array of something else than numbers")
        self._code = code
        self._order = "|"

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 2 or state[1] not in _ORDERS:
            raise NotPlain("its pickle has a NumPy dtype without a byte order")
        self._order = state[1]

    def values(self, raw: Any, shape: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        """An array of these bytes, in this machine's order."""
        import numpy as np

        dtype = np.dtype(self._order + self._code)
        if not is_known(dtype.name) or not isinstance(raw, bytes):
            raise NotPlain("its pickle has a NumPy array of something else than numbers")
        if not all(isinstance(n, int) and n >= 0 for n in shape) or len(shape) > 32:
            raise NotPlain("its pickle has a NumPy array without a shape")
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise NotPlain(
                f"a NumPy array in it has {len(raw)} bytes, and its shape asks for others"
            )
        values = np.frombuffer(raw, dtype).reshape(shape)
        return values.astype(dtype.newbyteorder("="), copy=False)


class NumpyArray(Stateful):
    """An array, or a scalar; its values come with its state."""

    def __init__(self, values: np.ndarray[Any, Any] | None = None) -> None:
        self._values = values

    def set_state(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Dtype):
            raise NotPlain("its pickle has a NumPy array without values")
        _, shape, dtype, is_fortran, raw = state
        if not isinstance(shape, tuple):
            raise NotPlain("its pickle has a NumPy array without a shape")
        if is_fortran:
            self._values = dtype.values(raw, shape[::-1]).T
        else:
            self._values = dtype.values(raw, shape)

    @property
    def values(self) -> np.ndarray[Any, Any]:
        if self._values is None:
            raise NotPlain("its pickle has a NumPy array without values")
        return self._values


def _scalar(dtype: Any, raw: Any) -> NumpyArray:
    if not isinstance(dtype, _Dtype):
        raise NotPlain("its pickle has a NumPy scalar without a dtype")
    return NumpyArray(dtype.values(raw, ()))


def _reconstruct(*_: Any) -> NumpyArray:
    return NumpyArray()


NUMPY_RECORDS: Final[dict[str, Record | None]] = {
    "numpy.dtype": _Dtype,
    "numpy.ndarray": None,
    **{f"numpy.{core}.multiarray.scalar": _scalar for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray._reconstruct": _reconstruct for core in ("core", "_core")},
}
"""By the names that NumPy 1 and NumPy 2 give them."""
