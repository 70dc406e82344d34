"""The layout of another topology: in which chunks leaves are stored, and over which mesh they are spread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernels.rechunk import Rechunk
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.errors import Gathering, PlanError, Problem, raise_all
from surgery_cli.resolution.chunk_shapes import SMALLEST_BYTES, divides, even_parts, tiny_chunks
from surgery_cli.resolution.partitions import (
    half_said,
    is_spread,
    one_sided_shardings,
    records_sharding,
    refuse_unfit,
    stated_shardings,
)
from surgery_cli.resolution.reshard_request import check_request
from surgery_cli.settings.reshard import Reshard
from surgery_cli.tree.dtypes import item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import Mesh, NamedSharding, usual_mesh
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.notes import Note

Shardings = Callable[[str], Mapping[LeafPath, NamedSharding | None]]
"""What the function of a script says of the leaves of its state; None of those that it does not spread."""

RESHARD = "reshard"


class Goal(NamedTuple):
    """How a leaf is to be laid out: its sharding, and the unit of which chunks are even parts; None of what stays."""

    sharding: str | None
    unit: tuple[int, ...] | None
    is_exact: bool = False
    """True if chunks must be the unit, not parts of it."""


def resharded(
    draft: Draft,
    request: Reshard,
    open_tree: Callable[[str], TreeSpec],
    shardings: Shardings,
) -> Draft:
    """The draft with every leaf laid out as ``request`` says; leaves that are so already stay as they are.

    Raises:
        PlanError: everything that is wrong with the request, or that JAX would refuse.
    """
    gathering = Gathering()
    mesh = limit = None
    goals: dict[LeafPath, Goal] = {}
    other = TreeSpec({})
    with gathering.catching():
        check_request(request)
    is_one_thing = not gathering.problems
    with gathering.catching(field="chunk_bytes"):
        limit = request.chunk_limit
    with gathering.catching(field="mesh"):
        if request.mesh is not None:
            mesh = _with_ids(Mesh.of(request.mesh_axes), draft.source_tree)
    with gathering.catching():
        if is_one_thing and request.like is not None:
            other = open_tree(request.like)
            goals = _goals_like(draft, request.like, other)
        elif is_one_thing:
            goals = _goals_of_mesh(draft, request, mesh, shardings)
    gathering.raise_if_any()
    changed = {
        path: new
        for path, goal in goals.items()
        if (new := _laid_out(path, draft.leaves[path], goal, limit)) is not None
    }
    specs = {path: leaf.spec for path, leaf in changed.items()}
    said: list[Note] = [] if limit is None else [*tiny_chunks(specs, limit)]
    if request.like_init is not None:
        said += half_said(draft, request.like_init, shardings(request.like_init))
    elif request.like is not None:
        said += one_sided_shardings(draft, request.like, other)
    return draft.with_leaves(changed).noting(*said)


def _goals_of_mesh(
    draft: Draft, request: Reshard, mesh: Mesh | None, shardings: Shardings
) -> dict[LeafPath, Goal]:
    specs = {path: leaf.spec for path, leaf in draft.leaves.items()}
    if request.mesh is not None:
        stated: Mapping[LeafPath, NamedSharding] = stated_shardings(draft, request, mesh)
    elif request.like_init is not None:
        stated = _of_script(draft, request.like_init, shardings(request.like_init))
        refuse_unfit(stated, specs)
    else:
        stated = {}
    is_new = bool(stated)
    goals = {}
    for path, spec in specs.items():
        if not spec.has_array or spec.kind is LeafKind.SCALAR:
            continue
        sharding = stated.get(path)
        if sharding is None and is_new and spec.kind is LeafKind.KEY:
            sharding = NamedSharding(next(iter(stated.values())).mesh)
        of = sharding or NamedSharding.of_text(spec.sharding)
        is_split = of is not None and is_spread(spec) and of.divides(spec.shape)
        unit = of.shard_shape(spec.shape) if of is not None and is_split else spec.shape
        keeps_chunks = request.chunk_bytes is None and unit == spec.shape
        text = None if sharding is None else sharding.text
        goals[path] = Goal(text, None if keeps_chunks else unit)
    return goals


def _with_ids(mesh: Mesh, source: TreeSpec) -> Mesh:
    """The mesh over the devices of most leaves, where there are as many; on several hosts their ids have gaps."""
    stored = (NamedSharding.of_text(spec.sharding) for spec in source.values())
    most = usual_mesh(one for one in stored if one is not None) or mesh
    is_as_large = most.size == mesh.size and most.ids
    return msgspec.structs.replace(mesh, ids=most.ids) if is_as_large else mesh


def _of_script(
    draft: Draft, name: str, said: Mapping[LeafPath, NamedSharding | None]
) -> dict[LeafPath, NamedSharding]:
    """The shardings of a script's state; what it does not spread is replicated over the same mesh.

    Raises:
        PlanError: it says none, or has leaves of other paths.
    """
    mesh = next((one.mesh for one in said.values() if one is not None), None)
    if mesh is None:
        raise PlanError(
            f"the state of '{name}' says no sharding",
            why="none of its leaves is a jax.ShapeDtypeStruct or an array with a NamedSharding",
            fix=worded(
                "let it return `jax.ShapeDtypeStruct(shape, dtype, sharding=…)`, or give {mesh} and"
                " {spec} instead of {like_init}"
            ),
            field="like_init",
        )
    arrays = [path for path, leaf in draft.leaves.items() if is_spread(leaf.spec)]
    _refuse_missing(arrays, said, f"the state of '{name}'", "like_init")
    found = {path: said[path] or NamedSharding(mesh) for path in arrays}
    over = {one: _with_ids(one, draft.source_tree) for one in {s.mesh for s in found.values()}}
    return {path: NamedSharding(over[s.mesh], s.partition) for path, s in found.items()}


def _goals_like(draft: Draft, name: str, tree: TreeSpec) -> dict[LeafPath, Goal]:
    """The layout of another checkpoint, path by path; a twin that it lacks is laid out as its param.

    Raises:
        PlanError: a leaf is not there, or has another shape.
    """
    specs = {path: leaf.spec for path, leaf in draft.leaves.items()}
    arrays = {p: s for p, s in specs.items() if records_sharding(s) or s.kind is LeafKind.NUMPY}
    models = {path: path for path in arrays}
    for path, spec in arrays.items():
        slot = draft.slots.get(path)
        if path not in tree and slot is not None and slot.param in tree:
            models[path] = slot.param if tree[slot.param].shape == spec.shape else path
    _refuse_missing(models.values(), tree, f"'{name}'", "like")
    raise_all(
        Problem(
            f"'{path}' is {spec.type_text}, and {tree[models[path]].type_text} in '{name}'",
            why="chunks and shardings belong to a shape",
            fix=worded(
                "name a checkpoint of the same model, or give {mesh} and {spec} instead of {like}"
            ),
            path=str(path),
            field="like",
        )
        for path, spec in arrays.items()
        if tree[models[path]].shape != spec.shape
    )
    goals = {}
    for path, spec in arrays.items():
        other = tree[models[path]]
        sharding = other.sharding if records_sharding(spec) else None
        goals[path] = Goal(sharding, other.chunk_shape, is_exact=True)
    return goals


def _refuse_missing(
    paths: Iterable[LeafPath], there: Mapping[LeafPath, object], where: str, field: str
) -> None:
    raise_all(
        Problem(
            f"'{path}' is not in {where}",
            why="what says the layout of every leaf must have them all",
            fix=worded(
                "name one of the same tree, or give {mesh} and {spec} instead of {}",
                FieldName(field),
            ),
            path=str(path),
            field=field,
        )
        for path in paths
        if path not in there
    )


def _laid_out(path: LeafPath, leaf: Output, goal: Goal, limit: int | None) -> Output | None:
    """The leaf laid out anew; None if it is so already."""
    spec = leaf.spec
    grid = _grid(spec, goal, limit)
    old, sharding = NamedSharding.of_text(spec.sharding), spec.sharding
    if goal.sharding is not None and (old is None or old != NamedSharding.of_text(goal.sharding)):
        sharding = goal.sharding
    if grid is None and sharding == spec.sharding:
        return None
    if grid is None:
        new = msgspec.structs.replace(spec, sharding=sharding)
        return msgspec.structs.replace(leaf.with_spec(new), is_resharded=True)
    new = msgspec.structs.replace(
        spec, sharding=sharding, chunk_shape=grid, write_shape=grid, stored_bytes=None
    )
    made = Made(Rechunk(), (leaf.recipe,), new, path)
    after = leaf.then(made, Edited(RESHARD, Rearranges(), is_named=False))
    return msgspec.structs.replace(after, is_resharded=True)


def _grid(spec: LeafSpec, goal: Goal, limit: int | None) -> tuple[int, ...] | None:
    """The chunks of a leaf; None if it keeps those that it has."""
    if goal.unit is None or not spec.size:
        return None
    width = item_bytes(spec.dtype)
    grid = goal.unit if limit is None else even_parts(goal.unit, width, limit)
    stored = spec.write_shape
    if stored is None:
        return grid
    if stored == grid and spec.chunk_shape == grid:
        return None
    is_inside = limit is None and not goal.is_exact and divides(stored, grid)
    if is_inside and math.prod(spec.chunk_shape or stored) * width >= SMALLEST_BYTES:
        return None  # every chunk lies in one part, and is worth a read
    return grid
