"""What is typed behind options, read: tolerances, sizes, pairs of names and values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final

from surgery_cli.errors import PlanError, SurgeryError
from surgery_cli.inputs.addresses import local_object, named_address
from surgery_cli.inputs.call_specs import literal
from surgery_cli.inputs.numbers import fraction
from surgery_cli.words.advice import Text


def tolerance_of(text: str | float) -> float:
    """How far two numbers may be apart: `1e-5`, `1/3`.

    Raises:
        ValueError: it is no number, or negative, or NaN or infinite, which would let everything through.
    """
    try:
        number = fraction(str(text))
        number = float(text) if number is None else number
    except (ValueError, PlanError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"'{text}' is no finite number from 0 on, such as 1e-5")
    return number


LEAST_MEMORY: Final = 1 << 20


def memory_of(text: str) -> int:
    """What `--memory` allows, in bytes. Raises as `bytes_of`, and for `10`, which are ten bytes."""
    size = bytes_of(text, "`--memory 4GiB`", "memory")
    if size < LEAST_MEMORY:
        number = text.strip().rstrip("bB ")
        unit = f"`--memory {number}GiB` or " if number.isdigit() else ""
        raise PlanError(
            f"`--memory {text}` is less than anything takes: {size:,} bytes",
            why="a size is a number and a unit; the least is 1MiB",
            fix=f"write {unit}`--memory 1MiB`",
            field="memory",
        )
    return size


def rate_of(text: str) -> int:
    """Bytes in a second: `200MiB`, or `200MiB/s`. Raises as `bytes_of`."""
    return bytes_of(text.removesuffix("/s"), "`--rate 100MiB`", "rate")


_SIZE: Final = r"\s*([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*(?:([KMGT])(iB|i|B)?|B)?\s*"


def bytes_of(text: str, example: str, field: str) -> int:
    """A size as people write it; `GiB`, `Gi` and `G` are 1024³ bytes, `GB` is 1000³.

    ``example``: the setting ``field`` with a size that is often meant, as a refusal shows it.

    >>> [bytes_of(text, "`--memory 4GiB`", "memory") for text in ("4GiB", "1.5 kB", "512")]
    [4294967296, 1500, 512]

    Raises:
        PlanError: it is not a size, or is less than a byte.
    """
    found = re.fullmatch(_SIZE, text, re.IGNORECASE)
    size = 0
    if found is not None:
        power = " KMGT".index(found[2].upper()) if found[2] else 0
        base = 1000 if (found[3] or "").upper() == "B" else 1024
        size = int(float(found[1]) * base**power)
    if not size:
        is_number = re.fullmatch(_SIZE, text.strip().removeprefix("-"), re.IGNORECASE)
        raise PlanError(
            f"'{text}' is not a size",
            why="it must be more than 0: a byte at least"
            if is_number
            else "a size is a number and a unit: KiB, MiB, GiB, TiB, or kB, MB, GB, TB",
            fix=Text("e.g. ", example),
            field=field,
        )
    return size


def variables_of(texts: Sequence[str]) -> dict[str, str]:
    """What `--set` was given, as a mapping; a value may be empty. Raises as the other readers of `NAME=VALUE`."""
    return pairs_of(texts, "--set", "NAME=VALUE", "by=0.5", is_plain=True)


def kinds_of(texts: Sequence[str]) -> str | dict[str, str] | None:
    """What `--optimizer-kind` was given: one name for the whole tree, or names by node ("" for all other nodes).

    >>> kinds_of(["adamw"]), kinds_of(["opt_state/1=adamw", "sgd"])
    ('adamw', {'opt_state/1': 'adamw', '': 'sgd'})
    >>> kinds_of(["opt_state=adamw(1e-3, b2=0.95)", "sgd(momentum=0.9)"])
    {'opt_state': 'adamw(1e-3, b2=0.95)', '': 'sgd(momentum=0.9)'}

    Raises:
        PlanError: one has no name, or one node is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        before, bracket, settings = text.partition("(")
        node, equals, name = before.rpartition("=")
        name += bracket + settings
        if not name or (equals and not node):
            raise PlanError(
                f"`--optimizer-kind` takes KIND or AT=KIND, not '{text}'",
                fix="e.g. `--optimizer-kind adamw`, or `--optimizer-kind opt_state/1=adamw`",
                field="optimizer_kind",
            )
        if node in found:
            where = f"for '{node}' " if node else ""
            raise PlanError(
                f"`--optimizer-kind` is given twice {where}".rstrip(),
                why=f"'{found[node]}' and '{name}'",
                fix="keep one of them, or say which node each is for: `--optimizer-kind AT=KIND`",
                field="optimizer_kind",
            )
        found[node] = name
    return found[""] if found.keys() == {""} else found or None


def static_of(texts: Sequence[str]) -> dict[str, Any]:
    """``train=false`` as Python values; what is no literal is a string.

    >>> static_of(["train=false", "mode=fast"])
    {'train': False, 'mode': 'fast'}

    Raises:
        PlanError: a text has no ``=``, or a name stands twice.
    """
    return {
        name: _value(text)
        for name, text in pairs_of(texts, "--call", "NAME=VALUE", "train=false").items()
    }


def streams_of(texts: Sequence[str]) -> dict[str, int]:
    """``dropout=1`` as the seeds of random streams by name. Raises as `static_of`, and where a seed is no number."""
    form = ("--rng", "NAME=SEED", "dropout=0")
    found = pairs_of(texts, *form)
    for name, seed in found.items():
        if not seed.isdecimal():
            raise _refusal(f"{name}={seed}", *form)
    return {name: int(seed) for name, seed in found.items()}


def bindings_of(texts: Sequence[str]) -> dict[str, str]:
    """``batch_stats=AT`` as places of collections by name. Raises as `static_of`."""
    return pairs_of(texts, "--bind", "NAME=AT", "batch_stats=ema/batch_stats")


def pairs_of(
    texts: Sequence[str], option: str, form: str, example: str, *, is_plain: bool = False
) -> dict[str, str]:
    """Pairs of names, which are Python's unless ``is_plain``, and texts."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals if is_plain else name.isidentifier() and value):
            raise _refusal(text, option, form, example)
        if name in found:
            raise PlanError(
                f"`{option}` gives '{name}' twice",
                why=f"'{found[name]}' and '{value}'",
                fix="keep one of them",
                field=option[2:],
            )
        found[name] = value
    return found


def _refusal(text: str, option: str, form: str, example: str) -> PlanError:
    return PlanError(
        f"`{option}` takes {form}, not '{text}'", fix=f"e.g. `{option} {example}`", field=option[2:]
    )


def _value(text: str) -> Any:
    try:
        return literal(text)
    except SurgeryError:
        return text


OBJECT: Final = ("FILE.py:NAME", local_object)
INPUT: Final = ("[NAME=]SPEC", named_address)
TOLERANCE: Final = ("X", tolerance_of)
"""Forms of values: how they are shown, and what reads each."""
