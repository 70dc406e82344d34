"""PyTorch files, against the values that PyTorch itself has of them (`tests/fixtures/torch/make.py`)."""

import json
import shutil
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.files.strided import StridedArray
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.dtypes import KNOWN_DTYPES, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from tests.fixture_truths import FIXTURES

TORCH = FIXTURES / "torch"
FILES = sorted(path.name.removesuffix(".truth.npz") for path in TORCH.glob("*.truth.npz"))
EMPTIES = {"None": "None", "List": "[]", "Dict": "{}", "Tuple": "()"}


def true_values(name: str) -> dict[str, np.ndarray]:
    """By path, with the dtypes that NumPy does not store put back."""
    found = {}
    with np.load(TORCH / f"{name}.truth.npz") as stored:
        for key, values in stored.items():
            dtype, is_told, path = key.partition(":|")
            if not is_told:
                found[key] = values
            elif dtype == "text":
                found[path] = values
            else:
                found[path] = values.view(getattr(ml_dtypes, dtype))
    return {path.replace("|", "/"): values for path, values in found.items()}


def apply(source: Path, new: Path, name: str, **fields: object) -> None:
    plan = plan_of([operation_from_options(name, fields)])
    surgery.apply(str(source), str(new), plan)


@pytest.mark.parametrize("name", FILES)
def test_leaves_are_what_pytorch_says_of_them(name: str) -> None:
    checkpoint = open_checkpoint(str(TORCH / name))
    truth = true_values(name)
    if name == "tensor.pt":
        truth = {"tensor": truth[""]}
    assert [str(path) for path in checkpoint.tree] == list(truth)
    for path, spec in checkpoint.tree.items():
        value, expected = checkpoint.read(path), truth[str(path)]
        if spec.kind is LeafKind.EMPTY:
            assert EMPTIES[spec.empty] == str(expected)
        elif spec.kind is LeafKind.STRING:
            assert value == str(expected)
        else:
            assert (spec.shape, spec.dtype) == (expected.shape, expected.dtype.name), path
            native = expected.astype(expected.dtype.newbyteorder("="))
            assert np.asarray(value).tobytes() == native.tobytes(), path


@pytest.mark.parametrize("dtype", [name for name in KNOWN_DTYPES if item_bytes(name) > 1])
def test_every_dtype_is_read_from_the_byte_order_of_other_machines(
    dtype: str, tmp_path: Path
) -> None:
    values = np.arange(6).astype(getattr(ml_dtypes, dtype, dtype)).reshape(2, 3)
    width = values.itemsize // (2 if values.dtype.kind == "c" else 1)
    backwards = values.tobytes()[::-1]
    parts = [backwards[at : at + width] for at in range(0, len(backwards), width)]
    (tmp_path / "values").write_bytes(b"".join(parts[::-1]))
    array = StridedArray(
        tmp_path / "values", (2, 3), dtype, offset=0, strides=(3, 1), is_swapped=True
    )
    assert array.read().tobytes() == values.tobytes()


@pytest.mark.parametrize("slab", [8, 64, 1 << 20])
def test_windows_of_views_are_read_without_the_rest(
    slab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_SLAB_BYTES", "_CLOSE_BYTES"):
        monkeypatch.setattr(f"surgery_cli.store.files.strided.{name}", slab)
    checkpoint = open_checkpoint(str(TORCH / "views.pt"))
    random = np.random.default_rng(0)
    for name, expected in true_values("views.pt").items():
        for _ in range(20):
            bounds = [sorted(random.integers(0, n + 1, 2)) for n in expected.shape]
            window = tuple(slice(int(a), int(b)) for a, b in bounds)
            block = checkpoint.read(LeafPath((name,)), window)
            np.testing.assert_array_equal(block, expected[window])
            assert block.flags.c_contiguous


def test_a_training_checkpoint_becomes_an_orbax_directory_with_every_leaf(tmp_path: Path) -> None:
    apply(TORCH / "training.pt", tmp_path / "new", "rename", at="epoch", to="step")
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    truth = true_values("training.pt")
    for name in ("embed.weight", "mlp.1.num_batches_tracked", "mask"):
        np.testing.assert_array_equal(restored["model"][name], truth[f"model/{name}"])
    moments = restored["optimizer"]["state"]["5"]["exp_avg_sq"]
    np.testing.assert_array_equal(moments, truth["optimizer/state/5/exp_avg_sq"])
    assert restored["optimizer"]["param_groups"][0]["betas"] == [0.9, 0.999]
    assert restored["optimizer"]["param_groups"][0]["foreach"] is None
    assert (restored["step"], restored["name"], restored["done"]) == (3, "tiny", False)
    assert (restored["no losses"], restored["history"]) == ([], [1.5, {"loss": 2}])


def test_edits_of_params_ask_what_the_slots_of_an_unknown_optimizer_are(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="cannot tell which params 'optimizer/state' belongs to"):
        apply(TORCH / "training.pt", tmp_path / "new", "rescale", at="model/**", by="2")


def test_a_folder_of_shards_is_a_source_a_donor_and_a_likeness(tmp_path: Path) -> None:
    truth = true_values("sharded")
    apply(TORCH / "sharded", tmp_path / "new", "rescale", at="mlp.*.weight", by="2")
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    assert sorted(restored) == sorted(truth)
    np.testing.assert_array_equal(restored["mlp.0.weight"], truth["mlp.0.weight"] * np.float32(2))
    assert surgery.verify(str(tmp_path / "new"), like=str(TORCH / "sharded")).agrees
    given = {"at": "mlp.0.weight", "with": str(TORCH / "state.pt")}
    apply(tmp_path / "new", tmp_path / "newer", "replace", **given)
    replaced = open_checkpoint(str(tmp_path / "newer")).read(LeafPath(("mlp.0.weight",)))
    np.testing.assert_array_equal(replaced, true_values("state.pt")["mlp.0.weight"])


def test_a_shard_that_is_missing_or_holds_other_tensors_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "sharded"
    shutil.copytree(TORCH / "sharded", folder)
    index = folder / "pytorch_model.bin.index.json"
    first, second = sorted(path.name for path in folder.glob("*.bin"))
    weight_map = json.loads(index.read_text())["weight_map"]
    name = next(name for name, file in weight_map.items() if file == first)
    for changed, says in (
        ({**weight_map, name: second}, f"{second}' does not hold '{name}'"),
        ({n: f for n, f in weight_map.items() if n != name}, f"holds '{name}', and the index"),
        ({**weight_map, "more": first}, "does not hold 'more'"),
    ):
        index.write_text(json.dumps({"weight_map": changed}))
        with pytest.raises(CheckpointError, match=says):
            _ = open_checkpoint(str(folder)).tree
    index.write_text(json.dumps({"weight_map": weight_map}))
    (folder / second).unlink()
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"00002-of-00002\.bin' does not exist"):
            _ = open_checkpoint(str(folder)).tree
        index.unlink(missing_ok=True)


def _rezipped(source: Path, target: Path, how: int, **changed: bytes) -> Path:
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", how) as new:
        for info in old.infolist():
            last = info.filename.partition("/")[2]
            new.writestr(info.filename, changed.get(last, old.read(info)))
    return target


def test_a_flipped_bit_in_a_tensor_is_found_by_its_checksum(tmp_path: Path) -> None:
    content = bytearray((TORCH / "state.pt").read_bytes())
    at = content.index(true_values("state.pt")["mlp.0.weight"].tobytes())
    content[at + 5] ^= 4
    (tmp_path / "state.pt").write_bytes(content)
    checkpoint = open_checkpoint(str(tmp_path / "state.pt"))
    assert checkpoint.read(LeafPath(("mlp.2.bias",))).shape == (4,)
    for window in (None, (slice(0, 1), slice(0, 4)), (slice(0, 8), slice(0, 4))):
        with pytest.raises(CheckpointError, match="is not a whole PyTorch checkpoint"):
            checkpoint.read(LeafPath(("mlp.0.weight",)), window)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda new: shutil.copy(TORCH / "old.pt", new), "before PyTorch 1.6"),
        (lambda new: _rezipped(TORCH / "state.pt", new, zipfile.ZIP_DEFLATED), "is compressed"),
        (lambda new: new.write_bytes((TORCH / "state.pt").read_bytes()[:3000]), "does not read"),
    ],
    ids=["old format", "compressed", "cut short"],
)
def test_what_cannot_be_read_says_why_and_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: object, says: str
) -> None:
    make(tmp_path / "m.pt")
    with pytest.raises(SystemExit) as left:
        run(["inspect", str(tmp_path / "m.pt")])
    said = capsys.readouterr().err
    assert left.value.code == 3
    assert says in said
    assert len(said.strip().splitlines()) == 3
