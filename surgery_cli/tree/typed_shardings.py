"""Meshes and partitions as they are typed: `data=4,model=2`, and `fsdp,None`."""

from __future__ import annotations

from surgery_cli.errors import PlanError
from surgery_cli.tree.sharding import Axes, Partition


def parse_mesh(text: str) -> dict[str, int]:
    """``data=4,model=2`` as axis sizes by name.

    Raises:
        PlanError: the text is not a list of name=size; every part that is not.
    """
    axes: dict[str, int] = {}
    wrong = []
    for part in text.split(","):
        name, _, size = (side.strip() for side in part.partition("="))
        if not name.isidentifier():
            wrong.append(f"'{part.strip()}' begins with no name of an axis")
        elif name in axes:
            wrong.append(f"it has the axis '{name}' twice")
        elif not size:
            wrong.append(f"the axis '{name}' has no size")
        elif not size.isdecimal() or int(size) < 1:
            wrong.append(f"the axis '{name}' has '{size}' devices, and needs 1 or more")
        axes[name] = int(size) if size.isdecimal() else 0
    if wrong:
        raise PlanError(
            f"'{text}' is not a mesh",
            why="; ".join(wrong),
            fix="write axes with their sizes: `--mesh data=4,model=2`",
            field="mesh",
        )
    return axes


def parse_partition(text: str) -> Partition:
    """A PartitionSpec as it is typed: an axis of the mesh for each axis of the array, None, or several in brackets.

    >>> parse_partition("fsdp,None"), parse_partition("None,(data,fsdp)"), parse_partition("P('x', None)")
    ((('fsdp',), ()), ((), ('data', 'fsdp')), (('x',), ()))

    Raises:
        PlanError: its brackets do not match, a name is missing, or there is nothing, as of a variable that is not set.
    """
    inner = text.strip()
    if not inner:
        raise PlanError(
            "a partition is empty",
            why="nothing says over which axes the leaves are split",
            fix="write `None` for leaves that every device has whole",
            field="spec",
        )
    for front in ("PartitionSpec(", "P("):
        if inner.startswith(front) and inner.endswith(")"):
            inner = inner[len(front) : -1]
    found: list[Axes] = []
    group: list[str] | None = None
    for raw in inner.replace("(", " ( ").replace(")", " ) ").split(",") if inner.strip() else ():
        word = raw.strip()
        opens, closes = word.startswith("("), word.endswith(")")
        name = word.removeprefix("(").removesuffix(")").strip().strip("'\"")
        is_odd = (opens and group is not None) or (closes and not opens and group is None)
        if is_odd or any(sign in name for sign in "()= "):
            raise _no_partition(text)
        if opens:
            group = []
        if group is not None:
            group += [name] if name else []
        elif not name:
            raise _no_partition(text)
        else:
            found.append(() if name in ("None", "none", "null") else (name,))
        if closes and group is not None:
            found.append(tuple(group))
            group = None
    if group is not None:
        raise _no_partition(text)
    return tuple(found)


def _no_partition(text: str) -> PlanError:
    return PlanError(
        f"'{text}' is not a partition",
        why="it says for each axis of an array over which axis of the mesh it is split",
        fix="e.g. `fsdp,None`, or `None,(data,fsdp)` for an axis over two",
        field="spec",
    )


def partition_text(partition: Partition) -> str:
    """A partition as it is typed.

    >>> partition_text((("fsdp",), (), ("data", "model")))
    'fsdp,None,(data,model)'
    """
    words = ["None" if not a else a[0] if len(a) == 1 else f"({','.join(a)})" for a in partition]
    return ",".join(words) or "None"
