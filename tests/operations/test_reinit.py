"""Reinit: the initializers of jax by name, drawn on the host, the same in any blocks."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from surgery_cli.draft.effect import name_of
from surgery_cli.engine.composition import Composition
from surgery_cli.errors import PlanError
from surgery_cli.operations.initializers import INITIALIZERS, fans
from surgery_cli.operations.reinit import Reinit
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    kernels,
    made,
    path_of,
    rewritten,
    spec_of,
)

PATH = path_of("params/Dense_0/kernel")

CASES = [
    ("uniform", {"scale": 0.3}, (200, 50)),
    ("normal", {"stddev": 0.2}, (200, 50)),
    ("truncated_normal", {"stddev": 0.2}, (200, 50)),
    ("truncated_normal", {"stddev": 0.2, "lower": 0.5, "upper": 3.0}, (200, 50)),
    ("truncated_normal", {"lower": -1.0, "upper": 0.25}, (200, 50)),
    *(
        (f"{name}_{kind}", {}, (3, 3, 32, 40))
        for name in ("lecun", "glorot", "xavier", "he", "kaiming")
        for kind in ("normal", "uniform")
    ),
    ("lecun_normal", {"batch_axis": 0}, (12, 20, 50)),
    ("he_uniform", {"batch_axis": (0, 2)}, (4, 20, 3, 50)),
    ("glorot_normal", {"in_axis": (0, 1), "out_axis": -1}, (10, 20, 50)),
    ("lecun_normal", {"in_axis": 0, "out_axis": ()}, (10_000,)),
    *(
        (
            "variance_scaling",
            {"scale": 1.5, "mode": mode, "distribution": distribution, "out_axis": 0},
            (400, 30),
        )
        for mode in ("fan_in", "fan_out", "fan_avg", "fan_geo_avg")
        for distribution in ("truncated_normal", "normal", "uniform")
    ),
]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("init", "settings", "shape"), CASES)
def test_values_are_distributed_as_those_of_jax(init: str, settings: dict, shape: tuple) -> None:
    ours = edited(Reinit(init=init, **settings), np.empty(shape, np.float32)).ravel()
    theirs = getattr(jax.nn.initializers, init)(**settings)(jax.random.key(1), shape, jnp.float32)
    theirs = np.asarray(theirs).ravel()
    both = np.sort(np.concatenate([ours, theirs]))
    distance = np.abs(
        np.searchsorted(np.sort(ours), both, "right")
        - np.searchsorted(np.sort(theirs), both, "right")
    ).max() / len(ours)
    # two samples of one distribution are further apart than this once in 4,000 times
    assert distance < 2.1 * np.sqrt(2 / len(ours))
    assert ours.std() == pytest.approx(theirs.std(), rel=0.05)
    assert abs(ours).max() < abs(theirs).max() * 1.35


@pytest.mark.parametrize(
    ("init", "settings", "expected"),
    [("zeros", {}, 0.0), ("ones", {}, 1.0), ("constant", {"value": -7.0}, -7.0)],
)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.complex64])
def test_constants_fill_the_leaf(init: str, settings: dict, expected: float, dtype: type) -> None:
    result = edited(Reinit(init=init, **settings), np.ones((3, 4), dtype), block=(2, 4))
    np.testing.assert_array_equal(result, np.full((3, 4), expected, dtype))


@pytest.mark.parametrize(
    ("shape", "column_axis"), [((6, 4), -1), ((4, 6), -1), ((3, 2, 5), 0), ((3, 3, 2, 4), -1)]
)
def test_an_orthogonal_matrix_has_orthonormal_rows_or_columns(
    shape: tuple, column_axis: int
) -> None:
    edit = Reinit(init="orthogonal", scale=2.0, column_axis=column_axis)
    assert Composition(made(edit, np.empty(shape, np.float64))).is_whole
    kernel = edited(edit, np.empty(shape, np.float64))
    matrix = np.moveaxis(kernel, column_axis, -1).reshape(-1, shape[column_axis]) / 2.0
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)


def test_a_delta_orthogonal_kernel_is_orthogonal_in_its_centre_and_zero_around() -> None:
    kernel = edited(Reinit(init="delta_orthogonal"), np.empty((3, 4, 2, 5), np.float64))
    centre = kernel[1, 1].copy()
    kernel[1, 1] = 0
    assert not kernel.any()
    np.testing.assert_allclose(centre @ centre.T, np.eye(2), atol=1e-12)


@pytest.mark.parametrize("block", [(4, 5, 6), (1, 5, 6), (3, 2, 4), (1, 1, 1), (4, 1, 6)])
@pytest.mark.parametrize("init", ["normal", "uniform", "lecun_normal"])
def test_the_values_do_not_depend_on_the_blocks(init: str, block: tuple) -> None:
    leaf = np.empty((4, 5, 6), np.float32)
    np.testing.assert_array_equal(
        edited(Reinit(init=init), leaf, block=block), edited(Reinit(init=init), leaf)
    )


def test_the_values_are_these_bits_for_ever() -> None:
    leaf = np.empty(4, np.float32)
    drawn = edited(Reinit(init="normal", stddev=1.0, seed=7), leaf)
    assert drawn.view(np.uint32).tolist() == [0xBECAFD40, 0xBEBF6073, 0x3F6AC211, 0x3F467D42]


def test_seed_and_path_decide_the_values() -> None:
    leaf = np.empty((20, 20), np.float32)

    def drawn(seed: int, path: str) -> np.ndarray:
        return edited(Reinit(init="normal", seed=seed), leaf, path=path_of(path))

    np.testing.assert_array_equal(drawn(1, "a/b"), drawn(1, "a/b"))
    others = [drawn(1, "a/b"), drawn(2, "a/b"), drawn(1, "a/c")]
    correlations = np.corrcoef([x.ravel() for x in others])
    assert abs(correlations - np.eye(3)).max() < 0.2


def test_the_plans_seed_stands_in_the_step_unless_the_edit_has_its_own() -> None:
    scene = ArrayScene()
    scene.seed = 5
    spec = spec_of(np.empty((3, 3), np.float32))
    assert kernels(made(Reinit(init="normal"), spec, PATH, scene))[0].seed == 5
    assert kernels(made(Reinit(init="normal", seed=0), spec, PATH, scene))[0].seed == 0


def refusal(edit: Reinit, shape: tuple = (3, 4), dtype: type = np.float32) -> str:
    with pytest.raises(PlanError) as caught:
        made(edit, spec_of(np.empty(shape, dtype)), PATH, ArrayScene())
    return str(caught.value)


def test_a_parameter_of_another_initializer_is_refused_with_those_that_there_are() -> None:
    text = refusal(Reinit(init="truncated_normal", scale=2.0))
    assert "truncated_normal has no parameter scale" in text
    assert "stddev, lower, upper" in text
    assert "it has none" in refusal(Reinit(init="zeros", in_axis=0))


def test_a_missing_parameter_is_named() -> None:
    assert "constant needs value" in refusal(Reinit(init="constant"))
    assert "needs mode, distribution" in refusal(Reinit(init="variance_scaling", scale=1.0))


def test_an_unknown_initializer_is_refused_with_the_nearest() -> None:
    assert "lecun_normal" in refusal(Reinit(init="lecun_norml"))


@pytest.mark.parametrize("shape", [(), (8,)])
def test_a_fan_of_a_vector_is_refused_with_what_works(shape: tuple) -> None:
    assert "init: zeros" in refusal(Reinit(init="lecun_normal"), shape)


@pytest.mark.parametrize(
    ("edit", "shape"),
    [
        (Reinit(init="lecun_normal", batch_axis=5), (3, 4)),
        (Reinit(init="normal", stddev=float("nan")), (3, 4)),
        (Reinit(init="truncated_normal", lower=1.0, upper=1.0), (3, 4)),
        (Reinit(init="truncated_normal", lower=38.0, upper=50.0), (3, 4)),
        (Reinit(init="variance_scaling", scale=-1.0, mode="fan_in", distribution="normal"), (3, 4)),
        (Reinit(init="orthogonal"), (4,)),
        (Reinit(init="orthogonal", column_axis=2), (3, 4)),
        (Reinit(init="delta_orthogonal"), (3, 4)),
        (Reinit(init="delta_orthogonal"), (3, 4, 2)),
        (Reinit(init="constant", value=1e39), (3, 4)),
    ],
)
def test_settings_that_do_not_suit_the_leaf_are_refused(edit: Reinit, shape: tuple) -> None:
    assert refusal(edit, shape)


def test_integers_are_refused_and_random_complex_values_too() -> None:
    assert "does not apply" in refusal(Reinit(init="zeros"), dtype=np.int32)
    assert "complex leaves are filled" in refusal(Reinit(init="normal"), dtype=np.complex64)


def test_every_initializer_of_jax_is_there() -> None:
    theirs = {name for name in dir(jax.nn.initializers) if name[0].islower()}
    assert set(INITIALIZERS) == theirs


@pytest.mark.parametrize(
    ("shape", "axes", "expected"),
    [
        ((3, 3, 16, 32), {}, (144.0, 288.0)),
        ((12, 64, 256), {"batch_axis": 0}, (64.0, 256.0)),
        ((64, 8, 32), {"in_axis": 0, "out_axis": (1, 2)}, (64.0, 256.0)),
        ((100, 16), {"out_axis": 0}, (16.0, 16.0)),
    ],
)
def test_fans_count_inputs_and_outputs_times_the_receptive_field(
    shape: tuple, axes: dict, expected: tuple
) -> None:
    assert fans(shape, **axes) == expected


def test_a_leaf_without_elements_is_left_alone() -> None:
    assert Reinit(init="lecun_normal").leaves_alone(spec_of(np.empty((0, 4), np.float32)))


def notes(edit: Reinit, **shapes: tuple[int, ...]) -> tuple[str, ...]:
    leaves = {
        f"params/{name}/kernel": np.zeros(shape, np.float32) for name, shape in shapes.items()
    }
    return rewritten(edit, draft_of(leaves), ArrayScene()).notes


def test_fans_that_nobody_chose_are_told_for_every_shape_with_three_axes() -> None:
    """3 layers of [16, 32] without `batch_axis`: 3 * 16 inputs, 3 * 32 outputs."""
    edit = Reinit(at="params", init="lecun_normal")
    up, qkv = notes(edit, up=(3, 16, 32), down=(3, 16, 32), qkv=(16, 4, 8), head=(16, 10))
    assert up.startswith(
        "lecun_normal: 'params/up/kernel' and 1 more [3,16,32]: fan_in 48, fan_out 96 "
        "(first axes counted as a convolution window); a stack of layers needs `batch_axis: 0`"
    )
    assert "'params/qkv/kernel' [16,4,8]: fan_in 64, fan_out 128" in qkv


def test_the_fans_of_convolutions_are_told_in_one_line() -> None:
    (note,) = notes(Reinit(at="params", init="he_normal"), a=(3, 3, 1, 16), b=(5, 5, 16, 32))
    assert note == (
        "he_normal: 'params/a/kernel' [3,3,1,16]: fan_in 9, fan_out 144; "
        "'params/b/kernel' [5,5,16,32]: fan_in 400, fan_out 800 "
        "(first axes counted as a convolution window)"
    )


@pytest.mark.parametrize(
    "edit",
    [
        Reinit(at="params", init="lecun_normal", batch_axis=0),
        Reinit(at="params", init="lecun_normal", in_axis=(0, 1)),
        Reinit(at="params", init="normal"),
        Reinit(at="params", init="zeros"),
    ],
)
def test_nothing_is_told_where_the_axes_were_named_or_there_are_no_fans(edit: Reinit) -> None:
    assert notes(edit, up=(3, 16, 32)) == ()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("...", 10), {"kernel": (64, 10), "bias": (10,)}),
        ("..., 10", {"kernel": (64, 10), "bias": (10,)}),
        (("*", 7), {"kernel": (64, 7)}),
        ((3, "...", 5), {"kernel": (3, 5)}),
        ((2, 3, 4), {"kernel": (2, 3, 4), "bias": (2, 3, 4)}),
        (5, {"kernel": (5,), "bias": (5,)}),
    ],
)
def test_a_shape_says_sizes_or_axes_as_they_are(
    shape: object, expected: dict[str, tuple[int, ...]]
) -> None:
    leaves = {"kernel": np.ones((64, 1000), np.float32), "bias": np.ones(1000, np.float32)}
    for name, leaf in leaves.items():
        edit = Reinit(init="normal", shape=shape)
        if name in expected:
            assert edited(edit, leaf).shape == expected[name]
            continue
        with pytest.raises(PlanError) as caught:
            made(edit, leaf)
        assert caught.value.problems[0].field == "shape"


@pytest.mark.parametrize("shape", ["", (0, 3), ("...", "..."), (-1,), "a, 3", "3; 4"])
def test_what_is_no_shape_is_refused(shape: object) -> None:
    with pytest.raises(PlanError, match="is no shape"):
        made(Reinit(init="zeros", shape=shape), np.ones((4, 3), np.float32))


def test_a_leaf_of_another_shape_is_drawn_as_one_that_had_it() -> None:
    edit = Reinit(init="lecun_normal", shape=("...", 5), seed=3)
    plain = Reinit(init="lecun_normal", seed=3)
    drawn = edited(edit, np.ones((40, 9), np.float32), block=(7, 2))
    np.testing.assert_array_equal(drawn, edited(plain, np.ones((40, 5), np.float32)))


def test_biases_have_an_initializer_of_their_own_beside_kernels() -> None:
    tree = {"head/kernel": np.ones((4, 3), np.float32), "head/bias": np.ones(3, np.float32)}
    with pytest.raises(PlanError) as caught:
        rewritten(Reinit(at="head", init="lecun_normal"), draft_of(tree), ArrayScene())
    assert "`bias_init: zeros` beside kernels (`ones` for the scales of norms)" in str(
        caught.value.problems[0].fix
    )
    edit = Reinit(at="head", init="lecun_normal", bias_init="zeros")
    draft = rewritten(edit, draft_of(tree), ArrayScene())
    names = {str(p): kernels(out.recipe)[0].name for p, out in draft.leaves.items()}
    assert names == {"head/kernel": "reinit", "head/bias": "fill"}
    assert [name_of(out.edits[0].effect) for out in draft.leaves.values()] == ["draws", "sets"]
