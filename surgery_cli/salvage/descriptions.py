"""What describes an array whose own description is lost: that of the same leaf elsewhere, or of a leaf of its kind.

A description is taken only where everything that stands there agrees with it: the name of each chunk, and the length
to which each decodes. That does not tell dtypes of one size apart, nor a shape from its transpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from surgery_cli.salvage.leaves import FoundArray, owner_of
from surgery_cli.salvage.states import Assumption
from surgery_cli.salvage.values import Held, Values
from surgery_cli.store.orbax.zarr import ArrayDocument, parse

_CHUNK: Final = re.compile(r"(c[/.])?\d+([/.]\d+)*|c")
_OF_ITS_KIND: Final[Assumption] = "they have the shape and dtype of the leaf that describes them"

Contradicts = Callable[[FoundArray], str]
"""What speaks against the description of an array, in words."""


class _Description(NamedTuple):
    document: ArrayDocument
    held: Held
    of: str
    """Whose it is: a stored name, or a place."""


def described_by_others(
    values: Values,
    names: Collection[str],
    arrays: Mapping[str, FoundArray],
    elsewhere: Mapping[str, tuple[bytes, str]],
    contradicts: Contradicts,
) -> tuple[dict[str, FoundArray], dict[str, str]]:
    """Those of the ``names`` that another description fits; and of those that several fit, why none is taken.

    ``elsewhere`` are descriptions of the same leaves in what the user named, with where that is. They may describe what
    is there in part; a leaf of this tree describes another only if all of it is there.
    """
    found: dict[str, FoundArray] = {}
    faults: dict[str, str] = {}
    below = _stored_below(values, names)
    kinds = _Kinds(arrays if below else {})
    for name, stored in below.items():
        if name in elsewhere:
            raw, place = elsewhere[name]
            held = Held(raw, "leaf folder")
            array = _described(name, _Description(parse(raw), held, place), stored)
            if array is not None and not contradicts(array):
                found[name] = array
                continue
        fitting = kinds.fitting(name, stored, contradicts)
        if len(fitting) == 1:
            found[name] = fitting[0]
        elif fitting:
            faults[name] = (
                "nothing that describes it can be read, and what describes"
                f" '{fitting[0].described_by}' and '{fitting[1].described_by}' would both fit"
            )
    return found, faults


def _stored_below(values: Values, names: Collection[str]) -> dict[str, dict[str, Held]]:
    """What is stored like chunks below each name, by the rest of its key."""
    found: dict[str, dict[str, Held]] = {}
    known = frozenset(names)
    for key, held in values.held.items() if known else ():
        owner = owner_of(key, known)
        rest = key[len(owner) + 1 :] if owner else ""
        if owner and _CHUNK.fullmatch(rest) and not values.is_disputed(key):
            found.setdefault(owner, {})[rest] = held
    return found


class _Kinds:
    """Ways in which leaves are described, by the end of their names."""

    def __init__(self, arrays: Mapping[str, FoundArray]) -> None:
        self._by_end: dict[str, dict[str, FoundArray]] = {}
        for array in arrays.values():
            document = array.document
            shapes = (document.shape, document.write_shape, document.chunk_shape)
            for end in _ends(array.name):
                self._by_end.setdefault(end, {}).setdefault(
                    repr((shapes, document.encoding)), array
                )

    def fitting(
        self, name: str, stored: Mapping[str, Held], contradicts: Contradicts
    ) -> list[FoundArray]:
        """The array, whole, as leaves describe it that share most of the end of its name: once for each way."""
        for end in _ends(name):
            found = []
            for other in self._by_end.get(end, {}).values():
                one = _Description(other.document, other.described, other.name.replace(".", "/"))
                array = _described(name, one, stored, _OF_ITS_KIND)
                if array is not None and array.is_complete and not contradicts(array):
                    found.append(array)
            if found:
                return found
        return []


def _ends(name: str) -> Iterator[str]:
    """What a stored name ends in, the longest first.

    >>> list(_ends("mu.dense.kernel"))
    ['mu.dense.kernel', 'dense.kernel', 'kernel']
    """
    while name:
        yield name
        name = name.partition(".")[2]


def _described(
    name: str,
    description: _Description,
    stored: Mapping[str, Held],
    assumes: Assumption | None = None,
) -> FoundArray | None:
    """The array so described; None if anything that is stored does not agree."""
    document = description.document
    if not stored or not all(map(document.is_chunk, stored)):
        return None
    chunks = {document.index_of_key(key): held for key, held in stored.items()}
    array = FoundArray(
        name, document, description.held, chunks, described_by=description.of, assumes=assumes
    )
    if array.contradictory() or len(array.decoding()) < len(chunks):
        return None
    return array
