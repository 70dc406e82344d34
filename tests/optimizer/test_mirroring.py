"""What mirrored its param before an edit mirrors it after, in place and in shape, whatever the edit is."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import PlanError
from surgery_cli.operations.assertion import Assert
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.delete import Delete
from surgery_cli.operations.insert_item import InsertItem
from surgery_cli.operations.keep import Keep
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.rescale import Rescale
from surgery_cli.optimizer.follow.mirroring import mirrors
from surgery_cli.optimizer.knowledge.factories import FACTORIES
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from tests.fixture_truths import FIXTURES, finished
from tests.hand_built_trees import COUNT, B, HandBuilt, W, adam, array, printed, resolved
from tests.optimizer.optax_registry import OPTIMIZERS, params_for, train_state, tree_of
from tests.oracle.optimizers import SURROUNDINGS, drawn


class Source(HandBuilt):
    """A tree as a source."""

    def __init__(self, tree: TreeSpec) -> None:
        super().__init__({})
        self.tree = tree


class Turn(Operation, tag="turn"):
    """Exchange the axes of matrices: another shape, and nothing said of the optimizer."""

    def selectable(self, spec: LeafSpec) -> bool:
        return spec.kind is not LeafKind.EMPTY

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        turned: dict[LeafPath, Output] = {}
        for path in scene.select(self, draft):
            spec = draft.leaves[path].spec
            turned[path] = draft.leaves[path].with_spec(
                msgspec.structs.replace(spec, shape=spec.shape[::-1])
            )
        return draft.with_leaves(turned)


class Lose(Operation, tag="lose"):
    """Take leaves out by hand, and nothing else."""

    def selectable(self, spec: LeafSpec) -> bool:
        return True

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        lost = scene.select(self, draft)
        return draft.replaced(leaves={p: out for p, out in draft.leaves.items() if p not in lost})


def refusal(structure: Any, *edits: Operation, **plan: Any) -> str:
    with pytest.raises(PlanError) as caught:
        resolved(structure, *edits, **plan)
    return "\n".join(f"{p.what}: {p.why}; {p.fix}" for p in caught.value.problems)


def held(source: Any, *edits: Operation) -> int:
    """How many slots there are after the edits, all of which mirror their params."""
    draft = resolved(source, *edits)
    assert [str(slot.path) for slot in draft.slots.values() if not mirrors(slot, draft)] == []
    return len(draft.slots)


ASKED = {"galore", "flatten_adam"}
"""States of which only the user can say what they belong to, before anything moves."""


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - ASKED))
def test_every_state_of_optax_mirrors_its_params_as_it_is_and_moved_as_a_whole(name: str) -> None:
    source = Source(train_state(name))
    nothing = Rename(at="no such leaf", to="x", optional=True)
    assert held(source, nothing) == held(source, Rename(at="*", to=r"state/\1"))


@pytest.mark.parametrize("name", FACTORIES)
def test_so_does_that_of_every_factory_in_some_surrounding(name: str) -> None:
    surrounding = SURROUNDINGS[sorted(FACTORIES).index(name) % len(SURROUNDINGS)]
    optimizer = drawn(name, surrounding, 1.0, np.random.default_rng(0))
    params = params_for(name)
    tree = tree_of({"params": params, "opt_state": optimizer.transformation.init(params)})
    assert held(Source(tree), Rename(at="*", to=r"state/\1")) > 0


@pytest.mark.parametrize("name", finished())
def test_every_checkpoint_mirrors_as_it_is_and_moved_as_a_whole(name: str) -> None:
    source = Source(open_checkpoint(str(FIXTURES / name)).tree)
    held(source, Rename(at="no such leaf", to="x", optional=True))
    if all(len(path) > 0 and path not in source.tree.nodes for path in source.tree):
        held(source, Rename(at="re:(.*)", to=r"state/\1"))


def test_an_operation_that_changes_shapes_and_forgets_the_twins_is_refused_with_both_sides() -> (
    None
):
    said = refusal(adam({"a": W, "b": B}), Turn(at="params/a"))
    assert "'opt_state/0/mu/a' would not mirror its param 'params/a'" in said
    assert "it would be float32[4,3], its param float32[3,4]" in said
    assert "`twins: named`" in said
    assert "'params/b'" not in said


def test_one_that_turns_param_and_twins_alike_is_not() -> None:
    assert held(adam({"a": W, "b": B}), Turn(at=("params", "opt_state"), twins="named")) == 4


def test_a_twin_that_is_turned_as_named_is_noted_and_does_not_stand_in_the_way_of_later_edits() -> (
    None
):
    turn = Turn(at="params/a", twins="named")
    draft = resolved(adam({"a": W, "b": B}), turn, Rename(at="params/a", to="params/c"))
    (note,) = [note for note in draft.notes if "no longer mirrors" in note]
    assert "'opt_state/0/mu/a' no longer mirrors" in note
    assert "and so with 1 other field of the state" in note
    assert "opt_state/0/mu/c" in printed(draft)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("params/a", "'opt_state/0/mu/a' cannot stay while its param 'params/a' goes"),
        ("opt_state/0/mu/a", "'opt_state/0/mu/a' cannot go while its param 'params/a' stays"),
    ],
)
def test_a_leaf_that_goes_without_its_other_side_is_refused(at: str, said: str) -> None:
    assert said in refusal(adam({"a": W, "b": B}), Lose(at=at))


def test_all_params_or_a_whole_field_may_go() -> None:
    assert held(adam({"a": W, "b": B}), Delete(at="opt_state/0/mu")) == 2
    assert "params/a" not in printed(resolved(adam({"a": W, "b": B}), Keep(at="opt_state")))


def test_a_state_that_is_kept_for_params_that_are_not_is_noted() -> None:
    draft = resolved(adam({"a": W, "b": B}), Keep(at=("params/a", "opt_state")))
    assert any("'opt_state/0/mu/b' no longer mirrors" in note for note in draft.notes)


@pytest.mark.parametrize(
    "edit",
    [
        Rename(at="more/w", to="params/w"),
        Copy(at="more/w", to="params/w"),
        InsertItem(at="params/w", with_="donor", from_="more"),
    ],
    ids=lambda edit: edit.name,
)
def test_a_param_that_the_optimizer_would_have_nothing_for_is_refused(edit: Operation) -> None:
    tree = {**adam({"a": W, "b": B}), "more": {"w": W}}
    said = refusal(tree, edit, open_source=lambda address: HandBuilt(tree))
    assert "'params/w' would be new in 'params'" in said
    assert "'opt_state/0/mu' in the optimizer state would have nothing for it" in said
    named = msgspec.structs.replace(edit, twins="named")
    draft = resolved(tree, named, open_source=lambda address: HandBuilt(tree))
    assert any(text.startswith("params/w") for text in printed(draft))


def test_a_state_of_a_part_of_the_params_stays_one() -> None:
    """As of LoRA: what is frozen has no twins, and more of it may come."""
    lora = {"a": W, "b": B}
    tree = {
        "params": {**lora, "frozen": W},
        "opt_state": [{"count": COUNT, "mu": lora, "nu": lora}],
        "more": W,
    }
    assert held(tree, Rename(at="more", to="params/frozen_too")) == 4
    assert held(tree, Rename(at="params", to="model")) == 4


def test_whatever_comes_among_params_would_have_a_twin() -> None:
    tree = {**adam({"a": W}), "step_of": array(dtype="int32"), "none": None}
    assert "'params/x' would be new" in refusal(tree, Rename(at="step_of", to="params/x"))
    assert "'params/x' would be new" in refusal(tree, Rename(at="none", to="params/x"))
    assert held(adam({"a": {"b": W}, "c": W}), Delete(at="params/a/*")) == 2


def test_a_copy_beside_the_optimizer_may_have_other_leaves() -> None:
    tree = {**adam({"a": W, "b": B}), "ema": {"a": W, "b": B}}
    held(tree, Delete(at="ema/b"))


def test_a_leaf_that_comes_into_a_state_is_refused() -> None:
    said = refusal({**adam({"a": W}), "more": W}, Rename(at="more", to="opt_state/0/mu/x"))
    assert "'opt_state/0/mu/x' would be new in 'opt_state/0/mu', and no param stands there" in said


@pytest.mark.parametrize(
    ("moves", "what"),
    [
        (
            {"params": "opt_state/0/nu/c"},
            "nothing would tell any more which params 'opt_state/0/nu'",
        ),
        ({"opt_state/0/nu/a": "opt_state/0/nu/a/b"}, "'opt_state/0/nu/a' cannot become"),
        (
            {"opt_state/0/mu/a": "opt_state/0/nu/a", "opt_state/0/nu/a": "opt_state/0/mu/a"},
            "'opt_state/0/mu/a' cannot become 'opt_state/0/nu/a': its param is 'params/a'",
        ),
    ],
)
def test_a_state_of_which_nothing_would_tell_what_it_is_is_refused_or_noted(
    moves: dict[str, str], what: str
) -> None:
    tree = adam({"a": W, "b": B})
    assert what in refusal(tree, Rename(moves=moves))
    looks = Assert(at="opt_state", exists=True)
    assert what in refusal(tree, looks, Rename(moves=moves), looks)
    notes = resolved(tree, Rename(moves=moves, twins="named")).notes
    assert any("nothing would tell" in note or "no longer mirrors" in note for note in notes)


def test_who_names_slots_as_they_are_answers_for_no_other_edit() -> None:
    tree = {**adam({"a": W, "b": B}), "more": W}
    rebuilds = Rename(moves={"params": "opt_state/0/nu/c"})
    what = "nothing would tell any more which params 'opt_state/0/nu'"
    others: list[Operation] = [Delete(at="more", twins="named"), Keep(at=("params", "opt_state"))]
    for other in others:
        assert what in refusal(tree, rebuilds, msgspec.structs.replace(other, optional=True))
    assert what in refusal(tree, others[0], rebuilds)
    later = [rebuilds, Rescale(at="opt_state/0/nu/c", by=2.0, optimizer="transform")]
    assert refusal(tree, others[0], *later) == refusal(tree, *later)
    meant = msgspec.structs.replace(rebuilds, twins="named")
    for other in (others[0], Rename(at="opt_state", to="state"), Rename(at="more", to="x")):
        notes = resolved(tree, meant, other).notes
        assert any("nothing would tell any more" in note for note in notes), other


def test_what_keep_leaves_of_a_state_is_noted() -> None:
    draft = resolved(adam({"a": W, "b": B}), Keep(at=("params/a", "opt_state/0/mu")))
    assert any("nothing would tell any more" in note and "`slots:`" in note for note in draft.notes)


def test_one_half_of_a_complex_moment_cannot_go_alone() -> None:
    source = Source(train_state("complex_adam"))
    said = refusal(source, Delete(at="opt_state/inner_state/0/nu/c/real"))
    assert "'opt_state/inner_state/0/nu/c/real' cannot go while its param 'params/c' stays" in said
