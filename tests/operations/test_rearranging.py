"""Operations that move elements: against NumPy, by blocks of any shape, in normal form, within `--memory`, on disk."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts

from surgery_cli import surgery
from surgery_cli.draft.expression import Stored
from surgery_cli.errors import MissingError, PlanError
from surgery_cli.operations.copy import Copy
from surgery_cli.operations.expand import Expand
from surgery_cli.operations.interpolate_positions import InterpolatePositions
from surgery_cli.operations.pad import Pad
from surgery_cli.operations.permute import Permute
from surgery_cli.operations.rename import Rename
from surgery_cli.operations.repeat import Repeat
from surgery_cli.operations.rescale import Rescale
from surgery_cli.operations.reshape import Reshape
from surgery_cli.operations.resize import Resize
from surgery_cli.operations.slice import Slice
from surgery_cli.operations.squeeze import Squeeze
from surgery_cli.operations.transpose import Transpose
from surgery_cli.planning import plan_of
from surgery_cli.surgery import Options
from surgery_cli.tree.paths import LeafPath
from tests.operations.value_edits import (
    ArrayScene,
    draft_of,
    edited,
    made,
    rewritten,
    spec_of,
)

SLICES = (":", "0:2", "::2", "::-1", "1:", "-2:", "3:0:-1", "5:")
SLICES_OF = {
    size: [text for text in SLICES if eval(f"[*range({size})][{text}]")] for size in (1, 2, 3, 4, 6)
}
"""By the length of an axis, those that leave something of it."""


def drawn_shape(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4)))


def factors(count: int, rng: random.Random) -> list[int]:
    found = []
    while count > 1:
        found.append(rng.choice([n for n in range(2, count + 1) if count % n == 0]))
        count //= found[-1]
    for _ in range(rng.randint(0, 2)):
        found.insert(rng.randint(0, len(found)), 1)
    return found or [1]


@pytest.mark.parametrize("seed", range(30))
def test_blocks_of_any_shape_are_what_numpy_says(seed: int) -> None:
    rng = random.Random(seed)
    shape = drawn_shape(rng)
    leaf = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    axes, axis = rng.sample(range(len(shape)), len(shape)), rng.randrange(len(shape))
    order = rng.sample(range(shape[axis]), shape[axis])
    new, place = factors(leaf.size, rng), rng.randint(0, len(shape))
    count = rng.randint(1, len(shape))
    slices = ", ".join(rng.choice(SLICES_OF[size]) for size in shape[:count])
    widths = [(0, 0)] * len(shape)
    widths[axis] = (rng.randint(0, 3), rng.randint(1, 3))
    for edit, expected in (
        (Transpose(axes=tuple(axes)), leaf.transpose(axes)),
        (Reshape(shape=tuple(new)), leaf.reshape(new)),
        (Permute(axis=axis, index=tuple(order)), leaf.take(order, axis)),
        (Slice(slices=slices), eval(f"leaf[{slices}]", {"leaf": leaf})),
        (
            Pad(axis=axis, before=widths[axis][0], after=widths[axis][1], value=7.0),
            np.pad(leaf, widths, constant_values=7),
        ),
        (Expand(axis=place), np.expand_dims(leaf, place)),
        (Repeat(axis=axis, times=3), leaf.repeat(3, axis)),
        (Repeat(axis=axis, times=2, order="tiled"), np.concatenate([leaf, leaf], axis)),
        (Repeat(axis=place, times=3, new_axis=True), np.stack([leaf] * 3, place)),
        (Squeeze(), leaf.squeeze()),
    ):
        block = tuple(rng.randint(1, max(n, 1)) for n in expected.shape)
        result = edited(edit, leaf, block=block if expected.size else None)
        np.testing.assert_array_equal(result, expected, str((edit, shape, block)))


@pytest.mark.parametrize(
    "edits",
    [
        [Transpose(axes=(2, 0, 1)), Transpose(axes=(1, 2, 0))],
        [Reshape(shape=(6, 4)), Reshape(shape=(2, 3, 4))],
        [Expand(axis=(0, 2)), Squeeze()],
        [Permute(axis=1, index=(2, 0, 1)), Permute(axis=1, index=(1, 2, 0))],
        [Pad(axis=1, before=2, after=3), Slice(slices=":, 2:5")],
        [Slice(slices="::-1, :, ::-1"), Slice(slices="::-1, :, ::-1")],
        [Slice(slices="0:2, 0:3")],
        [Transpose(axes=(0, 1, 2))],
    ],
    ids=lambda edits: " then ".join(edit.name for edit in edits),
)
def test_what_undoes_itself_in_one_plan_is_the_stored_leaf_by_reference(edits: Any) -> None:
    draft = draft_of({"w": np.zeros((2, 3, 4), np.float32)})
    for edit in edits:
        draft = rewritten(
            type(edit)(
                **{f: getattr(edit, f) for f in edit.__struct_fields__ if f != "at"}, at="w"
            ),
            draft,
            ArrayScene(),
        )
    assert isinstance(draft.leaves[LeafPath(("w",))].recipe, Stored)
    assert draft.changed == []


@pytest.mark.parametrize(
    ("edit", "grid"),
    [
        (Transpose(axes=(1, 0)), (64, 10)),
        (Reshape(shape=(100, 8, 8)), (10, 8, 8)),
        (Reshape(shape=(6400,)), (640,)),
        (Expand(axis=1), (10, 1, 64)),
        (Slice(slices="5:95, :32"), (10, 32)),
        (Permute(index=tuple(range(99, -1, -1))), (10, 64)),
        (Pad(axis=1, after=6), (10, 70)),
        (Repeat(axis=0, times=2), (10, 64)),
        (InterpolatePositions(axis=0, size=150), (10, 64)),
        (Resize(axis=0, size=128), (10, 64)),
        (Resize(axis=1, size=128), (10, 128)),
        (Repeat(axis=1, times=2, order="tiled"), (10, 128)),
        (Repeat(axis=1, times=8, new_axis=True), (10, 1, 64)),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_the_grid_of_chunks_is_the_image_of_the_source(edit: Any, grid: tuple[int, ...]) -> None:
    leaf = spec_of(np.zeros((100, 64), np.float32), chunk_shape=(10, 64), write_shape=(10, 64))
    recipe = made(edit, leaf)
    assert (recipe.spec.chunk_shape, recipe.spec.write_shape) == (grid, grid)


def test_chunks_of_split_axes_are_split_with_them() -> None:
    leaf = spec_of(np.zeros((100, 64), np.float32), chunk_shape=(10, 8), write_shape=(10, 16))
    split = made(Reshape(shape=(100, 8, 8)), leaf).spec
    assert (split.chunk_shape, split.write_shape) == ((10, 1, 8), (10, 2, 8))
    assert made(Reshape(shape=(100, 64)), split).spec.chunk_shape == (10, 8)


def saved(path: Path, state: Any, *, chunk: int | None = None, use_zarr3: bool = False) -> None:
    options = {} if chunk is None else {"chunk_byte_size": chunk}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=True, use_zarr3=use_zarr3)
    args = ocp.args.PyTreeSave(
        state, save_args=jax.tree.map(lambda _: ocp.SaveArgs(**options), state)
    )
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(path, args=args)


def restored(path: Path) -> Any:
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


@pytest.mark.parametrize("use_zarr3", [False, True])
def test_a_leaf_larger_than_the_memory_streams_by_chunks(tmp_path: Path, use_zarr3: bool) -> None:
    leaf = np.random.default_rng(0).normal(size=(2048, 1024)).astype(np.float32)
    saved(tmp_path / "a", {"w": jax.numpy.asarray(leaf)}, chunk=1 << 20, use_zarr3=use_zarr3)
    order = np.random.default_rng(1).permutation(2048)
    np.save(tmp_path / "order.npy", order)
    for name, edit, expected in (
        ("t", Transpose(at="w"), leaf.T),
        ("r", Reshape(at="w", shape=(1024, 2048)), leaf.reshape(1024, 2048)),
        ("p", Permute(at="w", index=str(tmp_path / "order.npy")), leaf[order]),
        ("s", Slice(at="w", slices="5:2000, ::2"), leaf[5:2000, ::2]),
        ("g", Pad(at="w", axis=0, before=3), np.pad(leaf, [(3, 0), (0, 0)])),
        ("l", Repeat(at="w", axis=0, times=2), leaf.repeat(2, 0)),
        ("e", Repeat(at="w", axis=1, times=3, new_axis=True), np.stack([leaf] * 3, 1)),
    ):
        options = Options(memory_bytes=6 << 20)
        report = surgery.apply(
            str(tmp_path / "a"), str(tmp_path / name), plan_of([edit]), options=options
        )
        assert not any("takes more" in note for note in report.notes), report.notes
        np.testing.assert_array_equal(restored(tmp_path / name)["w"], expected)


def test_a_sharding_moves_with_its_axes_or_goes(tmp_path: Path) -> None:
    source, result = tmp_path / "a", tmp_path / "b"
    state = {name: np.ones((4, 6), np.float32) for name in ("t", "s", "r")}
    saved(source, jax.tree.map(jax.numpy.asarray, state))
    mesh = {"sharding_type": "NamedSharding", "shape": [2], "axis_names": ["x"]}
    text = json.dumps({**mesh, "partition_spec": ["x", None]})
    sharding = json.loads((source / "_sharding").read_text())
    (source / "_sharding").write_text(json.dumps(dict.fromkeys(sharding, text)))
    edits = [
        Transpose(at="t"),
        Slice(at="s", slices=":3"),
        Reshape(at="r", shape=(2, 12)),
    ]
    surgery.apply(str(source), str(result), plan_of(edits))
    written = json.loads((result / "_sharding").read_text()).values()
    specs = [json.loads(each)["partition_spec"] for each in written]
    assert sorted(map(str, specs)) == sorted(map(str, [[None, "x"], [None, None], [None, None]]))


def test_pad_and_slice_in_two_runs_give_back_every_slot(tmp_path: Path) -> None:
    import optax

    params = {"w": jax.numpy.asarray(np.random.default_rng(0).normal(size=(5, 4)), "float32")}
    tx = optax.adam(1e-2)
    updates, slots = tx.update({"w": params["w"] * 0.3}, tx.init(params), params)
    state = {"params": optax.apply_updates(params, updates), "opt_state": slots}
    saved(tmp_path / "a", state)
    pad = Pad(at="params/w", axis=1, before=1, after=2, value=3.0)
    cut = Slice(at="params/w", slices=":, 1:5")
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([pad]))
    surgery.apply(str(tmp_path / "b"), str(tmp_path / "c"), plan_of([cut]))
    pairs = zip(*(jax.tree.leaves(restored(tmp_path / name)) for name in "ac"), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_copies_of_the_params_beside_the_optimizer_move_along(tmp_path: Path) -> None:
    leaf = np.arange(6, dtype=np.float32).reshape(2, 3)
    saved(tmp_path / "a", {"params": {"w": leaf}, "ema_params": {"w": leaf + 1}})
    report = surgery.apply(
        str(tmp_path / "a"), str(tmp_path / "b"), plan_of([Transpose(at="params/w")])
    )
    np.testing.assert_array_equal(restored(tmp_path / "b")["ema_params"]["w"], (leaf + 1).T)
    assert report.edits[0].twins == {"carried": 1}
    said = "keep their values: 'ema_params' (name them to edit them, too)"
    assert not any(said in note for note in report.notes)
    doubled = surgery.plan(str(tmp_path / "a"), plan_of([Rescale(at="params/w", by=2)]))
    assert any(said in note for note in doubled.notes)


def read(file: str) -> bytes:
    return Path(file).read_bytes()


@pytest.mark.parametrize("name", ["order.npy", "order.json", "order.txt"])
def test_an_order_is_read_from_a_file(tmp_path: Path, name: str) -> None:
    order, path = [2, 0, 3, 1], tmp_path / name
    if name.endswith("npy"):
        np.save(path, np.asarray(order, ">i8"))
    elif name.endswith("json"):
        path.write_text(json.dumps(order))
    else:
        path.write_text("\n".join(map(str, order)))
    leaf = np.arange(8.0).reshape(4, 2)
    edit = Permute(index=str(path)).settled(read)
    np.testing.assert_array_equal(edited(edit, leaf), leaf[order])


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (Transpose(axes=(0, 0)), "names an axis twice"),
        (Transpose(axes=(0, -2)), "does not fit a leaf with 2 axes"),
        (Transpose(axes=(1,)), "leaves out axes"),
        (Reshape(shape=(5, 5)), "the products of .4, 3. and .5, 5. are not the same"),
        (Reshape(shape=(-1, -1)), "is no shape"),
        (Squeeze(axis=0), "only axes of size 1 hold nothing"),
        (Expand(axis=5), "does not fit"),
        (Slice(slices=":, :, :"), "it names 3 axes"),
        (Slice(slices="3"), "write `3:4` for this place, and `squeeze`"),
        (Slice(slices="::0"), "a step is not 0"),
        (Slice(slices="1:1"), "leaves nothing"),
        (Slice(slices=":, 3:"), "'3:' holds none of the 3 places of an axis"),
        (Pad(axis=0), "no places are asked for"),
        (Pad(axis=2, after=1), "does not fit"),
        (Pad(axis=0, after=1, value=float("nan")), "must be a finite number"),
        (Repeat(axis=2, times=2), "does not fit a leaf with 2 axes"),
        (Repeat(axis=3, times=2, new_axis=True), "does not fit a leaf with 3 axes"),
        (Repeat(axis=0, times=2, new_axis=True, order="tiled"), "means nothing with"),
        (
            Permute(index=(0, 1, 1, 7)),
            "it holds 4 numbers: the number 7 is beyond them, and 2 and 3 are missing, and 1 stands there",
        ),
        (Permute(index=(0, 0, 1, 2)), "the number 3 is missing, and 0 stands there more than once"),
        (Permute(index=(0, 0, 1, 1)), "the numbers 2 and 3 are missing, and 0 and 1 stand there"),
        (Permute(index=(0, 1, 2, 3, 8, 9)), "the numbers 8 and 9 are beyond them"),
        (Permute(index=(0, 1, 2)), "it holds 3 numbers: the number 3 is missing"),
    ],
)
def test_what_does_not_fit_is_said(edit: Any, said: str) -> None:
    with pytest.raises(PlanError) as caught:
        edited(edit, np.zeros((4, 3), np.float32))
    assert np.any([__import__("re").search(said, str(p)) for p in caught.value.problems])


def test_a_file_that_holds_no_order_is_said(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="does not exist"):
        Permute(index=str(tmp_path / "none.txt")).settled(read)
    np.save(tmp_path / "x.npy", np.zeros(3))
    (tmp_path / "x.txt").write_text("a b")
    (tmp_path / "x.json").write_text('{"a": 1}')
    for name in ("x.npy", "x.txt", "x.json"):
        with pytest.raises(PlanError, match="holds no order"):
            Permute(index=str(tmp_path / name)).settled(read)


def test_every_leaf_that_does_not_fit_is_named_as_the_series_that_it_is() -> None:
    arrays = {f"layers_{n}/w": np.zeros((4, n + 2), np.float32) for n in range(12)}
    with pytest.raises(PlanError) as caught:
        rewritten(Reshape(at="**", shape=(7, 7)), draft_of(arrays), ArrayScene())
    assert [p.path for p in caught.value.problems] == [*arrays]
    assert str(caught.value).count("does not become") == 1
    assert "'layers_0/w': float32[4,2]" in str(caught.value)
    assert "with 11 more: 'layers_{1..11}/w'" in str(caught.value)


def test_the_stored_array_has_that_grid(tmp_path: Path) -> None:
    leaf = jax.numpy.asarray(np.random.default_rng(0).normal(size=(64, 64)), "float32")
    saved(tmp_path / "a", {"w": leaf}, chunk=4096)
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([Transpose(at="w")]))
    grids = [
        ts.open(
            {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": f"file://{tmp_path}/{name}/"}, "path": "w"}
        ).result().chunk_layout.write_chunk.shape
        for name in "ab"
    ]  # fmt: skip
    assert grids[1] == grids[0][::-1]


def test_layers_under_numbers_are_repeated_by_copies(tmp_path: Path) -> None:
    arrays = {f"layers_{n}": {"w": np.full((2, 2), n, np.float32)} for n in range(3)}
    saved(tmp_path / "a", {"params": arrays})
    tiled = [Copy(at="params/layers_{0..2}", to="params/layers_{3..5}")]
    beside = [
        Rename(at="params/layers_{0..2}", to="params/layers_{0..4..2}"),
        Copy(at="params/layers_{0..4..2}", to="params/layers_{1..5..2}"),
    ]
    for name, plan, expected in (("t", tiled, [0, 1, 2] * 2), ("b", beside, [0, 0, 1, 1, 2, 2])):
        surgery.apply(str(tmp_path / "a"), str(tmp_path / name), plan_of(plan))
        found = restored(tmp_path / name)["params"]
        assert [found[f"layers_{n}"]["w"][0, 0] for n in range(6)] == expected
