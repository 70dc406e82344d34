"""Every two edits of places and shapes, and many threes, have an inverse: told from metadata, in normal form."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.expression import Recipe, Stored
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.table import operations
from surgery_cli.planning import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.resolution.from_source import Ends, Side
from surgery_cli.resolution.inverse import ORIGIN, Inverse
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from tests.hand_built_trees import HandBuilt, adam, array

LAYER = {"kernel": array(4, 6), "bias": array(6)}
PARAMS = {
    **{f"layers_{n}": {"attn": LAYER} for n in range(3)},
    "blocks": [{"kernel": array(4, 6)}] * 3,
    "head": LAYER,
    "out.put": array(4, 6),
}
TREE = {**adam(PARAMS), "ids": array(5, dtype="int16"), "none": None, "empty": {}}

EDITS: list[dict[str, Any]] = [
    {"op": "rescale", "at": "params/**/{attn,head}", "by": 2},
    {"op": "cast", "at": "params/**/kernel", "to": "bfloat16"},
    {"op": "reset-optimizer", "clocks": True},
    {"op": "transpose", "at": "params/**/{kernel,w}"},
    {"op": "reshape", "at": "params/**/kernel", "shape": [2, -1]},
    {"op": "squeeze", "at": "params/**/bias"},
    {"op": "expand", "at": "params/**/bias", "axis": 0},
    {"op": "permute", "at": "params/**/kernel", "index": [2, 0, 3, 1]},
    {"op": "slice", "at": "params/**/{kernel,kernel_0}", "slices": "1:"},
    {"op": "pad", "at": "params/**/kernel", "axis": 0, "after": 2},
    {"op": "resize", "at": "params/**/kernel", "axis": 0, "size": 9},
    {"op": "resize", "at": "params/**/kernel", "axis": 0, "size": 2},
    {"op": "repeat", "at": "params/**/kernel", "axis": 0, "times": 2},
    {"op": "repeat", "at": "params/layers", "axis": 0, "times": 2, "order": "tiled"},
    {"op": "repeat", "at": "params/head", "axis": 0, "times": 2, "new_axis": True},
    {"op": "stack", "at": "params/layers_{0..2}", "to": "params/layers"},
    {"op": "stack", "at": "params/blocks/{0..2}", "to": "params/blocks", "axis": -1},
    {"op": "unstack", "at": "params/**/kernel", "axis": 0, "to": "params/\\1/row_{0..3}"},
    {"op": "unstack", "at": "params/layers", "axis": 0, "to": "params/block_{0..2}"},
    {"op": "split", "at": "params/*/kernel", "axis": 0, "to": "params/\\1/kernel_{0..1}"},
    {"op": "split", "at": "params/**/bias", "axis": 0, "to": "params/\\1/b_{0..1}"},
    {"op": "concat", "at": ["params/head/kernel", "params/out.put"], "axis": 0, "to": "params/w"},
    {"op": "concat", "at": "params/*/kernel_{0..1}", "axis": 0, "to": "params/\\1/kernel"},
    {"op": "rename", "at": "params/{head,blocks}", "to": "params/new_\\1"},
    {"op": "rename", "at": "params/blocks/{0..2}", "to": "params/blocks/{2..0}"},
    {"op": "copy", "at": "params/head", "to": "params/again"},
    {"op": "copy", "at": "params/blocks/1", "to": "params/blocks/3"},
    {"op": "delete", "at": "params/{head,again}"},
    {"op": "delete", "at": "params/blocks/1"},
    {"op": "delete", "at": "params/**/{bias,kernel_0,b_1,row_2}"},
    {"op": "keep", "at": "params/**/kernel"},
    {"op": "flatten", "at": "params/{head,layers_0}", "separator": "-"},
    {"op": "unflatten", "at": "params", "separator": "."},
    {"op": "to-dict", "at": "params/blocks"},
    {"op": "to-dict", "at": "**", "empties": "drop"},
    {"op": "to-list", "at": "params/blocks"},
    {"op": "to-list", "at": "params/blocks", "length": 5},
    {"op": "add", "at": "params/again", "like": "params/layers_0", "init": "ones"},
    {"op": "add", "at": "params/head", "like": "params/layers_1/attn", "init": "ones"},
    {"op": "merge", "at": "params", "with": "other", "both": "theirs"},
    {"op": "intersect", "at": "params", "with": "other"},
    {"op": "insert-item", "at": "params/inserted", "with": "other", "from": "params"},
    {"op": "extract-item", "at": "params"},
    {
        "op": "extract-lora", "at": "params/head/kernel", "with": "other",
        "a": "params/low/a", "b": "params/low/b", "layout": "flax", "rank": 2,
    },
]  # fmt: skip
OTHER = {"params": {"head": LAYER, "more": LAYER, "blocks": [LAYER]}}


def test_every_operation_of_places_and_shapes_is_tried() -> None:
    wanted = {
        name
        for name, kind in operations().items()
        if name != "assert" and isinstance(_effect(kind), Rearranges | None)
    }
    assert wanted <= {edit["op"] for edit in EDITS}


def _effect(kind: Any) -> Any:
    edit = plan_from_document({"edits": [next(e for e in _examples() if e["op"] == _tag(kind))]})
    return edit.edits[0].effect


def _tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def _examples() -> Iterator[dict[str, Any]]:
    from ruamel.yaml import YAML

    for kind in operations().values():
        read = YAML(typ="safe").load(kind.example)
        yield read[-1] if isinstance(read, list) else read


class _Result:
    fingerprint = "result"

    def __init__(self, tree: TreeSpec) -> None:
        self.tree = tree


SOURCE = HandBuilt(TREE)


def _opened(address: str) -> HandBuilt:
    return HandBuilt(OTHER, "other") if address == "other" else SOURCE


def _folded(source: Any, document: dict[str, Any], inverse: Inverse | None = None) -> Draft:
    return resolve(plan_from_document(document), source, _opened, inverse=inverse)


def _threes() -> Iterator[tuple[int, ...]]:
    numbers = random.Random(5)
    for _ in range(100):
        yield tuple(numbers.randrange(len(EDITS)) for _ in range(3))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", range(len(EDITS)), ids=lambda n: f"{n}-{EDITS[n]['op']}")
def test_any_two_edits_are_undone(first: int, request: pytest.FixtureRequest) -> None:
    """A sixth of them, and all of them with ``--every-combination``."""
    step = 1 if request.config.getoption("--every-combination") else 6
    for second in range(first % step, len(EDITS), step):
        _undone([EDITS[first], EDITS[second]])


def test_three_edits_are_undone() -> None:
    done = sum(_undone([EDITS[n] for n in numbers]) for numbers in _threes())
    assert done > 25


def _undone(edits: list[dict[str, Any]]) -> bool:
    """False if the edits are refused."""
    inverse = Inverse()
    told = {
        "optimizer_kind": "adam",
        "edits": [{"optimizer": "keep", **e} if e["op"] == "rescale" else e for e in edits],
    }
    try:
        after = _folded(SOURCE, told, inverse)
    except SurgeryError:
        return False
    document = inverse.document("SRC")
    wrong = _wrong_values(document, told)
    assert not wrong, f"{edits}\n{document}\n{wrong}"
    problem = _problem(after, document)
    if not problem:
        return True
    kept = {
        path: output.home.path
        for path, output in after.leaves.items()
        if output.is_by_reference and output.home is not None and output.home.source == ""
    }
    ends = Ends.of(Side(after.tree), Side(SOURCE.tree), kept)
    others = [_problem(after, other) for other in ends.plans("SRC")]
    assert "" in others, f"{edits}\n{document}\n{problem}\n{others}"
    return True


def _problem(after: Draft, document: dict[str, Any]) -> str:
    """Why the inverse does not give back the source's tree; '' if it does."""
    try:
        back = _folded(_Result(after.tree), document)
    except SurgeryError as error:
        return str(error)
    return "" if _agree(back.tree) else "another tree"


def _wrong_values(document: dict[str, Any], told: dict[str, Any]) -> list[str]:
    """The leaves that are not the source's, by all edits in one plan; those that a fold refuses tell by their tree."""
    whole = {**document, **told, "edits": [*told["edits"], *document["edits"]]}
    try:
        both = _folded(SOURCE, whole)
    except SurgeryError:
        return []
    if not _agree(both.tree):
        return []
    return [str(path) for path, leaf in both.leaves.items() if not _is_source(path, leaf.recipe)]


def _agree(tree: TreeSpec) -> bool:
    same = tree.keys() == SOURCE.tree.keys()
    return same and all(tree[path].agrees_with(SOURCE.tree[path]) for path in tree)


def _is_source(path: LeafPath, recipe: Recipe) -> bool:
    if recipe.spec.empty:
        return True
    return (
        isinstance(recipe, Stored) and recipe.ref.path == path and recipe.ref.source in ("", ORIGIN)
    )
