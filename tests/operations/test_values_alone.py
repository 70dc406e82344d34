"""Values that no checkpoint could take are refused without one: `lint` and `plan` say the same of every field."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from msgspec import inspect as types
from ruamel.yaml import YAML

from surgery_cli.errors import SurgeryError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import alternatives, alternatives_of, fields_of
from surgery_cli.planning.reading import read_plan
from tests.operations.value_edits import ArraySource, example_on, layer_names

TEXTS = ["nosuch", "a/*", r"x/\3", "x/{0..2}", "a//b", "0:2:0", "5..1", "{a,b}", "params/?"]
INTEGERS = [0, -1, 7, 10**12]
NUMBERS = [0, -1, 3, 0.5, 1e300, float("nan"), float("inf")]
TREES = [((4, 3), "float32"), ((12, 8), "float32"), ((6, 4, 3), "float16")]

TOLD_BY_A_CHECKPOINT: Final = re.compile(
    r"has no (leaf )?'"
    r"|is not (read here|the function)|could not be opened|no source"
    r"|counts none|does not hold|breaks `|there is no leaf|do not make"
    r"|has none of the|no key right below|stand here and in|has nothing that is missing"
    r"|has no place there|is no place for a part of|cannot be stored"
    r"|would fill nothing|lecun_normal needs a leaf|does not fit int32|'step' cannot be"
    r"|is not a run of steps|no step lies|the run has no|none of \d"
    r"|matches nothing|names nothing|is there already|nothing would be left"
)
"""What hangs on the trees, files and runs that the examples meet, whichever trees of ours they are."""


def _values(kinds: list[types.Type]) -> Iterator[Any]:
    """Values of a field, of which some mean nothing."""
    for kind in kinds:
        match kind:
            case types.BoolType():
                yield from (False, True)
            case types.IntType():
                yield from INTEGERS
            case types.FloatType():
                yield from NUMBERS
            case types.StrType():
                yield from TEXTS
            case types.LiteralType():
                yield from kind.values
            case types.VarTupleType() | types.ListType():
                yield []
                for value in _values(alternatives(kind.item_type)):
                    yield from ([value], [value, value])
            case types.DictType():
                for value in _values(alternatives(kind.value_type)):
                    yield from ({"params/*": value}, {"params/Dense_{0..1}": value})


def _edits(kind: type[Operation], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    document = YAML(typ="safe").load(kind.example)
    edits: list[dict[str, Any]] = document if isinstance(document, list) else [document]
    edits[-1] |= given
    return edits


def linted(kind: type[Operation], given: Mapping[str, Any]) -> set[str]:
    """What is wrong with the operation's example without any checkpoint."""
    text = io.StringIO()
    YAML(typ="safe").dump({"edits": _edits(kind, given)}, text)
    try:
        read_plan("-", stdin=io.StringIO(text.getvalue()), is_linted=True)
    except SurgeryError as error:
        return {problem.what for problem in error.problems}
    return set()


@cache
def _state(number: int, seed: int) -> tuple[Any, Mapping[str, Any]]:
    shape, dtype = TREES[number]
    leaf = np.random.default_rng(seed).normal(size=shape).astype(dtype)
    roots = ("params", "opt_state/0/mu", "opt_state/0/nu")
    counts = {"step": np.int32(7), "opt_state/0/count": np.int32(7)}
    return leaf, {f"{root}/{name}": leaf for root in roots for name in layer_names(2)} | counts


def planned(kind: type[Operation], given: Mapping[str, Any], tree: int) -> set[str]:
    """What a preview on one of the trees refuses."""
    leaf, own = _state(tree, 0)
    _, other = _state(tree, 1)
    try:
        example_on(kind, ArraySource(own), ArraySource(other), leaf, **given)
    except SurgeryError as error:
        return {problem.what for problem in error.problems}
    except KeyError as error:  # the sources of the examples are a mapping
        return {f"no source {error}"}
    return set()


@pytest.mark.sampled(20)
@pytest.mark.parametrize("op", operations())
def test_lint_says_what_plan_says_of_every_tree(op: str, pytestconfig: pytest.Config) -> None:
    """Every second value of each field; all of them with ``--every-combination``."""
    kind = operations()[op]
    own = [f for f in fields_of(kind) if not f.is_common or f.name in ("at", "optimizer")]
    cases = [(f.name, value) for f in own for value in _values(alternatives_of(kind, f.name))]
    wrong = []
    for name, value in cases if pytestconfig.getoption("--every-combination") else cases[::2]:
        alone = linted(kind, {name: value})
        trees = [planned(kind, {name: value}, tree) for tree in range(len(TREES))]
        of_all = set.intersection(*trees)
        if not alone <= of_all:
            wrong.append((name, value, "only lint", alone - of_all))
        unsaid = {what for what in of_all - alone if not TOLD_BY_A_CHECKPOINT.search(what)}
        if unsaid and not alone:
            wrong.append((name, value, "only plan", unsaid))
    assert not wrong
