"""Small files that plans and options name beside checkpoints may lie in a bucket as well."""

import json

import numpy as np
import pytest

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.inputs import read_inputs
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import TREE, saved, uploaded

ORDER = [3, 1, 0, 2, *range(11, 3, -1)]
FILES = {
    "order.npy": lambda path: np.save(path, np.asarray(ORDER, ">i4")),
    "order.json": lambda path: path.write_text(json.dumps(ORDER)),
    "order.txt": lambda path: path.write_text("\n".join(map(str, ORDER))),
}


@pytest.fixture
def source(bucket, tmp_path):
    return uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")


def values_of(address):
    return open_checkpoint(address).read(LeafPath(("params", "w")))


@pytest.mark.parametrize("name", FILES)
def test_an_order_is_read_from_a_bucket_by_an_option_and_beside_a_plan(
    bucket, surgery, source, tmp_path, name
):
    FILES[name](tmp_path / name)
    bucket.upload(tmp_path / name, f"gs://bkt/plans/{name}")
    words = ("permute", source, "gs://bkt/a", "params/w", "--index", f"gs://bkt/plans/{name}")
    assert surgery(*words, "--quiet").code == 0
    edit = {"op": "permute", "at": "params/w", "index": name}
    bucket.put("bkt", "plans/p.json", json.dumps({"edits": [edit]}).encode())
    assert surgery("apply", source, tmp_path / "b", "gs://bkt/plans/p.json", "--quiet").code == 0
    for result in ("gs://bkt/a", str(tmp_path / "b")):
        np.testing.assert_array_equal(values_of(result), TREE["params"]["w"][ORDER])
        assert surgery("plan", result, "--inverse").code == 0


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.txt", None, "'gs://bkt/none.txt' does not exist"),
        ("bad.txt", b"a b", "'gs://bkt/bad.txt' holds no order"),
        ("short.txt", b"0 1", "the index is no order of 12 places"),
    ],
)
def test_an_order_in_a_bucket_that_is_none_is_refused(bucket, surgery, source, name, content, said):
    if content is not None:
        bucket.put("bkt", name, content)
    index = ("--index", f"gs://bkt/{name}")
    refused = surgery("permute", source, "gs://bkt/new", "params/w", *index)
    assert refused.code == 2
    assert said in refused.err


def test_a_batch_is_read_from_a_bucket(bucket, tmp_path):
    np.savez(tmp_path / "batch.npz", x=np.arange(3.0), y=np.ones(2))
    bucket.upload(tmp_path / "batch.npz", "gs://bkt/batch.npz")
    given = read_inputs(["gs://bkt/batch.npz", "image=gs://bkt/batch.npz:x"], seed=0)
    assert [each.name for each in given] == ["x", "y", "image"]
    np.testing.assert_array_equal(given[2].values, np.arange(3.0))


def test_a_batch_that_came_or_changed_since_is_read_as_it_is_now(bucket, tmp_path):
    with pytest.raises(SurgeryError, match="No such file"):
        read_inputs(["gs://bkt/batch.npy"], seed=0)
    for count in (3, 2):
        np.save(tmp_path / "batch.npy", np.arange(count))
        bucket.upload(tmp_path / "batch.npy", "gs://bkt/batch.npy")
        (given,) = read_inputs(["gs://bkt/batch.npy"], seed=0)
        assert len(given.values) == count
