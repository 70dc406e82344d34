"""What an entry of ``slots:`` says that cannot be understood is told in the words of its fields."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.slot_hints import SlotHint, hints_from
from surgery_cli.optimizer.detect.survey import survey
from tests.optimizer.optax_registry import tree_of

TREE = {"params": {"w": np.ones(3)}, "m": {"w": np.ones(3)}}
WRONG: dict[str, list[Any]] = {
    "of": [3, True, None, ["params"]],
    "power": [-1.5, "x", True, [1]],
    "even": ["yes", 1, 0.5],
    "fresh": ["zero", True, [0]],
    "start": ["zero", {}],
    "params_like": ["no", 0],
    "second_moment": ["v", 2],
    "copy": ["m", None, 1],
    "ignore": [None, "x"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, every in WRONG.items() for v in every])
def test_a_value_of_another_type_is_named_with_what_it_must_be(name: str, value: Any) -> None:
    entry = {name: value}
    if value is None and name == "of":
        assert hints_from({"m": entry}, tree_of(TREE))["m"] == SlotHint()  # as if it were left out
        return
    with pytest.raises(PlanError, match="'m' that cannot be understood") as refused:
        survey(tree_of(TREE), slots={"m": entry})
    (problem,) = refused.value.problems
    assert problem.why.startswith(f"`{name}` is {value!r}, and must be ")
    assert not any(word in problem.why for word in ("Expected", "int |", "$."))


def test_every_field_has_its_words() -> None:
    with pytest.raises(PlanError) as refused:
        survey(tree_of(TREE), slots={"m": {"pover": -1}})
    (problem,) = refused.value.problems
    assert problem.why == "it has no field 'pover'"
    fields = [field.name for field in msgspec.structs.fields(SlotHint)]
    assert problem.fix == f"its fields are {', '.join(fields)}"
    assert set(WRONG) == set(fields)


@pytest.mark.parametrize("entry", [None, -1, "copy", [{"power": -1}]])
def test_an_entry_without_fields_is_refused(entry: Any) -> None:
    with pytest.raises(PlanError, match="and no fields with what they say"):
        survey(tree_of(TREE), slots={"m": entry})
