"""Wherever a command or a plan names something to read, it may lie in a bucket."""

import random
from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest
import tensorstore as ts
from etils import epath
from safetensors.numpy import save_file

from surgery_cli.inputs.buckets import is_bucket_name
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import SAMPLES, TREE, saved, uploaded


def test_every_way_to_name_one_leads_there(bucket, surgery, tmp_path, monkeypatch):
    """Donor, sources of a plan that lies there itself, files of arrays, `--like`, both sides of a comparison."""
    monkeypatch.chdir(tmp_path)
    here = saved(tmp_path / "ck")
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    np.save(tmp_path / "by.npy", np.float32([3]))
    np.savez(tmp_path / "more.npz", w=np.zeros(12, np.float32))
    save_file({"b": np.full((3, 2), 7, np.float32)}, tmp_path / "b.safetensors")
    for name in ("by.npy", "more.npz", "b.safetensors"):
        bucket.upload(tmp_path / name, f"gs://bkt/files/{name}")
        (tmp_path / name).unlink()
    bucket.put(
        "bkt",
        "plans/edit.yaml",
        b"sources: {donor: ../runs/ck}\nedits:\n"
        b"- {op: replace, at: params/b, with: 'gs://bkt/files/b.safetensors:b'}\n"
        b"- {op: add-scaled, at: params/w, with: donor, scale: 1}\n",
    )
    assert surgery("apply", there, "new", "gs://bkt/plans/edit.yaml").code == 0
    written = open_checkpoint("new")
    assert (written.read(LeafPath(("params", "w"))) == 2 * TREE["params"]["w"]).all()
    assert (written.read(LeafPath(("params", "b"))) == 7).all()
    assert (
        surgery("replace", "ck", "zero", "params/w", "--with", "gs://bkt/files/more.npz:w").code
        == 0
    )
    assert surgery("diff", there, "ck").code == 0
    assert surgery("diff", "zero", there).code == 1
    assert surgery("verify", "ck", "--like", there).code == 0
    assert surgery("verify", there, "--like", "ck").code == 0
    ended = surgery("apply", there, "x", "gs://bkt/plans/none.yaml")
    assert ended.code == 2
    assert ended.err.splitlines() == [
        "error: there is no plan 'gs://bkt/plans/none.yaml'",
        "  check its name",
    ]
    bucket.put("bkt", "plans/nine.yaml", b"edits: []")
    for command in ("apply", "plan", "lint"):
        words = {"apply": [there, "x"], "plan": [there], "lint": []}[command]
        ended = surgery(command, *words, "gs://bkt/plans/none.yaml")
        assert (ended.code, "the nearest is `nine.yaml`" in ended.err) == (2, True)
    assert not Path("gs:").exists()


def test_steps_named_in_two_formats_have_no_newest(service, surgery, tmp_path):
    import orbax.checkpoint as ocp

    for step, form in ((1, {}), (2, {"step_prefix": "step"})):
        options = ocp.CheckpointManagerOptions(**form)
        with ocp.CheckpointManager(tmp_path / str(step), options=options) as manager:
            manager.save(step, args=ocp.args.StandardSave(TREE))
        run = uploaded(service, tmp_path / str(step), f"{service.root}/run")
    for named in (run, f"{run}@latest"):
        ended = surgery("inspect", named)
        assert ended.code == 2
        assert "named in 2 formats: `N` (1), `step_N` (step_2)" in ended.err
        assert f"name one, as '{run}/1' or '{run}/step_2'" in ended.err
    assert surgery("inspect", f"{run}/step_2").code == 0
    assert surgery("rescale", f"{run}@2", run, "params/w", "--by", "2", "--as-step", "3").code == 0
    assert surgery("inspect", f"{run}/step_3").code == 0
    assert "named in 2 formats" in surgery("doctor", run).out


@pytest.mark.parametrize("odd", [".", "", ".."])
@pytest.mark.parametrize("inside", ["commit_success.txt", "d/part", ""])
@pytest.mark.parametrize("command", ["inspect", "verify", "doctor", "rename"])
def test_objects_whose_names_no_path_has_are_named(
    service, surgery, tmp_path, odd, inside, command
):
    """They were looked for under the names of others, or without end."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.put("bkt", f"ck/{odd}/{inside}", b"x")
    more = [f"{service.root}/new", "params/w", "--to", "params/v"] if command == "rename" else []
    refused = surgery(command, there, *more)
    assert refused.code == 3, refused
    assert "objects there have names that no path has" in refused.out + refused.err


NAMES = [
    *("a", "ab", "abc", "a" * 63, "a" * 64, "a" * 222, "a" * 255, "a" * 256, "a.b", "a..b", "a_.b"),
    *(".".join(["a" * 63] * 3), ".".join(["a" * 55] * 4), "1.2.3.4", "1.2.3", "999.1.1.1", "xn--a"),
    *("abc-s3alias", "-s3alias", "sthree-abc", "a--ol-s3", "goog-x", "bück", "٣٣٣", "a b", "a\\b"),
    *("a%b", "a?b", "a#b", "a\nb", "abc\n"),
]


@pytest.mark.parametrize(("scheme", "driver"), [("gs", "gcs"), ("s3", "s3")])
def test_a_bucket_is_called_as_tensorstore_s_drivers_let_it_be_called(scheme, driver):
    draw = random.Random(scheme)
    names = NAMES + [
        "".join(draw.choices("aZ09-_.é ", [9, 1, 9, 1, 5, 5, 5, 1, 1], k=n % 9 + 1))
        for n in range(2000)
    ]
    for name in names:
        try:
            ts.KvStore.Spec({"driver": driver, "bucket": name, "path": "x/"})
            is_let = True
        except ValueError:
            is_let = False
        assert is_bucket_name(scheme, name) == is_let, name


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "{bad}/ck"),
        ("inspect", "{bad}@3"),
        ("diff", "{ck}", "{bad}/ck"),
        ("rescale", "{ck}", "{bad}/new", "params", "--by", "2"),
        ("rescale", "{ck}", "{bad}/new", "params", "--by", "2", "--dry-run"),
        ("apply", "{ck}", "new", "{bad}/plan.yaml"),
        ("merge", "{ck}", "{bad}/donor", "new"),
        ("clean", "{bad}/new"),
        ("doctor", "{bad}"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("bad", ["gs://Runs", "s3://my runs"])
def test_what_no_bucket_is_called_is_said_at_once(surgery, tmp_path, words, bad):
    there = str(saved(tmp_path / "ck"))
    refused = surgery(*(word.format(bad=bad, ck=there) for word in words))
    assert refused.code in (2, 3), refused
    assert f"names no bucket: none is called '{bad[5:]}'" in refused.err
    assert len(refused.err.splitlines()) == 3


@pytest.mark.parametrize("key", [*map(chr, (1, 9, 10, 13, 31, 127)), ".well-known/acme-challenge/"])
@pytest.mark.parametrize(
    "words",
    [("inspect", "{bad}/ck"), ("rescale", "{ck}", "{bad}", "params", "--by", "2")],
    ids="-".join,
)
def test_what_no_object_is_called_is_said_at_once(surgery, tmp_path, key, words):
    with pytest.raises(ValueError, match="Invalid GCS path"):
        ts.KvStore.Spec({"driver": "gcs", "bucket": "bkt", "path": f"{key}x/"})
    there = str(saved(tmp_path / "ck"))
    refused = surgery(*(word.format(bad=f"gs://bkt/{key}x", ck=there) for word in words))
    assert refused.code in (2, 3), refused
    assert "names nothing that can be read there" in refused.err


def test_of_what_orbax_does_not_read_no_name_is_refused(s3, surgery, tmp_path):
    there = saved(tmp_path / "ck")
    assert surgery("rescale", there, f"{s3.root}/a?b#c", "params", "--by", "2").code == 0


@pytest.mark.parametrize("cut", "?#")
def test_no_result_is_put_where_orbax_looks_elsewhere(bucket, surgery, tmp_path, cut):
    there = uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    odd = f"{bucket.root}/a{cut}b/new"
    ways = [
        ("rescale", there, odd, "params", "--by", "2"),
        ("rescue", there, odd),
        ("compact", there, odd),
    ]
    for words in [*ways, (*ways[0], "--dry-run")]:
        refused = surgery(*words)
        assert refused.code == 2
        assert f"Orbax cannot restore from '{odd}'" in refused.err
    assert not bucket.names(f"a{cut}b")
    # a place that it does not read may be called as one likes
    assert surgery("export", there, f"{odd}.npz", "--to", "npz").code == 0
    assert surgery("compact", there, tmp_path / f"a{cut}b").code == 0
    # as the one who refuses it would have it
    bucket.upload(tmp_path / "ck", odd)
    bucket.put("bkt", odd.removeprefix("gs://bkt/") + "/commit_success.txt", b"")
    with ocp.PyTreeCheckpointer() as checkpointer, pytest.raises((ValueError, OSError)):
        checkpointer.restore(epath.Path(odd))


@pytest.mark.parametrize("step", ["250/", "latest/"])
def test_a_slash_behind_a_step_changes_nothing(service, surgery, step):
    run = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    for command in ("inspect", "doctor", "rescue"):
        told = surgery(command, f"{run}@{step}")
        assert told.code in (0, 1), told.err
        assert told.code == surgery(command, f"{run}@{step[:-1]}").code
