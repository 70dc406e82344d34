"""Files of PyTorch, safetensors and T5X in a bucket read as they do on a disk, in ranges, and come out as there."""

import numpy as np
import pytest
from safetensors import numpy as reference

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.fixture_truths import FIXTURES
from tests.store.t5x_checkpoints import write_t5x

TORCH = ("training.pt", "views.pt", "big-endian.pt", "sharded")


def shards(folder):
    folder.mkdir()
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        reference.save_file({f"w{number}": np.arange(6.0) * number}, folder / name)
    (folder / "config.json").write_text("{}")
    return folder


def t5x(folder):
    return write_t5x(folder / "checkpoint_10").parent


MADE = {"shards": shards, "t5x": t5x}


@pytest.mark.parametrize("name", [*TORCH, *MADE])
def test_what_is_in_a_bucket_reads_as_on_the_disk(bucket, tmp_path, name):
    here = MADE[name](tmp_path / name) if name in MADE else FIXTURES / "torch" / name
    there = f"gs://bkt/runs/{name}"
    bucket.upload(here, there)
    opened, local = open_checkpoint(there), open_checkpoint(str(here))
    assert opened.tree == local.tree
    assert opened.layout == local.layout
    for path in local.tree:
        np.testing.assert_array_equal(opened.read(path), local.read(path))


def test_a_large_tensor_beside_is_not_read(bucket, tmp_path):
    state = {"large": np.zeros(3 << 18), "small": np.arange(4.0)}
    reference.save_file(state, tmp_path / "m.safetensors")
    bucket.upload(tmp_path / "m.safetensors", "gs://bkt/m.safetensors")
    bucket.log.clear()
    checkpoint = open_checkpoint("gs://bkt/m.safetensors")
    np.testing.assert_array_equal(checkpoint.read(LeafPath(("small",))), state["small"])
    assert sum(request.sent for request in bucket.log) < 1 << 18


def test_an_edit_of_t5x_in_a_bucket_is_t5x_there(bucket, tmp_path):
    there = "gs://bkt/run"
    bucket.upload(t5x(tmp_path / "t5x"), there)
    at = "target/token_embedder/embedding"
    plan = plan_of([operation_from_options("rescale", {"at": at, "by": "2"})])
    surgery.apply(there, "gs://bkt/new", plan, options=surgery.Options(optimizer="keep"))
    new, old = open_checkpoint("gs://bkt/new"), open_checkpoint(there)
    assert new.layout == old.layout
    for path in old.tree:
        factor = 2 if str(path) == at else 1
        np.testing.assert_array_equal(new.read(path), old.read(path) * factor)


def test_an_export_as_t5x_into_a_bucket_is_t5x_there(bucket, tmp_path):
    source = t5x(tmp_path / "t5x")
    surgery.apply(str(source), "gs://bkt/new", plan_of([], output=Export(format="t5x")))
    new, old = open_checkpoint("gs://bkt/new"), open_checkpoint(str(source))
    assert new.layout == old.layout
    for path in old.tree:
        np.testing.assert_array_equal(new.read(path), old.read(path))
