"""Over which axes of a mesh each leaf is split, as specs by pattern say it: the first that matches counts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, PlanError, Problem, raise_all
from surgery_cli.resolution.no_match import no_match, zeros_missed
from surgery_cli.settings.reshard import Reshard, Unread, partition_of
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.sharding import Mesh, NamedSharding, Partition, trimmed
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.typed_shardings import partition_text
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

_REPLICATED: Final[Partition] = ((),)
"""`None` by itself: every device has all, however many axes there are."""


def is_spread(spec: LeafSpec) -> bool:
    """True for leaves that may be split over devices; a typed key is small, and every device has all of it."""
    return spec.kind is LeafKind.ARRAY


def records_sharding(spec: LeafSpec) -> bool:
    """True for leaves whose sharding Orbax records: those of JAX, and none of NumPy's."""
    return spec.kind in (LeafKind.ARRAY, LeafKind.KEY)


def stated_shardings(
    draft: Draft, request: Reshard, mesh: Mesh | None
) -> dict[LeafPath, NamedSharding]:
    """The sharding of every array: by the specs, by that of the param whose twin it is, else replicated.

    Without a ``mesh``, as what was given is none, nothing fits; what is wrong with the specs is said all the same.

    Raises:
        PlanError: all that is wrong with the specs, as far as JAX would refuse it as well.
    """
    gathering = Gathering()
    named: dict[LeafPath, tuple[str, Partition]] = {}
    for text, spec in (request.spec or {}).items():
        partition: Partition = ()
        with gathering.catching(field="spec"):
            partition = partition_of(spec)
            gathering.problems += _strays(text, partition, mesh)
        if isinstance(spec, Unread) and not spec.names_leaves:
            continue
        with gathering.catching(field="spec"):
            for path in _named(text, draft, named):
                named[path] = (text, partition)
    arrays = [path for path, leaf in draft.leaves.items() if is_spread(leaf.spec)]
    found = {path: named[path][1] for path in arrays if path in named}
    for path in arrays:
        if path not in found:
            found[path] = _of_param(path, draft, named)
    for path, partition in found.items():
        gathering.problems += _misfits(path, partition, mesh, draft.leaves[path].spec, _ANOTHER)
    gathering.raise_if_any()
    if mesh is None:
        return {}
    return {path: NamedSharding(mesh, trimmed(partition)) for path, partition in found.items()}


def _strays(text: str, partition: Partition, mesh: Mesh | None) -> Iterator[Problem]:
    """What is wrong with the axes of a partition: one is not there, or stands twice."""
    said = f"{text}={partition_text(partition)}"
    used = [name for axes in partition for name in axes]
    for name in dict.fromkeys(used):
        if mesh is not None and name not in mesh.names:
            close = nearest(name, mesh.names, 1)
            yield Problem(
                f"the mesh has no axis '{name}'",
                why=f"'{said}' splits over it, and the mesh is {mesh.text}",
                fix=f"the nearest is '{close[0]}'"
                if close
                else f"its axes are {listed(mesh.names)}",
                field="spec",
            )
        elif used.count(name) > 1:
            yield Problem(
                f"'{said}' splits over '{name}' twice",
                why="an axis of the mesh can split one axis of an array only",
                fix="leave one of them out",
                field="spec",
            )


_ANOTHER: Final = worded("put a {spec} that fits it in front: the first that matches counts")
_IN_SCRIPT: Final = worded(
    "let the script split it otherwise, or give {mesh} and {spec} instead of {like_init}"
)
_OF_JAX: Final = "name arrays; `surgery inspect` lists the leaves with their kinds"
_OF_NUMPY: Final = worded(
    "name arrays of JAX; of NumPy's {chunk_bytes} says how they are stored, and the target of your restore how they are"
    " split"
)


def _named(text: str, draft: Draft, taken: Collection[LeafPath]) -> Iterator[LeafPath]:
    """The leaves that a pattern names and no earlier one does.

    Raises:
        PlanError: there are none.
    """
    pattern = PathPattern(text)
    found = pattern.named(draft.texts)
    if zeros := zeros_missed(pattern, found, draft.texts, "spec"):
        raise PlanError(zeros)
    if not found:
        missed = no_match(pattern, draft.texts, draft.tree.nodes, "spec")
        if pattern.named({path: path.text for path in draft.source_tree}):
            why = worded(
                "it names leaves of the source, and {spec} those of the result, after all edits"
            )
            missed = msgspec.structs.replace(missed, why=why)
        raise PlanError(missed)
    arrays = [path for path in found if is_spread(draft.leaves[path].spec)]
    if not arrays:
        is_numpy = any(draft.leaves[path].spec.kind is LeafKind.NUMPY for path in found)
        raise PlanError(
            f"'{text}' names nothing that is split over devices",
            why=f"it names {quoted(map(str, found), 4)}, and only arrays of JAX are",
            fix=_OF_NUMPY if is_numpy else _OF_JAX,
            field="spec",
        )
    left = [path for path in arrays if path not in taken]
    if not left:
        raise PlanError(
            f"'{text}' counts for no leaf",
            why="the first pattern that matches counts, and an earlier one names every leaf that this one names",
            fix="put it in front of that, or leave it out",
            field="spec",
        )
    yield from left


def _of_param(
    path: LeafPath, draft: Draft, named: Mapping[LeafPath, tuple[str, Partition]]
) -> Partition:
    """The partition of a twin: its param's, where both have the same shape; else it is replicated."""
    slot = draft.slots.get(path)
    if slot is None or slot.param not in named or slot.param not in draft.leaves:
        return ()
    is_alike = draft.leaves[slot.param].spec.shape == draft.leaves[path].spec.shape
    return named[slot.param][1] if is_alike else ()


def refuse_unfit(
    shardings: Mapping[LeafPath, NamedSharding], specs: Mapping[LeafPath, LeafSpec]
) -> None:
    """Refuse of what a script says what JAX would refuse: more axes than an array has, and parts that are not even.

    Raises:
        PlanError: every leaf by name.
    """
    raise_all(
        msgspec.structs.replace(problem, field="like_init")
        for path, sharding in shardings.items()
        for problem in _misfits(path, sharding.partition, sharding.mesh, specs[path], _IN_SCRIPT)
    )


def _misfits(
    path: LeafPath, partition: Partition, mesh: Mesh | None, spec: LeafSpec, fix: str
) -> Iterator[Problem]:
    """Why a leaf cannot be split so; axes that the mesh has not are none of its business."""
    if partition == _REPLICATED:
        return
    shape = spec.shape
    said = partition_text(partition)
    what = f"'{path}' is {spec.type_text}, and cannot be split as `{said}`"
    if len(partition) > len(shape):
        axes = counted(len(partition), "axis", "axes")
        why = f"that speaks of {axes}, and the array has {len(shape)}"
        yield Problem(what, why, fix, path=str(path), field="spec")
        return
    for axis, (axes_of, size) in enumerate(zip(partition, shape, strict=False)):
        if mesh is None or not set(axes_of) <= set(mesh.names):
            continue
        count = mesh.count(axes_of)
        if size % count:
            over = listed(axes_of, word="and")
            why = f"axis {axis} goes over {over}, and {size} is no multiple of {count}"
            yield Problem(what, why, fix, path=str(path), field="spec")


def half_said(
    draft: Draft, name: str, said: Mapping[LeafPath, NamedSharding | None]
) -> Iterator[Consequence]:
    """Notes of arrays for which a script says no sharding, which may have been forgotten, or one that none can have."""
    specs = {path: leaf.spec for path, leaf in draft.leaves.items()}
    left = [path for path, spec in specs.items() if is_spread(spec) and not said[path]]
    if left:
        yield Consequence(
            DocsPage.RESHARD,
            f"the state of '{name}' says no sharding of {quoted(map(str, left), 4)}: laid out as replicated",
        )
    of_numpy = {
        p: (spec.shape, said.get(p)) for p, spec in specs.items() if spec.kind is LeafKind.NUMPY
    }
    if split := [path for path, (shape, one) in of_numpy.items() if one and _splits(one, shape)]:
        are, keep = ("is", "it keeps its") if len(split) == 1 else ("are", "they keep their")
        yield Consequence(
            DocsPage.RESHARD,
            f"{quoted(map(str, split), 4)} {are} stored as arrays of NumPy: {keep} chunks, without the sharding of"
            f" '{name}'; the target of your restore says how they are split",
        )


def _splits(sharding: NamedSharding, shape: tuple[int, ...]) -> bool:
    return sharding.divides(shape) and sharding.shard_shape(shape) != shape


def one_sided_shardings(
    draft: Draft, name: str, there: Mapping[LeafPath, LeafSpec]
) -> Iterator[Consequence]:
    """Notes of arrays that get the chunks of another checkpoint, and not the sharding: one of both has none."""
    specs = {path: leaf.spec for path, leaf in draft.leaves.items() if path in there}
    lacking = [p for p, s in specs.items() if s.kind is LeafKind.NUMPY and there[p].sharding]
    keeping = [p for p, s in specs.items() if s.sharding and not there[p].sharding]
    if lacking:
        are = "is" if len(lacking) == 1 else "are"
        yield Consequence(
            DocsPage.RESHARD,
            f"{quoted(map(str, lacking), 4)} {are} stored as arrays of NumPy: laid out in the chunks of '{name}',"
            " without its sharding; the target of your restore says how they are split",
        )
    if keeping:
        yield Consequence(
            DocsPage.RESHARD,
            f"'{name}' says no sharding of {quoted(map(str, keeping), 4)}: they keep the one that they have",
        )
