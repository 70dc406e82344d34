"""Finding a model's variables in trees of every usual form, from metadata alone."""

import pytest

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.binding import bind
from surgery_cli.probing.model.calls import Expected
from surgery_cli.probing.model.misfits import Misfit
from surgery_cli.tree.specs import LeafKind, LeafSpec
from tests.hand_built_trees import HandBuilt, adam, array

LAYERS = {"dense": {"kernel": array(4, 3), "bias": array(3)}}
WANTED = {
    "params": {
        ("dense", "kernel"): Expected((4, 3), "float32"),
        ("dense", "bias"): Expected((3,), "float32"),
    }
}
BOXED = {"dense": {name: {"value": leaf} for name, leaf in LAYERS["dense"].items()}}
HALF = {"dense": {"kernel": array(4, 3, dtype="bfloat16"), "bias": array(3, dtype="bfloat16")}}


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        (LAYERS, ""),
        ({"params": LAYERS}, "params"),
        ({"params": {"params": LAYERS}}, "params/params"),
        (adam(LAYERS), "params"),
        ({"ema_params": LAYERS, "params": LAYERS}, "params"),
        ({"target": LAYERS, "state": {"param_states": LAYERS}}, "target"),
        ({"state": adam(LAYERS), "metrics": {"loss": array()}}, "state/params"),
        ({"params": BOXED}, "params"),
        ({"params": HALF}, "params"),
        ({"teacher": {"dense": {"kernel": array(4, 4), "bias": array(3)}}, "net": LAYERS}, "net"),
        ({"net": LAYERS, "larger": {**LAYERS, "more": LAYERS["dense"]}}, "net"),
    ],
)  # fmt: skip
def test_params_are_found_wherever_they_stand(tree, place):
    found = bind(HandBuilt(tree).tree, WANTED, {})

    assert str(found.places["params"]) == place
    leaves = {str(leaf).removesuffix("/value") for leaf in found.leaves.values()}
    assert leaves == {f"{place}/dense/kernel".lstrip("/"), f"{place}/dense/bias".lstrip("/")}


def test_each_collection_is_found_on_its_own_and_the_nearest_of_equals_is_taken():
    wanted = {**WANTED, "batch_stats": {("norm", "mean"): Expected((3,), "float32")}}
    stats = {"norm": {"mean": array(3)}}
    tree = {"a": {"params": LAYERS, "batch_stats": stats}, "b": {"batch_stats": stats}}

    found = bind(HandBuilt(tree).tree, wanted, {})

    assert {n: str(p) for n, p in found.places.items()} == {
        "params": "a/params", "batch_stats": "a/batch_stats",
    }  # fmt: skip
    named = bind(HandBuilt(tree).tree, wanted, {"batch_stats": "b/batch_stats"})
    assert str(named.places["batch_stats"]) == "b/batch_stats"


def test_a_collection_that_is_nowhere_is_a_finding():
    wanted = {**WANTED, "batch_stats": {("norm", "mean"): Expected((3,), "float32")}}

    with pytest.raises(Misfit, match="nothing of the model's collection 'batch_stats'"):
        bind(HandBuilt({"params": LAYERS}).tree, wanted, {})
    with pytest.raises(SurgeryError, match="has no collection 'batch_stats'"):
        bind(HandBuilt({"params": LAYERS}).tree, WANTED, {"batch_stats": "params"})


def test_random_state_may_be_missing_and_a_key_is_not_taken_for_numbers():
    key = LeafSpec(kind=LeafKind.KEY, shape=(2,), dtype="uint32", key_impl="threefry2x32")
    wanted = {**WANTED, "RngKey": {("rngs", "key"): Expected((), "key<threefry2x32>", True)}}

    with_key = bind(HandBuilt({**LAYERS, "rngs": {"key": key}}).tree, wanted, {})
    without = bind(HandBuilt(LAYERS).tree, wanted, {})
    number = bind(HandBuilt({**LAYERS, "rngs": {"key": array(dtype="uint32")}}).tree, wanted, {})

    assert ("RngKey", ("rngs", "key")) in with_key.leaves
    assert without.made == number.made == [("RngKey", ("rngs", "key"))]


def test_leaves_that_the_model_does_not_ask_for_are_told():
    tree = HandBuilt({"params": {**LAYERS, "head": {"kernel": array(3, 2)}}, "step": array()}).tree

    assert [str(p) for p in bind(tree, WANTED, {}).unused] == ["params/head/kernel"]
    assert bind(tree, WANTED, {}, is_part=True).unused == []


def test_a_single_layer_is_found_among_many_that_could_be_it():
    tree = HandBuilt({"params": {f"layer_{n}": LAYERS["dense"] for n in range(50)}}).tree
    wanted = {"params": {("kernel",): Expected((4, 3), "float32"),
                         ("bias",): Expected((3,), "float32")}}  # fmt: skip

    with pytest.raises(SurgeryError, match="several places equally well"):
        bind(tree, wanted, {})
    assert (
        str(bind(tree, wanted, {"params": "params/layer_7"}).places["params"]) == "params/layer_7"
    )


def test_dtypes_are_those_of_the_checkpoint():
    tree = HandBuilt({"params": HALF}).tree

    stored = bind(tree, WANTED, {}).as_stored(WANTED, tree)

    assert {e.dtype for e in stored["params"].values()} == {"bfloat16"}
