"""Every recipe of the cookbook is run, and what it says holds: by Orbax's restore, training, logits and NumPy."""

import inspect
import re
import runpy
import shlex
import shutil
import sys

import digits
import jax
import jax.numpy as jnp
import letters
import ml_dtypes
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
import scipy.ndimage
from flax import nnx
from ingredients import LION, ORDER, WIDER, lora_parts
from jax.sharding import PartitionSpec as P
from letters import Layout

from tests.conversions.parts import FIXTURES
from tests.conversions.routes import PLANS, missed, model
from tests.pages.recipes import PAGE, Kitchen, cooked, recipes
from tests.pages.training import (
    SAMPLES,
    close,
    digits_resumed,
    letters_go_on,
    letters_resumed,
    patches_resumed,
    restored,
    same,
    sample,
    started,
    towers_resumed,
    zero,
)

MADE = ("broken", "wider", "fresh", "lora", "adapter", "llama", "plans", "order.npy")
"""What the script that the page names makes beside the samples."""
LIMIT = 10
"""How many lines a recipe may have."""


def cooks(title):
    """A test that runs the recipe of this title first."""

    def marked(test):
        test.title = title
        return pytest.mark.usefixtures("dish")(test)

    return marked


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kitchen") / "samples"
    unmade = shutil.ignore_patterns("build", "__pycache__", *MADE)
    shutil.copytree(SAMPLES, folder, ignore=unmade)
    shutil.copytree(PLANS, folder.parent / "plans")
    shutil.copytree(FIXTURES / "llama", folder.parent / "tests/fixtures/transformers/llama")
    (script,) = re.findall(r"`python (\S+)`", PAGE.read_text().partition("\n## ")[0])
    runpy.run_path(str(folder / script), run_name="__main__")
    return Kitchen(folder)


@pytest.fixture
def dish(request, kitchen):
    """What the commands of the test's recipe printed."""
    for title in PREPARED.get(request.function.title, []):
        kitchen.cook(title)
    return kitchen.cook(request.function.title)


@pytest.fixture(scope="module")
def run():
    """The letters as they were."""
    return letters_resumed(SAMPLES / "letters_run")


def moments(state):
    """`mu` and `nu` of the letters or the digits."""
    inner = state.opt_state[1] if len(state.opt_state) == 2 else state.opt_state
    return inner[0].mu, inner[0].nu


def test_every_recipe_of_the_page_is_held_by_a_test_and_short():
    tested = {
        test.title
        for _, test in inspect.getmembers(sys.modules[__name__], inspect.isfunction)
        if hasattr(test, "title")
    }
    assert tested == recipes().keys()
    assert len(tested) >= 20
    assert {title for title, recipe in recipes().items() if len(recipe.lines) > LIMIT} == set()
    assert len(re.findall("^```", PAGE.read_text(), re.MULTILINE)) == 2 * sum(
        len(recipe.blocks) for recipe in recipes().values()
    ), "a block outside of a recipe is not run"


def test_the_page_names_what_its_script_makes(kitchen):
    intro = PAGE.read_text().partition("\n## ")[0]
    assert [name for name in MADE if f"`{name}`" not in intro] == []
    assert {path.name for path in kitchen.folder.iterdir()} >= set(MADE)
    ignored = (SAMPLES.parent / ".gitignore").read_text()
    assert [name for name in MADE if f"/sample_checkpoints/{name}" not in ignored] == []


ROW = re.compile(r"^\| \[.+?\]\(#(.+?)\) \| `(.+?)` \|$", re.MULTILINE)


def test_the_fifteen_lines_are_those_of_their_recipes():
    by_anchor = {
        re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-"): recipe
        for title, recipe in recipes().items()
    }
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) == len(dict(rows)) == 15
    for anchor, line in rows:
        commands = [
            shlex.split(command, comments=True) for command, _ in by_anchor[anchor].commands
        ]
        assert shlex.split(line) in commands, line


@cooks("See what is in a checkpoint")
def test_what_is_in_a_checkpoint_is_counted(dish, run):
    leaves = jax.tree.leaves(run.state.params)
    assert f"{sum(leaf.size for leaf in leaves):,} parameters" in dish
    kernel = run.state.params["layers_0"]["mlp"]["up"]["kernel"]
    row = next(line for line in dish.splitlines() if "params/layers_0/mlp/up/kernel" in line)
    assert f"float32[{','.join(map(str, kernel.shape))}]" in row
    assert f"{np.linalg.norm(kernel.astype('f8')):.4g}" in row.split()
    assert "opt_state/1/2/count" in dish  # the schedule's


@cooks("What changed between two checkpoints")
def test_what_differs_is_named_and_what_does_not_is_counted(dish, kitchen):
    before, after = (
        jax.tree.leaves_with_path(sample_of_letters(kitchen, step)) for step in (60, 100)
    )
    differ = [path for (path, a), (_, b) in zip(before, after, strict=True) if (a != b).any()]
    assert f"{len(differ)} leaves differ" in dish
    assert "no difference: " in dish


def sample_of_letters(kitchen, step):
    with ocp.StandardCheckpointer() as checkpointer:
        return checkpointer.restore(kitchen / f"letters_run/{step}/default")


@cooks("New head with another number of classes")
def test_a_head_of_another_size_starts_anew(kitchen):
    result = digits_resumed(kitchen / "build/three", classes=3).state
    before = sample("digits_standard")

    new = result.params["Dense_1"]
    assert new["kernel"].shape == (64, 3)
    assert abs(new["kernel"].std() * 8 - 1) < 0.2  # lecun_normal of 64 inputs
    assert zero(new["bias"])
    same(result.params | {"Dense_1": 0}, before.params | {"Dense_1": 0})
    (mu, nu), old = moments(result), moments(before)
    for new, was in zip((mu, nu), old, strict=True):
        same(new | {"Dense_1": 0}, was | {"Dense_1": 0})
    assert zero(mu["Dense_1"])
    mean = old[1]["Dense_1"]["kernel"].mean(dtype="f8")
    np.testing.assert_allclose(nu["Dense_1"]["kernel"], np.full((64, 3), mean), rtol=1e-6)


@cooks("Copy the head of a fine-tune")
def test_a_head_comes_from_another_run_and_its_moments_start_warm(kitchen):
    result = digits_resumed(kitchen / "build/head").state
    before, donor = (sample("digits_manager", step) for step in (500, 250))

    same(result.params, before.params | {"Dense_1": donor.params["Dense_1"]})
    for moment, (new, old) in enumerate(zip(moments(result), moments(before), strict=True)):
        same(new | {"Dense_1": 0}, old | {"Dense_1": 0})
        for name, slot in new["Dense_1"].items():
            expected = np.mean(old["Dense_1"][name], dtype="f8") if moment else 0
            np.testing.assert_allclose(slot, np.full(slot.shape, expected), rtol=1e-6)


@cooks("More classes, the old ones kept")
def test_old_classes_score_as_before_beside_new_ones(kitchen):
    result = digits_resumed(kitchen / "build/classes", classes=12)
    before = sample("digits_standard")

    new, old = result.state.params["Dense_1"], before.params["Dense_1"]
    for name in ("kernel", "bias"):
        same(new[name][..., :10], old[name])
        assert zero(new[name][..., 10:])
    mu, nu = (moment["Dense_1"]["kernel"] for moment in moments(result.state))
    assert zero(mu[:, 10:])
    expected = moments(before)[1]["Dense_1"]["kernel"].mean(axis=1, dtype="f8")
    np.testing.assert_allclose(nu[:, 10:], np.stack([expected] * 2, axis=1), rtol=1e-6)


@cooks("Join parts of a model")
def test_parts_of_a_model_are_the_whole_again(kitchen, run):
    target = letters.abstract_state()
    found = restored(kitchen / "build/joined", {"params": target.params})
    state = target.replace(
        step=run.state.step,
        ema=run.state.ema,
        opt_state=started(target.tx, found["params"]),
        **found,
    )
    result = letters_go_on(state)
    same(result.state.params, run.state.params)
    close(result.logits, run.logits, 0)


@cooks("Load what fits, the rest anew")
def test_what_fits_stays_and_the_rest_is_that_of_the_new_model(kitchen, run, dish):
    state = letters_resumed(kitchen / "build/fits", WIDER).state
    fresh = letters.restore(kitchen / "wider", WIDER)
    apart = {"embed": 0, "head": 0}
    same(state.params | apart, run.state.params | apart)
    same({name: state.params[name] for name in apart}, {n: fresh.params[n] for n in apart})
    for new, old in zip(moments(state), moments(run.state), strict=True):
        same(new | apart, old | apart)
        assert zero({name: new[name] for name in apart})
    assert "and gone: 'params/embed', 'params/head'" in dish


@cooks("Grow the vocabulary")
def test_old_letters_have_the_logits_they_had(kitchen, run):
    result = letters_resumed(kitchen / "build/vocabulary", Layout(letters=32))

    close(result.logits[..., :28], run.logits)
    for tree, old in (
        (result.state.params, run.state.params),
        (result.state.ema, run.state.ema),
    ):
        same(tree["embed"]["embedding"][:28], old["embed"]["embedding"])
        close(tree["embed"]["embedding"][28:], [old["embed"]["embedding"].mean(axis=0)] * 4, 1e-6)
    mu, nu = moments(result.state)
    assert zero(mu["embed"]["embedding"][28:])
    close(nu["head"]["kernel"][:, 28], moments(run.state)[1]["head"]["kernel"].mean(axis=1), 1e-9)


@cooks("Remap the tokenizer")
def test_the_model_computes_the_same_under_new_numbers(kitchen, run):
    state = letters.restore(kitchen / "build/tokens")
    old, following = letters.batch(100)

    result = letters_go_on(state, np.argsort(ORDER)[old], np.argsort(ORDER)[following])
    close(result.logits, run.logits[..., ORDER])
    for new, was in zip(moments(result.state), moments(run.state), strict=True):
        same(new["embed"]["embedding"], was["embed"]["embedding"][ORDER])
        same(new["head"]["kernel"], was["head"]["kernel"][:, ORDER])
    stepped = result.after.params["embed"]["embedding"]
    close(stepped, run.after.params["embed"]["embedding"][ORDER], 1e-4)


@cooks("Longer context")
def test_short_texts_are_read_as_before(kitchen, run):
    result = letters_resumed(kitchen / "build/context", Layout(positions=32))

    close(result.logits, run.logits)
    same(result.state.params["positions"], np.tile(run.state.params["positions"], (2, 1)))
    assert zero(moments(result.state)[0]["positions"][16:])


@cooks("Vision tower from another run")
def test_a_tower_comes_from_another_run_and_the_other_tower_goes_on(kitchen):
    result = towers_resumed(kitchen / "build/tower").state
    before = towers_resumed(SAMPLES / "towers").state

    same(result.params["img"], sample("digits_standard").params)
    same(result.params["txt"], before.params["txt"])
    for new, old in zip(moments(result), moments(before), strict=True):
        same(new["txt"], old["txt"])


def rows(tree, axis=0):
    """A tree whose layers are stacked along an axis, as one with the layers in a row."""
    layers = {
        f"layers_{n}": jax.tree.map(lambda leaf, n=n: np.take(leaf, n, axis), tree["layers"])
        for n in range(3)
    }
    return {name: node for name, node in tree.items() if name != "layers"} | layers


def stands_in_rows(listed, scanned, axis=0):
    """That the layers in a row hold what was scanned, in every tree of the state, and compute the same."""
    new, old = listed.state, scanned.state
    trees = (new.params, new.ema, *moments(new)), (old.params, old.ema, *moments(old))
    for a, b in zip(*trees, strict=True):
        same(a, rows(b, axis))
    close(listed.logits, scanned.logits)


@cooks("Positions for another resolution")
def test_positions_are_those_of_a_finer_grid(kitchen):
    model, optimizer, _ = patches_resumed(kitchen / "build/larger", grid=8)
    before, slots, _ = patches_resumed(SAMPLES / "patches")

    def finer(positions):
        grid = np.asarray(positions[...], "f8").reshape(4, 4, 8)
        return scipy.ndimage.zoom(grid, (2, 2, 1), order=1).reshape(1, 64, 8)

    close(model.positions[...], finer(before.positions), 1e-6)
    new, old = (each.opt_state.inner_state[0] for each in (optimizer, slots))
    assert zero(new.mu["positions"][...])
    np.testing.assert_allclose(new.nu["positions"][...], finer(old.nu["positions"]), rtol=1e-5)
    same(np.asarray(new.mu["up"]["kernel"][...]), np.asarray(old.mu["up"]["kernel"][...]))


@cooks("Scan to list")
def test_scanned_layers_in_a_row_compute_and_train_the_same(kitchen):
    scanned = letters_resumed(SAMPLES / "letters_scanned", Layout(scan_axis=0))
    stands_in_rows(letters_resumed(kitchen / "build/list"), scanned)


@cooks("List to scan")
def test_layers_in_a_row_compute_and_train_the_same_when_scanned(kitchen, run, dish):
    assert "wrote 0 B" in dish
    stands_in_rows(run, letters_resumed(kitchen / "build/scanned", Layout(scan_axis=0)))


@cooks("MaxText scanned to unscanned")
def test_layers_that_maxtext_scanned_compute_and_train_the_same_in_a_row(kitchen):
    scanned = letters_resumed(SAMPLES / "letters_maxtext", Layout(scan_axis=1))
    stands_in_rows(letters_resumed(kitchen / "build/unscanned"), scanned, axis=1)


@cooks("To the tree of another checkpoint")
def test_a_derived_plan_takes_a_run_to_the_layers_of_another_and_it_trains_the_same(kitchen, run):
    stands_in_rows(run, letters_resumed(kitchen / "build/there", Layout(scan_axis=0)))


@cooks("Split fused qkv")
def test_three_kernels_of_one_compute_the_same(kitchen, run):
    result = letters_resumed(kitchen / "build/split", Layout(is_fused=False))

    close(result.logits, run.logits)
    trees = (result.state.params, *moments(result.state)), (run.state.params, *moments(run.state))
    for new, old in zip(*trees, strict=True):
        for n in range(3):
            parts, fused = (tree[f"layers_{n}"]["attention"] for tree in (new, old))
            parts = [parts[name]["kernel"] for name in ("query", "key", "value")]
            same(np.concatenate(parts, axis=1), fused["qkv"]["kernel"])


@cooks("Fuse q, k, v")
def test_three_kernels_in_one_are_what_they_were(kitchen, run):
    result = letters_resumed(kitchen / "build/fused")

    same(jax.tree.leaves(result.state), jax.tree.leaves(run.state))
    close(result.logits, run.logits, 0)


@cooks("Upcycle to experts")
def test_experts_that_are_alike_compute_what_one_did(kitchen, run):
    result = letters_resumed(kitchen / "build/experts", Layout(experts=4))

    close(result.logits, run.logits)
    for new, old in zip(moments(result.state), moments(run.state), strict=True):
        dense, experts = (tree["layers_1"]["mlp"] for tree in (old, new))
        same(experts["up"]["kernel"], np.stack([dense["up"]["kernel"]] * 4))
        assert zero(experts["router"])
    assert zero(result.state.params["layers_0"]["mlp"]["router"])


@cooks("A new layer that changes nothing yet")
def test_a_new_layer_leaves_the_logits_as_they_are(kitchen, run):
    result = letters_resumed(kitchen / "build/layer", Layout(depth=4))

    close(result.logits, run.logits)
    new = result.state.params["layers_3"]
    assert 0.2 < new["mlp"]["up"]["kernel"].std() < 0.5  # lecun_normal of 8 inputs
    same(new["norm_1"]["scale"], np.ones(8, "f4"))
    for tree, old in zip(moments(result.state), moments(run.state), strict=True):
        assert zero(tree["layers_3"])
        same({name: node for name, node in tree.items() if name != "layers_3"}, old)


@cooks("Rename modules after a refactoring")
def test_renamed_modules_compute_the_same_and_train_on_the_same(kitchen, run):
    result = letters_resumed(kitchen / "build/renamed", Layout(layer="block"))

    def former(tree):
        return {name.replace("block", "layers"): node for name, node in tree.items()}

    close(result.logits, run.logits)
    new, old = result.state, run.state
    same(former(new.params), old.params)
    same(former(new.ema), old.ema)
    same(tuple(map(former, moments(new))), moments(old))


@cooks("Deeper: each layer twice")
def test_doubled_layers_stand_twice_with_their_moments(kitchen, run):
    result = letters_resumed(kitchen / "build/deeper", Layout(depth=6)).state

    trees = zip(
        (result.params, result.ema, *moments(result)),
        (run.state.params, run.state.ema, *moments(run.state)),
        strict=True,
    )
    for new, old in trees:
        for n in range(6):
            same(new[f"layers_{n}"], old[f"layers_{n // 2}"])
        same(new["embed"], old["embed"])

    scanned = restored(kitchen / "build/deeper_scan", letters.abstract_state(Layout(6, 0)))
    before = restored(SAMPLES / "letters_scanned", letters.abstract_state(Layout(scan_axis=0)))
    trees = (scanned.ema, *moments(scanned)), (before.ema, *moments(before))
    for new, old in zip(*trees, strict=True):
        twice = jax.tree.map(lambda leaf: np.repeat(leaf, 2, axis=0), old["layers"])
        same(new["layers"], twice)


@cooks("Average the last five")
def test_an_average_is_the_mean_and_starts_with_short_steps(kitchen, run):
    result = letters_resumed(kitchen / "build/soup").state
    members = []
    with ocp.CheckpointManager(SAMPLES / "letters_run") as manager:
        assert manager.all_steps() == [60, 70, 80, 90, 100]
        for step in manager.all_steps():
            args = ocp.args.StandardRestore(letters.abstract_state())
            members.append(jax.device_get(manager.restore(step, args=args).params))

    def mean(*leaves):
        return np.mean(np.stack(leaves), axis=0, dtype="f8").astype("f4")

    same(result.params, jax.tree.map(mean, *members))
    mu, nu = moments(result)
    assert zero(mu)
    same(nu, moments(run.state)[1])


def _wide(*steps):
    """The params of steps of the sample run, in float64."""
    with ocp.CheckpointManager(SAMPLES / "letters_run") as manager:
        args = ocp.args.StandardRestore(letters.abstract_state())
        states = [manager.restore(step, args=args) for step in steps]
    return [jax.tree.map(np.float64, jax.device_get(state.params)) for state in states]


def _is(result, formula, *trees, atol=2e-7):
    """The params are what the formula says, and the base's moments stay as they were."""
    with ocp.CheckpointManager(SAMPLES / "letters_run") as manager:
        base = manager.restore(60, args=ocp.args.StandardRestore(letters.abstract_state()))
    wanted = jax.tree.map(formula, *trees)
    jax.tree.map(lambda new, old: close(new, old, atol), result.params, wanted)
    return base


@cooks("Moving average of saved steps")
def test_saved_steps_are_averaged_as_they_come(kitchen, run):
    result = letters_resumed(kitchen / "build/moving").state

    def moved(first, *others):
        for leaf in others:
            first = 0.8 * first + 0.2 * leaf
        return first

    _is(result, moved, *_wide(60, 70, 80, 90, 100))
    assert zero(moments(result)[0])
    same(moments(result)[1], moments(run.state)[1])


@cooks("Task arithmetic of three fine-tunes")
def test_what_three_runs_have_learnt_is_added(kitchen):
    result = letters_resumed(kitchen / "build/tasks").state
    base = _is(
        result, lambda b, *tunes: b + 0.4 * sum(x - b for x in tunes), *_wide(60, 80, 90, 100)
    )
    same(moments(result), moments(base))


@cooks("TIES")
def test_signs_are_elected_of_what_is_left(kitchen):
    def ties(base, *tunes):
        deltas = []
        for tune in tunes:
            flat = np.float64((tune - base).astype("f4")).reshape(-1)
            dropped = np.argsort(-abs(flat), kind="stable")[flat.size - round(0.8 * flat.size) :]
            flat[dropped] = 0
            deltas.append(flat.reshape(base.shape))
        stacked = np.stack(deltas)
        agrees = np.sign(stacked) == np.where(stacked.sum(0) >= 0, 1, -1)
        return base + (stacked * agrees).sum(0) / np.maximum(agrees.sum(0), 1)

    result = letters_resumed(kitchen / "build/ties").state
    base = _is(result, ties, *_wide(60, 80, 90, 100))
    same(moments(result), moments(base))


@cooks("Half-way between two runs")
def test_each_leaf_keeps_to_the_arc(kitchen):
    def arc(a, b):
        cosine = np.vdot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
        if abs(cosine) > 0.9995:
            return (a + b) / 2
        angle = np.arccos(cosine)
        return np.sin(angle / 2) / np.sin(angle) * (a + b)

    _is(letters_resumed(kitchen / "build/between").state, arc, *_wide(60, 100))


@cooks("EMA weights into params")
def test_the_average_stands_where_the_params_stood(kitchen, run):
    result = letters_resumed(kitchen / "build/ema").state

    same(result.params, run.state.ema)
    same(result.ema, run.state.ema)
    assert zero(moments(result)[0])


@cooks("Task vectors")
def test_the_difference_of_two_runs_is_added(kitchen):
    result = digits_resumed(kitchen / "build/vector").state
    base, tuned = (sample("digits_manager", step) for step in (250, 500))

    jax.tree.map(
        lambda new, t, b: close(new, np.float64(t) + 0.3 * (np.float64(t) - np.float64(b)), 1e-6),
        result.params,
        tuned.params,
        base.params,
    )
    same(moments(result), moments(tuned))


@cooks("LoRA into base")
def test_a_lora_becomes_a_part_of_the_kernels(kitchen, run):
    result, other = (
        letters_resumed(kitchen / f"build/{name}").state for name in ("merged", "merged_peft")
    )

    for n, (a, b) in lora_parts().items():
        new, old = (s.params[f"layers_{n}"]["attention"]["qkv"] for s in (result, run.state))
        close(new["kernel"], old["kernel"] + 2 * np.float64(a) @ b, 1e-6)
    same(other.params, result.params)
    same(moments(result), moments(run.state))


@cooks("Take a LoRA out again")
def test_a_lora_is_taken_out_up_to_rounding_or_bit_for_bit(dish, kitchen, run):
    result = letters_resumed(kitchen / "build/without").state

    for n in range(3):
        new, old = (s.params[f"layers_{n}"]["attention"]["qkv"] for s in (result, run.state))
        close(new["kernel"], old["kernel"], 1e-6)
    assert "rounding of 3 leaves" in dish
    words = (kitchen / f"build/{name}" for name in ("with_lora", "back_again", "without_lora.yaml"))
    cooked(shlex.join(["surgery", "apply", *map(str, words)]), 0)
    same(letters_resumed(kitchen / "build/back_again").state.params, run.state.params)


@cooks("LoRA of a fine-tune")
def test_a_lora_holds_the_largest_of_what_was_learnt(dish, kitchen):
    base, tuned = _wide(60, 100)
    with ocp.CheckpointManager(kitchen / "build/lora_alone") as manager:
        alone = manager.restore(60, args=ocp.args.StandardRestore())["params"]

    for n in range(3):
        for name in ("up", "down"):
            a, b, tune = (
                np.float64(tree[f"layers_{n}"]["mlp"][name][key])
                for tree, key in ((alone, "lora_a"), (alone, "lora_b"), (tuned, "kernel"))
            )
            learnt = tune - np.float64(base[f"layers_{n}"]["mlp"][name]["kernel"])
            values = np.linalg.svd(learnt, compute_uv=False)
            np.testing.assert_allclose(
                np.linalg.norm(learnt - a @ b), np.linalg.norm(values[2:]), rtol=1e-4
            )
    assert "error of 6 leaves" in dish


@cooks("Prune 50 %")
def test_half_of_each_kernel_is_zero_and_its_momentum_with_it(kitchen, run):
    result = letters_resumed(kitchen / "build/sparse").state

    for n in range(3):
        for name in ("up", "down"):
            new, mu = (
                np.asarray(tree[f"layers_{n}"]["mlp"][name]["kernel"])
                for tree in (result.params, moments(result)[0])
            )
            old = np.asarray(run.state.params[f"layers_{n}"]["mlp"][name]["kernel"])
            stays = np.abs(old) > np.median(np.abs(old))
            assert stays.sum() == old.size // 2
            np.testing.assert_array_equal(new, np.where(stays, old, 0))
            assert not mu[~stays].any()
    same(moments(result)[1], moments(run.state)[1])


@cooks("Shrink and perturb")
def test_params_shrink_and_get_noise(kitchen):
    result = digits_resumed(kitchen / "build/warm").state
    before = sample("digits_standard")

    added = jax.tree.map(lambda new, old: np.float64(new) - 0.4 * old, result.params, before.params)
    noise = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(added)])
    assert abs(noise.std() - 0.01) < 5e-4
    assert zero(moments(result)[0])
    same(moments(result)[1], moments(before)[1])


@cooks("Drop the optimizer")
def test_what_is_left_without_the_optimizer_trains_with_a_new_one(kitchen, run):
    target = letters.abstract_state()
    parts = {"step": target.step, "params": target.params, "ema": target.ema}
    found = restored(kitchen / "build/weights", parts)

    result = letters_go_on(target.replace(**found, opt_state=started(target.tx, found["params"])))
    same(result.state.params, run.state.params)
    close(result.logits, run.logits, 0)


@cooks("New learning rate")
def test_the_next_step_has_the_new_learning_rate(kitchen):
    def moved(path):
        model, optimizer, ahead = patches_resumed(path)
        step = np.asarray(ahead[0].up.kernel[...]) - np.asarray(model.up.kernel[...])
        return step, optimizer.opt_state.hyperparams["learning_rate"]

    new, rate = moved(kitchen / "build/slower")
    old, _ = moved(SAMPLES / "patches")
    assert float(rate[...]) == np.float32(1e-3)
    np.testing.assert_allclose(new, old / 10, rtol=1e-3, atol=1e-7)


@cooks("Restart the schedule")
def test_the_schedule_starts_again_and_nothing_else(kitchen, run):
    result = letters_resumed(kitchen / "build/restarted")

    assert int(result.state.opt_state[1][2].count) == 0
    same(moments(result.state), moments(run.state))
    assert int(result.state.opt_state[1][0].count) == 100
    same(result.after.params, result.state.params)  # the warm-up begins at a learning rate of 0


@cooks("Unfreeze a layer")
def test_the_moments_of_one_layer_start_again(kitchen, run, dish):
    result = letters_resumed(kitchen / "build/unfrozen").state

    for new, old in zip(moments(result), moments(run.state), strict=True):
        assert zero(new["layers_2"])
        same(new | {"layers_2": 0}, old | {"layers_2": 0})
    same(result.params, run.state.params)
    assert re.search(r"the next steps there are up to [\d.]+ learning rates large", dish)


@cooks("Train anew from these weights")
def test_the_state_is_that_of_a_new_optimizer(kitchen, run):
    result = letters_resumed(kitchen / "build/anew").state

    assert int(result.step) == 0
    assert (kitchen / "build/anew/0").is_dir()
    same(result.params, run.state.params)
    same(result.opt_state, started(result.tx, result.params))


@cooks("Resume with another optimizer")
def test_training_goes_on_with_another_optimizer(kitchen, run):
    result = letters_resumed(kitchen / "build/lion", tx=LION)

    same(result.state.params, run.state.params)
    same(result.state.opt_state, started(LION, run.state.params))
    assert int(result.state.step) == 100


@cooks("Hugging Face to Flax and back")
def test_weights_of_transformers_compute_the_same_and_come_back(kitchen, dish):
    params = model("linen", "llama").restored(kitchen / "build/flax")
    assert missed("linen", "llama", params) < 1e-4
    assert "no difference: 30 leaves equal in structure and values" in dish


class NnxCnn(nnx.Module):
    """The CNN of the digits."""

    def __init__(self, rngs):
        self.first = nnx.Conv(1, 16, (3, 3), rngs=rngs)
        self.second = nnx.Conv(16, 32, (3, 3), rngs=rngs)
        self.hidden = nnx.Linear(128, 64, rngs=rngs)
        self.head = nnx.Linear(64, 10, rngs=rngs)

    def __call__(self, x):
        for conv in (self.first, self.second):
            x = nnx.avg_pool(nnx.relu(conv(x)), (2, 2), (2, 2))
        x = nnx.relu(self.hidden(x.reshape(len(x), -1)))
        return nnx.log_softmax(self.head(x))


@cooks("Linen to NNX")
def test_a_linen_run_goes_on_in_nnx(kitchen):
    def fresh():
        cnn = NnxCnn(nnx.Rngs(0))
        return cnn, nnx.Optimizer(cnn, optax.adamw(digits.LEARNING_RATE), wrt=nnx.Param)

    cnn, optimizer = nnx.eval_shape(fresh)
    target = {"model": nnx.state(cnn), "optimizer": nnx.state(optimizer)}
    found = restored(kitchen / "build/nnx", target)
    nnx.update(cnn, jax.device_put(found["model"]))
    nnx.update(optimizer, jax.device_put(found["optimizer"]))
    result = digits_resumed(SAMPLES / "digits_standard")
    batch = digits.splits()[0]
    close(cnn(batch.images), result.logits)
    gradients = jax.tree.map(jnp.ones_like, nnx.state(cnn, nnx.Param))
    optimizer.update(cnn, gradients)
    linen = result.state.apply_gradients(grads=jax.tree.map(jnp.ones_like, result.state.params))
    names = {"Conv_0": "first", "Conv_1": "second", "Dense_0": "hidden", "Dense_1": "head"}
    for name, attribute in names.items():
        for key, leaf in linen.params[name].items():
            close(getattr(getattr(cnn, attribute), key)[...], leaf, 1e-7)
    assert int(optimizer.step[...]) == int(linen.step)


@cooks("Params only in bfloat16 for serving")
def test_params_alone_in_bfloat16_compute_nearly_the_same(kitchen, run):
    target = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16, sharding=leaf.sharding),
        letters.abstract_state().params,
    )
    params = restored(kitchen / "build/serving", {"params": target})["params"]

    same(params, jax.tree.map(lambda x: np.asarray(x).astype(ml_dtypes.bfloat16), run.state.params))
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), params)
    close(letters_go_on(run.state.replace(params=wide)).logits, run.logits, 0.2)


@cooks("Find the NaN")
def test_the_leaf_and_the_call_with_the_nan_are_named(dish):
    assert "'params/Conv_1/bias' breaks `finite`" in dish
    assert re.search(r"first .*Conv_1", dish)


@cooks("Pre-shard for another topology")
def test_what_each_host_needs_is_a_chunk_and_training_goes_on(kitchen, run):
    result = letters_resumed(kitchen / "build/sharded")
    with ocp.StandardCheckpointer() as reader:
        plain = reader.restore(kitchen / "build/sharded/100/default")

    same(jax.tree.leaves(result.state), jax.tree.leaves(run.state))
    same(result.after.params, run.after.params)
    spread = plain["params"]["head"]["kernel"].sharding
    assert (spread.spec, spread.shard_shape((8, 28))) == (P("fsdp", "tensor"), (2, 14))
    assert plain["params"]["embed"]["embedding"].sharding.spec == P("fsdp")
    assert plain["params"]["positions"].sharding.is_fully_replicated


@cooks("Undo what I did")
def test_what_was_done_is_undone_bit_for_bit(kitchen, run):
    half, back = (letters_resumed(kitchen / f"build/{name}") for name in ("half", "back"))

    close(half.logits, run.logits / 2)
    same(jax.tree.leaves(back.state), jax.tree.leaves(run.state))
    same(back.after.params, run.after.params)


@cooks("Check in CI that nothing else changed")
def test_a_plan_says_that_nothing_else_changes(kitchen):
    result = digits_resumed(kitchen / "build/calmer").state
    before = sample("digits_standard")

    same(result.params | {"Dense_1": 0}, before.params | {"Dense_1": 0})
    same(result.params["Dense_1"]["kernel"], before.params["Dense_1"]["kernel"] / 2)


PREPARED = {"Fuse q, k, v": ["Split fused qkv"]}
"""Recipes that take what another makes."""
