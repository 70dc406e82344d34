"""What an edit costs in a bucket: one read of its leaf, one data object, one manifest; and what proves the result."""

from urllib.parse import unquote

import google_crc32c
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.store.write.upload_buffer import BufferedPart
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import saved, uploaded

RNG = np.random.default_rng(0)
TREE = {
    "params": {
        f"layers_{n}": RNG.standard_normal((500, 1000)).astype(np.float32) for n in range(12)
    }
}
LEAF = LeafPath(("params", "layers_1"))
RESCALED = plan_of([operation_from_options("rescale", {"at": "params/layers_1", "by": 2.0})])
LAYOUTS = [{}, {"use_ocdbt": False}, {"use_zarr3": True}]


def written(service, folder):
    """What was written into a folder by us, by name; what the service copied is not among it."""
    requests = [r for r in service.log if r.kind == "write"]
    names = [(r.query.get("name") or r.path.partition("/bkt/")[2], r) for r in requests]
    return [(n.removeprefix(f"{folder}/"), r) for n, r in names if n.startswith(f"{folder}/")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("how", LAYOUTS, ids=str)
def test_an_edited_leaf_goes_through_the_machine_once_each_way(service, tmp_path, how):
    there = uploaded(service, saved(tmp_path / "ck", TREE, **how), f"{service.root}/ck")
    stored = surgery.inspect(there, ["params/layers_1"]).leaves[0].stored_bytes
    service.log.clear()
    surgery.apply(there, f"{service.root}/new", RESCALED)
    down = sum(request.sent for request in service.log if request.kind == "read")
    up = sum(len(r.body) for name, r in written(service, "new") if name != "surgery.json")
    assert down <= 1.05 * stored
    assert up <= 1.05 * stored
    result = open_checkpoint(f"{service.root}/new")
    for n in range(12):
        expected = TREE["params"][f"layers_{n}"] * (2 if n == 1 else 1)
        np.testing.assert_array_equal(result.read(LeafPath(("params", f"layers_{n}"))), expected)


def test_what_is_read_first_is_asked_for_before_the_destination_is_seen_to(service, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", TREE), f"{service.root}/ck")
    service.faults.latency = 0.02
    service.log.clear()
    surgery.apply(there, f"{service.root}/new", RESCALED)
    large = [n for n, r in enumerate(service.log) if r.kind == "read" and r.sent > 1 << 20]
    copies = [n for n, r in enumerate(service.log) if r.kind == "copy"]
    assert len(large) == 1
    assert large[0] < copies[0]


def test_what_two_leaves_are_made_of_is_read_once(service, tmp_path):
    """The read that began before it was known who needs it came beside the one that both share."""
    there = uploaded(service, saved(tmp_path / "ck", TREE), f"{service.root}/ck")
    stored = surgery.inspect(there, ["params/layers_1"]).leaves[0].stored_bytes
    both = ("params/layers_1", "params/another")
    plan = plan_of(
        [
            operation_from_options("copy", {"at": both[0], "to": both[1]}),
            *(operation_from_options("rescale", {"at": at, "by": 3.0}) for at in both),
        ]
    )
    service.log.clear()
    surgery.apply(there, f"{service.root}/new", plan)
    large = [r.sent for r in service.log if r.kind == "read" and r.sent > 1 << 20]
    assert sum(large) <= 1.05 * stored


@pytest.mark.parametrize("how", [{}, {"use_zarr3": True}], ids=str)
def test_a_tree_of_one_node_is_read_once(service, tmp_path, how):
    """It was read for what is stored where, by whoever reads a leaf, and in the copy by whoever changes it."""
    there = uploaded(service, saved(tmp_path / "ck", TREE, **how), f"{service.root}/ck")
    (node,) = open_checkpoint(there).items[""].store.survey.nodes
    service.log.clear()
    surgery.apply(there, f"{service.root}/new", RESCALED)
    reads = [unquote(r.path) for r in service.log if r.kind == "read"]
    assert sum(path.endswith(f"ck/{node.file}") for path in reads) == 1
    assert not any("new/d/" in path for path in reads)


@pytest.mark.parametrize("leaves", [["params/layers_1"], ["params/layers_0", "params/layers_2"]])
def test_an_edit_is_one_data_object_and_one_manifest(service, tmp_path, leaves):
    there = uploaded(service, saved(tmp_path / "ck", TREE), f"{service.root}/ck")
    service.log.clear()
    plan = plan_of([operation_from_options("rescale", {"at": at, "by": 2.0}) for at in leaves])
    surgery.apply(there, f"{service.root}/new", plan)
    names = [name for name, _ in written(service, "new")]
    assert len([name for name in names if name.startswith("d/")]) == 1
    assert names.count("manifest.ocdbt") == 1
    assert names.index("manifest.ocdbt") > max(
        n for n, name in enumerate(names) if name[:2] == "d/"
    )
    used = {name.removeprefix("new/") for name in service.names("new/d/")}
    assert {name for name in names if name.startswith("d/")} <= used


@pytest.mark.covers(1)
@pytest.mark.parametrize("how", LAYOUTS[:2], ids=str)
@pytest.mark.parametrize("when", ["after it was sent", "before it was sent"])
def test_what_is_not_what_was_computed_never_becomes_a_result(
    service, tmp_path, monkeypatch, how, when
):
    """An object that another program replaces after it was sent is read, and found out."""
    there = uploaded(service, saved(tmp_path / "ck", TREE, **how), f"{service.root}/ck")
    before = service.names()
    other = {"params": {"layers_1": TREE["params"]["layers_1"] * 3}}
    files = [f for f in saved(tmp_path / "other", other, **how).rglob("*") if f.is_file()]
    wrong = max(files, key=lambda file: file.stat().st_size).read_bytes()
    if when == "before it was sent":
        check = BufferedPart.check

        def other_values(part, leaf, window, values):
            check(part, leaf, window, values * 3)

        monkeypatch.setattr(BufferedPart, "check", other_values)
    else:
        seen = []

        def replace(request):
            name = request.query.get("name") or request.path.partition("/bkt/")[2]
            if (
                request.kind == "write"
                and "surgery.json" not in name
                and len(request.body) > 1 << 20
            ):
                seen.append(name)
            elif seen and request.kind != "write":
                service.put("bkt", seen.pop(), wrong)

        service.before = replace
    with pytest.raises((CheckpointError, WriteError)):
        surgery.apply(there, f"{service.root}/new", RESCALED)
    theirs = [name for name in service.names("new/") if service.content(name) == wrong]
    assert bool(theirs) == (when == "after it was sent"), "what is another program's stays"
    for name in theirs:
        service.remove(name)
    service.before = lambda request: None
    assert service.names() == before


def test_several_transactions_are_proved_and_whole(service, tmp_path):
    there = uploaded(service, saved(tmp_path / "ck", TREE), f"{service.root}/ck")
    service.log.clear()
    plan = plan_of([operation_from_options("cast", {"at": "params", "to": "bfloat16"})])
    done = surgery.apply(there, f"{service.root}/new", plan, options=Options(memory_bytes=8 << 20))
    names = [name for name, _ in written(service, "new")]
    assert len([name for name in names if name.startswith("d/")]) > 1
    assert names.count("manifest.ocdbt") == 1
    assert done.checked == 12
    assert surgery.verify(f"{service.root}/new").agrees
    here = surgery.apply(str(tmp_path / "ck"), str(tmp_path / "new"), plan)
    assert done.digests == here.digests
    assert surgery.diff(f"{service.root}/new", str(tmp_path / "new")).equal


@pytest.mark.parametrize("implementation", ["c", "python"])
def test_what_the_service_stores_otherwise_than_it_was_sent_is_found(
    bucket, tmp_path, monkeypatch, implementation
):
    monkeypatch.setattr(google_crc32c, "implementation", implementation)
    there = uploaded(bucket, saved(tmp_path / "ck", TREE), f"{bucket.root}/ck")
    answer = type(bucket).answer

    async def changed(self, request):
        name = request.query.get("name") or ""
        if request.kind == "write" and "/d/" in name and name.startswith("new/"):
            middle = len(request.body) // 2
            flipped = bytes([request.body[middle] ^ 1])
            request.body = request.body[:middle] + flipped + request.body[middle + 1 :]
        return await answer(self, request)

    monkeypatch.setattr(type(bucket), "answer", changed)
    with pytest.raises(WriteError, match="what it holds is not what was sent"):
        surgery.apply(there, f"{bucket.root}/new", RESCALED)
    assert not bucket.names("new/")
