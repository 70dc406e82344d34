"""What an edit names is edited, refused or spoken of, whatever kind of leaf it is: none stays as it was in silence."""

import itertools
from functools import cache
from typing import Any, ClassVar

import pytest
from ruamel.yaml import YAML

from surgery_cli.draft.recipe import DraftItems, is_numeric
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.base import LeafOperation
from surgery_cli.operations.table import operations
from surgery_cli.planning.reading import plan_from_document
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
EDITS = {name: kind for name, kind in operations().items() if issubclass(kind, LeafOperation)}


@cache
def _settings(op: str) -> dict[str, Any]:
    """The edit of the operation's own example, whatever it names there."""
    (edit,) = YAML(typ="safe").load(EDITS[op].example)
    return {key: value for key, value in edit.items() if key not in ("at", "where_dtype")}


class _Source:
    steps: ClassVar[dict[int, str]] = {}
    step: int | None = None

    def __init__(self, leaf: LeafSpec, name: str) -> None:
        texts = ("params/w", "params/x", "other/x")
        plain = LeafSpec(kind=LeafKind.ARRAY, shape=(4, 3), dtype="float32")
        self.tree = TreeSpec(
            {LeafPath(text.split("/")): plain if text == texts[0] else leaf for text in texts}
        )
        self.fingerprint = self.address = name
        self.places = frozenset({name})

    def beside(self, name: str) -> None:
        return None


def _drafted(leaf: LeafSpec, op: str, at: str | None) -> Any:
    document = {**_settings(op), **({"at": at} if at else {})}
    other = _Source(leaf, "other")
    return resolve(
        plan_from_document({"edits": [document]}),
        _Source(leaf, "own"),  # type: ignore[arg-type]  # no tensor is read
        lambda _: other,  # type: ignore[arg-type,return-value]
        items=DraftItems(names=("default",), taken=frozenset({"default"})),
    )


@pytest.mark.parametrize("op", EDITS)
def test_a_leaf_that_an_edit_names_is_edited_refused_or_spoken_of(
    op: str, pytestconfig: pytest.Config
) -> None:
    """A third of the pairs, each leaf and each way to name it; all of them with ``--every-combination``."""
    silent = []
    pairs = [*itertools.product(LEAVES, (None, "params", "params/*", "params/x"))]
    for leaf, at in pairs if pytestconfig.getoption("--every-combination") else pairs[::3]:
        if op == "cast" and (leaf.dtype == "bfloat16" or (at is None and not is_numeric(leaf))):
            continue  # what it is already; what no cast of everything is about
        try:
            draft = _drafted(leaf, op, at)
        except SurgeryError:
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
