"""Numbers at the ends of what a float64 holds, and beyond, in every field that takes one: an answer, never a bug."""

from __future__ import annotations

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.fields import fields_of
from tests.operations.value_edits import drafted_example

ODD = (-1, 0, -0.0, 1e308, -1e308, 5e-324, 2.0**63, 65520.0, 10**400, 2**64)
LEAF = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


MOST_BYTES = 1 << 20
"""Larger results are drafted, not computed: a run would refuse what memory or the disk cannot hold."""


def number_fields(kind: type[Operation]) -> list[str]:
    """The fields of its own that take numbers."""
    own = (field for field in fields_of(kind) if not field.is_common)
    return [field.name for field in own if "number" in field.type_text]


CASES = [(name, field) for name, kind in operations().items() for field in number_fields(kind)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("name", "field"), CASES)
def test_every_number_gets_an_answer(name: str, field: str) -> None:
    assert {code_of(operations()[name], field, number) for number in ODD} <= {0, 1, 2}


def code_of(kind: type[Operation], field: str, number: float) -> int:
    """The exit code of the operation's example with that number in a field."""
    try:
        draft, sources = drafted_example(kind, LEAF, **{field: number})
        for output in draft.leaves.values():
            recipe = output.recipe
            if not output.is_by_reference and 0 < recipe.spec.bytes < MOST_BYTES:
                evaluation = Evaluation(recipe, sources, HostKit(), recipe.spec.shape)
                with np.errstate(all="ignore"):  # as in a run
                    evaluation.block(tuple(slice(0, n) for n in recipe.spec.shape))
    except SurgeryError as refused:
        return refused.exit_code
    return 0
