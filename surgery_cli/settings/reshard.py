"""What `reshard` may be told, on the command line and in a plan: for which topology a checkpoint is laid out."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Annotated, Any, TypeAlias

import msgspec

from surgery_cli.errors import PlanError, Problem
from surgery_cli.inputs.addresses import address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import bytes_of
from surgery_cli.tree.sharding import Partition
from surgery_cli.tree.typed_shardings import parse_mesh, parse_partition
from surgery_cli.words.advice import worded

PartitionSpec: TypeAlias = str | tuple[str | tuple[str, ...] | None, ...]
"""A partition as plans say it: text as it is typed, or a list as in ``jax.sharding.PartitionSpec``."""


class Unread(str):
    """A text that is no partition: who asks which it is gets ``problem`` for an answer, beside all else that is wrong.

    ``names_leaves``: it is known of which.
    """

    __slots__ = ("names_leaves", "problem")
    problem: Problem
    names_leaves: bool

    @classmethod
    def of(cls, text: str, problem: Problem, *, names_leaves: bool) -> Unread:
        unread = cls(text)
        unread.problem, unread.names_leaves = problem, names_leaves
        return unread


def specs_of(texts: Sequence[str]) -> dict[str, str]:
    """What `--spec` was given, as partitions by pattern, in order.

    >>> specs_of(["params/**/kernel=fsdp,None", "**=None"])
    {'params/**/kernel': 'fsdp,None', '**': 'None'}
    """
    found: dict[str, str] = {}
    for text in texts:
        pattern, equals, partition = text.rpartition("=")
        if not equals or not pattern:
            problem = Problem(
                f"`--spec` takes PATTERN=PARTITION, not '{text}'",
                fix="e.g. `--spec 'params/**/kernel=fsdp,None'`",
                field="spec",
            )
            found[text] = Unread.of(text, problem, names_leaves=False)
        elif pattern in found:
            problem = Problem(
                f"`--spec` gives '{pattern}' twice",
                why=f"'{found[pattern]}' and '{partition}'",
                fix="keep one of them",
                field="spec",
            )
            found[pattern] = Unread.of(partition, problem, names_leaves=True)
        else:
            found[pattern] = partition
    return found


def mesh_of(texts: Sequence[str]) -> dict[str, int] | str:
    """What `--mesh` was given, once or for each axis; what is no mesh stays text, as in a plan."""
    text = ",".join(texts)
    with contextlib.suppress(PlanError):
        return parse_mesh(text)
    return text


def chunk_limit_of(text: str) -> int | str:
    """What `--chunk-bytes` was given, in bytes; what is no size stays text, as in a plan."""
    with contextlib.suppress(PlanError):
        return _bytes_of(text)
    return text


def _bytes_of(text: str) -> int:
    return bytes_of(text, worded("{chunk_bytes: 64MiB}"), "chunk_bytes")


def partition_of(spec: PartitionSpec) -> Partition:
    """The partition that a plan says, with the axes at its end that are not split. Raises as `parse_partition`."""
    if isinstance(spec, Unread):
        raise PlanError(spec.problem)
    if isinstance(spec, str):
        return parse_partition(spec)
    return tuple(() if a is None else (a,) if isinstance(a, str) else tuple(a) for a in spec)


MeshAxes = Annotated[
    dict[str, Annotated[int, msgspec.Meta(ge=1)]] | str | None,
    setting(
        "The mesh of the other topology: its axes with their sizes.",
        Group.LAYOUT,
        "AXIS=N,...",
        option="--mesh",
        read=mesh_of,
    ),
]
Specs = Annotated[
    dict[str, PartitionSpec] | None,
    setting(
        "Over which axes of the mesh leaves are split, as `params/**/kernel=fsdp,None`; the first that matches"
        " counts; repeatable.",
        Group.LAYOUT,
        "PATTERN=PARTITION",
        option="--spec",
        read=specs_of,
        needs="mesh",
    ),
]


class Reshard(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """For which topology the result is laid out: a mesh with partitions, another checkpoint, or sizes of chunks."""

    mesh: MeshAxes = None
    spec: Specs = None
    like: Annotated[
        str | None,
        setting(
            "A checkpoint whose chunks and sharding the leaves get, path by path.",
            Group.LAYOUT,
            "CKPT",
            address,
        ),
    ] = None
    like_init: Annotated[
        str | None,
        msgspec.Meta(
            description="The function of a script, `FILE.py:FUNCTION`, whose abstract state says the shardings."
        ),
    ] = None
    chunk_bytes: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | str | None,
        setting(
            "About how large chunks are, at most: even parts of what one device holds.",
            Group.LAYOUT,
            "SIZE",
            option="--chunk-bytes",
            read=chunk_limit_of,
        ),
    ] = None

    @property
    def mesh_axes(self) -> dict[str, int]:
        """The axes of the mesh with their sizes; none if there is no mesh. Raises as `parse_mesh`."""
        return parse_mesh(self.mesh) if isinstance(self.mesh, str) else self.mesh or {}

    @property
    def chunk_limit(self) -> int | None:
        """The most bytes of a chunk. Raises as `bytes_of`."""
        given = self.chunk_bytes
        return _bytes_of(given) if isinstance(given, str) else given

    def document(self) -> dict[str, Any]:
        """As plain values, defaults left out."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


class HostReading(msgspec.Struct, frozen=True, kw_only=True):
    """Of what hosts the reads are counted."""

    layout: Annotated[
        bool,
        setting(
            "Count what each host would read to restore, on the mesh of `--mesh` or on that on disk.",
            Group.SHOW,
        ),
    ] = False
    mesh: MeshAxes = None
    spec: Specs = None
    hosts: Annotated[
        int | None,
        setting(
            "How many hosts share the devices of the mesh; by default each device has its own.",
            Group.LAYOUT,
            "N",
            least=1,
        ),
    ] = None

    @property
    def request(self) -> Reshard | None:
        """The mesh of which the reads are counted; None if they are not.

        Raises:
            PlanError: a mesh is given, and nobody asks for reads.
        """
        if self.layout:
            return Reshard(mesh=self.mesh, spec=self.spec)
        if self.mesh or self.spec or self.hosts:
            raise PlanError(
                "a mesh says nothing here without `--layout`",
                why="`--mesh`, `--spec` and `--hosts` are for what each host would read",
                fix="add `--layout`",
            )
        return None
