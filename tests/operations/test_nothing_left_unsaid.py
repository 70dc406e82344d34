"""What an edit names is edited, refused or spoken of, whatever kind of leaf it is: none stays as it was in silence."""

import itertools
from typing import Any, ClassVar

import pytest

from surgery_cli.draft.recipe import DraftItems, is_numeric
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.table import operations
from surgery_cli.plan.reading import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.tree.dtypes import COMPLEX_PARTS, FLOATS, INTEGER_BITS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

DTYPES = (*FLOATS, *COMPLEX_PARTS, *INTEGER_BITS, "bool")
LEAVES = [
    *(LeafSpec(kind=LeafKind.ARRAY, shape=(4, 3), dtype=dtype) for dtype in DTYPES),
    *(LeafSpec(kind=LeafKind.NUMPY, shape=(4, 3), dtype=dtype) for dtype in DTYPES),
    *(
        LeafSpec(kind=LeafKind.SCALAR, dtype=dtype)
        for dtype in ("float64", "complex128", "int64", "bool")
    ),
    LeafSpec(kind=LeafKind.STRING),
    LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry"),
]
SETTINGS: dict[str, dict[str, Any]] = {
    "rescale": {"by": 0.5},
    "normalize": {},
    "replace": {"with": 0},
    "reinit": {"init": "zeros"},
    "average": {"with": "other"},
    "cast": {"to": "float16"},
    "set": {"to": 0},
}
SAME = {"cast": "float16"}
"""The dtype of which a leaf already is what the edit makes of it."""


class _Source:
    steps: ClassVar[dict[int, str]] = {}

    def __init__(self, leaf: LeafSpec, name: str) -> None:
        texts = ("params/w", "params/x", "other/x")
        plain = LeafSpec(kind=LeafKind.ARRAY, shape=(4, 3), dtype="float32")
        self.tree = TreeSpec(
            {LeafPath(text.split("/")): plain if text == texts[0] else leaf for text in texts}
        )
        self.fingerprint = self.address = name
        self.places = frozenset({name})


def _drafted(leaf: LeafSpec, op: str, at: str | None) -> Any:
    document = {"op": op, **SETTINGS[op], **({"at": at} if at else {})}
    other = _Source(leaf, "other")
    return resolve(
        plan_from_document({"edits": [document]}),
        _Source(leaf, "own"),  # type: ignore[arg-type]  # no tensor is read
        lambda _: other,  # type: ignore[arg-type,return-value]
        items=DraftItems(names=("default",), taken=frozenset({"default"})),
    )


def test_every_operation_that_edits_leaves_is_among_them() -> None:
    assert SETTINGS.keys() == {n for n, k in operations().items() if issubclass(k, LeafOperation)}


@pytest.mark.parametrize("op", SETTINGS)
def test_a_leaf_that_an_edit_names_is_edited_refused_or_spoken_of(op: str) -> None:
    silent = []
    for leaf, at in itertools.product(LEAVES, (None, "params", "params/*", "params/x")):
        if leaf.dtype == SAME.get(op) or (op == "cast" and at is None and not is_numeric(leaf)):
            continue
        try:
            draft = _drafted(leaf, op, at)
        except PlanError:
            continue
        said = " ".join(map(str, draft.notes))
        changed = set(map(str, draft.changed))
        texts = [str(p) for p in draft.leaves if at is None or p[0] == "params"]
        silent += [
            (leaf.type_text, at, text)
            for text in texts
            if (text != "params/w" or at != "params/x")
            if text not in changed and f"'{text}'" not in said
        ]
    assert not silent
