"""`--probe` before a commit: the source and the result through the user's model, on one batch."""

import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"
SOURCE = str(SAMPLES / "digits_standard")
PROBE = ("--probe", f"{SAMPLES / 'digits.py'}:CNN", "--input", "float32[4,8,8,1]")


@pytest.fixture
def rescale(surgery, tmp_path):
    """Rescale the last kernel under a probe; the result of the command and the folder of the destination."""

    def call(by, *words, at="params/Dense_1/kernel"):
        folder = tmp_path / "out"
        folder.mkdir()
        return surgery(
            "rescale", SOURCE, str(folder / "new"), at, "--by", by, *PROBE, *words
        ), folder

    return call


def test_a_harmless_edit_is_committed_and_says_what_the_probe_saw(rescale):
    result, folder = rescale("0.5", "--json")

    assert result.code == 0, result.err
    (note,) = [n for n in result.document["notes"] if n.startswith("probe of ")]
    assert "no new NaN or infinity, and the outputs differ: " in note
    assert json.loads((folder / "new" / "surgery.json").read_text())["verified"]["probe"] == note


def test_a_seed_that_the_plan_says_is_the_probe_s_as_one_that_is_typed(surgery, tmp_path):
    plan = tmp_path / "plan.yaml"
    edit = "edits: [{op: rescale, at: params/Dense_1/kernel, by: 0.5}]"

    def note(text, *words):
        plan.write_text(text)
        words = ("--force", "--json", *PROBE, *words)
        document = surgery("apply", SOURCE, str(tmp_path / "new"), plan, *words).document
        return next(n for n in document["notes"] if n.startswith("probe of "))

    assert note(f"seed: 5\n{edit}") == note(edit, "--seed", "5") != note(edit)


def test_finite_values_that_overflow_in_the_model_stop_the_commit(rescale):
    # 1e38 times a kernel whose values are below 1 is finite in float32; its sums are not
    # the moments stay as they are: divided by the factor, they would be lost to zeros
    result, folder = rescale("1e38", "--optimizer", "keep", at="params/Dense_0/kernel")

    assert result.code == 1
    assert "the model makes NaN or infinities from the result" in result.err
    assert "'Dense_0'" in result.err
    assert list(folder.iterdir()) == []


def test_a_difference_above_the_tolerance_stops_the_commit(rescale):
    result, folder = rescale("1.01", "--tolerance", "1e-5")

    assert result.code == 1
    assert "the result does not compute what the source computes" in result.err
    assert "'Dense_1'" in result.err
    assert list(folder.iterdir()) == []


def test_equal_outputs_pass_the_tolerance(rescale):
    result, folder = rescale("1.0", "--tolerance", "1e-5", "--json")

    assert result.code == 0, result.err
    assert [p.name for p in folder.iterdir()] == ["new"]
    assert any("the outputs are equal, bit for bit" in note for note in result.document["notes"])


def test_a_dry_run_says_that_the_probe_is_still_to_come(rescale):
    result, folder = rescale("1e38", "--dry-run", "--json", at="params/Dense_0/kernel")

    assert result.code == 0
    assert result.document["notes"][-1].endswith(
        "digits.py:CNN runs on the result, once that is written"
    )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--input", "float32[4]"),
        ("--tolerance", "1e-5"),
        ("--call", "train=true"),
        ("--rng", "dropout=1"),
        ("--bind", "params=ema"),
        ("--vmap", "batch"),
        ("--ensemble", "2"),
        ("--loss", "train.py:loss"),
        ("--model-b", "train.py:CNN"),
    ],
)
def test_what_belongs_to_a_probe_needs_one(surgery, tmp_path, option, value):
    result = surgery(
        "rescale", SOURCE, str(tmp_path / "new"), "params/*/kernel", "--by", "2", option, value
    )

    assert result.code == 2
    assert f"`{option}` says something only together with `--probe`" in result.err
    assert not (tmp_path / "new").exists()


def test_a_model_that_does_not_fit_the_source_is_refused_before_anything_is_written(
    surgery, tmp_path
):
    words = ("--probe", f"{SAMPLES / 'digits.py'}:CNN", "--input", "float32[4,16,16,1]")
    result = surgery(
        "rescale", SOURCE, str(tmp_path / "new"), "params/*/kernel", "--by", "2", *words
    )

    assert result.code in (1, 2)
    assert "Dense_0" in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def normed(tmp_path_factory):
    """A file with two models of one function, and a checkpoint of the first with averages that stand twice."""
    folder = tmp_path_factory.mktemp("normed")
    (folder / "models.py").write_text(MODELS)
    spec = importlib.util.spec_from_file_location("gate_models", folder / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    variables = module.Normed().init(jax.random.key(0), np.ones((2, 4), np.float32))
    ema = jax.tree.map(lambda v: v + 1, variables["batch_stats"])
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "run", {**variables, "ema": {"batch_stats": ema}})
    return folder


MODELS = """
import jax.numpy as jnp
from flax import linen as nn

class Normed(nn.Module):
    name_of_head: str = "head"

    @nn.compact
    def __call__(self, x, train=False):
        x = nn.BatchNorm(use_running_average=not train, name="norm")(nn.Dense(4, name="body")(x))
        return nn.Dense(3, name=self.name_of_head)(nn.Dropout(0.5, deterministic=not train)(x))

def rooted(output):
    return jnp.sqrt(jnp.abs(output)).sum()
"""


def rename_head(surgery, normed, tmp_path, *words):
    model = ("--probe", f"{normed / 'models.py'}:Normed", "--input", "float32[2,4]")
    return surgery(
        "rename", str(normed / "run"), str(tmp_path / "new"), "params/head", "--to", "params/top",
        *model, "--tolerance", "0", "--json", *words,
    )  # fmt: skip


@pytest.mark.check_all
def test_a_result_of_another_model_is_held_against_the_source_with_all_its_settings(
    surgery, normed, tmp_path
):
    other = f"{normed / 'models.py'}:Normed(name_of_head='top')"
    words = ("--call", "train=true", "--rng", "dropout=3", "--bind", "batch_stats=ema/batch_stats")
    result = rename_head(surgery, normed, tmp_path, "--model-b", other, "--grad", *words)

    assert result.code == 0, result.err
    assert "the outputs are equal, bit for bit" in result.document["notes"][-1]


def test_without_the_other_model_the_result_does_not_fit(surgery, normed, tmp_path):
    result = rename_head(surgery, normed, tmp_path)

    assert result.code == 1
    assert "the model wants 'params/head/kernel'" in result.err + result.out
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_that_the_probe_reads_are_counted_on_both_sides(surgery, rescale, tmp_path):
    edit = ("params/Dense_1/kernel", "--by", "0.5", "--json")
    alone = surgery("rescale", SOURCE, str(tmp_path / "alone"), *edit).document
    probed, _ = rescale("0.5", "--json")

    all_params = 13_706 * 4
    assert probed.document["bytes_read"] == alone["bytes_read"] + 2 * all_params


def test_a_gradient_that_is_new_and_not_finite_stops_the_commit(surgery, normed, tmp_path):
    # the derivative of the root at 0 is infinite, the outputs themselves are finite
    words = ("--input", "float32[2,4]", "--grad", "--loss", f"{normed / 'models.py'}:rooted")
    result = surgery(
        "replace", str(normed / "run"), str(tmp_path / "new"), "params/head/*", "--with", "0",
        "--probe", f"{normed / 'models.py'}:Normed", *words,
    )  # fmt: skip

    assert result.code == 1
    assert "the gradient at '.'" in result.err
    assert list(tmp_path.iterdir()) == []


PROBED = """
import jax.numpy as jnp
from flax import linen as nn


class Small(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)


def loss(output, **inputs):
    return output.sum()
"""


@pytest.mark.parametrize("which", ["model.py", "other.py", "loss.py", "batch.npz", None])
def test_a_finished_run_is_not_done_already_by_a_file_of_the_probe_that_is_another(
    surgery, tmp_path, which
):
    """The record has their names, which are the same; "done already" was said of a model that had never run."""
    files = {name: tmp_path / name for name in ("model.py", "other.py", "loss.py")}
    for file in files.values():
        file.write_text(PROBED)
    batch = tmp_path / "batch.npz"
    np.savez(batch, x=np.ones((2, 4), np.float32))
    variables = {
        "Dense_0": {"kernel": np.ones((4, 3), np.float32), "bias": np.zeros(3, np.float32)}
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", {"params": variables})
    words = [
        "rescale", tmp_path / "ck", tmp_path / "new", "params/**", "--by", "2", "--resume",
        "--probe", f"{files['model.py']}:Small", "--input", f"{batch}:x", "--grad",
        "--model-b", f"{files['other.py']}:Small", "--loss", f"{files['loss.py']}:loss",
    ]  # fmt: skip
    first = surgery(*map(str, words))
    assert first.code == 0, first.err
    if which == "batch.npz":
        np.savez(batch, x=np.zeros((2, 4), np.float32))
    elif which is not None:
        files[which].write_text(PROBED + "\n# another\n")
    again = surgery(*map(str, words))
    assert again.code == (0 if which is None else 2), again.err
    if which is not None:
        assert f"'{tmp_path / which}' (the file of the probe '" in again.err
        assert surgery(*map(str, words), "--force").code == 0
        assert surgery(*map(str, words)).code == 0
