"""What a request for another layout must say: one thing, and all that it takes."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.settings.reshard import Reshard
from surgery_cli.words.advice import Entry, FieldName, worded

KERNELS: Final = Entry("spec", "params/**/kernel=fsdp,None")
"""An example of a spec."""


def check_request(request: Reshard) -> None:
    """See that a request says one thing.

    Raises:
        PlanError: it says nothing, or two things that exclude each other.
    """
    ways = [name for name in ("mesh", "like", "like_init") if getattr(request, name) is not None]
    problems = []
    if len(ways) > 1:
        problems.append(
            Problem(
                worded("`reshard` takes one of {mesh}, {like} and {like_init}"),
                why="each of them says how every leaf is laid out",
                fix="keep one of them",
                field=ways[-1],
            )
        )
    if not ways and request.chunk_bytes is None:
        problems.append(
            Problem(
                "`reshard` is not told for what",
                why=worded("it takes {mesh} with {spec}, {like}, {like_init} or {chunk_bytes}"),
                fix=worded("e.g. {mesh: fsdp=16} and {}", KERNELS),
                field="mesh",
            )
        )
    if request.spec and request.mesh is None:
        problems.append(
            Problem(
                worded("{spec} needs a {mesh}"),
                why="it names axes of one",
                fix=worded("leave {spec} out, or give a {mesh} instead of {}", FieldName(ways[0]))
                if ways
                else worded("add {mesh: fsdp=16}"),
                field="mesh",
            )
        )
    if ways == ["mesh"] and not request.spec and _is_mesh(request):
        problems.append(
            Problem(
                worded("{mesh} says nothing of leaves without {spec}"),
                why="leaves that no spec names are replicated: it would be all of them",
                fix=worded("add {}, or {} for that", KERNELS, Entry("spec", "**=None")),
                field="spec",
            )
        )
    raise_all(problems)


def _is_mesh(request: Reshard) -> bool:
    """False where the mesh cannot be read: that is said by itself, before what a mesh needs."""
    with suppress(PlanError):
        return bool(request.mesh_axes)
    return False
