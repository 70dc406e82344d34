"""Trees written by hand as nested Python, and plans resolved over them."""

from __future__ import annotations

from surgery_cli.planning import Plan
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec


def array(*shape, dtype="float32"):
    return LeafSpec(kind=LeafKind.ARRAY, shape=shape, dtype=dtype)


W = array(4, 3)
B = array(3)
COUNT = array(dtype="int32")
EMPTIES = {dict: "Dict", list: "List"}


def leaves_of(node, path=()):
    """Typed paths and specs of a nested structure; None, {} and [] are empty leaves."""
    if isinstance(node, LeafSpec):
        yield LeafPath(path), node
    elif not node:
        yield (
            LeafPath(path),
            LeafSpec(kind=LeafKind.EMPTY, empty=EMPTIES.get(type(node), "None")),
        )
    else:
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from leaves_of(child, (*path, key))


class HandBuilt:
    """A source with this structure."""

    tells_kinds = True
    places = ()

    def __init__(self, structure, fingerprint="hand-built"):
        self.tree = TreeSpec(dict(leaves_of(structure)))
        self.fingerprint = fingerprint


def adam(params):
    """A train state with `optax.adam`: mu and nu mirror the params."""
    return {
        "params": params,
        "opt_state": [{"count": COUNT, "mu": params, "nu": params}, None],
        "step": COUNT,
    }


def no_donor(address):
    raise AssertionError(f"nothing may be opened, but {address} was")


def resolved(structure, *edits, open_source=no_donor, settings=None, **plan):
    """The draft that the edits make of the structure; ``settings`` go to ``resolve``."""
    source = structure if isinstance(structure, HandBuilt) else HandBuilt(structure)
    return resolve(Plan(edits=edits, **plan), source, open_source, **(settings or {}))


def origins(draft):
    """Where each output leaf comes from: typed keys to the printed source path, None for new leaves."""
    return {
        tuple(path): str(recipe.home.path) if recipe.home else None
        for path, recipe in draft.leaves.items()
    }


def moved(draft):
    """Printed paths, new to old, of the leaves that do not stand where they stood."""
    return {
        path.text: recipe.home.path.text
        for path, recipe in draft.leaves.items()
        if recipe.home is None or recipe.home.path != path
    }


def printed(draft):
    return [path.text for path in draft.leaves]
