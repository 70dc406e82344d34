"""The batch: inputs from specs such as ``float32[8,28,28,1]`` or from ``.npz`` files."""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np

from surgery_cli.compute.numpy_dtypes import numpy_dtype
from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.addresses import named_address
from surgery_cli.inputs.batch_files import BATCH_FILE
from surgery_cli.inputs.buckets import ServiceRefusal, path_at
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.zip_errors import refusals_told
from surgery_cli.tree.dtypes import is_complex, is_floating, is_integer
from surgery_cli.words.quantities import byte_text

_SPEC: Final = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*(?:\.\w+)*)=)?(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[\d,\s]*)\]"
    r"(?:<(?P<below>\d+)|=(?P<fill>[-+.\deE]+))?"
)
_EXAMPLES: Final = (
    "e.g. `float32[8,28,28,1]` (normal), `int32[8,128]<1000` (uniform below 1000), "
    "`mask=bool[8]=1`, `batch.npz`, `x=batch.npz:images`"
)


class Input(msgspec.Struct, frozen=True):
    """One array of the batch. ``name`` is '' for a positional input; ``batch.image`` stands in a dict ``batch``."""

    name: str
    text: str
    values: Any
    is_entry: bool = False
    """True for what a file gave by its own name: a batch may hold more than is asked for."""


def read_inputs(texts: Sequence[str], *, seed: int, shapes_only: bool = False) -> list[Input]:
    """The inputs that the texts describe, in order; random ones depend on the seed and their position alone.

    Floating inputs are drawn from a standard normal distribution. Integers and booleans are 0 unless a bound or a
    value is given: an index out of range would make an embedding NaN and accuse a healthy checkpoint.
    ``shapes_only``: nothing is drawn, and every value of a spec is one zero in memory.

    Raises:
        SurgeryError: a text is neither a spec nor a file, a name stands twice, or an input is too large.
    """
    found: list[Input] = []
    for position, text in enumerate(map(named_address, texts)):
        if match := BATCH_FILE.fullmatch(text):
            found += _from_file(text, match)
        elif match := _SPEC.fullmatch(text.strip()):
            generator = None if shapes_only else np.random.default_rng([seed, position])
            found.append(_from_spec(text, match, generator))
        else:
            raise SurgeryError(f"'{text}' is not an input", fix=_EXAMPLES, field="input")
    _check_names([i.name for i in found if i.name])
    return found


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise SurgeryError(f"the input '{name}' is given twice", field="input")
        inner = next((n for n in names if n.startswith(f"{name}.")), None)
        if inner is not None:
            raise SurgeryError(
                f"the input '{name}' is an array, and '{inner}' makes it a dict", field="input"
            )


def _from_spec(text: str, match: re.Match[str], generator: np.random.Generator | None) -> Input:
    dtype = _dtype(match["dtype"], text)
    shape = tuple(int(size) for size in match["shape"].split(",") if size.strip())
    try:
        values = _values(text, match, dtype, shape, generator)
    except (MemoryError, ValueError):  # a ValueError: more elements than an address has bits for
        raise SurgeryError(
            f"the input '{text}' does not fit into memory",
            why=f"it has {byte_text(math.prod(shape) * dtype.itemsize)}",
            fix="give a smaller batch",
            field="input",
        ) from None
    return Input(match["name"] or "", text, values)


def _values(
    text: str,
    match: re.Match[str],
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    generator: np.random.Generator | None,
) -> Any:
    if match["below"] is not None and not is_integer(dtype.name):
        raise SurgeryError(
            f"'{text}' bounds values that are no integers",
            fix="`<` is for integers; `float32[8]=0.5` gives a value",
        )
    if generator is None:
        return np.broadcast_to(np.zeros((), dtype), shape)
    if match["fill"] is not None:
        return np.full(shape, float(match["fill"])).astype(dtype)
    if match["below"] is not None:
        return generator.integers(0, int(match["below"]), shape).astype(dtype)
    if is_floating(dtype.name):
        return generator.standard_normal(shape).astype(dtype)
    if is_complex(dtype.name):
        real, imaginary = generator.standard_normal((2, *shape))
        return (real + 1j * imaginary).astype(dtype)
    return np.zeros(shape, dtype)


def _dtype(name: str, text: str) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = numpy_dtype(name)
    except TypeError:
        raise SurgeryError(
            f"'{name}' in the input '{text}' is not a dtype", fix=_EXAMPLES, field="input"
        ) from None
    if found.kind in "OSUM":
        raise SurgeryError(f"an input cannot be of dtype '{name}'", fix=_EXAMPLES, field="input")
    return found


def _from_file(text: str, match: re.Match[str]) -> list[Input]:
    """Every entry of an ``.npz`` by its name, one entry, or the array of an ``.npy``; here, or in a bucket."""
    name, file = match["name"] or "", match["file"]
    try:
        path = path_at(file)
        filesystem.forget(path)
        refuse_special(path, SurgeryError)
        with filesystem.reader(path) as stream, refusals_told():
            loaded = np.load(stream, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return [Input(name, text, loaded)]
            with loaded:
                return _entries(loaded, text, file, name, match["entry"])
    except (OSError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile) as error:
        why, fix = str(error), _EXAMPLES
        if isinstance(error, ServiceRefusal):  # the file may be all right
            why, fix = str(error.strerror), error.fix
        raise SurgeryError(f"the input file '{file}' cannot be read", why=why, fix=fix) from None


def _entries(loaded: Any, text: str, file: str, name: str, entry: str | None) -> list[Input]:
    entries = loaded.files
    if entry is not None and entry not in entries:
        raise SurgeryError(
            f"'{file}' has no entry '{entry}'",
            why="it has " + ", ".join(f"'{n}'" for n in entries),
        )
    if entry is not None:
        return [Input(name, text, loaded[entry])]
    if name:
        if len(entries) != 1:
            raise SurgeryError(
                f"'{file}' has {len(entries)} entries, and '{name}' is one input",
                fix=f"name the entry: `{name}={file}:{entries[0] if entries else 'ENTRY'}`",
            )
        return [Input(name, text, loaded[entries[0]])]
    return [Input(n, f"{file}:{n}", loaded[n], is_entry=True) for n in entries]
