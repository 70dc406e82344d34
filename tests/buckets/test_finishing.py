"""`clean` finishes what a killed `--force` has half replaced, whatever ends it meanwhile, and replaces nothing else."""

import json
import time

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.inputs.buckets import path_at, removal
from surgery_cli.store.filesystem.bucket_locks import lock_of
from surgery_cli.store.write.replacement import Replacement
from tests.buckets.checkpoints import MARK, SAMPLES, TREE, inventoried, saved, uploaded
from tests.buckets.test_destinations import downloaded
from tests.buckets.test_refused_for_good import LOCK, edit, end_its_run, refusing_after

LAYOUTS = [{}, {"use_ocdbt": False}]
ENDS = pytest.param(1, marks=pytest.mark.check_all)
"""After each request, not after every so manieth."""


@pytest.fixture(params=LAYOUTS, ids=["ocdbt", "per-leaf"])
def source(request, service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck", **request.param), f"{service.root}/ck")


@pytest.fixture
def mixture(service, source, surgery, monkeypatch):
    """The destination, when from the second object that was put in the place of an old one all was refused."""
    return half_replaced("new", service, source, surgery, monkeypatch)


def half_replaced(name, service, source, surgery, monkeypatch, *, edit=edit, marked=""):
    """See ``mixture``; of any name, and of what has its mark in a folder of it."""
    new = f"{service.root}/{name}"
    assert surgery(*edit(source, new, by="3")).code == 0
    placed, answer = [], service.answer

    async def refused(request):
        if len(placed) >= 2:
            return service.refusal(403, "no")
        answered = await answer(request)
        if service.kind_of(request) == "copy" and not is_marked(service, f"{name}{marked}"):
            placed.append(request)
        return answered

    with monkeypatch.context() as patched:
        patched.setattr(service, "answer", refused)
        run = surgery(*edit(source, new, "--force"))
    assert "could not be replaced whole" in run.err, run.err
    end_its_run(service, lock_of(path_at(new)).relative_to(path_at(service.root)).as_posix())
    return new


def is_marked(service, name="new"):
    return f"{name}/{MARK}" in service.names()


def said_to_be_elsewhere(service, lock=LOCK):
    told = json.loads(service.content(lock)) | {"machine": "feedbeef", "host": "other"}
    service.put("bkt", lock, json.dumps(told).encode())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["dead", "elsewhere"])
@pytest.mark.parametrize("built", ["run/20", "run/5/extra"], ids=["a step", "an item"])
def test_however_it_is_named_it_is_said_that_clean_puts_the_new_one_there(
    service, source, surgery, monkeypatch, tmp_path, built, is_elsewhere
):
    run = f"{service.root}/run"
    uploaded(service, SAMPLES / "digits_manager" / "250", f"{run}/5")
    new = half_replaced(built, service, source, surgery, monkeypatch)
    if is_elsewhere:
        folder, _, name = built.rpartition("/")
        said_to_be_elsewhere(service, f"{folder}/.{name}.surgery-tmp-lock")
    ways = {
        "run/20": [[new], [f"{run}@20"]],
        "run/5/extra": [[new], [f"{run}@5"], [f"{run}/5", "--item", "extra"]],
    }
    for words in ways[built]:
        for command in ("inspect", "verify"):
            refused = surgery(command, *words)
            assert refused.code == 3, words
            assert f"'{new}' is half replaced" in refused.err, (words, refused.err)
            stale = " --stale" * is_elsewhere
            assert f"`surgery clean {new}{stale}` puts the new one in its place" in refused.err
    step = built.split("/")[1]
    over = surgery(*edit(source, f"{run}/{step}", "--force"))
    beside = surgery(*edit(f"{run}@{step}", run, "--as-step", "77"))
    assert (over.code, beside.code) == (2, 3)
    for refused in (over, beside):
        assert f"'{new}' is half replaced" in refused.err, refused.err
        assert f"`surgery clean {new}{stale}` puts the new one in its place" in refused.err
    for place in dict.fromkeys([new, run, f"{run}/{step}"]):
        seen = surgery("doctor", place, "--settled", "0")
        assert seen.code == 1
        assert f"`surgery clean {new}{stale}` puts the new one in its place" in seen.out, seen.out


def edit_of_root(source, new, *options, by="2"):
    at = ("params/Dense_1", "--by", by, "--optimizer", "keep", "--metrics", "keep")
    return ("rescale", source, new, *at, *options)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_marked_item", [False, True], ids=["", "an item with its old mark"])
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["dead", "elsewhere"])
def test_of_a_root_nothing_inside_is_read_however_it_is_named(
    service, surgery, monkeypatch, tmp_path, is_elsewhere, is_marked_item
):
    """An item's own mark, old or new, says nothing of the step that it lies in."""
    source = uploaded(service, SAMPLES / "digits_manager" / "250", f"{service.root}/run/250")
    source = source.removesuffix("/250")
    new = half_replaced(
        "new", service, source, surgery, monkeypatch, edit=edit_of_root, marked="/250"
    )
    if is_elsewhere:
        said_to_be_elsewhere(service)
    if is_marked_item:
        service.put("bkt", f"new/250/default/{MARK}", b"")
    step, other = f"{new}/250", f"{service.root}/other"
    for place in (new, step, f"{step}/default", f"{new}@250"):
        ways = [
            ("inspect", place),
            ("verify", place),
            ("rescue", place),
            ("rescue", place, other, "--allow-partial"),
            ("rescale", place, other, "params/Dense_1", "--by", "2"),
            ("diff", source, place),
        ]
        for words in ways:
            refused = surgery(*words)
            assert refused.code == 3, (words, refused.out, refused.err)
            assert f"'{new}' is half replaced" in refused.err, (words, refused.err)
            stale = " --stale" * is_elsewhere
            assert f"`surgery clean {new}{stale}` puts the new one in its place" in refused.err
    for place in (new, step):
        seen = surgery("doctor", place, "--settled", "0")
        assert seen.code == 1
        assert f"'{new}' is half replaced" in seen.out, seen.out
        assert f"`surgery clean {new}{stale}` puts the new one in its place" in seen.out, seen.out
    before = service.names()
    for place in (f"{step}/extra", f"{new}/300"):
        refused = surgery("rescale", f"{source}/250/default", place, "params/Dense_1", "--by", "2")
        assert refused.code == 2, (place, refused.err)
        assert f"'{new}' is half replaced" in refused.err
    for words in (("log", step), ("plan", step, "--inverse")):
        refused = surgery(*words)
        assert refused.code == 3
        assert f"'{new}' is half replaced" in refused.err
    assert service.names() == before
    assert not any(name.startswith("other") for name in before)
    assert surgery("clean", new, *["--stale"] * is_elsewhere).code == 0
    assert surgery("rescue", step).code == 0
    assert surgery("verify", f"{step}/default").code == 0


def check_new(service, tmp_path):
    """Orbax restores the new one, and nothing else is left of it."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(downloaded(service, "new", tmp_path))
    np.testing.assert_array_equal(tree["params"]["w"], TREE["params"]["w"] * 2)
    np.testing.assert_array_equal(tree["params"]["b"], TREE["params"]["b"])
    assert is_marked(service)
    assert not [name for name in service.names() if "surgery-tmp" in name]


def test_it_is_put_in_its_place(service, mixture, surgery, tmp_path):
    before = service.names()
    looked = surgery("clean", mixture, "--dry-run")
    assert "would put in its place what " in looked.out, looked.out
    assert service.names() == before

    cleaned = surgery("clean", mixture, "--json")

    assert cleaned.code == 0, cleaned.err
    document = json.loads(cleaned.out)
    assert [row["state"] for row in document["finished"]] == ["whole"]
    assert not document["removed"]
    assert not document["kept"]
    check_new(service, tmp_path / "down")
    assert surgery("verify", mixture).code == 0


@pytest.mark.parametrize("every", [9, ENDS])
@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["dead", "elsewhere"])
@pytest.mark.covers(2)
def test_cut_short_it_is_finished_by_the_same_command(
    service, mixture, surgery, monkeypatch, tmp_path, is_elsewhere, every
):
    before = {name: service.content(name) for name in service.names()}
    beside = beside_of(service)
    words = ("clean", mixture, *["--stale"] * is_elsewhere)
    for number in range(every, 300, every):
        if is_elsewhere:
            said_to_be_elsewhere(service)
        with monkeypatch.context() as patched:
            refusing_after(service, number, patched)
            run = surgery(*words)
        if run.code == 0:
            check_new(service, tmp_path / "whole")
            return
        assert run.code in (2, 3, 4), (number, run.err)
        if LOCK not in service.names():  # its answer was refused
            check_new(service, tmp_path / str(number))
        else:
            end_its_run(service)
            again = surgery(*words)
            assert again.code == 0, (number, again.err)
            check_new(service, tmp_path / str(number))
        for name in set(service.names()) - set(before):
            service.remove(name)
        for name in sorted(before, key=lambda name: name == LOCK):  # which is younger than all
            service.put("bkt", name, before[name])
        inventoried(path_at(f"{service.root}/{beside}"))  # they are others by now
    pytest.fail("it never came to its end")


def test_of_a_run_that_may_still_go_on_it_takes_a_word(service, mixture, surgery, tmp_path):
    said_to_be_elsewhere(service)
    before = service.names()

    kept = surgery("clean", mixture)

    said = kept.out + kept.err
    assert f"`surgery clean {mixture} --stale` puts the new one in its place, if that run" in said
    assert service.names() == before
    assert surgery("clean", mixture, "--stale").code == 0
    check_new(service, tmp_path / "down")


def test_what_something_else_has_written_since_is_not_replaced(service, mixture, surgery, tmp_path):
    """Orbax asks nobody before it saves, and leaves no mark where no folder can be renamed but by its service."""
    for name in service.names("new/"):
        service.remove(name)
    time.sleep(1.1)  # their times are in seconds
    uploaded(service, saved(tmp_path / "another", {"params": {"w": TREE["params"]["b"]}}), mixture)
    for name in {f"new/{MARK}"} & set(service.names()):
        service.remove(name)
    before = {name: service.content(name) for name in service.names()}

    for options in (["--dry-run"], []):
        run = surgery("clean", mixture, *options)
        assert run.code == 2
        assert "was written to by something else since" in run.err
    assert {name: service.content(name) for name in service.names()} == before


def beside_of(service):
    (found,) = {n.split("/")[0] for n in service.names() if n.endswith(f"/new/{MARK}")}
    return found


HARMS = {
    "an object gone": lambda service, names: service.remove(names[0]),
    "an object replaced": lambda service, names: service.put("bkt", names[0], b"x"),
    "an object more": lambda service, names: service.put("bkt", f"{names[0]}x", b"x"),
    "all gone": lambda service, names: [service.remove(name) for name in names],
    "all gone, and what tells of it": lambda service, names: [
        service.remove(name) for name in service.names(".new") if name != LOCK
    ],
}


@pytest.mark.parametrize("harm", HARMS)
def test_what_is_not_whole_any_more_takes_nobodys_place(
    service, mixture, source, surgery, tmp_path, harm
):
    """Neither of the two checkpoints is whole: nothing takes what is left for one, and what removes it is said."""
    beside = beside_of(service)
    every = service.names(f"{beside}/")
    HARMS[harm](
        service, every if harm.startswith("all gone") else [n for n in every if MARK not in n]
    )
    before = {name: service.content(name) for name in service.names()}

    cleaned = surgery("clean", mixture)

    said = cleaned.out + cleaned.err
    assert cleaned.code == 1, said
    assert "is half replaced" in said
    for words in (
        ("inspect", mixture),
        ("rescue", mixture, f"{service.root}/other"),
        ("rescale", mixture, f"{service.root}/other", "params/w", "--by", "2"),
        edit(source, mixture, "--force"),
    ):
        refused = surgery(*words)
        assert refused.code in (2, 3), (words, refused.out)
        assert "is half replaced" in refused.err, (words, refused.err)
    assert {name: service.content(name) for name in service.names()} == before
    for folder in ("new", beside):  # as it is said
        assert f"`{removal(path_at(f'{service.root}/{folder}'))}`" in said
        for name in service.names(f"{folder}/"):
            service.remove(name)
    assert f"`surgery clean {mixture}` the rest" in said
    assert surgery("clean", mixture).code == 0
    assert not [name for name in service.names() if not name.startswith("ck/")]


def test_without_its_lock_it_goes_by_hand(service, mixture, surgery, tmp_path):
    beside = beside_of(service)
    service.remove(LOCK)

    kept = surgery("clean", mixture, "--stale")

    assert kept.code == 1
    assert f"`surgery rescue {service.root}/{beside}/new NEW`" in kept.out
    for folder in ("new", beside):
        assert f"`{removal(path_at(f'{service.root}/{folder}'))}`" in kept.out
    assert surgery("rescue", f"{service.root}/{beside}/new", f"{service.root}/saved").code == 0
    for name in (*service.names("new/"), *service.names(f"{beside}/")):
        service.remove(name)
    assert surgery("clean", mixture, "--stale").code == 0
    names = [name for name in service.names() if not name.startswith(("ck/", "saved/"))]
    assert not names


def test_interrupted_it_says_what_the_destination_is(service, mixture, surgery, monkeypatch):
    def struck(self, guard, mark):
        raise KeyboardInterrupt

    monkeypatch.setattr(Replacement, "carry_out", struck)
    run = surgery("clean", mixture)
    assert run.code == 130
    assert "nothing was left behind" not in run.err
    assert f"is half replaced: `surgery clean {mixture}` goes on with that" in run.err


def test_the_command_of_the_service_removes_one_object():
    """`aws s3 rm --recursive` adds a slash, and removes nothing then."""
    lock = path_at("s3://bkt/.new.surgery-tmp-lock")
    assert removal(lock, is_object=True) == f"aws s3 rm {lock}"
    assert removal(path_at("s3://bkt/new")) == "aws s3 rm --recursive s3://bkt/new"
    assert removal(path_at("gs://bkt/x"), is_object=True) == "gcloud storage rm gs://bkt/x"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_doctor_says_of_it_whether_its_run_is_known_to_be_over(
    service, mixture, surgery, elsewhere
):
    if elsewhere:
        said_to_be_elsewhere(service)
    document = json.loads(surgery("doctor", service.root, "--json").out)
    (place,) = [one for one in document["places"] if one["path"] == LOCK]
    said = " ".join(place["why"])
    assert ("cannot be told from here" in said) == elsewhere
    assert ("which is gone" in said) == (not elsewhere)
    assert ("--stale" in place["todo"]) == elsewhere
