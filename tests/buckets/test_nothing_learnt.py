"""A service that says no, or fails, tells nothing of what it keeps: nothing is damaged, other, or gone by that."""

import asyncio
from functools import partial
from types import SimpleNamespace
from urllib.parse import unquote

import orbax.checkpoint as ocp
import pytest

from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.read_ahead import ReadAhead
from tests.buckets.checkpoints import TREE, below, saved, uploaded

ANSWERS = [403, 401]


def as_elsewhere(service):
    """Nothing is remembered of what this process has seen or read of the service, as in a command of its own."""
    filesystem._SERVICES[f"{service.scheme}://"]._ahead = ReadAhead()
    filesystem.forget(service.root)


@pytest.fixture
def refusing(service, monkeypatch):
    """From then on the service gives that answer to whoever asks for one of these objects, and no other."""
    answer = service.answer

    def refuse(status, *names):
        as_elsewhere(service)

        async def refused(request):
            asked = unquote(request.path)
            is_named = any(asked.endswith(f"/{name}") for name in names)
            if is_named and request.method in ("GET", "HEAD"):
                return service.refusal(status, "no")
            return await answer(request)

        monkeypatch.setattr(service, "answer", refused)

    yield refuse
    monkeypatch.setattr(service, "answer", answer)


def rescale(source, new, *options):
    return ("rescale", source, new, "**/w", "--by", "2", "--optimizer", "keep", *options)


def run_of_items(folder):
    """A step of two trees, and of what is no tree."""
    items = {
        "state": ocp.args.StandardSave(TREE),
        "ema": ocp.args.StandardSave({"w": TREE["params"]["w"] / 2}),
        "meta": ocp.args.JsonSave({"rate": 0.1}),
    }
    with ocp.CheckpointManager(folder) as manager:
        manager.save(100, args=ocp.args.Composite(**items))
    return folder


def run_of_one(folder):
    with ocp.CheckpointManager(folder) as manager:
        manager.save(100, args=ocp.args.StandardSave(TREE))
    return folder


RUNS = {"one tree": run_of_one, "items": run_of_items}
CHECKPOINTS = {
    "ocdbt": saved,
    "per-leaf": partial(saved, use_ocdbt=False),
    "items": lambda folder: run_of_items(folder) / "100",
}


@pytest.fixture(params=RUNS)
def run_at(request, service, tmp_path):
    RUNS[request.param](tmp_path / "run")
    return lambda: uploaded(service, tmp_path / "run", f"{service.root}/run")


@pytest.fixture(params=CHECKPOINTS)
def checkpoint_at(request, service, tmp_path):
    return lambda: uploaded(
        service, CHECKPOINTS[request.param](tmp_path / "ck"), f"{service.root}/ck"
    )


@pytest.mark.covers(1)
@pytest.mark.parametrize("status", ANSWERS)
def test_a_finished_result_is_neither_done_nor_another_where_a_file_is_not_given(
    service, refusing, surgery, checkpoint_at, status
):
    """`--force` was advised, which makes a good result anew."""
    source = checkpoint_at()
    words = rescale(source, f"{service.root}/new", "--resume")
    assert surgery(*words).code == 0
    there = below(service)
    codes = {}
    for name in there:
        refusing(status, name)
        ended = surgery(*words)
        said = f"{ended.out}{ended.err}"
        assert ended.code in (0, 3), (name, said)
        if ended.code == 3:
            assert "cannot be read" in said, (name, said)
            assert "--force" not in said, (name, said)
            assert "surgery rescue" not in said, (name, said)
        codes[name.rpartition("/")[2]] = ended.code
        assert below(service) == there, name
    assert codes["surgery.json"] == codes["_METADATA"] == 3
    refusing(status)
    ended = surgery(*words, "--json")
    assert (ended.code, ended.document["is_repeated"]) == (0, True)


@pytest.mark.covers(2)
@pytest.mark.parametrize("status", ANSWERS)
@pytest.mark.parametrize("again", [(), ("--resume",), ("--dry-run",), ("--resume", "--dry-run")])
def test_the_step_that_was_made_is_not_read_in_the_place_of_the_one_it_was_made_of(
    service, refusing, surgery, run_at, status, again
):
    root = run_at()
    words = rescale(root, root, "--as-step", "150")
    assert surgery(*words, "--resume").code == 0
    there = below(service, "run/")
    for name in [name for name in there if name.startswith("run/150/")]:
        refusing(status, name)
        ended = surgery(*words, *again)
        said = f"{ended.out}{ended.err}"
        assert "gcloud storage rm -r" not in said or "--resume" not in again, (name, said)
        assert "aws s3 rm" not in said or "--resume" not in again, (name, said)
        assert "(the source) is read now" not in said, (name, said)
        assert below(service, "run/") == there, name
        if name == "run/150/surgery.json" and "--resume" in again:
            assert ended.code == 3, said


@pytest.mark.parametrize("status", ANSWERS)
def test_what_is_asked_first_only_is_not_guessed_either(
    service, surgery, run_at, monkeypatch, status
):
    """One answer that was lost, of the record that says what was read, and the next one of the same is there."""
    root = run_at()
    words = rescale(root, root, "--as-step", "150", "--resume")
    assert surgery(*words).code == 0
    answer, refused = service.answer, []
    as_elsewhere(service)

    async def once(request):
        if unquote(request.path).endswith("/run/150/surgery.json") and len(refused) < 6:
            refused.append(request)
            return service.refusal(status, "no")
        return await answer(request)

    monkeypatch.setattr(service, "answer", once)
    ended = surgery(*words)
    assert (ended.code, bool(refused)) in ((3, True), (0, True)), ended
    assert "150' (the source)" not in ended.err


@pytest.mark.covers(2)
@pytest.mark.parametrize("status", ANSWERS)
@pytest.mark.parametrize(
    "words",
    [
        ("verify", "{new}"),
        ("seal", "{new}"),
        ("log", "{new}"),
        ("rescale", "{ck}", "{new}", "**/w", "--by", "3", "--optimizer", "keep", "--force"),
        ("rescale", "{new}", "{other}", "**/w", "--by", "3", "--optimizer", "keep"),
        ("doctor", "{root}"),
    ],
    ids=lambda words: " ".join((words[0], *words[2:])[:6]),
)
@pytest.mark.parametrize("is_sealed", [False, True], ids=["", "sealed"])
def test_nor_by_any_other_command(
    service, refusing, surgery, checkpoint_at, status, words, is_sealed
):
    names = ("ck", "new", "other")
    places = {"root": service.root, **{name: f"{service.root}/{name}" for name in names}}
    checkpoint_at()
    assert surgery(*rescale(places["ck"], places["new"])).code == 0
    if is_sealed:
        assert surgery("seal", places["new"]).code == 0
    there = below(service)
    typed = [word.format_map(places) for word in words]
    for name in there:
        refusing(status, name)
        ended = surgery(*typed)
        said = f"{ended.out}{ended.err}"
        assert "surgery rescue" not in said, (name, said)
        if words[0] == "doctor":
            assert "damaged" not in said, (name, said)
            assert "lost" not in said, (name, said)
        elif words[0] == "rescale":  # what it replaces need not be read
            assert ended.code in (0, 3, 4), (name, said)
            assert "seal --anew" not in said, (name, said)
            for file, content in there.items():
                service.put("bkt", file, content)
            for file in {*service.names("new/"), *service.names("other/")} - there.keys():
                service.remove(file)
        else:
            assert ended.code in (0, 3), (name, said)
            for file, content in there.items():
                service.put("bkt", file, content)


def test_nor_where_it_fails_for_ever(bucket, surgery, tmp_path, monkeypatch):
    """Who tries again for most of a minute does so without waiting."""
    quick = SimpleNamespace(sleep=lambda seconds: asyncio.sleep(0))
    monkeypatch.setattr("gcsfs.retry.asyncio", quick)
    source = uploaded(bucket, saved(tmp_path / "ck"), f"{bucket.root}/ck")
    words = rescale(source, f"{bucket.root}/new", "--resume")
    assert surgery(*words).code == 0
    as_elsewhere(bucket)
    answer = bucket.answer

    async def failing(request):
        fails = unquote(request.path).endswith("/new/surgery.json")
        return bucket.refusal(503, "no") if fails else await answer(request)

    monkeypatch.setattr(bucket, "answer", failing)
    ended = surgery(*words)
    assert ended.code == 3, ended
    assert "nothing of it was taken for an answer" in ended.err


@pytest.mark.covers(1)
@pytest.mark.parametrize("status", ANSWERS)
@pytest.mark.parametrize("lost", [None, "_METADATA", "_CHECKPOINT_METADATA"], ids=str)
@pytest.mark.parametrize("is_sealed", [False, True], ids=["", "sealed"])
def test_no_leaf_is_lost_for_a_rescue_that_is_not_given_a_file(
    service, refusing, surgery, checkpoint_at, status, lost, is_sealed
):
    """What is not seen may be whole: left out, or filled, it would be lost by the rescue."""
    source = checkpoint_at()
    if is_sealed:
        assert surgery("seal", source).code == 0
    if lost is not None:
        service.remove(next(name for name in service.names() if name.endswith(f"/{lost}")))
    there = below(service, "ck/")
    refusing(status)
    whole = surgery("rescue", source, "--json")
    states = {row["path"]: row["state"] for row in whole.document["leaves"]}
    for name in there:
        refusing(status, name)
        for words in (
            ("rescue", source, "--json"),
            ("rescue", source, f"{service.root}/new", "--allow-partial", "--json"),
        ):
            ended = surgery(*words)
            said = f"{ended.out}{ended.err}"
            assert ended.code in (whole.code, 0, 3), (name, words, said)
            if ended.code != 3:
                assert "is not what was sealed" not in said, (name, words, said)
                found = {row["path"]: row["state"] for row in ended.document["leaves"]}
                assert found == states, (name, words, said)
            else:
                assert below(service, "") == there, (name, said)
        for made in set(service.names()) - set(there):
            service.remove(made)
