"""The program on one side, the reference and Orbax's restore on the other."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path as File
from typing import Any

import ml_dtypes
import numpy as np

from surgery_cli import reports, surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning.reading import plan_from_document
from tests.random_plans.layouts import as_numpy
from tests.random_plans.model import Empty, Leaf, Path, State, precision, printed, spelled
from tests.random_plans.world import World


@dataclass
class Tally:
    """What a run of many plans came to."""

    plans: int = 0
    edits: int = 0
    done: int = 0
    refused: dict[int, int] = field(default_factory=dict)
    left_open: int = 0
    undone: int = 0
    operations: dict[str, int] = field(default_factory=dict)

    def refuse(self, code: int, *, was_open: bool) -> None:
        self.refused[code] = self.refused.get(code, 0) + 1
        self.left_open += was_open

    def __str__(self) -> str:
        codes = ", ".join(f"{n} with exit {code}" for code, n in sorted(self.refused.items()))
        return (
            f"{self.plans} plans of {self.edits} edits: {self.done} done ({self.undone} undone),"
            f" {codes or 'none'} refused ({self.left_open} of these where the contract leaves it open);"
            f" {dict(sorted(self.operations.items()))}"
        )


def preview(world: World, document: dict[str, Any]) -> reports.Preview:
    return surgery.plan(str(world.source), plan_from_document(document))


def applied(source: File, destination: File, document: dict[str, Any]) -> reports.Report:
    return surgery.apply(str(source), str(destination), plan_from_document(document))


def code_of(world: World, destination: File, document: dict[str, Any]) -> int:
    """The exit code with which ``apply`` refuses; 0 if it does not. A refusal leaves nothing."""
    before = sorted(path.name for path in world.folder.iterdir())
    try:
        applied(world.source, destination, document)
    except SurgeryError as error:
        assert sorted(path.name for path in world.folder.iterdir()) == before, "something was left"
        return error.exit_code
    return 0


def digest_of(path: File) -> str:
    """Every name and byte below a path."""
    total = hashlib.sha256()
    for file in [path, *sorted(path.rglob("*"))]:
        total.update(str(file.relative_to(path)).encode())
        if file.is_file():
            total.update(file.read_bytes())
    return total.hexdigest()


def compare(found: dict[Path, Any], state: State) -> list[str]:
    """Where what Orbax restores is not what the reference says."""
    wrong = [f"'{printed(p)}' is missing" for p in state.leaves if p not in found]
    wrong += [f"'{printed(p)}' should not be there" for p in found if p not in state.leaves]
    for path, leaf in state.leaves.items():
        if path in found and (what := difference(as_numpy(found[path]), leaf)):
            wrong.append(f"'{printed(path)}': {what}")
    return wrong


def difference(value: Any, leaf: Leaf) -> str:
    """How a restored value differs from the reference's; '' if it does not."""
    if leaf.is_empty or leaf.is_text or isinstance(value, Empty | str):
        return "" if value == leaf.value else f"{value!r}, not {leaf.value!r}"
    other = Leaf(value)
    if (other.dtype, other.shape, other.is_python) != (leaf.dtype, leaf.shape, leaf.is_python):
        return f"{other.dtype}{other.shape}, not {leaf.dtype}{leaf.shape}"
    a, b = np.asarray(value), np.asarray(leaf.value)
    if not leaf.known or a.tobytes() == b.tobytes():
        return ""
    if not leaf.ulps or not (leaf.is_floating or leaf.is_complex):
        return f"{a!r}, not exactly {b!r}"
    kind = "complex128" if leaf.is_complex else "float64"
    left, right = a.astype(kind), b.astype(kind)
    narrowest = leaf.narrowest or leaf.dtype
    tiny = float(ml_dtypes.finfo(_part(narrowest)).smallest_subnormal)
    allowed = leaf.ulps * np.maximum(precision(narrowest) * np.abs(right), tiny)
    with np.errstate(invalid="ignore"):
        is_near = (np.abs(left - right) <= allowed) | (left == right)
    both_nan = np.isnan(left) & np.isnan(right)
    return "" if (is_near | both_nan).all() else f"{a!r}, not about {b!r} ({leaf.ulps} ulps)"


def _part(dtype: str) -> str:
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


def same(one: dict[Path, Any], other: dict[Path, Any]) -> list[str]:
    """Where two restores are not the same, bit by bit."""
    wrong = [f"'{printed(p)}' is only in one" for p in one.keys() ^ other.keys()]
    for path in one.keys() & other.keys():
        leaf = Leaf(as_numpy(other[path]))
        if what := difference(as_numpy(one[path]), leaf):
            wrong.append(f"'{printed(path)}': {what}")
    return wrong


def check_preview(
    before: reports.Preview, after: reports.Report, world: World, found: dict[Path, Any]
) -> list[str]:
    """Where the preview says something else than what was done, or than what now stands on disk."""
    names = ("draft", "removed", "by_reference", "notes", "consequences", "edits", "strategy")
    pairs = [(name, getattr(before, name), getattr(after, name)) for name in names]
    said, done = (
        [{**reports.as_builtins(leaf), "digest": None} for leaf in report.leaves]
        for report in (before, after)
    )
    wrong = [f"`{n}`: {a!r} was {b!r}" for n, a, b in (*pairs, ("leaves", said, done)) if a != b]
    stored = {printed(path): value for path, value in world.stored.items()}
    if (
        world.has_steps and not world.items
    ):  # an item that is taken out puts the other's name in front
        stored |= {f"{world.own}/{text}": value for text, value in stored.items()}
    listed = {leaf.path: leaf for leaf in after.leaves}
    for path, value in found.items():
        leaf = listed.pop(printed(path), None) or listed.pop(spelled(path), None)
        wrong += _against(printed(path), value, leaf, stored)
    return wrong + [f"'{text}' is listed, and not there" for text in listed]


def _against(
    text: str, value: Any, leaf: reports.ChangedLeaf | None, stored: dict[str, Any]
) -> list[str]:
    """Where a leaf on disk is not what the report says of it."""
    if leaf is None:
        is_same = text in stored and not difference(as_numpy(value), Leaf(stored[text]))
        return [] if is_same else [f"'{text}' changed, and the report does not list it"]
    wrong = []
    if leaf.after != type_text(value):
        wrong.append(f"'{text}' is {type_text(value)}, and was said to become {leaf.after}")
    if leaf.from_ in stored:
        origin = stored[leaf.from_]
        if leaf.before != type_text(origin):
            wrong.append(f"'{text}' was {type_text(origin)}, said to be {leaf.before}")
        if not leaf.operations and difference(as_numpy(value), Leaf(origin)):
            wrong.append(f"'{text}' has not the bytes of '{leaf.from_}'")
    return wrong


@dataclass(frozen=True)
class Removed:
    """Leaves of the source of which nothing is left, as printed, among all of them that have values."""

    paths: set[str]
    known: set[str]


def removed(world: World, state: State) -> Removed:
    """What the report must list as removed: empties aside, which may have been filled.

    What came to stand in its place from elsewhere in the source, as the next element of a list, is none of it.
    """
    homes = {home for leaf in state.leaves.values() for home in (leaf.home, *leaf.joined)}
    values = {path for path, value in world.stored.items() if not isinstance(value, Empty)}
    others = {path for path, leaf in state.leaves.items() if leaf.home and leaf.home[0] == ""}
    left = state.leaves.keys() - others
    gone = {path for path in values if ("", path) not in homes and path not in left}
    return Removed(set(map(printed, gone)), set(map(printed, values)))


def type_text(value: Any) -> str:
    """A leaf as the documents print it."""
    if isinstance(value, Empty):
        return value.kind
    if isinstance(value, str):
        return "str"
    array = np.asarray(value)
    if Leaf(as_numpy(value)).is_python:
        return f"python {array.dtype.name}"
    return f"{array.dtype.name}[{','.join(map(str, array.shape))}]"
