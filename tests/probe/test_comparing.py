"""Two checkpoints on one batch: the outputs decide, the calls explain."""

import jax
import jax.numpy as jnp
import ml_dtypes
import msgspec
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.probing.trace.comparing import (
    OutputDeviation,
    _deviation,
    _distance,
    _moved,
    default_tolerance,
)
from tests.probe import edited_models as own
from tests.probe.conftest import X, save
from tests.probe.looking import HERE

FILE = HERE / "edited_models.py"


def against(a, b, batch, model="MLP", **options):
    inputs = (batch,) if isinstance(batch, str) else batch
    options = surgery.ProbeOptions(against=b, **options)
    return surgery.probe(a, model=f"{FILE}:{model}", inputs=inputs, options=options)


def test_a_checkpoint_agrees_with_itself_bit_for_bit(saved, batch):
    found = against(saved, saved, batch).comparison

    assert found.agrees
    assert found.why == "the outputs are equal, bit for bit in float32"
    assert [(p.a, p.relative, p.max_abs) for p in found.sites] == [
        ("hidden", 0, 0), ("out", 0, 0), (".", 0, 0),
    ]  # fmt: skip
    assert found.first_different is None


def test_a_function_preserving_rescale_is_proved_although_a_layer_differs(
    saved, batch, params, tmp_path
):
    rescaled = {
        "hidden": {"kernel": params["hidden"]["kernel"] * np.float32(7.3)},
        "out": {"kernel": params["out"]["kernel"] / np.float32(7.3)},
    }
    found = against(saved, save(tmp_path / "b", {"params": rescaled}), batch, grad=True)
    comparison = found.comparison

    assert comparison.agrees
    assert found.is_sound
    assert comparison.outputs[0].relative < 1e-6
    hidden = comparison.sites[0]
    assert hidden.relative == pytest.approx(6.3 / 7.3, rel=1e-5)
    assert hidden.rms_b == pytest.approx(7.3 * hidden.rms_a, rel=1e-5)
    assert hidden.gradient_rms_a == pytest.approx(7.3 * hidden.gradient_rms_b, rel=1e-4)
    assert comparison.first_different == "hidden"
    gradients = {row.a: row for row in comparison.gradients}
    assert list(gradients) == [".", "out", "hidden", "params/hidden/kernel", "params/out/kernel"]
    assert gradients["hidden"].relative == pytest.approx(6.3 / 7.3, rel=1e-5)
    assert gradients["out"].relative < 1e-5
    assert comparison.first_different_gradient == "hidden"


def test_gradients_are_compared_as_jax_gives_them(saved, batch, params, tmp_path):
    kernel = np.array(params["out"]["kernel"])
    kernel[2, 1] += 1
    changed = {"hidden": params["hidden"], "out": {"kernel": kernel}}
    found = against(
        saved, save(tmp_path / "b", {"params": changed}), batch, grad=True, loss=f"{FILE}:squared"
    )

    def loss(params):
        return own.squared(own.MLP().apply({"params": params}, X), np.ones((4, 3), np.float32))

    a, b = (np.float64(jax.grad(loss)(p)["hidden"]["kernel"]) for p in (params, changed))
    row = next(r for r in found.comparison.gradients if r.a == "params/hidden/kernel")
    assert row.kind == "param"
    assert row.max_abs == pytest.approx(np.abs(a - b).max(), rel=1e-4)
    norms = [np.linalg.norm(x) for x in (a - b, a, b)]
    assert row.relative == pytest.approx(norms[0] / max(norms[1:]), rel=1e-4)
    assert found.comparison.first_different_gradient == "."


def test_one_changed_entry_is_a_difference_that_begins_where_it_stands(
    saved, batch, params, tmp_path
):
    kernel = np.array(params["out"]["kernel"])
    kernel[2, 1] += 1
    changed = {"hidden": params["hidden"], "out": {"kernel": kernel}}
    found = against(saved, save(tmp_path / "b", {"params": changed}), batch)

    assert not found.comparison.agrees
    assert not found.is_sound
    assert found.comparison.first_different == "out"
    hidden = np.maximum(X @ params["hidden"]["kernel"], 0)
    assert found.comparison.outputs[0].max_abs == pytest.approx(hidden[:, 2].max(), rel=1e-5)
    assert against(
        saved, save(tmp_path / "c", {"params": changed}), batch, tolerance=10.0
    ).comparison.agrees


def test_a_renamed_model_is_paired_by_the_plan_in_surgery_json(saved, batch, tmp_path, params):
    from surgery_cli.planning import read_plan

    plan = tmp_path / "rename.yaml"
    plan.write_text(
        "edits:\n"
        "  - op: rename\n    at: params/hidden\n    to: params/encoder\n"
        "  - op: rename\n    at: params/out\n    to: params/head\n"
    )
    surgery.apply(saved, str(tmp_path / "b"), read_plan(str(plan)))

    found = against(
        saved, str(tmp_path / "b"), batch, model_b=f"{FILE}:RenamedMLP", grad=True
    ).comparison

    assert found.agrees
    assert [(p.a, p.b) for p in found.sites] == [
        ("hidden", "encoder"), ("out", "head"), (".", "."),
    ]  # fmt: skip
    assert [(p.a, p.b, p.relative) for p in found.gradients if p.kind == "param"] == [
        ("params/hidden/kernel", "params/encoder/kernel", 0.0),
        ("params/out/kernel", "params/head/kernel", 0.0),
    ]
    assert (found.only_in_a, found.only_in_b) == ([], [])


def test_a_stack_of_layers_is_paired_with_the_layers_written_out(tmp_path):
    generator = np.random.default_rng(3)
    kernels = generator.standard_normal((3, 4, 4), np.float32)
    biases = generator.standard_normal((3, 4), np.float32)
    unrolled = {
        f"block_{n}": {"inner": {"kernel": kernels[n], "bias": biases[n]}} for n in range(3)
    }
    stacked = {"blocks": {"inner": {"kernel": kernels, "bias": biases}}}
    a, b = save(tmp_path / "a", {"params": unrolled}), save(tmp_path / "b", {"params": stacked})

    found = against(a, b, ("float32[2,4]",), model="Unrolled", model_b=f"{FILE}:Stacked").comparison

    assert found.agrees
    assert found.outputs[0].relative < 1e-6
    pairs = {(p.a, p.b) for p in found.sites if p.kind == "Dense"}
    assert pairs == {(f"block_{n}/inner", f"blocks/inner #{n}") for n in range(3)}
    assert max(p.relative for p in found.sites) < 1e-5
    swapped = against(
        b, a, ("float32[2,4]",), model="Stacked", model_b=f"{FILE}:Unrolled"
    ).comparison
    assert {(p.b, p.a) for p in swapped.sites if p.kind == "Dense"} == pairs


def test_outputs_that_are_constants_or_nothing_are_compared_with_the_rest(tmp_path):
    layer = {"out": {"kernel": np.ones((4, 3), np.float32), "bias": np.zeros(3, np.float32)}}
    path = save(tmp_path / "c", {"params": layer})

    found = against(path, path, ("float32[2,4]",), model="WithConstants").comparison
    assert [p.relative for p in found.outputs] == [0, 0]
    assert found.agrees

    with pytest.raises(SurgeryError, match=r"'float32\[0,4\]' is an empty batch"):
        against(path, path, ("float32[0,4]",), model="WithConstants", until="out")


def test_outputs_of_other_shapes_do_not_agree(saved, batch, tmp_path):
    path = save(tmp_path / "b", {"params": {"Dense_0": {"kernel": np.zeros((5, 4), np.float32)}}})
    found = against(saved, path, batch, model_b=f"{FILE}:RootGradient").comparison

    assert not found.agrees
    assert found.why == "the outputs have other shapes: (4, 3) and (4, 4)"


def test_a_non_finite_value_on_the_other_side_is_found_there(saved, batch, params, tmp_path):
    kernel = np.array(params["out"]["kernel"])
    kernel[0, 0] = np.nan
    path = save(tmp_path / "b", {"params": {"hidden": params["hidden"], "out": {"kernel": kernel}}})
    found = against(saved, path, batch)

    assert found.first_non_finite is None
    assert found.comparison.other_first_non_finite.where == "out"
    assert found.comparison.other_first_non_finite.bad_leaves == ["params/out/kernel: 1 NaN"]
    assert found.comparison.sites[1].relative == float("inf")
    assert not found.is_sound


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ratio", [1e4, 1e8])
@pytest.mark.parametrize(("change", "tolerance"), [(1.05, None), (2.0, 1e-3), (1.5, 0.1)])
def test_a_change_of_small_outputs_does_not_hide_beside_large_ones(
    saved, batch, params, tmp_path, ratio, change, tolerance
):
    large, changed = (np.array([ratio, 1, 1], np.float32), np.array([1, change, 1], np.float32))
    kernel = np.asarray(params["out"]["kernel"])
    sides = [
        save(tmp_path / name, {"params": params | {"out": {"kernel": kernel * large * by}}})
        for name, by in (("a", np.float32(1)), ("b", changed))
    ]
    found = against(*sides, batch, tolerance=tolerance).comparison

    assert found.outputs[0].relative <= found.tolerance
    assert (found.agrees, found.outputs[0].moved) == (False, 4)
    assert found.why.startswith("the outputs differ where they are small: ")
    assert (
        f"but 4 of 12 values moved by more than {'10%' if tolerance == 0.1 else '1%'} of"
        in found.why
    )


@pytest.mark.parametrize("size", [1, 10, 5_000])
def test_what_rounding_leaves_of_small_values_is_no_change(size):
    """Values of one scale and noise of one scale, as rounding before a sum: the smallest values are noise alone."""
    measured = jax.jit(jax.vmap(lambda a, b: (_distance(a, b), _moved(a, b, 0.01))))
    draws = np.random.default_rng(size)
    a = draws.normal(size=(100, size)).astype(np.float32)
    for noise in (1e-7, 1e-5, 1e-3, 1e-2):
        b = (a + noise * draws.normal(size=a.shape)).astype(np.float32)
        hidden = sum(
            OutputDeviation(
                *msgspec.structs.astuple(_deviation(apart, 0.0)),
                moved=int(moved),
                size=size,
                move=0.01,
            ).hides_a_change
            for apart, moved in zip(*measured(a, b), strict=True)
        )
        assert hidden <= 2


def test_the_tolerance_follows_the_coarsest_dtype(saved, batch, params, tmp_path):
    half = jax.tree.map(lambda p: np.asarray(p).astype(ml_dtypes.bfloat16), params)
    found = against(saved, save(tmp_path / "b", {"params": half}), batch).comparison

    assert found.tolerance == 2e-2
    assert found.agrees
    assert 1e-4 < found.outputs[0].relative < 2e-2
    assert default_tolerance(["float32", "int32"]) == 1e-5


@pytest.mark.parametrize(
    ("a", "b", "relative", "max_abs"),
    [
        ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
        ([3.0, 4.0], [0.0, 0.0], 1.0, 4.0),
        ([0.0, 0.0], [0.0, 0.0], 0.0, 0.0),
        ([1.0, np.nan], [1.0, np.nan], 0.0, 0.0),
        ([1.0, -np.inf], [1.0, -np.inf], 0.0, 0.0),
        ([1.0, 2.0], [1.0, np.nan], np.inf, np.inf),
        ([1e30, 0.0], [2e30, 0.0], 0.5, 1e30),
        ([1e-30, 0.0], [2e-30, 0.0], 0.5, 1e-30),
    ],
)
def test_distances_neither_overflow_nor_stumble_over_nan(a, b, relative, max_abs):
    found = _deviation(_distance(jnp.array(a, jnp.float32), jnp.array(b, jnp.float32)), 0.0)

    assert found.relative == pytest.approx(relative, rel=1e-5)
    assert found.max_abs == pytest.approx(max_abs, rel=1e-5)


def test_what_is_far_below_the_largest_value_of_a_run_is_noise():
    tiny = _distance(jnp.array([1e-12], jnp.float32), jnp.array([2e-12], jnp.float32))

    assert _deviation(tiny, 0.0).relative == pytest.approx(0.5, rel=1e-5)
    assert _deviation(tiny, 1e-6).relative == pytest.approx(1e-6, rel=1e-5)
