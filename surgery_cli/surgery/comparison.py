"""Diff: structure and values of two checkpoints, reading only what is not the same bytes on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from surgery_cli import reports
from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import PlanError
from surgery_cli.store.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.tree.paths import LeafPath, PathPattern, nearest
from surgery_cli.tree.specs import LeafKind
from surgery_cli.verification.structure import compare


def diff(
    a: str,
    b: str,
    patterns: Sequence[str],
    *,
    step: int | None,
    item: str | None,
    structure: bool,
    rtol: float,
    atol: float,
    listener: Listener | None,
) -> reports.Difference:
    """See ``surgery.diff``."""
    left, right = (open_checkpoint(text, step=step, item=item) for text in (a, b))
    wanted = _wanted(left, right, patterns)
    comparison = compare(left.tree, right.tree)
    changed = [
        reports.Change(path=str(d.path), what=d.what, a=d.a, b=d.b)
        for d in comparison.changed
        if d.path in wanted
    ]
    different = {d.path for d in comparison.changed}
    both = [
        path
        for path in left.tree
        if path in right.tree and path in wanted and path not in different
    ]
    shared = 0
    unread = []
    for path in both:
        identity = left.identity(path)
        if structure or (identity is not None and identity == right.identity(path)):
            shared += not structure
        else:
            unread.append(path)
    meter = Meter(listener, "comparing", sum(left.tree[path].bytes for path in unread))
    for path in unread:
        change = _values(path, left, right, rtol, atol)
        if change is not None:
            changed.append(change)
        meter.advance(left.tree[path].bytes, str(path))
    order = {str(path): number for number, path in enumerate(left.tree)}
    changed.sort(key=lambda change: order[change.path])
    return reports.Difference(
        a=str(left.location.root),
        b=str(right.location.root),
        only_in_a=[str(path) for path in comparison.only_in_a if path in wanted],
        only_in_b=[str(path) for path in comparison.only_in_b if path in wanted],
        changed=changed,
        equal=len(both) - sum(change.what == "values" for change in changed),
        equal_by_reference=shared,
        structure_only=structure,
    )


def _wanted(left: Checkpoint, right: Checkpoint, patterns: Sequence[str]) -> set[LeafPath]:
    paths = dict.fromkeys([*left.tree, *right.tree])
    if not patterns:
        return set(paths)
    found: set[LeafPath] = set()
    for text in patterns:
        pattern = PathPattern(text)
        named = {path for path in paths if pattern.match(path)}
        if not named:
            raise PlanError(
                f"'{text}' names no leaf of either checkpoint",
                fix="nearest: " + ", ".join(f"'{n}'" for n in nearest(text, map(str, paths))),
            )
        found |= named
    return found


def _values(
    path: LeafPath, left: Checkpoint, right: Checkpoint, rtol: float, atol: float
) -> reports.Change | None:
    """How the values of a leaf differ; None if they agree within the tolerances."""
    spec = left.tree[path]
    if not spec.has_array:
        a, b = (
            (left.read(path), right.read(path)) if spec.kind is LeafKind.STRING else (None, None)
        )
        return (
            None if a == b else reports.Change(path=str(path), what="values", a=repr(a), b=repr(b))
        )
    tally = _Tally(rtol, atol)
    for window in windows(spec.shape, block_shape(spec, spec.write_shape)):
        tally.add(
            np.asarray(left.read(path, window)),
            np.asarray(right.read(path, window)),
            tuple(s.start for s in window),
        )
    if not tally.differing:
        return None
    return reports.Change(
        path=str(path),
        what="values",
        a=_text(tally.pair[0]),
        b=_text(tally.pair[1]),
        differing=tally.differing,
        size=spec.size,
        max_abs=tally.max_abs,
        max_rel=tally.max_rel,
        where=tally.where,
    )


class _Tally:
    """Counts elements that differ and keeps the largest difference, block by block."""

    def __init__(self, rtol: float, atol: float) -> None:
        self._rtol, self._atol = rtol, atol
        self.differing = 0
        self.max_abs = self.max_rel = 0.0
        self.where: tuple[int, ...] = ()
        self.pair: tuple[Any, Any] = (None, None)

    def add(self, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], start: tuple[int, ...]) -> None:
        if a.tobytes() == b.tobytes():
            return
        x, y = _wide(a), _wide(b)
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            distance = np.where(same, 0.0, np.abs(x - y).astype(np.float64))
            # one NaN, or infinities of two signs: as far apart as can be
            distance = np.where(np.isnan(distance), np.inf, distance)
            scale = np.maximum(np.abs(x), np.abs(y)).astype(np.float64)
            apart = ~same & ~(distance <= self._atol + self._rtol * scale)
            relative = np.where(apart, distance / np.where(scale == 0, 1.0, scale), 0.0)
        if not apart.any():
            return
        self.differing += int(apart.sum())
        at = np.unravel_index(int(np.argmax(np.where(apart, distance, -1.0))), distance.shape)
        if not self.where or distance[at] > self.max_abs or self.pair[0] is None:
            self.where = tuple(int(i) + s for i, s in zip(at, start, strict=True))
            self.pair = (a[at], b[at])
        self.max_abs = max(self.max_abs, float(distance[at]))
        self.max_rel = max(self.max_rel, float(np.nanmax(relative)))


def _wide(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Values in a dtype in which differences are exact enough and NaN is known."""
    if values.dtype.kind == "c":
        return values.astype(np.complex128)
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        return values.astype(np.longdouble)
    return values.astype(np.float64)


def _text(value: Any) -> str:
    return str(value)


