"""Keep: everything else goes, what is kept stays where it is."""

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.operations.keep import Keep
from tests.hand_built_trees import COUNT, B, W, adam, origins, printed, resolved

DENSE = {"Dense_0": {"kernel": W, "bias": B}, "Dense_1": {"kernel": W, "bias": B}}


def test_params_alone_are_kept_at_their_paths():
    draft = resolved(adam(DENSE), Keep(at="params"))
    assert origins(draft) == {
        ("params", "Dense_0", "kernel"): "params/Dense_0/kernel",
        ("params", "Dense_0", "bias"): "params/Dense_0/bias",
        ("params", "Dense_1", "kernel"): "params/Dense_1/kernel",
        ("params", "Dense_1", "bias"): "params/Dense_1/bias",
    }
    assert draft.slots == {}
    assert draft.changed == []


def test_twins_are_kept_only_where_they_are_named():
    draft = resolved(adam({"a": W, "b": B}), Keep(at=("params", "opt_state/0/mu/a")))
    assert printed(draft) == ["params/a", "params/b", "opt_state/0/mu/a"]
    assert [str(path) for path in draft.slots] == ["opt_state/0/mu/a"]


def test_params_and_their_twins_may_be_named_together():
    assert len(resolved(adam(DENSE), Keep(at="**/kernel")).leaves) == 6


def test_empty_leaves_below_a_kept_node_are_kept():
    draft = resolved({"a": {"x": None, "y": {}}, "b": W}, Keep(at="a"))
    assert printed(draft) == ["a/x", "a/y"]


def test_exceptions_go():
    draft = resolved({"params": DENSE}, Keep(at="params", except_="params/Dense_1"))
    assert printed(draft) == ["params/Dense_0/kernel", "params/Dense_0/bias"]


def test_containers_without_leaves_vanish():
    draft = resolved({"params": DENSE, "x": {"y": {"z": W}}}, Keep(at="params/Dense_0/bias"))
    assert printed(draft) == ["params/Dense_0/bias"]


def test_the_head_of_a_list_may_be_kept():
    draft = resolved(adam({"a": W}), Keep(at=("params", "opt_state/0")))
    assert ("opt_state", 0, "count") in draft.leaves
    assert ("opt_state", 1) not in draft.leaves


@pytest.mark.parametrize(
    ("tree", "at", "said"),
    [
        (
            {"layers": [W, B, COUNT]},
            "layers/[02]",
            "the list 'layers' would keep only the indices 0, 2",
        ),
        (adam({"a": W}), "opt_state/1", "the list 'opt_state' would keep only index 1"),
        ({"a": W}, "b", "'b' matches nothing"),
    ],
)
def test_holes_and_missing_names_are_refused(tree, at, said):
    with pytest.raises(PlanError, match=r"would keep only|matches nothing") as caught:
        resolved(tree, Keep(at=at))
    assert said in str(caught.value)


def test_keeping_nothing_is_refused_even_where_nothing_may_match():
    with pytest.raises(PlanError, match="nothing would be left"):
        resolved({"a": W}, Keep(at="b", optional=True))
