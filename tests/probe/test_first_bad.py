"""The first non-finite value: the module, the iteration, the operation and the user's own line."""

import numpy as np
import pytest

from surgery_cli import surgery
from tests.probe import edited_models as own
from tests.probe.conftest import save
from tests.probe.looking import HERE, linen_variables

FILE = HERE / "edited_models.py"
X = ("float32[2,4]",)
LOG_LINE = "logs = jnp.log(scale)"
DIVISION_LINE = "return x / logs"


def first(tmp_path, params, model, inputs=X):
    path = save(tmp_path / "c", {"params": params})
    found = surgery.probe(path, model=f"{FILE}:{model}", inputs=inputs)
    return found.first_non_finite, found


def deep(module=None):
    params = linen_variables(module or own.Deep(), np.ones((2, 4), np.float32), scale=0.5)
    return params["params"]


def test_a_negative_scale_is_named_by_the_operation_and_line_that_makes_nan_of_it(tmp_path):
    params = deep()
    for number in range(3):
        params[f"norm_{number}"]["scale"] = np.full(4, 2, np.float32)
    params["norm_1"]["scale"] = np.array([2, -1, 2, 2], np.float32)

    bad, found = first(tmp_path, params, "Deep")

    assert (bad.where, bad.kind, bad.role, bad.nan) == ("norm_1", "LogNorm", "out", 2)
    assert bad.operation.name == "log"
    assert bad.operation.line.endswith(LOG_LINE)
    assert bad.operation.line.startswith(f"{FILE}:")
    assert (bad.bad_leaves, bad.bad_inputs) == ([], [])
    assert [s.name for s in found.sites if s.statistics.nan] == [
        "norm_1", "dense_2", "norm_2", ".",
    ]  # fmt: skip


def test_an_infinity_is_followed_to_the_division_that_makes_it(tmp_path):
    params = deep()
    for number in range(3):
        params[f"norm_{number}"]["scale"] = np.full(4, 2, np.float32)
    params["norm_0"]["scale"] = np.array([2, 2, 2, 1], np.float32)

    bad, _ = first(tmp_path, params, "Deep")

    assert (bad.where, bad.nan, bad.inf) == ("norm_0", 0, 2)
    assert bad.operation.name == "div"
    assert bad.operation.line.endswith(DIVISION_LINE)


def test_inside_a_scan_the_iteration_is_named(tmp_path):
    params = deep(own.DeepScan())
    params["steps"]["norm"]["scale"] = np.full((3, 4), 2, np.float32)
    params["steps"]["norm"]["scale"][2, 0] = -1

    bad, found = first(tmp_path, params, "DeepScan")

    assert (bad.where, bad.iteration) == ("steps/norm", (2,))
    assert (bad.operation.name, bad.operation.iteration) == ("log", (2,))
    assert bad.operation.line.endswith(LOG_LINE)
    assert {s.name: s.statistics.nan for s in found.sites}["steps/dense"] == 0


def test_what_a_mask_threw_away_in_an_earlier_iteration_is_not_blamed(tmp_path):
    params = linen_variables(own.MaskedScan(), np.ones((2, 4), np.float32))["params"]
    bad, _ = first(tmp_path, params, "MaskedScan")

    assert (bad.where, bad.iteration) == ("steps[0]", (2,))
    assert (bad.operation.name, bad.operation.iteration) == ("sqrt", (2,))


def test_a_leaf_that_is_already_bad_is_named_with_its_count(tmp_path):
    params = deep()
    for number in range(3):
        params[f"norm_{number}"]["scale"] = np.full(4, 2, np.float32)
    params["dense_1"]["kernel"][1, 2] = np.nan

    bad, _ = first(tmp_path, params, "Deep")

    assert bad.where == "dense_1"
    assert bad.bad_leaves == ["params/dense_1/kernel: 1 NaN"]
    assert bad.operation.from_bad == "nan"


def test_a_bad_input_is_named_before_any_module_is_blamed(tmp_path):
    params = deep()
    for number in range(3):
        params[f"norm_{number}"]["scale"] = np.full(4, 2, np.float32)
    x = np.ones((2, 4), np.float32)
    x[0, 3] = np.nan
    np.savez(tmp_path / "x.npz", x=x)

    bad, _ = first(tmp_path, params, "Deep", (str(tmp_path / "x.npz"),))

    assert (bad.where, bad.role) == (".['x'] (input)", "in")
    assert bad.bad_inputs == ["x: 1 NaN"]


def test_infinities_behind_a_mask_accuse_nobody(tmp_path):
    params = {"Dense_0": {"kernel": np.ones((4, 4), np.float32), "bias": np.ones(4, np.float32)}}

    bad, _ = first(tmp_path, params, "Masked")

    assert bad is None


@pytest.mark.parametrize("bound", ["", "<7"])
def test_random_indices_stay_in_range_so_that_an_embedding_is_not_accused(tmp_path, bound):
    path = save(tmp_path / "c", {"params": {"embed": {"embedding": np.ones((7, 4), np.float32)}}})
    found = surgery.probe(
        path, model=f"{HERE / 'odd_models.py'}:Tied", inputs=(f"int32[2,5]{bound}",)
    )
    assert found.is_sound
