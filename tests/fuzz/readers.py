"""How an input is read by this program, through which doors, and what an independent reader makes of the same."""

import contextlib
import io
import math
import re
from pathlib import Path

import msgspec
import numpy as np

from surgery_cli.errors import CheckpointError
from tests.fuzz.seeds import SAMPLES

LARGEST_LEAF = 1 << 20
"""Bytes: of larger leaves, which only metadata declare, a corner is read."""


def leaves_of(place):
    """Every leaf that this program reads, by its stored name; None for one that is too large to be compared."""
    from surgery_cli.store.open.checkpoint import open_checkpoint
    from surgery_cli.tree.paths import stored_name
    from surgery_cli.tree.specs import LeafKind

    checkpoint = open_checkpoint(str(place))
    found = {}
    for path, spec in checkpoint.tree.items():
        if spec.kind is LeafKind.EMPTY:
            continue
        chunk = math.prod(spec.chunk_shape or ())
        if spec.bytes <= LARGEST_LEAF:
            found[stored_name(path)] = checkpoint.read(path)
        else:
            found[stored_name(path)] = None
            if chunk <= LARGEST_LEAF:
                checkpoint.read(path, tuple(slice(0, min(n, 1)) for n in spec.shape))
    return found


def by_command(*words):
    """Run a command as the program does; its exit code."""
    import typer

    from surgery_cli.cli import edge
    from surgery_cli.cli.main import app

    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        code = edge.run_command(typer.main.get_command(app), list(map(str, words)))
    if code == edge.BUG:
        raise AssertionError(f"exit code 70: {said.getvalue()[-3000:]}")
    return code


def by_door(place, chance):
    """Another way to look at a checkpoint: each must end with an exit code of its own."""
    door = chance.choice(
        (
            "inspect",
            "stats",
            "verify",
            "rescue",
            "rescue",
            "plan",
            "diff",
            "layout",
            "log",
            "doctor",
        )
    )
    match door:
        case "inspect":
            by_command("inspect", place, "--optimizer")
        case "stats":
            by_command("inspect", place, "--stats", "--digests", "--json")
        case "verify":
            by_command("verify", place, "--json")
        case "rescue":
            by_command("rescue", place)
        case "plan":
            by_command(
                "rescale",
                place,
                place.parent / "new",
                "**/kernel",
                "--by",
                "2",
                "--dry-run",
                "--optional",
            )
        case "diff":
            by_command("diff", place, place)
        case "log":
            by_command("log", place)
        case "doctor":
            by_command("doctor", place.parent)
        case "layout":
            by_command("inspect", place, "--layout")


def read_plan(place):
    from surgery_cli import planning

    return planning.read_plan(str(place))


def read_donor(place):
    """An array for an edit, by its name; and the order that a file says, which `permute` takes."""
    from surgery_cli.errors import SurgeryError
    from surgery_cli.operations.order_files import order_in
    from surgery_cli.store.files.array_file import ArrayFile

    with contextlib.suppress(SurgeryError):
        order_in(str(place), lambda file: Path(file).read_bytes())
    if place.suffix != ".npy":
        return {}
    file = ArrayFile(str(place))
    return {str(path): file.read(path) for path in file.tree}


def read_policy(place):
    """The rules of a policy, and what they say of a checkpoint."""
    from surgery_cli import planning, surgery

    rules = planning.read_policy(str(place))
    surgery.check(str(SAMPLES / "digits_standard"), rules, policy=str(place))
    return {}


def draft_plan(place):
    """A plan, and what it would make of a checkpoint."""
    from surgery_cli import surgery
    from surgery_cli.reports import as_builtins

    found = surgery.plan(str(SAMPLES / "digits_standard"), read_plan(place))
    msgspec.json.encode(as_builtins(found))
    return {}


def resealed(content):
    """A record with the digest of its own content made good again."""
    from surgery_cli.inputs.self_digest import with_own_digest

    return with_own_digest(
        re.sub(rb'"content": ?"sha256:[0-9a-f]*"', b'"content": ""', content, count=1)
    )


def read_record(place):
    from surgery_cli import surgery
    from surgery_cli.errors import SurgeryError

    found = surgery.verify(str(place))
    with contextlib.suppress(SurgeryError):
        surgery.log(str(place))
    with contextlib.suppress(SurgeryError):
        surgery.inverse(str(place))
    if not found.agrees:
        raise CheckpointError("the record does not agree")
    return {}


PATHS = (
    "params/layers/0/w",
    "params/layers/11/kernel",
    "a/b/c",
    "step",
    "opt_state/0/mu/x",
    "a%b/c",
    "x3y",
    "[x]/y",
)


def match_pattern(place):
    """What a pattern names; by the other way to match it, too, which must name the same."""
    from surgery_cli.errors import PlanError
    from surgery_cli.tree import globs
    from surgery_cli.tree.linear_matching import Linear
    from surgery_cli.tree.paths import LeafPath, PathPattern
    from surgery_cli.tree.targets import Target

    text = Path(place).read_bytes().decode("utf-8", "replace")
    with contextlib.suppress(PlanError):
        Target(text)
    is_hostile = text.startswith("re:")  # whose time nothing bounds
    pattern = PathPattern(text)
    paths = {LeafPath(path.split("/")): path for path in PATHS}
    named = {} if is_hostile else pattern.named(paths)
    if not is_hostile and len(text) < 200:
        parts = globs.read(text.strip("/"))
        linear = Linear(parts, pattern._expression.groups)
        for path in PATHS:
            one, other = linear.fullmatch(path), pattern._expression.fullmatch(path)
            assert (one is None) == (other is None), f"{text!r} and {path!r} match in one way only"
            assert one is None or one.groups() == other.groups(), (
                f"{text!r}, {path!r}: other groups"
            )
    return {str(path): "" for path in named}


# Independent readers.


def by_orbax(place):
    """What Orbax restores, by stored name."""
    import jax
    import orbax.checkpoint as ocp

    checkpointer = ocp.PyTreeCheckpointer()
    known = checkpointer.metadata(place).item_metadata
    if known is None:  # of releases without `_METADATA`: the tree is in `checkpoint`
        return _flat(checkpointer.restore(place))
    tree = known.tree
    wanted = jax.tree.map(
        lambda leaf: (
            ocp.RestoreArgs(restore_type=str)
            if type(leaf).__name__ == "StringMetadata"
            else ocp.RestoreArgs(restore_type=np.ndarray)
        ),
        tree,
        is_leaf=lambda node: not isinstance(node, dict | list | tuple),
    )
    return _flat(checkpointer.restore(place, restore_args=wanted))


def by_flax(place):
    """What Flax makes of a msgpack file, or Orbax of one with its tuples, which Flax does not know."""
    from flax import serialization
    from orbax.checkpoint import msgpack_utils

    content = Path(place).read_bytes()
    tree = serialization.msgpack_restore(content)
    return _flat(msgpack_utils.msgpack_restore(content) if _holds_tuples(tree) else tree)


def _holds_tuples(node):
    import msgpack

    if isinstance(node, msgpack.ExtType):
        return node.code == 4
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return any(map(_holds_tuples, below))


def by_safetensors(place):
    from safetensors.numpy import load_file

    place = Path(place)
    if place.is_dir():
        return None
    return dict(load_file(place))


def by_numpy(place):
    if Path(place).read_bytes() == b"\x80":  # whatever it is called, it is an empty dict of msgpack
        return by_flax(place)
    if Path(place).suffix == ".npy":
        array = np.load(place, allow_pickle=False)
        return {Path(place).stem: array.astype(array.dtype.newbyteorder("="))}
    if Path(place).suffix != ".npz":
        return None
    with Path(place).open("rb") as file, np.load(file, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


def _flat(tree):
    found = {}

    def walk(node, name):
        if isinstance(node, dict | list | tuple):
            for key, below in node.items() if isinstance(node, dict) else enumerate(node):
                walk(below, (*name, str(key)))
        elif node is not None:
            found[".".join(name)] = node

    walk(tree, ())
    return found


def difference(ours, theirs):
    """What two readers make otherwise of one input, in words; None if they agree."""
    if missing := [name for name in theirs if name not in ours]:
        return f"leaves that we do not have: {missing[:3]}"
    if more := [name for name in ours if name not in theirs]:
        return f"leaves that they do not have: {more[:3]}"
    for name, value in theirs.items():
        own = ours[name]
        if own is None:
            continue
        if isinstance(value, str) or isinstance(own, str):
            if type(own) is not type(value) or own != value:
                return f"another text: {own!r:.60} for {value!r:.60}"
            continue
        one = np.asarray(own)
        other = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.asarray(value)
        if isinstance(value, int) and not isinstance(value, bool) and one.dtype.kind in "iu":
            other = other.astype(one.dtype)
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            return f"{one.dtype}{list(one.shape)} for {other.dtype}{list(other.shape)}"
        if one.tobytes() != other.tobytes():
            return "other values"
    return None


def is_told(place):
    """True if `verify` finds something, or says what Orbax no longer does with it."""
    from surgery_cli import surgery
    from surgery_cli.errors import SurgeryError
    from surgery_cli.words.notes import Consequence

    try:
        found = surgery.verify(str(place))
    except SurgeryError:
        return True
    return not found.agrees or any(isinstance(note, Consequence) for note in found.notes)


READERS = {
    "plans": read_plan,
    "patterns": match_pattern,
    "records": read_record,
    "drafts": draft_plan,
    "policies": read_policy,
    "donor arrays": read_donor,
}
"""Of each kind how it is read, where it is no checkpoint."""

JUDGES = {
    "databases": by_orbax,
    "leaf folders": by_orbax,
    "msgpack": by_flax,
    "safetensors": by_safetensors,
    "npz": by_numpy,
    "donor arrays": by_numpy,
}
"""Of each kind who else reads it."""
