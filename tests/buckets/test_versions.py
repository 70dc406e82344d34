"""Nothing is read of an object that came into the place of the one that was found."""

import shutil
from urllib.parse import unquote

import numpy as np
import pytest

from surgery_cli import surgery as library
from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.buckets import Replaced, path_at
from surgery_cli.store import filesystem
from tests.buckets.checkpoints import RESCALED, saved, uploaded

LAYOUTS = [{}, {"use_ocdbt": False}]
LARGE = {"params": {"w": np.random.default_rng(0).standard_normal((1200, 1000)).astype(np.float32)}}


@pytest.mark.parametrize("how", ["read", "copy"])
@pytest.mark.parametrize("size", [5, 9 << 20])
def test_a_file_that_is_replaced_after_it_was_found_is_not_read(service, how, size):
    service.put("bkt", "x", b"a" * size)
    place, target = path_at(f"{service.root}/x"), path_at(f"{service.root}/y")
    filesystem.forget(place)
    assert filesystem.size(place) == size
    service.put("bkt", "x", b"b" * size)
    with pytest.raises(Replaced, match="it was replaced or removed while it was read"):
        filesystem.read(place) if how == "read" else filesystem.copy(place, target)
    assert service.names() == ["x"]
    filesystem.forget(place)
    filesystem.copy(place, target)
    assert filesystem.read(target) == b"b" * size


def replaced_at_the_first_read(service, name, content):
    """Another program replaces an object right before it is read for the first time."""
    waiting = [content]

    def replace(request):
        if request.kind == "read" and unquote(request.path).endswith(f"/{name}"):
            while waiting:
                service.put("bkt", name, waiting.pop())

    service.before = replace


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("use_case", ["diff", "digests", "verify", "apply"])
def test_an_array_that_is_replaced_while_it_is_read_is_an_error(
    service, tmp_path, layout, use_case
):
    """TensorStore's own reads ask for what is there: the versions are compared afterwards."""
    here = saved(tmp_path / "ck", LARGE, **layout)
    there = uploaded(service, here, f"{service.root}/ck")
    data = max(service.names("ck/"), key=lambda name: len(service.content(name)))
    other = {"params": {"w": -LARGE["params"]["w"]}}
    files = [
        file for file in saved(tmp_path / "other", other, **layout).rglob("*") if file.is_file()
    ]
    largest = max(files, key=lambda file: file.stat().st_size)
    replaced_at_the_first_read(service, data, largest.read_bytes())
    run = {
        "diff": lambda: library.diff(there, str(here)),
        "digests": lambda: library.inspect(there, digests=True),
        "verify": lambda: library.verify(there),
        "apply": lambda: library.apply(there, str(tmp_path / "new"), RESCALED),
    }[use_case]
    with pytest.raises(CheckpointError) as refused:
        run()
    (problem,) = refused.value.problems
    assert "changed while it was read" in problem.what
    assert f"/{data}'" in problem.what + problem.why
    assert not (tmp_path / "new").exists()


def test_the_command_says_so_and_exits_with_3(service, tmp_path, surgery):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/said")
    name = "said/_METADATA"
    replaced_at_the_first_read(service, name, service.content(name).replace(b"w", b"v"))
    done = surgery("inspect", there)
    assert done.code == 3
    assert done.err.splitlines() == [
        f"error: '{there}/_METADATA' changed while it was read",
        "  it was replaced or removed while it was read",
        "  wait until whatever writes to it has ended, then run the command again",
    ]


OTHER = {"params": {"w": -LARGE["params"]["w"]}}
READING = {
    "assert": ("assert", "{there}", "params", "--finite"),
    "assert equal": ("assert", "{there}", "params", "--equal-in", "{here}"),
    "check": ("check", "{there}", "policy.yaml"),
    "diff": ("diff", "{there}", "{here}"),
    "derive": ("derive", "{there}", "{here}"),
    "digests": ("inspect", "{there}", "--digests"),
    "stats": ("inspect", "{there}", "--stats"),
    "only bad": ("inspect", "{there}", "--only", "bad"),
    "verify": ("verify", "{there}"),
    "verify like": ("verify", "{there}", "--like-manifest", "manifest.json"),
    "export": ("export", "{there}", "new.safetensors", "--to", "safetensors"),
    "seal": ("seal", "{there}", "--to", "sealed.json"),
    "an edit": ("rescale", "{there}", "new", "params", "--by", "2"),
    "as donor": ("add-scaled", "{here}", "new", "params", "--with", "{there}", "--scale", "1"),
    "reshard": ("reshard", "{there}", "new", "--chunk-bytes", "64KiB"),
    "compact": ("compact", "{there}", "new"),
}
MADE = {"new", "new.safetensors", "sealed.json"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("command", READING)
def test_no_command_ends_well_over_what_was_replaced_meanwhile(
    bucket, tmp_path, monkeypatch, surgery, layout, command
):
    """What another program puts in the place of the values right before they are read is not what was opened."""
    monkeypatch.chdir(tmp_path)
    here = saved(tmp_path / "ck", LARGE, **layout)
    there = uploaded(bucket, here, f"{bucket.root}/ck")
    (tmp_path / "policy.yaml").write_text("rules:\n- {id: finite, at: params, finite: true}\n")
    assert surgery("seal", here, "--to", "manifest.json").code == 0
    saved(tmp_path / "other", OTHER, **layout)
    words = [word.format(here=here, there=there) for word in READING[command]]
    assert surgery(*words).code in (0, 1), surgery(*words)
    before = {path.name for path in tmp_path.iterdir()}
    for made in before & MADE:
        place = tmp_path / made
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    data = max(bucket.names("ck/"), key=lambda name: len(bucket.content(name)))
    files = (file for file in (tmp_path / "other").rglob("*") if file.is_file())
    largest = max(files, key=lambda file: file.stat().st_size)
    replaced_at_the_first_read(bucket, data, largest.read_bytes())
    done = surgery(*words)
    assert done.code in (3, 4), done
    assert "changed while it was " in done.err, done
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before - MADE)


@pytest.mark.parametrize("goes_first", [False, True], ids=["replaced", "removed and replaced"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("words", [("--stats",), ("--digests",), ()], ids=str)
def test_a_checkpoint_that_is_exchanged_at_any_request_is_told_as_changed(
    service, tmp_path, surgery, words, layout, goes_first
):
    """Between its manifest and a node, it was called damaged, with the advice to copy it again."""
    old = saved(tmp_path / "old", LARGE, **layout)
    new = saved(tmp_path / "new", OTHER, **layout)
    place = f"{service.root}/ck"
    told = []
    for number in range(1, 100):
        for name in service.names("ck/"):
            service.remove(name)
        uploaded(service, old, place)
        filesystem.forget(service.root)
        seen = []

        def before(request, number=number, seen=seen):
            seen.append(request)
            if len(seen) == number:
                if goes_first:
                    for name in service.names("ck/"):
                        service.remove(name)
                uploaded(service, new, place)

        service.before = before
        done = surgery("inspect", place, *words, "--json")
        service.before = lambda request: None
        if len(seen) < number:
            break
        if done.code:
            assert done.code == 3, done
            told.append(done.out + done.err)
    assert number > 3
    assert told
    assert [one for one in told if "changed while it was read" not in one] == []
