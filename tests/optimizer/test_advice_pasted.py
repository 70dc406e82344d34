"""Whatever is advised on optimizer state, pasted as it stands, is right by optax or refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from surgery_cli.errors import PlanError
from surgery_cli.operations.reinit import Reinit
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reset_optimizer import ResetOptimizer
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.tree.specs import TreeSpec
from tests.optimizer.optax_registry import OPTIMIZERS, train_state
from tests.optimizer.test_survey import EXPECTED, expected_leaves

EDITS = [
    Rescale(at="params/Dense_0/kernel", by=0.5),
    Rescale(at="params/Dense_0/kernel", by=0.5, optimizer="transform"),
    Rescale(at="params/Dense_0/kernel", by=0.5, optimizer="reset"),
    Reinit(at="params/Dense_0/kernel", init="zeros", optimizer="reset"),
    ResetOptimizer(),
]
PASTED = re.compile(r"`--optimizer-kind ([^`]+)`|`optimizer_kind: ([^`]+)`|`slots: (\{[^`]+\})`")


class Stored:
    fingerprint = "stored"

    def __init__(self, tree: TreeSpec) -> None:
        self.tree = tree


def texts(tree: TreeSpec, **words: Any) -> Iterator[str]:
    """Everything that is said of the state: by the survey, and by edits in notes and refusals."""
    found = survey(tree, **words)
    yield from (fix for unsure in found.unsure for fix in unsure.fixes)
    yield from (problem.fix or "" for problem in found.questions)
    yield from (way for slot in found.slots.values() for way in slot.settled_by)
    for edit in EDITS:
        try:
            plan = plan_of([edit], optimizer_kind=words.get("kind"))
            yield from resolve(plan, Stored(tree), pytest.fail, surveyed=found).notes
        except PlanError as error:
            yield from (problem.fix or "" for problem in error.problems)


def pasted(text: str) -> Iterator[dict[str, Any]]:
    """The words that a text advises, as the survey takes them."""
    for kind, in_plan, slots in PASTED.findall(text):
        if slots:
            yield {"slots": yaml.safe_load(slots)}
        else:
            yield {"kind": yaml.safe_load(in_plan) if in_plan else kind}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_advised_line_is_right_or_refused(name: str) -> None:
    tree = train_state(name)
    expected = expected_leaves(name, tree) if name in EXPECTED else {}
    seen: list[dict[str, Any]] = []
    for text in dict.fromkeys(texts(tree)):
        seen += [word for word in pasted(text) if word not in seen]
    for word in seen:
        try:
            slots = survey(tree, **word).slots
        except PlanError:
            continue
        for path, slot in slots.items():
            if slot.power is not None and slot.relation != "hole":
                _, facts = expected[str(path)]
                assert (slot.power, slot.is_even) == (facts["power"], facts["even"]), word


@pytest.mark.parametrize("name", ["adam", "adopt", "rmsprop_momentum", "ema_after_adam", "galore"])
def test_there_is_something_to_paste(name: str) -> None:
    advised = [word for text in texts(train_state(name)) for word in pasted(text)]
    assert advised
    for word in advised:
        with pytest.raises(PlanError):
            survey(train_state(name), **word)
