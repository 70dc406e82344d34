"""Pairs of leaves are right: on public models by names and shapes, on random trees with and without their values."""

import os

import numpy as np
import pytest

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.pairing import paired
from surgery_cli.matching.words import Likeness
from tests.matching.public_models import conversions
from tests.matching.random_trees import Stored, Trial, leaf_pairs, made_of

CONVERSIONS = conversions()
SEEDS = int(os.environ.get("DERIVED_TREES", "300"))
LEAST = {"t5-t5x": 0.75}
"""T5's names tell its norms apart by their place alone; the values do."""


def turned(pairs):
    return {(b, a) for a, b in pairs}


@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_names_and_shapes_alone_pair_nine_of_ten_leaves_of_public_models_and_none_wrong(name, back):
    known = CONVERSIONS[name]
    sides = (known.new, known.old) if back else (known.old, known.new)
    found = set().union(*map(leaf_pairs, paired(*sides).pairs))
    truth = turned(known.truth) if back else known.truth
    assert not found - truth
    assert len(found) >= LEAST.get(name, 0.9) * len(truth)


@pytest.mark.parametrize("name", CONVERSIONS)
def test_axes_that_shapes_leave_open_are_taken_as_is_the_custom(name):
    """Square kernels among them: what the pairs make of random values is what the conversion makes of them."""
    known, draw = CONVERSIONS[name], np.random.default_rng(0)
    old = {str(path): draw.standard_normal(spec.shape) for path, spec in known.old.items()}
    wanted = known.values(old)
    arrays = {path: old[str(path)] for path in known.old}
    for pair in paired(known.old, known.new).pairs:
        for path, values in made_of(pair, arrays).items():
            np.testing.assert_array_equal(values, wanted[str(path)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_no_pair_that_is_called_sure_is_wrong_where_values_tell(part):
    for seed in range(part, SEEDS, 4):
        trial = Trial(seed)
        old, new = Stored(trial.old), Stored(trial.new)
        found = paired(old.tree, new.tree, Holdings((old.tree, old), (new.tree, new), 1 << 30))
        for pair in (*found.pairs, *found.copies, *found.drops):
            if pair.certainty != "sure":
                continue
            for path, values in made_of(pair, old.arrays).items():
                np.testing.assert_array_equal(values, new.arrays[path], err_msg=f"{seed} {path}")
            for a, b in leaf_pairs(pair):
                is_tied = any(
                    np.array_equal(np.sort(trial.old[a], None), np.sort(trial.old[name], None))
                    for name, place in trial.truth
                    if place == b and trial.old[a].size == trial.old[name].size
                )
                assert (a, b) in trial.truth or is_tied, (seed, a, b)


@pytest.mark.parametrize("part", range(4))
def test_no_pair_that_is_called_sure_is_wrong_where_there_are_no_values(part):
    for seed in range(part, SEEDS, 4):
        trial = Trial(seed, reorders=False)
        old, new = Stored(trial.old), Stored(trial.new)
        found = paired(old.tree, new.tree)
        for pair in found.pairs:
            if pair.certainty == "sure":
                assert leaf_pairs(pair) <= trial.truth, (seed, leaf_pairs(pair) - trial.truth)
                for path, values in made_of(pair, old.arrays).items():
                    np.testing.assert_array_equal(
                        values, new.arrays[path], err_msg=f"{seed} {path}"
                    )


def test_what_does_not_fit_into_memory_is_held_against_its_counterpart_in_parts():
    draw = np.random.default_rng(0)
    values = draw.standard_normal((2, 40, 30)).astype(np.float32)
    old = Stored(
        {f"layers.{n}.a.weight": values[n] for n in range(2)} | {"b.weight": values[0].T[:7]}
    )
    new = Stored({"p/layers/a/kernel": values.transpose(2, 0, 1), "p/b/kernel": values[0].T[:7]})
    found = paired(old.tree, new.tree, Holdings((old.tree, old), (new.tree, new), 1 << 12))
    made = {}
    for pair in found.pairs:
        assert pair.certainty == "sure"
        made |= made_of(pair, old.arrays)
    assert made.keys() == new.arrays.keys()
    for path, result in made.items():
        np.testing.assert_array_equal(result, new.arrays[path])
    cut = Stored({"p/layers/a/kernel": values.reshape(2, 40, 5, 6), "p/b/kernel": values[0].T[:7]})
    found = paired(old.tree, cut.tree, Holdings((old.tree, old), (cut.tree, cut), 1 << 12))
    assert not [pair for pair in found.pairs if pair.form.arrangement.after]
    (guess,) = found.guesses
    assert guess.why[-1].endswith(
        f"`--memory {-(-8 * values[0].nbytes // (1 << 20))}MiB` has room to try more"
    )


def test_values_pair_nearly_everything_of_random_trees():
    """What is one number over and over may be left to names; nothing else is."""
    right = total = 0
    for seed in range(SEEDS // 4):
        trial = Trial(seed)
        old, new = Stored(trial.old), Stored(trial.new)
        found = paired(old.tree, new.tree, Holdings((old.tree, old), (new.tree, new), 1 << 30))
        pairs = set().union(*map(leaf_pairs, (*found.pairs, *found.copies)), set())
        right += len({b for _, b in pairs} & {b for _, b in trial.truth})
        total += len({b for _, b in trial.truth})
    assert right >= 0.9 * total, (right, total)


def words(number):
    """A name that no other has."""
    return "".join(chr(97 + int(digit)) for digit in str(number))


NAMES = {
    "numbered twice": lambda n: (
        f"model.layers.{n // 8}.experts.{n % 8}.w1.weight",
        f"params/layers_{n // 8}/moe/expert_{n % 8}/gate/kernel",
    ),
    "each its own": lambda n: (f"m/{words(n)}/weight", f"params/{words(n)}/kernel"),
    "nothing in common": lambda n: (f"m/{words(n)}q/weight", f"params/x{words(n)}/kernel"),
    "numbers elsewhere": lambda n: (
        f"m/{words(n % 50)}_{n // 50}/w",
        f"p/w{n // 50}/{words(n % 50)}",
    ),
}


@pytest.mark.covers(1)
@pytest.mark.parametrize("values", ["same", "others", "none", "all alike"])
@pytest.mark.parametrize("names", NAMES)
def test_trees_of_twice_the_leaves_cost_about_twice_the_comparisons(monkeypatch, names, values):
    """All leaves have one shape: each could be each."""
    counts = {"likeness": 0, "values": 0}
    likeness, agree = Likeness.of, Holdings.agree

    def counted_likeness(*sides):
        counts["likeness"] += 1
        return likeness(*sides)

    def counted_values(*sides):
        counts["values"] += 1
        return agree(*sides)

    monkeypatch.setattr(Likeness, "of", counted_likeness)
    monkeypatch.setattr(Holdings, "agree", counted_values)
    costs = []
    for leaves in (500, 1000):
        draw = np.random.default_rng(0)
        ours = draw.standard_normal((leaves, 3, 4)).astype(np.float32)
        theirs = {"others": ours + 1, "all alike": ours}.get(values, ours)
        if values == "all alike":
            ours[:] = theirs[:] = ours[0]
        named = [NAMES[names](n) for n in range(leaves)]
        old = Stored({name: ours[n] for n, (name, _) in enumerate(named)})
        new = Stored({name: theirs[n].T.copy() for n, (_, name) in enumerate(named)})
        held = Holdings((old.tree, old), (new.tree, new), 1 << 30)
        counts.update(dict.fromkeys(counts, 0))
        found = paired(old.tree, new.tree, None if values == "none" else held)
        costs.append(dict(counts))
        right = {pair for pair in found.pairs if leaf_pairs(pair) <= set(named)}
        if values == "same" or (names == "each its own" and values != "all alike"):
            assert sum(len(pair.new.members) for pair in right) == leaves
    for count, before in costs[0].items():
        assert costs[1][count] <= 2.5 * before + 1000, (count, costs)
        assert costs[1][count] <= 500 * 1000, (count, costs)


def test_one_number_that_becomes_another_is_no_sure_pair():
    """Ones less one are zeros, whatever was zero before."""
    old, new = Stored({"left/over": np.ones((2, 6))}), Stored({"tied/copy": np.zeros((6, 2))})
    (pair,) = paired(old.tree, new.tree, Holdings((old.tree, old), (new.tree, new), 1 << 20)).pairs
    assert pair.certainty != "sure"
