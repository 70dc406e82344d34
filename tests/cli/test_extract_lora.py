"""A LoRA of what a fine-tune has learnt: held against NumPy's decomposition, and merged again."""

import jax
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

RANK = 3
SHAPES = {
    "flax": (24, 16),
    "peft": (16, 24),
    "peft-transposed": (24, 16),
    "e r, r h d -> e h d": (12, 4, 5),
    "(h d) r, r e -> h d e": (4, 5, 12),
    "l i r, l r o -> l i o": (2, 12, 9),
    "r i l, l o r -> i l o": (12, 2, 9),
}
AS_MATRICES = {
    "e r, r h d -> e h d": lambda d: d.reshape(1, 12, 20),
    "(h d) r, r e -> h d e": lambda d: d.reshape(1, 20, 12),
    "l i r, l r o -> l i o": lambda d: d,
    "r i l, l o r -> i l o": lambda d: np.moveaxis(d, 1, 0),
}
WORDS = ["params/*/kernel", "--a", r"params/\1/lora_a", "--b", r"params/\1/lora_b"]


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def restored(path):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def models(tmp_path, shape, dtype="float32", *, noise=0.05):
    """A base and its fine-tune, which has learnt something of low rank, and some noise."""
    draw = np.random.default_rng(len(shape))
    base = draw.normal(size=shape).astype(dtype)
    low = 0.3 * draw.normal(size=(shape[0], RANK)) @ draw.normal(size=(RANK, np.prod(shape[1:])))
    tuned = (base + low.reshape(shape) + noise * draw.normal(size=shape)).astype(dtype)
    save(tmp_path / "base", {"params": {"x": {"kernel": base}}})
    save(tmp_path / "tuned", {"params": {"x": {"kernel": tuned}}})
    return base, tuned


def extracted(surgery, tmp_path, layout, *words, rank=RANK):
    settings = ["--layout", layout, "--rank", str(rank), "--with", tmp_path / "tuned", *words]
    return surgery("extract-lora", tmp_path / "base", tmp_path / "new", *WORDS, *settings, "--json")


def least_error(difference, rank):
    """What the best product of this rank leaves out."""
    values = np.linalg.svd(difference, compute_uv=False)
    return np.sqrt((values[..., rank:] ** 2).sum() / (values**2).sum())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", SHAPES)
def test_nothing_of_its_rank_is_nearer_and_the_error_is_reported(surgery, tmp_path, layout):
    base, tuned = models(tmp_path, SHAPES[layout])
    learnt = tuned.astype("f8") - base
    wanted = least_error(AS_MATRICES.get(layout, lambda d: d[None])(learnt), RANK)

    result = extracted(surgery, tmp_path, layout)

    assert result.code == 0, result.err
    (check,) = result.document["checks"]
    assert check["of_each"]["params/x/kernel"] == pytest.approx(wanted, rel=1e-5)
    found = restored(tmp_path / "new")["params"]["x"]
    np.testing.assert_array_equal(found["kernel"], base)
    words = [*WORDS, "--layout", layout, "--scale", "1"]
    assert surgery("merge-lora", tmp_path / "new", tmp_path / "back", *words).code == 0
    back = restored(tmp_path / "back")["params"]["x"]
    assert back.keys() == {"kernel"}
    left = np.linalg.norm(tuned - back["kernel"].astype("f8")) / np.linalg.norm(learnt)
    assert left == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("split", ["even", "a", "b"])
def test_factors_are_orthogonal_and_signs_are_settled(surgery, tmp_path, split):
    base, tuned = models(tmp_path, (24, 16), "float64")
    values = np.linalg.svd(tuned - base, compute_uv=False)[:RANK] / 4

    result = extracted(surgery, tmp_path, "flax", "--split", split, "--scale", "4")

    assert result.code == 0, result.err
    found = restored(tmp_path / "new")["params"]["x"]
    a, b = found["lora_a"], found["lora_b"].T
    shares = {"even": (1, 1), "a": (2, 0), "b": (0, 2)}[split]
    for factor, share in zip((a, b), shares, strict=True):
        np.testing.assert_allclose(factor.T @ factor, np.diag(values**share), atol=1e-12)
    assert (a[abs(a).argmax(axis=0), range(RANK)] > 0).all()


@pytest.mark.parametrize("layout", ["flax", "l i r, l r o -> l i o"])
@pytest.mark.parametrize("error", [0.5, 0.2, 0.05])
def test_the_least_rank_for_an_error_is_found_in_the_preview(surgery, tmp_path, layout, error):
    base, tuned = models(tmp_path, SHAPES[layout])
    learnt = AS_MATRICES.get(layout, lambda d: d[None])(tuned.astype("f8") - base)
    least = next(r for r in range(1, 20) if least_error(learnt, r) <= error)
    words = ["--layout", layout, "--error", str(error), "--with", tmp_path / "tuned", "--json"]
    command = ["extract-lora", tmp_path / "base", tmp_path / "new", *WORDS, *words]

    preview = surgery(*command, "--dry-run").document
    result = surgery(*command)

    assert result.code == 0, result.err
    assert preview["draft"] == result.document["draft"]
    assert any(f"the least rank for that error is {least}" in note for note in preview["notes"])
    assert any("values tell what shapes" in note for note in preview["notes"])
    assert preview["bytes_read"] >= 2 * (base.nbytes + tuned.nbytes)
    (check,) = result.document["checks"]
    assert check["most"] <= error
    a = restored(tmp_path / "new")["params"]["x"]["lora_a"]
    assert a.shape[-1] == least


def test_what_is_of_low_rank_comes_back_whole(surgery, tmp_path):
    base, tuned = models(tmp_path, (40, 7), noise=0.0)

    result = extracted(surgery, tmp_path, "flax")

    (check,) = result.document["checks"]
    assert check["most"] < 1e-6
    found = restored(tmp_path / "new")["params"]["x"]
    np.testing.assert_allclose(base + found["lora_a"] @ found["lora_b"], tuned, atol=3e-6)


def test_a_fine_tune_that_has_learnt_nothing_has_an_empty_lora(surgery, tmp_path):
    base, _ = models(tmp_path, (8, 6))
    save(tmp_path / "same", {"params": {"x": {"kernel": base}}})

    result = extracted(surgery, tmp_path, "flax", "--with", tmp_path / "same")

    assert result.code == 0, result.err
    assert result.document["checks"][0]["most"] == 0
    assert not restored(tmp_path / "new")["params"]["x"]["lora_a"].any()


def test_narrow_factors_are_measured_as_they_are_written(surgery, tmp_path):
    base, tuned = models(tmp_path, (24, 16), "float32", noise=0.0)

    result = extracted(surgery, tmp_path, "flax", "--dtype", "bfloat16")

    assert result.code == 0, result.err
    found = restored(tmp_path / "new")["params"]["x"]
    a, b = (np.asarray(found[f"lora_{name}"]) for name in "ab")
    assert a.dtype == b.dtype == ml_dtypes.bfloat16
    learnt = tuned.astype("f8") - base
    left = np.linalg.norm(learnt - a.astype("f8") @ b.astype("f8")) / np.linalg.norm(learnt)
    (check,) = result.document["checks"]
    assert 1e-4 < check["most"] == pytest.approx(left, rel=1e-9)


def test_new_params_have_the_slots_with_which_their_optimizer_starts(surgery, tmp_path):
    base, _ = models(tmp_path, (8, 6))
    params = {"x": {"kernel": base}}
    tx = optax.adam(0.1)
    _, state = tx.update(params, tx.init(params), params)
    (tmp_path / "base").rename(tmp_path / "other")
    save(tmp_path / "base", {"params": params, "opt_state": state})

    result = extracted(surgery, tmp_path, "flax")

    assert result.code == 0, result.err
    with ocp.StandardCheckpointer() as checkpointer:
        shapes = {"kernel": (8, 6), "lora_a": (8, RANK), "lora_b": (RANK, 6)}
        new = {"x": {name: np.zeros(shape, "f4") for name, shape in shapes.items()}}
        target = {"params": new, "opt_state": tx.init(new)}
        found = checkpointer.restore(tmp_path / "new", jax.eval_shape(lambda: target))
    adam = found["opt_state"][0]
    assert adam.count == 1
    np.testing.assert_array_equal(adam.mu["x"]["kernel"], state[0].mu["x"]["kernel"])
    assert not np.any(adam.nu["x"]["lora_a"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--error", "0.1"], "both say what the rank is"),
        (["--rank", "9"], "has no rank 9: as a matrix it is 8 by 6"),
        (["--scale", "0"], "`--scale` is 0"),
        (["--layout", "embed r, r heads dim -> embed heads dim"], "has not the 3 axes"),
        (["--a", "params/a"], "goes there, too"),
        (["--b", r"params/\1/kernel"], "something stands there already"),
        (["--from", "params/y/kernel"], "has no leaf 'params/y/kernel'"),
        (["--optimizer", "keep"], "takes no `--optimizer`"),
        (["--dtype", "int8"], "int8"),
    ],
)
def test_what_cannot_be_is_refused_before_a_value_is_read(surgery, tmp_path, words, said):
    base, _ = models(tmp_path, (8, 6))
    (tmp_path / "base").rename(tmp_path / "one")
    both = {"x": {"kernel": base}, "y": {"kernel": base}}
    save(tmp_path / "base", {"params": both if "--a" in words else {"x": both["x"]}})
    if "--a" in words:
        (tmp_path / "tuned").rename(tmp_path / "other")
        save(tmp_path / "tuned", {"params": both})

    result = extracted(surgery, tmp_path, "flax", *words, "--dry-run")

    assert result.code == 2
    assert said in "\n".join(
        f"{p['what']} {p.get('why', '')} {p.get('fix', '')}" for p in result.document["problems"]
    )


def test_an_error_below_what_rounding_leaves_out_is_refused(surgery, tmp_path):
    models(tmp_path, (8, 6))
    words = ["--layout", "flax", "--error", "0.005", "--dtype", "bfloat16", "--json"]

    result = surgery(
        "extract-lora", tmp_path / "base", tmp_path / "new", *WORDS, "--with", tmp_path / "tuned", *words
    )  # fmt: skip

    assert result.code == 2
    assert "less than what rounding leaves out" in result.document["problems"][0]["what"]


def test_values_that_are_not_finite_are_refused(surgery, tmp_path):
    _, tuned = models(tmp_path, (8, 6))
    (tmp_path / "tuned").rename(tmp_path / "other")
    tuned[0, 0] = np.nan
    save(tmp_path / "tuned", {"params": {"x": {"kernel": tuned}}})

    result = extracted(surgery, tmp_path, "flax")

    assert result.code == 1
    assert "cannot be approximated" in result.document["problems"][0]["what"]
    assert not (tmp_path / "new").exists()


def test_options_of_other_commands_are_answered_with_what_says_the_same(surgery, tmp_path):
    words = [tmp_path, tmp_path / "new", "x", "--with", tmp_path, "--a", "x", "--b", "y"]
    result = surgery("extract-lora", *words, "--layout", "flax", "--alpha", "8")
    assert result.code == 2
    assert "`--scale` says by what A·B will be multiplied: it is alpha / rank" in result.err
    result = surgery("merge-lora", *words, "--layout", "flax", "--to", "safetensors")
    assert result.code == 2
    assert "`surgery export SRC DST --plan PLAN --to safetensors`" in result.err
