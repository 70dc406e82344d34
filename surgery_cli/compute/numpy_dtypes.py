"""NumPy's dtypes by their names."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's dtype of that name, those of ml_dtypes included.

    Raises:
        TypeError: there is none.
    """
    return np.dtype(getattr(ml_dtypes, name, name))
