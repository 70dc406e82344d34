"""Every rule over leaves that hold no values: it says what it can of them, or is broken; none is green unseen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import policy_of_value
from surgery_cli.rules.table import RULES

NO_VALUES = "what 'none' names has no values: it is None"
SWEEP: dict[str, tuple[dict[str, Any], str]] = {
    "exists": ({"exists": True}, ""),
    "count": ({"count": 0}, ""),  # it counts leaves with values
    "alike": ({"alike": True}, ""),
    "consecutive": ({"consecutive": True}, ""),
    "shape": ({"shape": []}, NO_VALUES),
    "dtype": ({"dtype": "float32"}, NO_VALUES),
    "finite": ({"finite": True}, NO_VALUES),
    "norm": ({"norm": "0.."}, NO_VALUES),
    "absmax": ({"absmax": "0.."}, NO_VALUES),
    "std": ({"std": "0.."}, NO_VALUES),
    "zeros": ({"zeros": "0.."}, NO_VALUES),
    "equal_to": ({"equal_to": "params/w"}, "it is None, the other float32[2]"),
    "equal_in": ({"equal_in": "{twin}", "from": "params/w"}, "it is None, the other float32[2]"),
    "unchanged": ({"unchanged": True}, ""),
    "same_structure_as": ({"same_structure_as": "{twin}"}, ""),
    "optimizer_mirrors_params": (
        {"optimizer_mirrors_params": True},
        "there is no optimizer state that mirrors any params",
    ),
    "digests_of": ({"digests_of": "{manifest}"}, ""),
}
"""What each rule must say of a leaf that is None: '' where it holds."""

TREE = {
    "params": {"w": np.ones(2, np.float32)},
    "none": None,
    "none_0": None,
    "none_1": None,
    "mixed": {"a": None, "b": np.ones(2, np.float32)},
    "counts": np.arange(3),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint, its twin, and one that has an array where these have None."""
    path = tmp_path_factory.mktemp("empty")
    with ocp.PyTreeCheckpointer() as checkpointer:
        for name in ("source", "twin"):
            checkpointer.save(path / name, TREE)
        checkpointer.save(path / "full", TREE | {"none": np.zeros(2, np.float32)})
    for name in ("source", "full"):
        found = surgery.inspect(str(path / name), digests=True).to_dict()
        (path / f"{name}.json").write_text(json.dumps(found))
    return path


def verdict(place: Path, **rule: Any) -> tuple[bool, str]:
    """Whether a policy of one rule holds, and all that is found."""
    here = {"twin": place / "twin", "manifest": place / "source.json", "full": place / "full"}
    given = {
        key: one.format(**here) if isinstance(one, str) and one.startswith("{") else one
        for key, one in rule.items()
    }
    found = surgery.check(str(place / "source"), policy_of_value([given]))
    return found.holds, " ".join(f"{p.what}: {p.why}" for p in found.rules[0].findings)


def test_the_sweep_knows_every_rule() -> None:
    assert [kind.__struct_fields__[0] for kind in RULES] == [*SWEEP]


@pytest.mark.parametrize("name", [name for name in SWEEP if name != "unchanged"])
def test_over_a_leaf_that_is_none_a_rule_says_what_it_means(place: Path, name: str) -> None:
    rule, broken = SWEEP[name]
    at = (
        "none_*" if name in ("alike", "consecutive") else "none"
    )  # what these say is of several nodes
    holds, said = verdict(place, at=at, **rule)
    assert (holds, broken in said) == (not broken, True), said
    if broken == NO_VALUES:
        # one pattern of several is enough, leaves beside one that is empty are judged, and what may be absent may be
        assert not verdict(place, at=["params", "none"], **rule)[0]
        good = {"dtype": "float32", "shape": [2]}
        beside = {key: good.get(key, one) for key, one in rule.items()}
        assert verdict(place, at="mixed", **beside) == (True, "")
        assert verdict(place, at="none", optional=True, **rule) == (True, "")


def test_what_is_empty_on_one_side_alone_is_not_equal(place: Path) -> None:
    for where in ({"at": "none"}, {}):
        assert verdict(place, equal_in="{twin}", **where) == (True, "")
        holds, said = verdict(place, equal_in="{full}", **where)
        assert (holds, "it is None, the other float32[2]" in said) == (False, True)


def test_unchanged_holds_of_what_was_empty_before(place: Path, tmp_path: Path) -> None:
    from surgery_cli.planning import plan_from_document

    edits = [
        {"op": "rescale", "at": "params", "by": 2},
        {"op": "rename", "at": "none", "to": "nothing"},
        {"op": "assert", "at": ["nothing", "mixed"], "unchanged": True},
    ]
    report = surgery.apply(
        str(place / "source"), str(tmp_path / "new"), plan_from_document({"edits": edits})
    )
    assert [(check.holds, check.leaves) for check in report.checks] == [(True, 3)]


def test_a_measure_without_patterns_that_meets_no_floats_is_broken(place: Path) -> None:
    for rule in ("norm", "absmax", "std", "zeros"):
        holds, said = verdict(place, where_dtype="int*", **{rule: "0.."})
        assert (holds, "no leaf holds floats" in said) == (False, True), said
        assert verdict(place, at="counts", **{rule: "0.."})[0]
