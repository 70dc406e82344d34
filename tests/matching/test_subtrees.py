"""Subtrees that stand elsewhere are paired by structure, near their place, with how sure and why; or not at all."""

import pytest

from surgery_cli.matching.pairing import paired
from surgery_cli.matching.structures import sort_of
from surgery_cli.matching.subtrees import moved_subtrees
from surgery_cli.script.contract import leaf_breach
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec


def leaf(*shape, dtype="float32"):
    return LeafSpec(kind=LeafKind.ARRAY, shape=shape, dtype=dtype)


NONE = LeafSpec(kind=LeafKind.EMPTY, empty="None")


def flat(node, path=()):
    items = enumerate(node) if isinstance(node, list) else node.items()
    for key, child in items:
        if isinstance(child, LeafSpec):
            yield LeafPath((*path, key)), child
        else:
            yield from flat(child, (*path, key))


def tree(node):
    return TreeSpec(flat(node))


def dense(width=4, out=None):
    return {"kernel": leaf(width, out or width), "bias": leaf(out or width)}


def moved(old, new, former=()):
    return {str(one.old): str(one.new) for one in moved_subtrees(tree(old), tree(new), former)}


ADAM = {"count": leaf(dtype="int32"), "mu": dense(), "nu": dense()}

MOVES = {
    "a renamed layer": ({"p": {"a": dense()}}, {"p": {"b": dense()}}, {"p/a": "p/b"}),
    "a renamed leaf": ({"p": {"a": leaf(3)}}, {"p": {"b": leaf(3)}}, {"p/a": "p/b"}),
    "a layer of its size": (
        {"p": {"a": dense(4), "b": dense(5)}},
        {"p": {"x": dense(5), "y": dense(4)}},
        {"p/a": "p/y", "p/b": "p/x"},
    ),
    "a model in a module": (
        {"p": {"a": dense(), "b": dense()}},
        {"p": {"m": {"a": dense(), "b": dense()}}},
        {"p": "p/m"},
    ),
    "parts in a module, others beside": (
        {"p": {"a": dense(), "b": dense(), "c": dense()}},
        {"p": {"m": {"a": dense(), "b": dense()}, "c": dense()}},
        {"p/a": "p/m/a", "p/b": "p/m/b"},
    ),
    "parts out of a module": (
        {"p": {"m": {"a": dense(), "b": dense()}, "c": dense()}},
        {"p": {"a": dense(), "b": dense(), "c": dense()}},
        {"p/m/a": "p/a", "p/m/b": "p/b"},
    ),
    "a chain around a chain": (
        {"o": [ADAM, NONE, NONE]},
        {"o": [NONE, [ADAM, NONE, NONE]]},
        {"o": "o/1"},
    ),
    "another order of a chain": (
        {"o": [ADAM, NONE, NONE]},
        {"o": [NONE, ADAM, NONE]},
        {"o/0": "o/1"},
    ),
    "a list in place of names": (
        {"p": {f"l_{n}": dense() for n in range(3)}},
        {"p": {"l": [dense() for _ in range(3)]}},
        {f"p/l_{n}": f"p/l/{n}" for n in range(3)},
    ),
    "series of two numbers": (
        {"p": {f"s{i}": {f"b{j}": dense() for j in range(2)} for i in range(2)}},
        {"p": {f"s{i}": {f"c{j}": dense() for j in range(2)} for i in range(2)}},
        {f"p/s{i}/b{j}": f"p/s{i}/c{j}" for i in range(2) for j in range(2)},
    ),
    "of an encoder and a decoder each its own": (
        {"e": {"a": dense()}, "d": {"a": dense()}},
        {"e": {"b": dense()}, "d": {"b": dense()}},
        {"e/a": "e/b", "d/a": "d/b"},
    ),
    "a leaf that is empty goes with its node": (
        {"p": {"a": {"w": leaf(3, 4), "none": NONE}}},
        {"p": {"b": {"w": leaf(3, 4), "none": NONE}}},
        {"p/a": "p/b"},
    ),
    "a leaf without elements, too": (
        {"p": {"a": {"w": leaf(3, 4), "z": leaf(0, 4)}}},
        {"p": {"b": {"w": leaf(3, 4), "z": leaf(0, 4)}}},
        {"p/a": "p/b"},
    ),
    "another dtype": ({"p": {"a": leaf(3, 4)}}, {"p": {"b": leaf(3, 4, dtype="bfloat16")}}, {"p/a": "p/b"}),
}  # fmt: skip


@pytest.mark.parametrize("case", MOVES)
def test_what_stands_elsewhere_is_found_whole(case):
    old, new, expected = MOVES[case]
    assert moved(old, new) == expected


STAYS = {
    "two layers that could be either": (
        {"p": {"a": dense(), "b": dense()}},
        {"p": {"x": dense(), "y": dense()}},
    ),
    "one that could be two": ({"p": {"a": dense()}}, {"p": {"x": dense(), "y": dense()}}),
    "a node with the same content at two children": (
        {"p": {"w": leaf(3, 4), "b": leaf(3)}},
        {"p": {c: {"w": leaf(3, 4), "b": leaf(3)} for c in "xy"}},
    ),
    "the ends of a series": (
        {"p": {f"l_{n}": dense() for n in range(3)}},
        {"p": {f"l_{n}": dense() for n in range(1, 4)}},
    ),
    "a momentum and an average of params": (
        {"params": dense(), "opt": [{"trace": dense()}]},
        {"params": dense(), "ema": dense(), "opt": [NONE]},
    ),
    "the bias of a head of another width": (
        {"p": {"a": {"kernel": leaf(8, 4), "bias": leaf(4)}}},
        {"p": {"b": {"kernel": leaf(9, 4), "bias": leaf(4)}}},
    ),
    "counts of two transforms": (
        {"o": [{"count": leaf(dtype="int32")}, NONE, {"m": leaf(3)}]},
        {"o": [{"m2": leaf(4)}, {"count": leaf(dtype="int32")}, {"m": leaf(3)}]},
    ),
    "a square weight that may be turned": (
        {"p": {"a": {"weight": leaf(4, 4)}}},
        {"p": {"a": {"kernel": leaf(4, 4)}}},
    ),
    "what is there": ({"p": {"a": dense()}}, {"p": {"a": dense()}}),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_could_be_two_things_or_another_is_not_guessed(case):
    assert moved(*STAYS[case]) == {}


def test_what_is_the_only_one_of_its_structure_is_sure_where_names_do_not_speak_against_it():
    old = {"p": {"a": dense(4), "b": dense(5), "c": dense(6)}, "q": {"c": dense(6)}}
    new = {"p": {"m": {"a": dense(4)}, "x": dense(5), "y": dense(6)}, "q": {"c": dense(6)}}
    found = {str(one.old): (one.certainty, one.why) for one in moved_subtrees(tree(old), tree(new))}
    assert found == {
        "p/a": ("likely", "all parts of the node have their names and structures there"),
        "p/b": ("likely", "no other on either side has its structure (2 leaves)"),
        "p/c": ("likely", "the only one left of its structure (2 leaves) below 'p'"),
    }
    (one,) = moved_subtrees(tree({"p": {"a": dense(4)}}), tree({"p": {"m": {"a": dense(4)}}}))
    assert (str(one.old), one.certainty) == ("p", "sure")


def test_the_record_tells_equal_layers_apart_and_is_sure():
    old, new = {"p": {"x": dense(), "y": dense()}}, {"p": {"a": dense(), "b": dense()}}
    names = {f"p/{now}/{name}": f"p/{was}/{name}" for now, was in ("xb", "ya") for name in dense()}
    assert moved(old, new, [names]) == {"p/x": "p/b", "p/y": "p/a"}
    assert {one.certainty for one in moved_subtrees(tree(old), tree(new), [names])} == {"sure"}


def test_a_name_that_a_library_had_once_is_known():
    fields = {"best_loss": leaf(), "cooldown_counter": leaf(dtype="int32"), "count": leaf()}
    today = {"best_value": leaf(), "cooldown_count": leaf(dtype="int32"), "count": leaf()}
    assert moved({"opt_state": [NONE, fields]}, {"opt_state": [NONE, today]}) == {
        "opt_state/1/best_loss": "opt_state/1/best_value",
        "opt_state/1/cooldown_counter": "opt_state/1/cooldown_count",
    }
    layers = {"a": dense(), "b": dense()}
    flax_optim = {"optimizer": {"target": {"params": layers}, "state": {"step": leaf()}}}
    found = moved_subtrees(tree(flax_optim), tree({"params": layers, "step": leaf()}))
    assert {str(one.new) for one in found} >= {"params/a/kernel", "params/b/bias"}
    assert all("flax.optim" in one.why for one in found if str(one.new).startswith("params"))


def test_pairs_of_moved_subtrees_hold_every_leaf_of_them_and_say_why():
    old = {"p": {"a": {**dense(), "none": NONE}, "b": leaf(7)}}
    new = {"p": {"x": {**dense(), "none": NONE}, "b": leaf(7)}}
    pairs = {str(pair.old): pair for pair in paired(tree(old), tree(new)).pairs}
    for name in ("kernel", "bias", "none"):
        pair = pairs[f"p/a/{name}"]
        assert (str(pair.new), pair.certainty) == (f"p/x/{name}", "likely")
        assert pair.why
    assert "p/b" not in {str(p.old) for p in paired(tree(old), tree(new), in_place=True).pairs}


SPECS = [
    leaf(3),
    leaf(3, dtype="int32"),
    leaf(1, 3),
    leaf(),
    leaf(0),
    LeafSpec(kind=LeafKind.NUMPY, shape=(3,), dtype="float32"),
    LeafSpec(kind=LeafKind.SCALAR, dtype="int64"),
    LeafSpec(kind=LeafKind.STRING),
    LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="fry"),
    LeafSpec(kind=LeafKind.KEY, shape=(4,), dtype="uint32", key_impl="rbg"),
    LeafSpec(kind=LeafKind.EMPTY, empty="None"),
    LeafSpec(kind=LeafKind.EMPTY, empty="Dict"),
    LeafSpec(kind=LeafKind.NO_TARGET, dtype="numpy.float32"),
]


def test_leaves_are_alike_exactly_where_a_restore_takes_one_for_the_other_dtypes_aside():
    for one in SPECS:
        for other in SPECS:
            if one.kind is LeafKind.NO_TARGET:  # of a script's tree alone
                continue
            breach = leaf_breach(LeafPath(("x",)), one, other)
            is_taken = breach is None or breach.what == "dtype"
            assert (sort_of(one) == sort_of(other)) == is_taken, (one, other)
