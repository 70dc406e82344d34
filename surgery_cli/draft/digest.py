"""The digest of a draft: what a plan makes of which checkpoints, in one number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from surgery_cli.draft.expression import Recipe, Stored, parts, stored_in
from surgery_cli.tree.paths import LeafPath

_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


class DigestPart(NamedTuple):
    """Which of a draft's digits depend on what."""

    source: slice = slice(7, 15)
    donor_names: slice = slice(15, 19)
    donors: slice = slice(19, 23)


def digest_head(source: str, donors: Mapping[str, str]) -> str:
    """The first digits of a draft's digest, behind `sha256:`; see ``DigestPart``. Fingerprints, of donors by name."""
    from hashlib import sha256  # loads OpenSSL: not to print help

    parts = zip(DigestPart(), (source, list(donors), list(donors.values())), strict=True)
    hashed = ((part, sha256(_canonical(value)).hexdigest()) for part, value in parts)
    return "".join(text[: part.stop - part.start] for part, text in hashed)


def digest_named(
    leaves: Mapping[LeafPath, Recipe | None],
    fingerprints: Mapping[str, str],
    source: str,
    names: Mapping[str, str],
) -> str:
    """As ``draft_digest``, of the donors that are used, and with these ``names`` for those that have others.

    ``fingerprints`` are those of donors by the names that they have, and that of the ``source``.
    """
    stored = stored_in(*(recipe for recipe in leaves.values() if recipe is not None))
    used = {part.ref.source for part in stored} - {source}
    donors = {names.get(name, name): fingerprints.get(name, "") for name in used}
    own = fingerprints.get(source, "")
    return draft_digest(leaves, own, dict(sorted(donors.items())), names)


def draft_digest(
    leaves: Mapping[LeafPath, Recipe | None],
    source: str,
    donors: Mapping[str, str],
    names: Mapping[str, str] = {},
) -> str:
    """``sha256:…`` over every recipe (None where a leaf is untouched) and the fingerprints of all that is read.

    ``names``: what donors are called in it that have other names in the recipes.
    """
    from hashlib import sha256

    record = sha256()
    known: dict[int, str] = {}
    for path, recipe in leaves.items():
        made = 0 if recipe is None else _digest(recipe, known, names)
        record.update(_canonical([path, made]))
    record.update(_canonical([source, donors]))
    head = digest_head(source, donors)
    return f"sha256:{head}{record.hexdigest()[len(head) :]}"


def _digest(recipe: Recipe, known: dict[int, str], names: Mapping[str, str]) -> str:
    """The digest of an expression from those of its parts; ``known`` has those of earlier ones, by identity."""
    from hashlib import sha256

    for part in parts(recipe, beyond=lambda part: id(part) not in known):
        if id(part) in known:
            continue
        spec = msgspec.structs.replace(part.spec, stored_bytes=None)
        if isinstance(part, Stored):
            name = names.get(part.ref.source, part.ref.source)
            value: list[Any] = [msgspec.structs.replace(part.ref, source=name), spec]
        else:
            inputs = [known[id(each)] for each in part.inputs]
            value = [part.kernel, inputs, spec, part.path]
        known[id(part)] = sha256(_canonical(value)).hexdigest()
    return known[id(recipe)]


def _canonical(value: Any) -> bytes:
    return _ENCODER.encode(value) + b"\n"
