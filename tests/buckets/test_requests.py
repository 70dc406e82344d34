"""What a preview says that services will be asked for, and a report that they were, against their own logs."""

import json
from functools import partial
from types import SimpleNamespace

import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath
from flax.serialization import to_bytes
from safetensors.numpy import save_file

from surgery_cli import surgery as use_cases
from surgery_cli.engine import grid
from surgery_cli.errors import WriteError
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning import operation_from_options, plan_from_document, plan_of
from surgery_cli.settings.reshard import Reshard
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.write import ocdbt, raw_copies
from tests.buckets.checkpoints import SAMPLES, saved, uploaded
from tests.hosts.companies import saved as saved_in_chunks

RANDOM = np.random.default_rng(0)
TREE = {
    "params": {
        "large": RANDOM.standard_normal((1200, 500)).astype(np.float32),
        "medium": RANDOM.standard_normal((500, 600)).astype(np.float32),
        **{f"s{n}": RANDOM.standard_normal((64, 32)).astype(np.float32) for n in range(6)},
    },
    "step": np.int32(3),
}
LAYOUTS = {"ocdbt": {}, "zarr3": {"use_zarr3": True}, "a file a chunk": {"use_ocdbt": False}}
EDITS = {
    "rescale": {"at": "params/large", "by": 2.0},
    "normalize": {"at": "params/s*"},
    "cast": {"to": "bfloat16"},
    "rename": {"at": "params/medium", "to": "params/other"},
    "delete": {"at": "params/s0"},
    "slice": {"at": "params/large", "slices": "0:600, :"},
}
WAYS = [("force",), ("resume",), ("force", "resume")]
MORE_READS, FEWER_READS = 4, 10
"""Manifests and nodes of a tree are looked at again, or not; large chunks that are neighbours, and are asked for at the
same time, come in one request."""
MORE_KEPT = 7
"""Of chunks that a seal reads as values and as files, some are here from the one when the other comes."""
OTHERS = 6
"""Lists are remembered until something is written; how often they are asked for depends on what stands there."""
OTHERS_BESIDE = 7
"""What is built beside its place is listed there as well, and by many requests at once, of which some come first."""
NEW_VALUES = 0.25
"""How far values are compressed that are not computed yet, nobody knows: the source's own ratio is taken."""
SMALL_FILES, SMALL = 0.25, 2 << 10
"""Nodes, metadata and the record are about what those of the source are, for as many leaves."""


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    for name, how in LAYOUTS.items():
        saved(folder / name, TREE, **how)
    return folder


@pytest.fixture
def anew(monkeypatch):
    """Forget what an earlier command of this process saw, as a new one would not know it."""

    def forget():
        for start, system in filesystem._SERVICES.items():
            monkeypatch.setitem(filesystem._SERVICES, start, Buckets(system._service))

    return forget


def logged(server):
    found = {kind: [0, 0] for kind in ("read", "written", "copied", "other")}
    kinds = {"read": "read", "write": "written", "copy": "copied"}
    for request in server.log:
        one = found[kinds.get(request.kind, "other")]
        one[0] += 1
        if request.kind == "write":
            one[1] += len(request.body)
        elif request.kind == "read" and request.status in (200, 206):
            one[1] += request.sent
    return SimpleNamespace(**found)


def hold(server, anew, plan, source, destination, **options):
    """Hold preview and report of a run against the log of the server."""
    given = Options(**options)
    anew()
    before = use_cases.plan(source, plan, destination=destination, options=given)
    anew()
    server.log.clear()
    after = use_cases.apply(source, destination, plan, options=given)
    moved = [(of.bytes_written, of.bytes_linked, of.bytes_copied) for of in (before, after)]
    assert moved[0] == moved[1]
    if after.bytes_read_to_seal:
        expected = after.bytes_read_to_seal
        assert abs(before.bytes_read_to_seal - expected) <= NEW_VALUES * expected + SMALL
        assert before.bytes_read - before.bytes_read_to_seal == after.bytes_read - expected
    told, done = before.requests, after.requests
    seen = logged(server)
    counted = (done.read.requests, done.written.requests, done.copied.requests)
    assert counted == (seen.read[0], seen.written[0], seen.copied[0])
    # on s3:// TensorStore looks an object up before it replaces it, and does not count that
    assert 0 <= seen.other[0] - done.other <= (seen.written[0] if server.scheme == "s3" else 0)
    assert abs(done.read.bytes - seen.read[1]) < 1024 * seen.read[0]  # refusals have a body, too
    assert abs(done.written.bytes - seen.written[1]) < 1024  # as the names of what is streamed
    assert told.written.requests == seen.written[0]
    assert told.copied.requests == done.copied.requests
    is_beside = options.get("force") or options.get("resume")  # what is built is copied, then
    room = NEW_VALUES * done.written.bytes + SMALL if is_beside else 256  # marks copy the lock
    assert abs(done.copied.bytes - told.copied.bytes) <= room
    assert -MORE_READS <= told.read.requests - seen.read[0] <= FEWER_READS
    assert abs(told.other - done.other) <= (OTHERS_BESIDE if is_beside else OTHERS)
    for forecast, bytes_seen in (
        (told.read.bytes, seen.read[1]),
        (told.written.bytes, seen.written[1]),
    ):
        room = SMALL_FILES if before.bytes_written == 0 else NEW_VALUES
        assert abs(forecast - bytes_seen) <= room * bytes_seen + SMALL
    return told


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_are_as_the_preview_says(bucket, checkpoints, tmp_path, anew, layout, edit):
    here = checkpoints / layout
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    told = hold(bucket, anew, plan, there, "gs://bkt/runs/new")
    if edit == "rename":
        assert told.copied.bytes > 3_000_000
    hold(bucket, anew, plan, there, str(tmp_path / "new"))
    hold(bucket, anew, plan, str(here), "gs://bkt/from-here")


@pytest.mark.parametrize("way", [(), *WAYS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_of_many_transactions(bucket, tmp_path, anew, layout, way):
    """Of a database each of them reads the manifest and a node, where they are noted one by one."""
    leaves = RANDOM.standard_normal((24, 256, 256)).astype(np.float32)
    here = saved(
        tmp_path / "ck", {f"l{i}": leaf for i, leaf in enumerate(leaves)}, **LAYOUTS[layout]
    )
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options("cast", {"to": "float16"})])
    options = dict.fromkeys(way, True)
    told = hold(bucket, anew, plan, there, "gs://bkt/runs/new", memory_bytes=1 << 20, **options)
    assert told.written.requests > 24


@pytest.mark.parametrize("way", [(), *WAYS])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_leaf_may_take_several_transactions_and_be_all_there_is(
    bucket, tmp_path, anew, layout, way
):
    """Those after the first do not hold the document of the array: it was taken for one that does not read back."""
    tree = {"a": RANDOM.standard_normal((2048, 256)).astype(np.float32)}
    here = saved_in_chunks(tmp_path / "ck", tree, 256 << 10, **LAYOUTS[layout])
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options("cast", {"to": "float16"})])
    options = dict.fromkeys(way, True)
    told = hold(bucket, anew, plan, there, "gs://bkt/runs/new", memory_bytes=1 << 20, **options)
    assert told.written.requests >= 7  # three of data, two of the database, the lock and the record
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(epath.Path("gs://bkt/runs/new"))
    np.testing.assert_array_equal(restored["a"], tree["a"].astype(np.float16))


@pytest.mark.parametrize("mebibytes", [1, 16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_chunks_that_are_read_one_by_one_are_counted(bucket, tmp_path, anew, layout, mebibytes):
    """In a layout with a folder for each leaf, its document is read with each of them."""
    tree = {"a": RANDOM.standard_normal((1024, 2048)).astype(np.float32)}
    here = saved_in_chunks(tmp_path / "ck", tree, 1 << 20, **LAYOUTS[layout])
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([], reshard=Reshard(chunk_bytes=256 << 10))
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", memory_bytes=mebibytes << 20)


@pytest.fixture(scope="module")
def in_many_files(tmp_path_factory):
    """More objects than a list tells of at once."""
    tree = {"a": RANDOM.standard_normal((1100, 8)).astype(np.float32), "b": np.ones(8, np.float32)}
    return saved_in_chunks(tmp_path_factory.mktemp("many") / "ck", tree, 32, use_ocdbt=False)


@pytest.mark.parametrize(
    ("at", "way"), [("a", ()), ("b", ()), *(("b", way) for way in WAYS)], ids=str
)
def test_requests_where_a_list_has_several_pages(bucket, in_many_files, anew, at, way):
    """With `--resume` each object was looked up by itself, as all that was seen of the bucket had been forgotten."""
    there = uploaded(bucket, in_many_files, "gs://bkt/runs/ck")
    edit = plan_of([operation_from_options("rescale", {"at": at, "by": 2.0})])
    if "force" in way:
        use_cases.apply(there, "gs://bkt/runs/new", edit)
    told = hold(bucket, anew, edit, there, "gs://bkt/runs/new", **dict.fromkeys(way, True))
    assert told.other < 150 + 1105 * ("force" in way or "resume" in way)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_documents_of_what_is_put_together_from_stored_chunks_are_counted(
    bucket, checkpoints, anew, layout
):
    there = uploaded(bucket, checkpoints / layout, "gs://bkt/runs/ck")
    stack = operation_from_options("stack", {"at": "params/s{0..2}", "to": "params/all"})
    hold(bucket, anew, plan_of([stack]), there, "gs://bkt/runs/new")


def test_many_objects_of_a_folder_are_not_looked_up_one_by_one(bucket):
    for n in range(1050):
        bucket.put("bkt", f"ck/a/{n}", b"x" * n)
    place = path_at("gs://bkt/ck/a")
    filesystem.forget(place.parent)
    bucket.log.clear()
    assert [filesystem.size(place / str(n)) for n in range(1050)] == list(range(1050))
    assert len(bucket.log) < 25


@pytest.mark.parametrize(("layout", "least"), [("ocdbt", 0.1), ("a file a chunk", 0.5)])
@pytest.mark.parametrize("how", ["permute", "reshard"])
def test_chunks_that_are_read_again_and_again_are_counted_as_often(
    bucket, tmp_path, anew, monkeypatch, how, layout, least
):
    """Once for each block, or band of blocks, in which elements of theirs are; neighbours may come together.

    The document of an array with a folder of its own is read again unless another read holds it.
    """
    monkeypatch.setattr(grid.block_shape, "__defaults__", (1 << 18,))
    tree = {"a": RANDOM.standard_normal((1 << 12, 256)).astype(np.float32)}
    here = saved_in_chunks(tmp_path / "ck", tree, 1 << 18, **LAYOUTS[layout])
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([], reshard=Reshard(mesh={"x": 16}, spec={"**": (None, "x")}))
    if how == "permute":
        order = {"at": "a", "index": RANDOM.permutation(1 << 12).tolist()}
        plan = plan_of([operation_from_options("permute", order)])
    options = Options(memory_bytes=3 << 20)
    anew()
    told = use_cases.plan(there, plan, destination="gs://bkt/runs/new", options=options).requests
    anew()
    bucket.log.clear()
    use_cases.apply(there, "gs://bkt/runs/new", plan, options=options)
    seen, once = logged(bucket).read, 0.8 * tree["a"].nbytes
    assert told.read.bytes > 3 * once
    assert abs(told.read.bytes - seen[1]) < 0.1 * seen[1]
    assert least * told.read.requests <= seen[0] <= told.read.requests + MORE_READS


@pytest.mark.parametrize("way", [(), ("resume",)])
def test_what_is_copied_as_it_is_stored_is_read_once(bucket, tmp_path, anew, monkeypatch, way):
    """It was read twice more, to hold what was sent against it; that is done in memory, before it is sent."""
    monkeypatch.setattr(raw_copies, "RAW_BATCH_BYTES", 6 << 20)
    monkeypatch.setattr(raw_copies, "PIECE_BYTES", 1 << 20)
    tree = {"a": RANDOM.standard_normal((10, 512, 1024)).astype(np.float32), "b": np.ones(3)}
    here = saved_in_chunks(tmp_path / "ck", tree, 2 << 20)
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    options = {"compact": "always", **dict.fromkeys(way, True)}
    told = hold(bucket, anew, plan_of([]), there, "gs://bkt/runs/new", **options)
    assert (told.read.bytes < 1.1 * tree["a"].nbytes) is not bool(way)
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(epath.Path("gs://bkt/runs/new"))
    np.testing.assert_array_equal(restored["a"], tree["a"])


def test_what_is_copied_and_does_not_read_back_is_not_sent(bucket, tmp_path, monkeypatch):
    here = saved_in_chunks(tmp_path / "ck", {"a": np.arange(1 << 16, dtype=np.float32)}, 1 << 17)
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    names = bucket.names()

    class Changed(dict):
        """Values that are others when they are looked at again."""

        def items(self):
            first, self.items = list(super().items()), super().items
            return [(key, value[::-1]) for key, value in first]

    monkeypatch.setattr(ocdbt, "read_whole", lambda some: Changed(raw_copies.read_whole(some)))
    with pytest.raises(WriteError, match="does not read back as it was copied"):
        use_cases.apply(there, "gs://bkt/runs/new", plan_of([]), options=Options(compact="always"))
    assert bucket.names() == names


@pytest.mark.parametrize("edit", ["rescale", "rename", "cast"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_a_seal_reads_is_told_before(bucket, checkpoints, tmp_path, anew, layout, edit):
    here = checkpoints / layout
    there = uploaded(bucket, here, "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", seal=True)
    hold(bucket, anew, plan, there, str(tmp_path / "new"), seal=True)


def reads(server, anew, plan, source, destination, **options):
    """How many requests to read are told and made."""
    anew()
    told = use_cases.plan(source, plan, destination=destination, options=Options(**options))
    anew()
    server.log.clear()
    use_cases.apply(source, destination, plan, options=Options(**options))
    return np.array([told.requests.read.requests, logged(server).read[0]])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("edit", ["rescale", "rename", "cast"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "a run"])
def test_what_was_read_since_is_not_told_of_a_seal(service, checkpoints, anew, layout, edit, force):
    """Marks, the record and what had been read to open the result were counted as if a seal read them again."""
    here = SAMPLES / "digits_manager" if layout == "a run" else checkpoints / layout
    there = uploaded(service, here, f"{service.root}/runs/ck")
    fields = EDITS[edit]
    if layout == "a run" and "at" in fields:
        fields = fields | {"at": "params/Dense_1/kernel"}
    plan = plan_of([operation_from_options(edit, fields)])
    destination = f"{service.root}/runs/new"
    if force:
        use_cases.apply(
            there, destination, plan_of([operation_from_options("cast", EDITS["cast"])])
        )
    alone = reads(service, anew, plan, there, destination, force=force)
    other = destination if force else f"{service.root}/runs/sealed"
    told, made = reads(service, anew, plan, there, other, force=force, seal=True) - alone
    assert -MORE_READS <= told - made <= MORE_KEPT


@pytest.mark.parametrize(
    ("layout", "edit"), [("ocdbt", "rescale"), ("zarr3", "rename"), ("a file a chunk", "cast")]
)
def test_requests_of_the_other_service(s3, checkpoints, tmp_path, anew, layout, edit):
    there = s3.upload(checkpoints / layout, "s3://bkt/runs/ck")
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    hold(s3, anew, plan, there, "s3://bkt/runs/new")
    hold(s3, anew, plan, there, str(tmp_path / "new"))


def test_requests_from_one_service_to_the_other(bucket, s3, checkpoints, anew):
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options("rename", EDITS["rename"])])
    anew()
    told = use_cases.plan(there, plan, destination="s3://bkt/new").requests
    anew()
    bucket.log.clear()
    s3.log.clear()
    done = use_cases.apply(there, "s3://bkt/new", plan).requests
    kinds = {**bucket.kinds(), **{k: bucket.kinds().get(k, 0) + n for k, n in s3.kinds().items()}}
    assert (done.read.requests, done.written.requests) == (kinds["read"], kinds["write"])
    assert told.written.requests == done.written.requests
    assert told.copied.requests == done.copied.requests == 1  # the mark
    assert abs(told.read.requests - done.read.requests) <= MORE_READS


LEAF_OF_DONOR = {"op": "replace", "at": "params/large", "with": "donor"}


@pytest.mark.parametrize("donor", ["gs", "s3", "disk"])
@pytest.mark.parametrize("source", ["gs", "s3"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_of_a_donor_at_another_place(bucket, s3, checkpoints, anew, layout, source, donor):
    """It is looked at as the source is, and what a database took of its tree goes again."""
    here = checkpoints / layout
    places = {
        "gs": lambda name: uploaded(bucket, here, f"gs://bkt/runs/{name}"),
        "s3": lambda name: s3.upload(here, f"s3://bkt/runs/{name}"),
        "disk": lambda name: str(here),
    }
    there, sources = places[source]("ck"), {"donor": places[donor]("donor")}
    plan = plan_from_document({"sources": sources, "edits": [LEAF_OF_DONOR]})
    anew()
    told = use_cases.plan(there, plan, destination=f"{source}://bkt/runs/new").requests
    anew()
    for server in (bucket, s3):
        server.log.clear()
    done = use_cases.apply(there, f"{source}://bkt/runs/new", plan).requests
    logs = [logged(server) for server in (bucket, s3)]
    for kind in ("read", "written", "copied"):
        seen = sum(getattr(log, kind)[0] for log in logs)
        assert getattr(done, kind).requests == seen, kind
        assert abs(getattr(told, kind).requests - seen) <= (kind == "read") * MORE_READS, kind
    assert abs(told.other - done.other) <= OTHERS


@pytest.mark.parametrize("size", [8 << 20, 9_000_000, 20 << 20])
def test_requests_of_what_is_written_piece_by_piece(service, tmp_path, anew, size):
    """S3 is told the end of it in a request of its own."""
    here = saved(tmp_path / "ck", {"w": np.ones((3, 4), np.float32)})
    (here / "notes.bin").write_bytes(RANDOM.bytes(size))
    plan = plan_of([operation_from_options("rescale", {"at": "w", "by": 2.0})])
    hold(service, anew, plan, str(here), f"{service.scheme}://bkt/runs/new")


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("size", [6 << 20, 11_000_000])
def test_requests_of_what_is_copied_in_parts(service, tmp_path, anew, monkeypatch, size, force):
    """S3 copies no more than 5 GiB in a request: what comes along, and what is put in its place."""
    monkeypatch.setattr(AmazonS3, "largest", 6 << 20)
    monkeypatch.setattr(AmazonS3, "part", 5 << 20)
    here = saved(tmp_path / "ck", {"w": np.ones((3, 4), np.float32)})
    (here / "notes.bin").write_bytes(RANDOM.bytes(size))
    there = uploaded(service, here, f"{service.root}/runs/ck")
    plan = plan_of([operation_from_options("rescale", {"at": "w", "by": 2.0})])
    if force:
        use_cases.apply(str(here), f"{service.root}/runs/new", plan)
    hold(service, anew, plan, there, f"{service.root}/runs/new", force=force)
    hold(service, anew, plan, str(here), f"{service.root}/runs/from-here", force=force)


@pytest.mark.parametrize("options", [{"compact": "always"}, {"memory_bytes": 16 << 20}], ids=str)
@pytest.mark.parametrize("edit", ["rescale", "cast"])
def test_requests_of_other_ways_to_write(bucket, checkpoints, anew, edit, options):
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", **options)


@pytest.mark.sampled(4)
@pytest.mark.covers(1)
@pytest.mark.parametrize("way", WAYS, ids=" and ".join)
@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_requests_of_what_is_built_beside(service, checkpoints, anew, layout, edit, way):
    start = f"{service.scheme}://bkt"
    there = (service.upload if start == "s3://bkt" else partial(uploaded, service))(
        checkpoints / layout, f"{start}/runs/ck"
    )
    if "force" in way:
        old = operation_from_options("rescale", {"at": "params/s1", "by": 3.0})
        use_cases.apply(there, f"{start}/runs/new", plan_of([old]))
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    hold(service, anew, plan, there, f"{start}/runs/new", **dict.fromkeys(way, True))


SEVERAL = {
    "values and a rename": [("rescale", "params/s1"), ("rename", "params/med*")],
    "large values and a rename": [("rescale", "params/large"), ("rename", "params/med*")],
    "values and a deletion": [("rescale", "params/s1"), ("delete", "params/s0")],
    "all moved, one computed": [("rename", "params/s*"), ("rescale", "params/large")],
}
FIELDS = {"rescale": {"by": 2.0}, "rename": {"to": "moved/\\1"}, "delete": {}}


@pytest.mark.sampled(3)
@pytest.mark.covers(1)
@pytest.mark.parametrize("edits", SEVERAL)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("way", WAYS, ids=" and ".join)
def test_requests_of_several_edits(bucket, checkpoints, anew, layout, edits, way):
    there = uploaded(bucket, checkpoints / layout, "gs://bkt/runs/ck")
    made = [operation_from_options(op, {"at": at, **FIELDS[op]}) for op, at in SEVERAL[edits]]
    hold(bucket, anew, plan_of(made), there, "gs://bkt/runs/new", **dict.fromkeys(way, True))


@pytest.mark.parametrize("compact", ["always", "never"])
@pytest.mark.parametrize("edit", ["cast", "rescale", "rename"])
def test_requests_of_what_is_written_compact(bucket, checkpoints, anew, edit, compact):
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options(edit, EDITS[edit])])
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", resume=True, compact=compact)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("old", ["a file a chunk", "ocdbt"])
def test_requests_of_what_is_replaced_by_another_layout(bucket, checkpoints, anew, old, layout):
    uploaded(bucket, checkpoints / old, "gs://bkt/runs/new")
    there = uploaded(bucket, checkpoints / layout, "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options("delete", {"at": "params/s*"})])
    hold(bucket, anew, plan, there, "gs://bkt/runs/new", force=True)


def test_no_mark_is_refused_that_comes_in_the_place_of_one_that_was_deleted(bucket, checkpoints):
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    for by in (2.0, 3.0):
        bucket.log.clear()
        plan = plan_of([operation_from_options("rescale", {"at": "params/s1", "by": by})])
        use_cases.apply(there, "gs://bkt/runs/new", plan, options=Options(force=True))
        assert [one.status for one in bucket.log if one.kind == "copy" and one.status != 200] == []


def test_a_small_edit_looks_up_little_twice(bucket, checkpoints, anew):
    """Lists and look-ups each wait for a service: what was just seen, or is known as this run has made it, is known."""
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    plan = plan_of([operation_from_options("rescale", {"at": "params/large", "by": 2.0})])
    anew()
    bucket.log.clear()
    use_cases.apply(there, "gs://bkt/runs/new", plan)
    kinds = bucket.kinds()
    assert kinds["list"] + kinds["look up"] <= 15, kinds


BESIDE_OTHERS = {
    "edit": ("rescale", "{bucket}/ck", "{bucket}/new", "**", "--by", "2"),
    "preview": ("rescale", "{bucket}/ck", "{bucket}/new", "**", "--by", "2", "--dry-run"),
    "force": ("rescale", "{bucket}/ck", "{bucket}/old", "**", "--by", "2", "--force"),
    "resume": ("rescale", "{bucket}/ck", "{bucket}/new", "**", "--by", "2", "--resume"),
    "an item": ("rescale", "{bucket}/ck", "{bucket}/run/500/item", "**", "--by", "2"),
    "a step": ("rescale", "{bucket}/run@500", "{bucket}/new", "**", "--by", "2"),
    "as a step": (*("rescale", "{bucket}/run@500", "{bucket}/run", "**"), *("--by", "2", "--as-step", "900")),
    **{
        name: (name, "{bucket}/ck")
        for name in ("inspect", "verify", "seal", "log", "doctor", "rescue", "clean")
    },
    "newest": ("inspect", "{bucket}/run"),
    "compact": ("compact", "{bucket}/ck", "{bucket}/new"),
    "mistyped": ("inspect", "{bucket}/none"),
}  # fmt: skip


@pytest.mark.parametrize("command", BESIDE_OTHERS)
def test_what_stands_beside_costs_no_requests(bucket, surgery, tmp_path, anew, command):
    """A bucket holds thousands of checkpoints, and a run hundreds of steps: to look into each takes minutes."""
    saved(tmp_path / "ck", {"w": np.ones((3, 4), np.float32)})
    asked = []
    for others in (0, 20):
        bucket.reset()
        names = ["ck", "old", "run/500", *(f"other-{n}" for n in range(others))]
        for name in [*names, *(f"run/{n}" for n in range(others))]:
            uploaded(bucket, tmp_path / "ck", f"{bucket.root}/{name}")
        anew()
        bucket.log.clear()
        words = [word.format(bucket=bucket.root) for word in BESIDE_OTHERS[command]]
        ended = surgery(*words)
        assert ended.code == (2 if command == "mistyped" else 0), ended.err
        asked.append(len(bucket.log))
    assert asked[1] <= asked[0] + 2, "a list of more names is at most a page longer"


def test_requests_of_a_step_of_a_root_and_of_what_is_replaced(bucket, anew):
    there = uploaded(bucket, SAMPLES / "digits_manager", "gs://bkt/runs/digits")
    plan = plan_of([operation_from_options("rescale", {"at": "params/Dense_1", "by": 2.0})])
    hold(bucket, anew, plan, there, "gs://bkt/runs/new")


@pytest.mark.parametrize("name", ["tree.msgpack", "tree.safetensors"])
def test_requests_of_formats_that_are_files(bucket, tmp_path, anew, name):
    tree = {"a": TREE["params"]["large"], "b": TREE["params"]["medium"]}
    if name.endswith("msgpack"):
        (tmp_path / name).write_bytes(to_bytes(tree))
    else:
        save_file(tree, tmp_path / name)
    there = bucket.upload(tmp_path / name, f"gs://bkt/{name}")
    plan = plan_of([operation_from_options("rescale", {"at": "a", "by": 2.0})])
    hold(bucket, anew, plan, there, f"gs://bkt/new-{name}")


def test_the_preview_says_minutes_at_the_rate_that_is_given(bucket, surgery, checkpoints):
    there = uploaded(bucket, checkpoints / "ocdbt", "gs://bkt/runs/ck")
    words = ["cast", there, "gs://bkt/runs/new", "--to", "bfloat16"]
    slow = surgery(*words, "--dry-run", "--rate", "100kB/s").out
    assert "at `--rate 97.7 KiB/s` (estimated)" in slow
    document = json.loads(surgery(*words, "--dry-run", "--rate", "100kB", "--json").out)
    asked = document["requests"]
    moved = asked["read"]["bytes"] + asked["written"]["bytes"]
    one_by_one = asked["read"]["requests"] + asked["written"]["requests"] + asked["other"] + 1
    assert document["minutes"] == pytest.approx((moved / 1e5 + 0.05 * one_by_one) / 60, abs=0.006)
    done = surgery(*words).out
    line = next(line for line in done.splitlines() if "to buckets" in line)
    assert "(estimated)" not in line
    assert "minutes" not in line


def test_nothing_is_said_of_buckets_where_there_are_none(surgery, checkpoints, tmp_path):
    here = checkpoints / "ocdbt"
    done = surgery("cast", here, tmp_path / "new", "--to", "bfloat16", "--json").out
    assert "requests" not in json.loads(done)
