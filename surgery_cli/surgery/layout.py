"""Which chunks leaves are stored in, held against a mesh: what each host would read to restore."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import UNSET

from surgery_cli import reports
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.engine.host_reads import (
    Chunks,
    Reads,
    Spread,
    bytes_by_host,
    expected_chunks,
    host_reads,
    stored_chunks,
)
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.resolution.partitions import is_spread, stated_shardings
from surgery_cli.settings.reshard import Reshard
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import Mesh, NamedSharding, usual_mesh
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.typed_shardings import partition_text
from surgery_cli.words.advice import worded

_MOST_NAMED: Final = 10

MOST_HOSTS: Final = 4096
"""Of how many hosts the reads are counted: for each of them, every leaf is looked at."""

HOSTS: Final = "hosts"
"""The axis of a mesh that only a number of hosts is said of."""


def layout_reads(
    checkpoint: Checkpoint,
    chosen: Collection[LeafPath],
    surveyed: OptimizerSurvey,
    request: Reshard,
    hosts: int | None,
) -> reports.HostReads:
    """What hosts would read of the ``chosen`` leaves: for the mesh of ``request``, else for the shardings on disk.

    Where there are none, every array is taken to be split over ``hosts`` along the largest axis that they share
    evenly, as FSDP does.

    Raises:
        PlanError: the mesh or a partition does not fit, or nothing says how many hosts there are.
    """
    tree = checkpoint.tree
    shardings = _stated(checkpoint, surveyed, request)
    if not shardings and request.mesh is None and hosts is not None:
        shardings = _derived({path: tree[path] for path in chosen}, hosts)
    mesh = usual_mesh(shardings.values())
    if mesh is None:
        if not any(is_spread(tree[path]) for path in chosen):
            raise PlanError(
                "none of the leaves is one that is split over devices",
                why="of keys and NumPy's arrays every host reads all, unless the target of its restore says otherwise",
                fix="ask of a checkpoint that holds arrays of JAX",
            )
        raise PlanError(
            "nothing says for how many hosts",
            why="no leaf is known to be sharded over a mesh, and no mesh is given",
            fix=worded(
                "add `--hosts 16`, or {mesh: fsdp=16} and {spec: params/**/kernel=fsdp,None}"
            ),
            field="hosts",
        )
    count = hosts_counted(mesh) if hosts is None else hosts
    if count > MOST_HOSTS:
        raise PlanError(
            f"the reads of {count:,} hosts are not counted, at most those of {MOST_HOSTS:,} are",
            why="each leaf is looked at for every one of them",
            fix=f"give `--hosts {hosts_counted(mesh)}`: hosts that need the same chunks read the same",
            field="hosts",
        )
    if mesh.size % count:
        raise PlanError(
            f"{count} hosts cannot share the mesh {mesh.text}",
            why=f"it has {mesh.size} devices, and each host has as many as the others",
            fix=f"give `--hosts` a divisor of {mesh.size}",
            field="hosts",
        )
    leaves = [
        Spread(str(path), tree[path].shape, chunks, shardings.get(path))
        for path in chosen
        if (chunks := chunks_of(checkpoint, path)) is not None
    ]
    return reads_document(leaves, mesh, count)


def _stated(
    checkpoint: Checkpoint, surveyed: OptimizerSurvey, request: Reshard
) -> dict[LeafPath, NamedSharding]:
    """How arrays are spread: by the mesh and the specs that are asked about, else by what is on disk.

    Raises:
        PlanError: all that is wrong with the mesh and the specs.
    """
    tree = checkpoint.tree
    if request.mesh is None and request.spec:
        raise PlanError(
            worded("{spec} needs a {mesh}"),
            why="it names axes of one",
            fix=worded("add {mesh: fsdp=16}"),
            field="mesh",
        )
    if request.mesh is None:
        return stored_shardings(tree)
    draft = Draft.of(tree, checkpoint.fingerprint, surveyed.slots, surveyed.clocks)
    gathering, mesh = Gathering(), None
    found: dict[LeafPath, NamedSharding] = {}
    with gathering.catching(field="mesh"):
        mesh = Mesh.of(request.mesh_axes)
    with gathering.catching():
        found = stated_shardings(draft, request, mesh)
    gathering.raise_if_any()
    return found


def hosts_counted(mesh: Mesh) -> int:
    """How many hosts share a mesh of which nothing else is said: each device has its own, while these are few."""
    each = range(-(-mesh.size // MOST_HOSTS), mesh.size + 1)
    return mesh.size // next(devices for devices in each if mesh.size % devices == 0)


def stored_shardings(tree: Mapping[LeafPath, LeafSpec]) -> dict[LeafPath, NamedSharding]:
    """How arrays are spread by what is on disk, those that it says it of."""
    found = {path: NamedSharding.of_text(spec.sharding) for path, spec in tree.items()}
    return {path: one for path, one in found.items() if one is not None and is_spread(tree[path])}


def _derived(specs: Mapping[LeafPath, LeafSpec], hosts: int) -> dict[LeafPath, NamedSharding]:
    """Every array split over so many hosts, along the largest axis that they share evenly."""
    mesh = Mesh.of({HOSTS: hosts})
    found = {}
    for path, spec in specs.items():
        if not is_spread(spec):
            continue
        even = [axis for axis, size in enumerate(spec.shape) if size and size % hosts == 0]
        best = max(even, key=lambda axis: (spec.shape[axis], -axis), default=None)
        partition = () if best is None else (*[()] * best, (HOSTS,))
        found[path] = NamedSharding(mesh, partition)
    return found


def chunks_of(checkpoint: Checkpoint, path: LeafPath) -> Chunks | None:
    """The stored chunks of a leaf; None if it is no array of TensorStore."""
    item, inner = checkpoint.item_of(path)
    if not isinstance(item, PytreeItem) or item.store is None:
        return None
    array = item.leaves[inner].array
    return None if array is None else stored_chunks(item.store, array)


def reads_document(leaves: Iterable[Spread], mesh: Mesh, hosts: int) -> reports.HostReads:
    """What ``hosts`` of a mesh read of all leaves, with those of which they read most for nothing."""
    found = list(host_reads(leaves, mesh, hosts))
    by_host = bytes_by_host(found, hosts)
    wasteful = [one for one in found if one.again or one.unused]
    worst = sorted(wasteful, key=lambda one: (-one.unused, -one.again, one.spread.name))
    meshes = [one.spread.sharding.mesh.text for one in found if one.spread.sharding is not None]
    return reports.HostReads(
        mesh=mesh.text,
        elsewhere=sum(text != mesh.text for text in meshes) or UNSET,
        hosts=hosts,
        devices_per_host=mesh.size // hosts,
        chunks=sum(one.spread.chunks.number for one in found),
        stored_bytes=sum(one.stored for one in found),
        read_bytes=sum(by_host),
        most_bytes=max(by_host),
        least_bytes=min(by_host),
        again_bytes=sum(one.again for one in found),
        unused_bytes=sum(one.unused for one in found),
        is_estimate=not all(one.spread.chunks.is_exact for one in found),
        wasteful=len(wasteful),
        worst=[_row(one, mesh) for one in worst[:_MOST_NAMED]],
    )


def _row(reads: Reads, mesh: Mesh) -> reports.ReadLeaf:
    spread = reads.spread
    partition = () if spread.sharding is None else spread.sharding.partition
    own = mesh if spread.sharding is None else spread.sharding.mesh
    return reports.ReadLeaf(
        path=spread.name,
        chunks=spread.chunks.number,
        chunk_shape=spread.chunks.shape,
        partition=partition_text(partition),
        mesh=UNSET if own.text == mesh.text else own.text,
        stored_bytes=reads.stored,
        read_bytes=reads.read,
        again_bytes=reads.again,
        unused_bytes=reads.unused,
    )


def reshard_document(checkpoint: Checkpoint, draft: Draft) -> reports.Resharded:
    """What a change of layout does, and what hosts would read before and after it."""
    arrays = {path: leaf for path, leaf in draft.leaves.items() if leaf.spec.has_array}
    resharded = [leaf for leaf in arrays.values() if leaf.is_resharded]
    relabelled = sum(leaf.is_by_reference for leaf in resharded)
    shardings = stored_shardings(draft.tree)
    before, after = _before_and_after(checkpoint, draft, shardings)
    mesh = usual_mesh(shardings.values())
    return reports.Resharded(
        rewritten=len(resharded) - relabelled,
        relabelled=relabelled,
        as_they_are=len(arrays) - len(resharded),
        replicated=sum(not one.partition for one in shardings.values()),
        before=None if mesh is None else reads_document(before, mesh, hosts_counted(mesh)),
        after=None if mesh is None else reads_document(after, mesh, hosts_counted(mesh)),
    )


def _before_and_after(
    checkpoint: Checkpoint, draft: Draft, shardings: Mapping[LeafPath, NamedSharding]
) -> tuple[Sequence[Spread], Sequence[Spread]]:
    """The leaves in the chunks that they have and in those that they get, spread as they will be."""
    before, after = [], []
    for path, leaf in draft.leaves.items():
        home, spec = leaf.home, leaf.spec
        if not spec.has_array or spec.write_shape is None:
            continue
        name, sharding = str(path), shardings.get(path)
        is_own = home is not None and home.source == SOURCE
        chunks = chunks_of(checkpoint, home.path) if home is not None and is_own else None
        old = checkpoint.tree[home.path] if home is not None and is_own else None
        if chunks is None or old is None or old.shape != spec.shape:
            chunks = expected_chunks(spec, 1.0)
        before.append(Spread(name, spec.shape, chunks, sharding))
        if leaf.is_resharded and not leaf.is_by_reference:
            ratio = (old.stored_bytes or 0) / old.bytes if old is not None and old.bytes else 1.0
            chunks = expected_chunks(spec, ratio or 1.0)
        after.append(Spread(name, spec.shape, chunks, sharding))
    return before, after
