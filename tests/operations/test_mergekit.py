"""Merges of random tiny models, held against what mergekit makes of them (see `tests/fixtures/mergekit/make.py`)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.kernel import Place
from surgery_cli.operations.average import Average
from surgery_cli.operations.base import Operation
from surgery_cli.operations.breadcrumbs import Breadcrumbs
from surgery_cli.operations.dare import Dare
from surgery_cli.operations.interpolate import Interpolate
from surgery_cli.operations.karcher import KarcherMean
from surgery_cli.operations.model_stock import ModelStockMerge
from surgery_cli.operations.task_arithmetic import TaskArithmetic
from surgery_cli.operations.ties import Ties
from tests.operations.value_edits import (
    computed,
    draft_of,
    merged,
    path_of,
    rewritten,
    scene_of,
)

FILE = Path(__file__).parents[1] / "fixtures" / "mergekit" / "merges.npz"
BASE, TUNES = "base", ("one", "two", "three")
ALL = ("a", "b", "c")
LEFT = ", left of "

MERGES: dict[str, tuple[Operation, tuple[str, ...]]] = {
    "linear": (Average(at="params", with_=("a", "b"), weights=(2, 1, 1)), (BASE, "one", "two")),
    "slerp": (Interpolate(at="params", with_="a", t=0.3, method="slerp"), (BASE, "one")),
    "slerp over the layers": (
        Interpolate(at="params/model/layers/*", with_="a", t=(0.0, 1.0), method="slerp"),
        (BASE, "one"),
    ),
    "task_arithmetic": (
        TaskArithmetic(at="params", with_=ALL, weights=(0.5, 0.25, -0.5)),
        (BASE, *TUNES),
    ),
    "ties": (Ties(at="params", with_=ALL, density=0.25), (BASE, *TUNES)),
    "ties by weights": (
        Ties(at="params", with_=ALL, density=0.5, weights=(1.0, 2.0, 0.5), scale=0.8),
        (BASE, *TUNES),
    ),
    "breadcrumbs": (
        Breadcrumbs(at="params", with_=ALL, density=0.5, outliers=0.125, normalize=False),
        (BASE, *TUNES),
    ),
    "breadcrumbs with ties": (
        Breadcrumbs(at="params", with_=ALL, density=0.5, outliers=0.125, consensus="ties"),
        (BASE, *TUNES),
    ),
    "dare_linear without drops": (
        Dare(at="params", with_=ALL, density=1, weights=(0.4, 0.4, 0.4), normalize=False),
        (BASE, *TUNES),
    ),
    "dare_ties without drops": (
        Dare(at="params", with_=ALL, density=1, consensus="ties"),
        (BASE, *TUNES),
    ),
    "model_stock": (ModelStockMerge(at="params", with_=ALL), (BASE, *TUNES)),
    "model_stock by filters": (ModelStockMerge(at="params", with_=ALL, axis=-1), (BASE, *TUNES)),
    "karcher": (KarcherMean(at="params", with_=("a", "b")), TUNES),
}


@pytest.fixture(scope="module")
def models() -> dict[str, dict[str, Any]]:
    """The models and merges by name, each its tensors by path."""
    found: dict[str, dict[str, Any]] = {}
    with np.load(FILE) as arrays:
        for key, array in arrays.items():
            name, tensor = key.split(":")
            found.setdefault(name, {})["params/" + tensor.replace(".", "/")] = array
    return found


def check(found: Any, wanted: Any, path: str) -> None:
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6, err_msg=path)


@pytest.mark.parametrize("name", MERGES)
def test_a_merge_is_what_mergekit_makes(name: str, models: dict[str, dict[str, Any]]) -> None:
    edit, members = MERGES[name]
    own = models[members[0]]
    found = merged(edit, [models[member] for member in members])
    changed = {path for path in own if (found[path] != own[path]).any()}
    assert changed, "the merge did nothing"
    for path, wanted in models[name].items():
        if name.startswith("model_stock"):
            axis = -1 if name.endswith("filters") else None
            away = mean_cosine([models[n][path] - own[path] for n in TUNES], axis) < 0
            check(found[path], np.where(away, own[path], wanted), path)
        elif name != "slerp over the layers" or "/layers/" in path:
            check(found[path], wanted, path)


def mean_cosine(deltas: list[Any], axis: int | None) -> Any:
    """Where it is below 0, mergekit goes away from the mean, without bound; here the base stays."""
    found = []
    for one, other in combinations(deltas, 2):
        norms = [np.linalg.norm(d, axis=axis, keepdims=True) for d in (one, other)]
        found.append(np.sum(one * other, axis=axis, keepdims=True) / norms[0] / norms[1])
    return np.mean(found, axis=0)


def test_nuslerp_goes_between_what_two_have_learnt(models: dict[str, dict[str, Any]]) -> None:
    one = models["one"]
    scene = scene_of(one, {"two": models["two"], "base": models["base"]})
    edit = Interpolate(at="params", with_="two", t=0.25, method="nuslerp", base="base")
    after = rewritten(edit, draft_of(one), scene)
    arrays = {path_of(path): array for path, array in one.items()}
    for path, wanted in models["nuslerp"].items():
        check(computed(after.leaves[path_of(path)].recipe, arrays, scene=scene), wanted, path)


DROPPING = {
    "dare_linear": Dare(
        at="params", with_=ALL, density=0.5, weights=(0.4, 0.4, 0.4), normalize=False, scale=0.5
    ),
    "dare_ties": Dare(
        at="params", with_=ALL, density=0.5, weights=(1.0, 2.0, 0.5), consensus="ties", scale=0.5
    ),
}
"""Scaled by the density, as mergekit was told not to divide by it."""


@pytest.mark.parametrize("name", DROPPING)
def test_dare_is_what_mergekit_makes_of_the_same_drops(
    name: str, models: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of random numbers stand 0 where mergekit has left an element, and 1 where it has not."""
    members: dict[int, str] = {}

    def draw(kit: HostKit, distribution: str, seed: int, at: Place) -> Any:
        assert (distribution, at.is_all) == ("uniform", True)
        member = members.setdefault(seed, TUNES[len(members) % 3])
        is_left = models[f"{name}{LEFT}{member}"][str(at.path)]
        return np.where(is_left, 0.0, 1.0)

    monkeypatch.setattr(HostKit, "draw", draw)
    found = merged(DROPPING[name], [models[member] for member in (BASE, *TUNES)])
    assert len(members) == 3
    for path, wanted in models[name].items():
        check(found[path], wanted, path)
        none_left = ~np.any([models[f"{name}{LEFT}{member}"][path] for member in TUNES], axis=0)
        np.testing.assert_array_equal(found[path][none_left], models[BASE][path][none_left])


def test_every_merge_of_the_fixture_is_compared(models: dict[str, dict[str, Any]]) -> None:
    merges = {name for name in models if LEFT not in name}
    assert merges == {BASE, *TUNES, "nuslerp", *MERGES, *DROPPING}
