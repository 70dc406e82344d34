"""Counters of a script's own optimizer: `slots:` says what its slots are, and nothing which counter is theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.planning.reading import plan_from_document

COUNTERS = {
    "at the top": ("", {"t": np.int32(5000)}, "t"),
    "in the state": ("opt_state/", {"t": np.int32(5000)}, "opt_state/t"),
    "under the usual name": ("opt_state/", {"count": np.int32(5000)}, "opt_state/count"),
    "in a node of its own": ("adam/", {"step": np.int64(5000)}, "adam/step"),
    "of an ensemble": ("adam/", {"t": np.full(3, 5000, np.int32)}, "adam/t"),
    "a level up": ("adam/moments/", {}, "adam/t"),
}
EVERY = pytest.mark.parametrize(("prefix", "beside", "counter"), COUNTERS.values(), ids=COUNTERS)
PARAMS = {"a": {"k": np.linspace(-1, 1, 24, dtype=np.float32).reshape(6, 4)}}


def squared(scale: float) -> Any:
    return {"a": {"k": PARAMS["a"]["k"] ** 2 * np.float32(scale) + np.float32(1e-4)}}


def state(prefix: str, beside: Mapping[str, Any]) -> dict[str, Any]:
    moments = {"m": {"a": {"k": PARAMS["a"]["k"] * np.float32(0.01)}}, "v": squared(1e-4)}
    tree: dict[str, Any] = {"params": PARAMS, "rng": np.uint32([1, 2]), "epoch": np.float32(3)}
    if prefix == "adam/moments/":
        return tree | {"adam": {"moments": moments, "t": np.int32(5000)}}
    held = {**moments, **beside}
    return tree | ({prefix.strip("/"): held} if prefix else held)


def told(prefix: str, **squares: Any) -> dict[str, Any]:
    return {
        f"{prefix}m": {"power": -1, "fresh": 0},
        f"{prefix}v": {"power": -2, "even": True, "fresh": 0, **squares},
    }


@pytest.fixture
def donor(tmp_path: Path) -> Path:
    return save(tmp_path / "donor", {"params": {"a": {"k": PARAMS["a"]["k"] + 1}}})


def save(path: Path, tree: Any) -> Path:
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def applied(source: Path, document: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    goal = source.with_name("b")
    report = surgery.apply(str(source), str(goal), plan_from_document(dict(document)))
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(goal)
    return tree, [str(note) for note in report.notes]


def leaf(tree: Any, path: str) -> Any:
    for key in path.split("/"):
        tree = tree[key]
    return np.asarray(tree)


@EVERY
def test_clocks_that_nothing_states_are_not_restarted_and_the_remedy_does_it(
    tmp_path: Path, prefix: str, beside: Mapping[str, Any], counter: str
) -> None:
    source = save(tmp_path / "a", state(prefix, beside))
    plan = {"slots": told(prefix), "edits": [{"op": "reset-optimizer", "clocks": True}]}
    with pytest.raises(PlanError, match=f"nothing states whether '{counter}' counts") as caught:
        applied(source, plan)
    fix = str(caught.value.problems[0].fix)
    assert "take `clocks: true` out" in fix
    is_one = leaf(state(prefix, beside), counter).size == 1
    assert ("`set` with `to: 0`" if is_one else "`replace` with `with: 0`") in fix
    by = {"op": "set", "to": 0} if is_one else {"op": "replace", "with": 0}
    both = [{"op": "reset-optimizer"}, {**by, "at": counter}]
    for edits in (both, both[::-1]):
        tree, notes = applied(source, {**plan, "edits": edits})
        for path in (f"{prefix}m/a/k", f"{prefix}v/a/k", counter):
            assert not leaf(tree, path).any()
        assert not any("nothing states" in note for note in notes)
        (tmp_path / "b").rename(tmp_path / f"b{len(list(tmp_path.iterdir()))}")


def restarting_edits(donor: Path) -> dict[str, dict[str, Any]]:
    with_, at = {"with": str(donor)}, {"at": "params/a/k"}
    return {
        "reset-optimizer": {"op": "reset-optimizer"},
        "reset-optimizer of some": {"op": "reset-optimizer", "at": "params/a"},
        "rescale": {"op": "rescale", **at, "by": 2, "optimizer": "reset"},
        "reinit": {"op": "reinit", **at, "init": "lecun_normal", "optimizer": "reset"},
        "replace": {"op": "replace", **at, **with_},
        "replace by a number": {"op": "replace", **at, "with": 0.5},
        "interpolate": {"op": "interpolate", **at, **with_, "t": 0.5},
        "average": {"op": "average", **at, "with": [str(donor)]},
    }


@EVERY
@pytest.mark.parametrize("edit", restarting_edits(Path()))
def test_squares_that_restart_beside_a_counter_that_nothing_states_are_announced(
    tmp_path: Path, donor: Path, prefix: str, beside: Mapping[str, Any], counter: str, edit: str
) -> None:
    """Also where a power alone was said, under which `warm` gives squares no mean."""
    source = save(tmp_path / "a", state(prefix, beside))
    plan = {"slots": told(prefix), "edits": [restarting_edits(donor)[edit]]}
    tree, notes = applied(source, plan)
    assert not leaf(tree, f"{prefix}v/a/k").any()
    np.testing.assert_array_equal(leaf(tree, counter), leaf(state(prefix, beside), counter))
    (note,) = [one for one in notes if "nothing states" in one]
    assert f"1 slot restarts ('{prefix}v'), and '{counter}' is left as it is" in note
    assert "rng" not in note
    is_by_edit = not edit.startswith("reset-optimizer")
    assert (f"`second_moment: true` for '{prefix}v'" in note) == is_by_edit


@EVERY
@pytest.mark.parametrize("edit", ["replace", "replace by a number", "interpolate", "average"])
def test_what_the_note_offers_keeps_them_at_their_size(
    tmp_path: Path, donor: Path, prefix: str, beside: Mapping[str, Any], counter: str, edit: str
) -> None:
    source = save(tmp_path / "a", state(prefix, beside))
    slots = told(prefix, second_moment=True)
    tree, notes = applied(source, {"slots": slots, "edits": [restarting_edits(donor)[edit]]})
    old = squared(1e-4)["a"]["k"]
    assert leaf(tree, f"{prefix}v/a/k").mean() == pytest.approx(old.mean(), rel=1e-6)
    assert not any("nothing states" in note for note in notes)


@pytest.mark.parametrize("first_goes_on", [False, True])
def test_the_steps_are_several_times_too_large_as_it_says(first_goes_on: bool) -> None:
    """Adam by hand, as a script has it: squares of 0 under a count of 5,000."""
    draws = np.random.default_rng(0)
    m, v, largest = 0.0, 0.0, 0.0
    if first_goes_on:
        m = float(np.sqrt(0.1 / 1.9))
    for count in range(5001, 5101):
        gradient = draws.normal()
        m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        step = m / (1 - 0.9**count) / np.sqrt(v / (1 - 0.999**count))
        largest = max(largest, abs(step))
    assert largest > 3


def test_first_moments_that_restart_alone_are_not_announced(tmp_path: Path) -> None:
    source = save(tmp_path / "a", state("adam/", {"t": np.int32(5000)}))
    edit = {"op": "reset-optimizer", "at": "adam/m"}
    _, notes = applied(source, {"slots": told("adam/"), "edits": [edit]})
    assert not any("nothing states" in note for note in notes)


def test_the_step_of_a_train_state_is_none_of_optax_s_counters(tmp_path: Path) -> None:
    """A transform of the script's own stands behind Adam: the chain counts where it needs to."""
    tree = {"params": PARAMS, "step": np.int32(5000)}
    adam, own = optax.adam(1e-3).init(PARAMS), {"seen": squared(1e-4)}
    source = save(tmp_path / "a", tree | {"opt_state": [*adam, own]})
    slots = {"opt_state/2/seen": {"power": -2, "even": True, "fresh": 0}}
    edit = {"op": "reset-optimizer", "clocks": True}
    restored, notes = applied(source, {"slots": slots, "edits": [edit]})
    assert not restored["opt_state"][2]["seen"]["a"]["k"].any()
    assert restored["opt_state"][0]["count"] == 0
    assert restored["step"] == 5000
    assert not any("nothing states" in note for note in notes)
