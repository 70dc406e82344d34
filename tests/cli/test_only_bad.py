"""`inspect --only bad`: the leaves whose values something is wrong with, as NumPy sees them, and nothing else."""

from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from optax import contrib

from surgery_cli.words.ills import ILLS
from tests.cli.conftest import SAMPLES

DOCS = Path(__file__).parents[2] / "docs"

WRONG = {
    "nan": (np.array([[1, np.nan], [np.nan, 2]], np.float32), ["2 NaN"]),
    "infinite": (np.array([1, -np.inf, 3], np.float32), ["1 infinity"]),
    "both": (np.array([np.inf, np.nan, 3], np.float32), ["1 NaN", "1 infinity"]),
    "all": (np.full(3, np.nan, np.float32), ["3 NaN"]),
    "dead": (np.zeros((4, 4), np.float32), ["dead: all zeros"]),
    "exploded": (np.array([[1, 2e4, 3]], np.float32), ["exploded"]),
    "saturated": (np.full((4, 16), -127, np.int8), ["saturated"]),
}
GOOD = {
    "normal": np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32),
    "one": np.zeros(1, np.float32),
    "counts": np.zeros(4, np.int32),
    "bias": np.zeros(8, np.float32),
    "wavelengths": np.float32(1e4) ** np.linspace(0, 1, 8, dtype=np.float32),
}


@pytest.fixture(scope="module")
def sick(tmp_path_factory):
    """Params of which most are bad, and the fresh state of an optimizer, whose best loss is infinite."""
    params = {name: leaf for name, (leaf, _) in WRONG.items()} | GOOD
    transform = optax.chain(optax.adam(1e-3), contrib.reduce_on_plateau(patience=3))
    state = transform.init(
        {name: leaf for name, leaf in params.items() if leaf.dtype == np.float32}
    )
    path = tmp_path_factory.mktemp("sick") / "tree"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": params, "opt_state": state})
    assert any(np.isinf(leaf).any() for leaf in jax.tree.leaves(state) if np.size(leaf) == 1)
    return path


def test_what_is_bad_is_named_with_why_and_nothing_else_is(surgery, sick):
    result = surgery("inspect", sick, "--only", "bad", "--json")
    found = {row["path"]: row["bad"] for row in result.document["leaves"]}
    assert found == {f"params/{name}": said for name, (_, said) in WRONG.items()}
    assert result.code == 1
    text = surgery("inspect", sick, "--only", "bad")
    assert (text.code, "bad: 7 of " in text.out, "exploded" in text.out) == (1, True, True)


def largest(dtype):
    """By ml_dtypes and NumPy; of int8 and int4 the largest on both sides."""
    if np.dtype(dtype).kind in "iu" or "int" in np.dtype(dtype).name:
        return int(ml_dtypes.iinfo(dtype).max)
    return float(ml_dtypes.finfo(dtype).max)


NARROW = [
    ml_dtypes.float8_e4m3fn,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3fnuz,
    ml_dtypes.float8_e5m2fnuz,
    ml_dtypes.float8_e4m3b11fnuz,
    ml_dtypes.bfloat16,
    ml_dtypes.int4,
    np.int8,
    np.float16,
    np.float32,
]


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """Of each dtype a leaf at its ends, one of which a quarter is there, one with less, and one alike on both sides."""
    tree = {}
    for dtype in NARROW:
        end, name = largest(dtype), np.dtype(dtype).name
        rest = np.resize([0, 1, -1, 2, 0.5], 64)
        for kind, count in {"all": 64, "quarter": 16, "fewer": 15}.items():
            values = np.where(np.arange(64) < count, end, rest)
            values[1:count:2] *= -1
            tree[f"{kind}_{name}"] = values.astype(dtype).reshape(8, 8)
        tree[f"same_{name}"] = np.full((2, 3), end).astype(dtype)
    tree["least_int8"] = np.full(4, -128, np.int8)
    tree["wide_int"] = np.full((2, 2), 127, np.int32)
    tree["unsigned"] = np.full((2, 2), 255, np.uint8)
    path = tmp_path_factory.mktemp("narrow") / "tree"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, {"params": tree})
    return path, tree


def test_what_is_as_large_as_its_dtype_holds_is_saturated(surgery, narrow):
    path, tree = narrow
    found = surgery("inspect", path, "--stats", "--json").document
    said = {row["path"].removeprefix("params/"): row.get("bad", []) for row in found["leaves"]}
    for name in tree:
        kind, _, dtype = name.partition("_")
        want = ["saturated"] if kind in ("all", "quarter", "same", "least") else []
        if kind == "fewer" and dtype in (
            "float16",
            "bfloat16",
            "float32",
            "float8_e5m2",
            "float8_e5m2fnuz",
        ):
            want = ["exploded"]
        assert said[name] == want, name
    counts = {row["path"].removeprefix("params/"): row["statistics"] for row in found["leaves"]}
    assert [counts[f"{kind}_int8"]["at_largest"] for kind in ("all", "fewer")] == [64, 15]


def test_blocks_of_numbers_under_a_scale_of_their_own_are_not_saturated(surgery, tmp_path):
    """As int8 and int4 are made of weights: the largest of each block is 127, or 7."""
    weights = np.random.default_rng(1).normal(size=(64, 8, 8))
    tree = {}
    for dtype, end in ((np.int8, 127), (ml_dtypes.int4, 7)):
        scaled = weights / np.abs(weights).max(-1, keepdims=True) * end
        tree[np.dtype(dtype).name] = np.round(scaled).astype(dtype)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", {"params": tree})
    assert surgery("inspect", tmp_path / "tree", "--only", "bad").code == 0


def test_what_starts_at_zero_beside_params_is_not_dead(surgery, tmp_path):
    """Caches, running means and the state of an optimizer; of a kernel it is said."""
    params = {"dense": {"kernel": np.ones((4, 4), np.float32), "bias": np.zeros(4, np.float32)}}
    tree = {
        "params": params,
        "opt_state": optax.adam(1e-3).init(params),
        "batch_stats": {"norm": {"mean": np.zeros(4, np.float32), "var": np.full(4, 2e4)}},
        "cache": {"keys": np.zeros((2, 4, 4), np.float32)},
    }
    for name, kernel in {"good": np.ones((4, 4)), "bad": np.zeros((4, 4))}.items():
        params["dense"]["kernel"] = kernel.astype(np.float32)
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / name, tree)
    assert surgery("inspect", tmp_path / "good", "--only", "bad").code == 0
    (row,) = surgery("inspect", tmp_path / "bad", "--only", "bad", "--json").document["leaves"]
    assert (row["path"], row["bad"]) == ("params/dense/kernel", ["dead: all zeros"])


def test_the_help_and_the_page_say_each_word_with_its_threshold(surgery):
    table = "".join(f"| {ill.name} | {ill.meaning} |\n" for ill in ILLS)
    assert table in (DOCS / "checks.md").read_text()
    said = " ".join(surgery("inspect", "--help").out.replace("│", " ").split())
    for ill in ILLS:
        assert ill.name in said


def test_patterns_say_of_which_leaves(surgery, sick):
    result = surgery("inspect", sick, "params/normal", "params/nan", "--only", "bad")
    assert (result.code, "bad: 1 of 2 leaves" in result.out) == (1, True)
    result = surgery("inspect", sick, "params/normal", "opt_state", "--only", "bad")
    assert (result.code, "nothing is bad: " in result.out) == (0, True)


def test_an_optimizer_that_is_not_finite_is_bad(surgery, tmp_path):
    params = {"w": np.ones(4, np.float32)}
    state = optax.adam(1e-3).init(params)
    state[0].mu["w"] = state[0].mu["w"].at[1].set(np.inf)
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "tree", {"params": params, "opt_state": state})
    result = surgery("inspect", tmp_path / "tree", "--only", "bad", "--json")
    assert [row["path"] for row in result.document["leaves"]] == ["opt_state/0/mu/w"]


def test_infinities_with_which_an_optimizer_starts_are_said_and_others_are_bad(surgery, tmp_path):
    params = {"w": jnp.ones(4)}
    inject = optax.inject_hyperparams(optax.adam)(learning_rate=float("inf"))
    transforms = {
        "search": (optax.lbfgs(), {"value", "decrease_error", "curvature_error"}, set()),
        "plateau": (contrib.reduce_on_plateau(), {"best_value"}, set()),
        "rate": (inject, set(), {"learning_rate"}),
        "estimate": (contrib.prodigy(estim_lr0=np.inf), set(), {"estim_lr"}),
    }
    for name, (transform, good, bad) in transforms.items():
        state = transform.init(params)
        infinite = {
            getattr(keys[-1], "name", getattr(keys[-1], "key", ""))
            for keys, leaf in jax.tree_util.tree_leaves_with_path(state)
            if np.isinf(leaf).any()
        }
        assert infinite == good | bad
        source, junit = tmp_path / name, tmp_path / f"{name}.xml"
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(source, {"params": params, "opt_state": state})
        looked = surgery("inspect", source, "--only", "bad", "--json")
        found = {row["path"].rpartition("/")[2] for row in looked.document["leaves"]}
        assert (found, looked.code) == (bad, bool(bad))
        policy = tmp_path / "policy.yaml"
        for at in ("**", *(row["path"] for row in looked.document["leaves"])):
            policy.write_text(f"- {{id: a, at: '{at}', finite: true}}\n")
            checked = surgery("check", source, policy, "--json", "--output", f"junit={junit}")
            assert checked.code == bool(bad), (name, at)
        assert surgery("assert", source, "--finite").code == bool(bad)
        (rule,) = checked.document["rules"]
        through = {
            leaf.rpartition("/")[2] for one in rule.get("apart", []) for leaf in one["leaves"]
        }
        assert through == good
        if good:
            said = "as the optimizer starts with it, which is let through"
            assert said in junit.read_text()
            assert said in " ".join(map(str, looked.document["notes"]))
            assert said in " ".join(surgery("check", source, policy).out.split())
            assert said in " ".join(surgery("assert", source, "--finite").out.split())


def test_a_checkpoint_that_was_trained_has_nothing_bad(surgery):
    result = surgery("inspect", SAMPLES / "digits_standard", "--only", "bad")
    assert (result.code, "nothing is bad: 28 leaves looked at" in result.out) == (0, True)
