"""LoRA into kernels, from the shell: held against PEFT, flax's own models and Orbax's restore."""

import json
import shutil
from pathlib import Path

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from flax import nnx
from flax.training.train_state import TrainState
from safetensors.numpy import load_file, save_file

FIXTURES = Path(__file__).parents[1] / "fixtures" / "peft"
ADAPTERS = ["lora", "rslora", "patterns", "second_layer", "conv1d"]
NAMES = ("layers.*.{up,down,mix}.weight", "base_model.model.layers.{}.{}.lora_{}.weight")


def peft_words(adapter, layout="peft"):
    a, b = (NAMES[1].format(r"\1", r"\2", part) for part in "AB")
    return ["--with", adapter, "--a", a, "--b", b, "--layout", layout]


def restored(path, target=None):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(path, target)


def save(path, tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, tree)
    return path


def run_net(weights, rows, *, turned):
    """The net of the fixtures, in NumPy."""

    def linear(name, x):
        kernel = weights[f"{name}.weight"].astype("f8")
        return x @ (kernel if turned else kernel.T) + weights[f"{name}.bias"]

    for n in range(2):
        up = np.tanh(linear(f"layers.{n}.up", rows))
        rows = linear(f"layers.{n}.mix", rows + linear(f"layers.{n}.down", up))
    return linear("head", rows)


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_comes_of_an_adapter_is_what_peft_makes_of_it(surgery, tmp_path, name):
    folder = FIXTURES / name
    layout = "peft-transposed" if name == "conv1d" else "peft"
    words = [*peft_words(folder / "adapter", layout), "--missing", "skip"]

    result = surgery("merge-lora", folder / "base.safetensors", tmp_path / "new", NAMES[0], *words)

    assert result.code == 0, result.err
    found, wanted = restored(tmp_path / "new"), load_file(folder / "merged.safetensors")
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, rtol=3e-7, atol=3e-7)
    with np.load(folder / "rows.npz") as batch:
        given = run_net(
            {k: np.asarray(v) for k, v in found.items()}, batch["rows"], turned=name == "conv1d"
        )
        np.testing.assert_allclose(given, batch["given"], rtol=1e-4, atol=1e-4)


def test_kernels_of_flax_take_an_adapter_turned_attention_heads_apart(surgery, tmp_path):
    base = load_file(FIXTURES / "lora" / "base.safetensors")
    wanted = load_file(FIXTURES / "lora" / "merged.safetensors")

    def flax(weights):
        return {
            "params": {
                f"layers_{n}": {
                    "up": {"kernel": weights[f"layers.{n}.up.weight"].T.reshape(12, 4, 5)},
                    "down": {"kernel": weights[f"layers.{n}.down.weight"].T.reshape(4, 5, 12)},
                    "mix": {"kernel": weights[f"layers.{n}.mix.weight"].T},
                }
                for n in range(2)
            }
        }

    save(tmp_path / "own", flax(base))
    words = peft_words(FIXTURES / "lora" / "adapter", "peft-transposed")

    result = surgery(
        "merge-lora", tmp_path / "own", tmp_path / "new", "params/layers_*/*/kernel", *words
    )

    assert result.code == 0, result.err
    jax.tree.map(
        lambda new, old: np.testing.assert_allclose(new, old, atol=3e-7),
        restored(tmp_path / "new"),
        flax(wanted),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_merged_is_taken_out_up_to_the_rounding_that_is_reported(surgery, tmp_path, dtype):
    folder = FIXTURES / "lora"
    words = ["layers.*.{up,down,mix}.weight", *peft_words(folder / "adapter")]
    assert surgery("cast", folder / "base.safetensors", tmp_path / "own", "--to", dtype).code == 0
    assert surgery("merge-lora", tmp_path / "own", tmp_path / "new", *words).code == 0

    result = surgery("unmerge-lora", tmp_path / "new", tmp_path / "back", *words, "--json")

    assert result.code == 0, result.err
    (check,) = result.document["checks"]
    assert (check["rule"], len(check["of_each"])) == ("rounding", 6)
    old, merged, new = (restored(tmp_path / name) for name in ("own", "new", "back"))
    for path, said in check["of_each"].items():
        was, now = (np.asarray(tree[path]).astype("f8") for tree in (old, new))
        lost = np.linalg.norm(now - was) / np.linalg.norm(now)
        assert 0 < lost <= said < (1e-6 if dtype == "float32" else 0.05)
        assert np.abs(np.asarray(merged[path]).astype("f8") - was).max() > 0.5
    assert check["least"] == min(check["of_each"].values())


@pytest.mark.parametrize(
    ("said", "what"),
    [
        ({"use_dora": True}, "`use_dora: True`"),
        ({"init_lora_weights": "pissa_niter_16"}, "`init_lora_weights: pissa_niter_16`"),
        ({"init_lora_weights": "olora"}, "`init_lora_weights: olora`"),
        ({"init_lora_weights": "loftq"}, "`init_lora_weights: loftq`"),
        ({"modules_to_save": ["head"]}, "`modules_to_save: head`"),
        ({"lora_bias": True}, "`lora_bias: True`"),
        ({"bias": "all"}, "`bias: all`"),
        ({"peft_type": "LOHA"}, "`peft_type: LOHA`"),
        ({"peft_type": "IA3"}, "`peft_type: IA3`"),
        ({"use_qalora": True}, "`use_qalora: True`"),
        ({"a_field_of_tomorrow": 3}, "`a_field_of_tomorrow: 3`"),
        ({"r": 8}, "has rank 4, and `adapter_config.json` says 8"),
        ({"rank_pattern": {"down": 2}}, "down.lora_A.weight' has rank 4"),
        ({"fan_in_fan_out": True}, "`fan_in_fan_out`"),
        ({"r": "four"}, "does not read"),
        ({"rank_pattern": {"(": 2}}, "does not read"),
        ({"alpha_pattern": {"a{99999999999}": 2}}, "does not read"),
    ],
)
def test_an_adapter_that_is_no_plain_lora_is_refused_by_name(surgery, tmp_path, said, what):
    adapter = tmp_path / "adapter"
    shutil.copytree(FIXTURES / "lora" / "adapter", adapter)
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | said))

    result = surgery(
        "merge-lora", FIXTURES / "lora/base.safetensors", tmp_path / "new", NAMES[0],
        *peft_words(adapter), "--dry-run",
    )  # fmt: skip

    assert result.code == 2
    assert what in result.err


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("layers.0.up.lora_magnitude_vector", "DoRA"),
        ("embed.lora_embedding_A", "embedding"),
        ("layers.0.up.hada_w1_a", "LoHa"),
        ("layers.0.up.lokr_w1", "LoKr"),
        ("layers.0.up.ia3_l", "IA³"),
        ("head.weight", "it is no A, and no B"),
    ],
)
def test_tensors_that_are_no_part_of_a_plain_lora_are_refused(surgery, tmp_path, name, why):
    shutil.copytree(FIXTURES / "lora" / "adapter", tmp_path / "adapter")
    file = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file(load_file(file) | {f"base_model.model.{name}": np.zeros(3, "f4")}, file)

    result = surgery(
        "merge-lora", FIXTURES / "lora/base.safetensors", tmp_path / "new", NAMES[0],
        *peft_words(tmp_path / "adapter"), "--dry-run",
    )  # fmt: skip

    assert result.code == 2
    assert f"base_model.model.{name}" in result.err
    assert why in result.err


@pytest.mark.parametrize("says", ["folder", "file beside it"])
@pytest.mark.parametrize(
    ("name", "words", "numbers"),
    [
        ("rslora", ["--alpha", "6"], ["`--alpha`", "by 1.5,", "by 3"]),
        ("rslora", ["--scale", "2"], ["`--scale`", "by 2,", "by 3"]),
        ("lora", ["--alpha", "6", "--rslora"], ["`--rslora`", "by 3,", "by 1.5"]),
    ],
)
def test_a_scale_other_than_the_adapters_own_is_refused(
    surgery, tmp_path, name, words, numbers, says
):
    adapter = FIXTURES / name / "adapter"
    named = adapter if says == "folder" else adapter / "adapter_model.safetensors"
    base = FIXTURES / name / "base.safetensors"

    result = surgery(
        "merge-lora", base, tmp_path / "new", NAMES[0], *peft_words(named), *words, "--dry-run"
    )

    assert result.code == 2
    for text in (*numbers, "`adapter_config.json`", "leave `--"):
        assert text in result.err


@pytest.mark.parametrize("words", [["--alpha", "6", "--rslora"], ["--scale", "3"]])
def test_a_scale_that_is_the_adapters_own_may_be_said(surgery, tmp_path, words):
    base, adapter = FIXTURES / "rslora" / "base.safetensors", FIXTURES / "rslora" / "adapter"

    result = surgery(
        "merge-lora", base, tmp_path / "new", NAMES[0], *peft_words(adapter), *words, "--dry-run"
    )

    assert result.code == 0, result.err
    assert "A·B is multiplied by 3 for 6 kernels" in result.out


def test_tensors_without_their_config_take_any_scale(surgery, tmp_path):
    shutil.copy(FIXTURES / "rslora" / "adapter" / "adapter_model.safetensors", tmp_path)
    base, alone = FIXTURES / "rslora" / "base.safetensors", tmp_path / "adapter_model.safetensors"

    result = surgery(
        "merge-lora", base, tmp_path / "new", NAMES[0], *peft_words(alone), "--alpha", "6",
        "--dry-run",
    )  # fmt: skip

    assert result.code == 0, result.err
    assert "A·B is multiplied by 1.5 for 6 kernels" in result.out


def test_an_alpha_that_is_stored_does_not_go_with_a_config(surgery, tmp_path):
    base, adapter = FIXTURES / "rslora" / "base.safetensors", FIXTURES / "rslora" / "adapter"

    result = surgery(
        "merge-lora", base, tmp_path / "new", NAMES[0], *peft_words(adapter),
        "--alpha", r"layers.\1.\2.alpha", "--dry-run",
    )  # fmt: skip

    assert result.code == 2
    assert "`--alpha` names a leaf, and `adapter_config.json` says" in result.err


# --- NNX ---------------------------------------------------------------------------------------------------------


class Plain(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(6, 8, rngs=rngs)
        self.second = nnx.Linear(8, 8, rngs=rngs)

    def __call__(self, x):
        return self.second(jnp.tanh(self.first(x)))


def beside(rngs):
    """With a LoRA in one layer, and around the other."""
    model = Plain(rngs)
    model.first = nnx.LoRALinear(6, 8, lora_rank=2, rngs=rngs)
    model.second = nnx.LoRA(8, 3, 8, base_module=model.second, rngs=rngs)
    return model


def trained(model, wrt):
    """The model after some steps, and its optimizer."""
    optimizer = nnx.Optimizer(model, optax.adam(0.05), wrt=wrt)
    rows = jax.random.normal(jax.random.key(1), (5, 6))

    @nnx.jit
    def step(model, optimizer):
        loss = nnx.grad(lambda m: jnp.sum(m(rows) ** 2), argnums=nnx.DiffState(0, wrt))
        optimizer.update(model, loss(model))

    for _ in range(3):
        step(model, optimizer)
    return optimizer, rows


def test_the_logits_of_an_nnx_model_stay_when_its_lora_is_merged(surgery, tmp_path):
    model = beside(nnx.Rngs(0))
    optimizer, rows = trained(model, nnx.LoRAParam)
    tree = {"model": nnx.state(model), "optimizer": nnx.state(optimizer)}
    save(tmp_path / "own", tree)

    for step, (source, kernel, at, to) in enumerate([
        ("own", "model/first/kernel", "model/first/lora", None),
        ("0", "model/second/base_module/kernel", "model/second", ("model/second/base_module", "model/second")),
    ]):  # fmt: skip
        parts = [word for part in "ab" for word in (f"--{part}", f"{at}/lora_{part}")]
        result = surgery(
            "merge-lora", tmp_path / source, tmp_path / str(step), kernel,
            *parts, "--layout", "flax", "--scale", "1",
        )  # fmt: skip
        assert result.code == 0, result.err
        assert "of the LoRA are merged and go" in result.out
        if to:
            result = surgery("rename", tmp_path / "1", tmp_path / "2", to[0], "--to", to[1])
            assert result.code == 0, result.err

    plain = Plain(nnx.Rngs(7))
    state = restored(tmp_path / "2", None)["model"]
    nnx.replace_by_pure_dict(target := nnx.state(plain), _values(state))
    nnx.update(plain, target)
    np.testing.assert_allclose(plain(rows), model(rows), rtol=1e-5, atol=1e-5)


def _values(tree):
    """The tree without the keys `value` that a state of variables has."""
    if not isinstance(tree, dict):
        return tree
    return (
        _values(tree["value"])
        if tree.keys() == {"value"}
        else {k: _values(v) for k, v in tree.items()}
    )


# --- linen, with the state of an optimizer ------------------------------------------------------------------------


class Dense(nn.Module):
    features: int
    rank: int = 0

    @nn.compact
    def __call__(self, x):
        kernel = self.param("kernel", nn.initializers.lecun_normal(), (x.shape[-1], self.features))
        y = x @ kernel
        if self.rank:
            shapes = (x.shape[-1], self.rank), (self.rank, self.features)
            a, b = (
                self.param(f"lora_{name}", nn.initializers.normal(0.3), shape)
                for name, shape in zip("ab", shapes, strict=True)
            )
            y = y + 8 / self.rank * (x @ a) @ b
        return y


class Net(nn.Module):
    rank: int = 0

    @nn.compact
    def __call__(self, x):
        return Dense(4, self.rank)(jnp.tanh(Dense(16, self.rank)(x)))


ROWS = np.random.default_rng(3).normal(size=(5, 8)).astype("f4")


def state_of(rank, tx):
    net = Net(rank)
    params = net.init(jax.random.key(0), ROWS)["params"]
    return TrainState.create(apply_fn=net.apply, params=params, tx=tx)


def steps(state, count=3):
    def loss(params):
        return jnp.mean((state.apply_fn({"params": params}, ROWS) - 1.0) ** 2)

    step = jax.jit(lambda state: state.apply_gradients(grads=jax.grad(loss)(state.params)))
    for _ in range(count):
        state = step(state)
    return state


SETTINGS = [
    "--a",
    r"params/\1/lora_a",
    "--b",
    r"params/\1/lora_b",
    "--layout",
    "flax",
    "--alpha",
    "8",
]


def test_a_model_without_its_lora_goes_on_training_with_its_moments(surgery, tmp_path):
    tx = optax.adamw(0.01)
    before = steps(state_of(3, tx))
    save(tmp_path / "own", before)

    result = surgery("merge-lora", tmp_path / "own", tmp_path / "new", "params/*/kernel", *SETTINGS)

    assert result.code == 0, result.err
    after = restored(tmp_path / "new", jax.eval_shape(lambda: state_of(0, tx)))
    after = state_of(0, tx).replace(step=after.step, params=after.params, opt_state=after.opt_state)
    given = [s.apply_fn({"params": s.params}, ROWS) for s in (before, after)]
    np.testing.assert_allclose(*given, rtol=1e-5, atol=1e-5)
    for name in ("Dense_0", "Dense_1"):
        for moment in ("mu", "nu"):
            np.testing.assert_array_equal(
                getattr(after.opt_state[0], moment)[name]["kernel"],
                getattr(before.opt_state[0], moment)[name]["kernel"],
            )
    assert after.opt_state[0].count == 3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(steps(after, 1).params))

    inverse = surgery("plan", tmp_path / "new", "--inverse")
    (tmp_path / "back.yaml").write_text(inverse.out)
    assert surgery("apply", tmp_path / "new", tmp_path / "back", tmp_path / "back.yaml").code == 0
    assert surgery("diff", tmp_path / "own", tmp_path / "back").code == 0


def test_what_was_trained_as_a_lora_alone_leaves_the_state_that_a_frozen_model_has(
    surgery, tmp_path
):
    def label(params):
        return jax.tree_util.tree_map_with_path(lambda path, _: path[-1].key[:4], params)

    tx = optax.multi_transform({"lora": optax.adam(0.01), "kern": optax.set_to_zero()}, label)
    before = steps(state_of(3, tx))
    save(tmp_path / "own", before)
    words = ["--a", r"\1/lora_a", "--b", r"\1/lora_b", "--layout", "flax", "--alpha", "8"]

    result = surgery("merge-lora", tmp_path / "own", tmp_path / "new", "**/kernel", *words)

    assert result.code == 0, result.err
    target = jax.eval_shape(lambda: state_of(0, tx))
    after = restored(tmp_path / "new", target)
    assert jax.tree.structure(after) == jax.tree.structure(target)
    given = [
        before.apply_fn({"params": before.params}, ROWS),
        Net().apply({"params": after.params}, ROWS),
    ]
    np.testing.assert_allclose(*given, rtol=1e-5, atol=1e-5)


def test_a_moving_average_takes_its_own_lora(surgery, tmp_path):
    state = steps(state_of(3, optax.adam(0.01)))
    ema = jax.tree.map(lambda x: 0.5 * x + 0.1, state.params)
    save(tmp_path / "own", {"params": state.params, "ema": ema, "opt_state": state.opt_state})

    result = surgery("merge-lora", tmp_path / "own", tmp_path / "new", "params/*/kernel", *SETTINGS)

    assert result.code == 0, result.err
    assert "stay as they are" not in result.out
    found = restored(tmp_path / "new")
    for tree, old in (("params", state.params), ("ema", ema)):
        for name, leaves in old.items():
            assert found[tree][name].keys() == {"kernel"}
            wide = {key: np.float64(leaf) for key, leaf in leaves.items()}
            wanted = wide["kernel"] + 8 / 3 * wide["lora_a"] @ wide["lora_b"]
            np.testing.assert_allclose(found[tree][name]["kernel"], wanted, rtol=2e-7)


def test_a_lora_that_is_kept_is_said_to_act_twice(surgery, tmp_path):
    save(tmp_path / "own", {"params": state_of(2, optax.sgd(0.1)).params})

    result = surgery(
        "merge-lora", tmp_path / "own", tmp_path / "new", "params/*/kernel", *SETTINGS, "--keep"
    )

    assert result.code == 0, result.err
    assert "a model with it adds it twice" in result.out
    assert restored(tmp_path / "new")["params"]["Dense_0"].keys() == {"kernel", "lora_a", "lora_b"}


def test_a_lora_that_is_in_the_kernels_already_is_noted(surgery, tmp_path):
    """In one plan, and in two runs, by the record; not once it was taken out again, and not of another LoRA."""
    folder = FIXTURES / "lora"
    words = [*peft_words(folder / "adapter"), "--missing", "skip"]

    def said(source, op="merge-lora", target=None, more=words):
        result = surgery(
            op,
            source,
            target or tmp_path / "DST",
            NAMES[0],
            *more,
            *([] if target else ["--dry-run"]),
        )
        assert result.code == 0, result.err
        return [line for line in (result.out + result.err).splitlines() if "is merged into" in line]

    once, out = tmp_path / "once", tmp_path / "out"
    assert not said(folder / "base.safetensors", target=once)
    (note,) = said(once)
    assert "by an earlier run, too, as the record says" in note
    assert "layers.{0,1}.down.weight" in note
    other = [*peft_words(FIXTURES / "patterns/adapter"), "--missing", "skip"]
    assert not said(once, more=other)
    assert not said(once, "unmerge-lora", target=out)
    assert not said(out)
    edit = {
        "op": "merge-lora", "at": NAMES[0], "with": str(folder / "adapter"), "layout": "peft", "missing": "skip",
        "a": words[3], "b": words[5],
    }  # fmt: skip
    plan = tmp_path / "twice.json"
    plan.write_text(json.dumps({"edits": [edit, edit]}))
    both = surgery("plan", folder / "base.safetensors", plan, "--json").document["notes"]
    assert [note for note in both if note.endswith("twice in this plan")]
    plan.write_text(json.dumps({"edits": [edit, {**edit, "op": "unmerge-lora"}, edit]}))
    both = surgery("plan", folder / "base.safetensors", plan, "--json").document["notes"]
    assert not [note for note in both if "is merged into" in note]
