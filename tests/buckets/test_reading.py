"""Checkpoints, donors, plans and files of arrays in a bucket: the same as on a disk, wherever one is named."""

import shutil
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.orbax import contexts
from surgery_cli.tree.paths import LeafPath
from tests.buckets import google_server
from tests.buckets.checkpoints import MARK, RESCALED, SAMPLES, TREE, mark, saved, uploaded
from tests.buckets.server import Faults
from tests.fixture_truths import FIXTURES, finished

CAST = plan_of([operation_from_options("cast", {"to": "bfloat16"})])


@pytest.mark.parametrize("name", finished())
def test_every_fixture_is_there_what_it_is_here(bucket, name):
    here = FIXTURES / name
    there = uploaded(bucket, here, f"gs://bkt/runs/{name.replace('/', '_')}")
    opened, local = open_checkpoint(there), open_checkpoint(str(here))
    assert opened.tree == local.tree
    assert opened.layout == local.layout
    assert (opened.step, list(opened.steps)) == (local.step, list(local.steps))
    for path in local.tree:
        np.testing.assert_array_equal(opened.read(path), local.read(path))


@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}, {"use_zarr3": True}], ids=str)
def test_a_result_on_this_disk_is_restored_by_orbax(bucket, tmp_path, how):
    there = uploaded(bucket, saved(tmp_path / "ck", **how), "gs://bkt/ck")
    surgery.apply(there, str(tmp_path / "new"), RESCALED)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(tmp_path / "new")
    np.testing.assert_array_equal(restored["params"]["w"], 2 * TREE["params"]["w"])
    np.testing.assert_array_equal(restored["params"]["b"], TREE["params"]["b"])
    assert restored["opt_state"]["count"] == 3
    assert {path.name for path in tmp_path.iterdir()} == {"ck", "new"}
    assert {request.kind for request in bucket.log} <= {"list", "look up", "read"}


def test_a_step_of_a_root_is_named_as_on_a_disk(bucket, tmp_path):
    there = uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/digits")
    newest = open_checkpoint(there)
    assert newest.step == 500
    assert newest.address == "gs://bkt/runs/digits@500"
    for text in (f"{there}@250", f"{there}/250", f"{there}//./250/"):
        assert open_checkpoint(text).step == 250
    assert open_checkpoint(there, step=250).step == 250


def test_a_run_may_be_the_whole_bucket(service, tmp_path):
    """Nothing stands above a bucket: nothing is looked up there."""
    for step in ("250", "500"):
        uploaded(service, SAMPLES / "digits_manager" / step, f"{service.root}/{step}")
    for text in (service.root, f"{service.root}/"):
        assert open_checkpoint(text).step == 500
        assert open_checkpoint(text, step=250).step == 250
    for text in (f"{service.root}@250", f"{service.root}/@250", f"{service.root}/250"):
        assert open_checkpoint(text).step == 250
    surgery.apply(f"{service.root}@250", str(tmp_path / "new"), CAST)
    assert open_checkpoint(str(tmp_path / "new")).tree
    with pytest.raises(CheckpointError, match="there is no bucket 'other'"):
        open_checkpoint("gs://other@3")


def test_a_checkpoint_may_be_the_whole_bucket(bucket, tmp_path):
    for file in saved(tmp_path / "ck").rglob("*"):
        if file.is_file():
            bucket.put("bkt", str(file.relative_to(tmp_path / "ck")), file.read_bytes())
    bucket.put("bkt", MARK, b"")
    assert len(open_checkpoint("gs://bkt").tree) == 3


def test_a_path_of_this_disk_is_never_taken_for_a_bucket(bucket, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(
        saved(tmp_path / "ck"), tmp_path / "gs:" / "ck"
    )  # a name that Orbax does not take
    for text in ("./gs:/ck", f"{tmp_path}/gs:/ck", f"file://{tmp_path}/gs:/ck"):
        assert len(open_checkpoint(text).tree) == 3
    with pytest.raises(CheckpointError, match="'gs:/ck' has one slash"):
        open_checkpoint("gs:/ck")  # which is what pathlib makes of an address
    with pytest.raises(CheckpointError, match="there is no bucket 'others'"):
        open_checkpoint("gs://others")
    assert {request.path for request in bucket.log} == {"/storage/v1/b/others/o"}


def test_what_orbax_takes_for_unfinished_there_is_unfinished(bucket, tmp_path):
    flat, root = saved(tmp_path / "flat"), tmp_path / "steps"
    shutil.copytree(SAMPLES / "digits_manager", root)
    for folder in (flat, root):
        for file in folder.rglob(MARK):
            file.unlink()
        bucket.upload(folder, f"gs://bkt/{folder.name}")
    for text in ("gs://bkt/flat", "gs://bkt/steps/500"):
        with pytest.raises(CheckpointError, match="is an unfinished save"):
            open_checkpoint(text)
    with pytest.raises(CheckpointError, match="has no finished step"):
        open_checkpoint("gs://bkt/steps")
    mark(bucket, "gs://bkt/steps/250")
    assert open_checkpoint("gs://bkt/steps").step == 250
    with pytest.raises(CheckpointError, match="step 500 in 'gs://bkt/steps' is unfinished"):
        open_checkpoint("gs://bkt/steps@500")
    mark(bucket, "gs://bkt/flat")
    assert len(open_checkpoint("gs://bkt/flat").tree) == 3


def test_orbax_itself_draws_that_line(bucket, tmp_path):
    from etils import epath

    saved(epath.Path("gs://bkt/ck"))
    assert open_checkpoint("gs://bkt/ck").tree == open_checkpoint(str(saved(tmp_path / "ck"))).tree
    del bucket.buckets["bkt"][f"ck/{MARK}"]
    with ocp.PyTreeCheckpointer() as checkpointer, pytest.raises(ValueError, match="incomplete"):
        checkpointer.restore(epath.Path("gs://bkt/ck"))
    with pytest.raises(CheckpointError, match="is an unfinished save"):
        open_checkpoint("gs://bkt/ck")


def test_requests_are_in_proportion_to_files_not_to_leaves(bucket, tmp_path):
    counts = []
    for leaves in (1, 2, 400):  # the first in a process makes TensorStore's driver say hello
        tree = {f"layer_{n}": np.full(3, n, np.float32) for n in range(leaves)}
        there = uploaded(bucket, saved(tmp_path / str(leaves), tree), f"gs://bkt/{leaves}")
        bucket.log.clear()
        assert len(surgery.inspect(there).leaves) == leaves
        counts.append(len(bucket.log))
    assert counts[1] == counts[2] < 20


def test_a_leaf_is_read_by_its_ranges(bucket, tmp_path):
    values = np.random.default_rng(0).standard_normal((4, 1 << 20)).astype(np.float32)
    tree = {f"p{n}": row for n, row in enumerate(values)}
    there = uploaded(bucket, saved(tmp_path / "ck", tree), "gs://bkt/ck")
    plan = plan_of([operation_from_options("rescale", {"at": "p2", "by": 2.0})])
    surgery.plan(there, plan)
    bucket.log.clear()
    np.testing.assert_array_equal(open_checkpoint(there).read(LeafPath(("p2",))), values[2])
    assert sum(r.sent for r in bucket.log if r.kind == "read") < 1.05 * values[2].nbytes


def test_what_changes_while_it_is_read_is_found_out(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    np.save(tmp_path / "x.npy", np.zeros(3))
    bucket.upload(tmp_path / "x.npy", "gs://bkt/x.npy")
    opened, file = open_checkpoint(there), ArrayFile("gs://bkt/x.npy")
    for source in (opened, file):
        assert source.fingerprint
        assert source.is_unchanged()
    name = next(name for name in bucket.buckets["bkt"] if name.startswith("ck/d/"))
    bucket.put("bkt", name, b"something else")
    bucket.put("bkt", "x.npy", bucket.buckets["bkt"]["x.npy"].data + b"more")
    assert not opened.is_unchanged()
    assert not file.is_unchanged()
    del bucket.buckets["bkt"]["x.npy"]
    assert not file.is_unchanged()


@pytest.mark.parametrize("kind", ["503", "reset", "cut"])
def test_faults_change_no_result(bucket, tmp_path, kind):
    here = saved(tmp_path / "ck")
    there = uploaded(bucket, here, "gs://bkt/ck")
    bucket.faults = Faults(kind, every=6)
    assert surgery.diff(there, str(here)).equal
    failed = [r for r in bucket.log if r.status not in (200, 206, 304, 404)]
    assert failed or kind == "cut"


def test_missing_credentials_are_said_in_a_line(bucket):
    bucket.faults = Faults("401", every=1)
    with pytest.raises(CheckpointError) as refused:
        open_checkpoint("gs://bkt/ck")
    (problem,) = refused.value.problems
    assert problem.what == "'gs://bkt/ck' cannot be read"
    assert problem.why.startswith("no credentials for it: ")
    assert "`gcloud auth application-default login`" in problem.fix


def test_a_missing_extra_is_said_in_a_line(tmp_path):
    script = (
        "import sys; sys.modules['gcsfs'] = None\n"
        "from surgery_cli.cli.main import run\n"
        "run(['inspect', 'gs://bkt/ck'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "error: 'gs://bkt/ck' cannot be read",
        "  `gs://` needs the package gcsfs",
        "  `pip install 'surgery-cli[gcs]'`",
    ]


def test_nothing_of_a_service_is_loaded_where_no_address_is_used(tmp_path):
    script = (
        "import sys\n"
        "from surgery_cli.cli.main import run\n"
        "try:\n    run(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    source = SAMPLES / "digits_standard"
    words = ["rescale", source, tmp_path / "new", "params/Dense_1", "--by", "0.5"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.rpartition("LOADED")[2].split())
    assert not loaded & {"aiohttp", "fsspec", "gcsfs", "google", "requests", "s3fs"}


@pytest.mark.parametrize("name", ["orbax-0.5.10/cm_composite", "orbax-0.5.10/sharded4_noocdbt"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_listings_of_several_pages_are_whole(bucket, monkeypatch, name, size):
    here = FIXTURES / name
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    uploaded(bucket, here, "gs://bkt/runs/ck-1")
    monkeypatch.setattr(google_server, "PAGE", size)
    opened, local = open_checkpoint(there), open_checkpoint(str(here))
    assert opened.tree == local.tree
    assert opened.steps.keys() == local.steps.keys()
    assert opened.items.keys() == local.items.keys()


def test_many_small_leaves_are_read_in_few_requests_and_a_few_cost_little(bucket, tmp_path):
    rng = np.random.default_rng(0)
    tree = {f"layer_{n}": rng.standard_normal(4096).astype(np.float32) for n in range(300)}
    here = saved(tmp_path / "ck", tree)
    there = uploaded(bucket, here, "gs://bkt/ck")
    bucket.log.clear()
    assert surgery.diff(there, str(here)).equal
    assert len(bucket.log) < 40
    assert sum(r.sent for r in bucket.log) < 2 * sum(v.nbytes for v in tree.values())
    opened = open_checkpoint(uploaded(bucket, here, "gs://bkt/again"))
    assert len(opened.tree) == 300
    bucket.log.clear()
    np.testing.assert_array_equal(opened.read(LeafPath(("layer_7",))), tree["layer_7"])
    assert [r.kind for r in bucket.log] == ["read"]
    assert sum(r.sent for r in bucket.log) <= 64 << 10


def test_a_service_that_fails_is_not_taken_for_damage(bucket, tmp_path, monkeypatch):
    tree = {"w": np.random.default_rng(0).standard_normal((700, 1000)).astype(np.float32)}
    there = uploaded(bucket, saved(tmp_path / "ck", tree), "gs://bkt/ck")
    monkeypatch.setitem(contexts._RETRIES, "max_retries", 1)
    opened = open_checkpoint(there)
    (path,) = opened.tree
    bucket.faults = Faults("503", every=1)
    with pytest.raises(CheckpointError) as refused:
        opened.read(path)
    (problem,) = refused.value.problems
    assert problem.what == "'gs://bkt/ck' cannot be read"
    assert "the service fails, or says no, after several tries" in problem.why


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "look",
    [
        lambda there, _: surgery.inspect(there, stats=True),
        lambda there, _: surgery.inspect(there, digests=True),
        lambda there, _: surgery.verify(there),
        surgery.diff,
        lambda there, here: surgery.apply(there, f"{here}-cast", CAST),
    ],
    ids=["stats", "digests", "verify", "diff", "cast"],
)
def test_what_is_read_whole_is_read_once_and_in_few_requests(bucket, tmp_path, look):
    rng = np.random.default_rng(0)
    tree = {f"layer_{n}": rng.standard_normal(4096).astype(np.float32) for n in range(600)}
    here = saved(tmp_path / "ck", tree)
    there = uploaded(bucket, here, f"gs://bkt/{tmp_path.name}")
    stored = sum(len(one.data) for one in bucket.buckets["bkt"].values())
    bucket.log.clear()
    look(there, str(here))
    assert sum(r.sent for r in bucket.log if r.kind == "read") < 1.1 * stored
    assert len(bucket.log) < 40


def test_a_selection_does_not_read_what_lies_between(bucket, tmp_path):
    rng = np.random.default_rng(0)
    tree = {f"layer_{n}": rng.standard_normal(32 << 10).astype(np.float32) for n in range(100)}
    there = uploaded(bucket, saved(tmp_path / "ck", tree), "gs://bkt/sparse")
    opened = open_checkpoint(there)
    few = [path for path in opened.tree if str(path).endswith("7")]
    bucket.log.clear()
    surgery.inspect(there, ["layer_*7"], stats=True)
    read = sum(r.sent for r in bucket.log if r.kind == "read")
    assert read < 1.2 * sum(opened.tree[path].bytes for path in few)
