"""Of what a run is writing to a bucket, whoever reads it hears that first; of a rescue, where that run may be dead."""

import json
import shutil

import msgspec
import pytest

from surgery_cli import surgery as library
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, SAMPLES, saved, uploaded

BESIDE = ".new.surgery-tmp-0123abcd"


def begun(service, folder, built, state):
    """What stands while a run writes `new`, or did; who it is."""
    uploaded(service, saved(folder), f"{service.root}/{built}")
    service.remove(f"{built}/{MARK}")
    service.remove(f"{built}/_CHECKPOINT_METADATA")
    owner = msgspec.to_builtins(Owner.here())
    owner |= {"elsewhere": {"machine": "feedbeef"}, "dead": {"started": "1"}}.get(state, {})
    said = {"run": "x", "builds": f"{service.root}/{built.partition('/')[0]}", **owner}
    service.put("bkt", ".new.surgery-tmp-lock", json.dumps(said).encode())
    return owner


@pytest.mark.sampled(2)
@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
@pytest.mark.parametrize("built", ["new", f"{BESIDE}/new"], ids=["plain", "resume"])
def test_who_reads_it_is_told_to_wait_before_anything_else(
    service, tmp_path, surgery, built, state
):
    owner = begun(service, tmp_path / "ck", built, state)

    for named in ("new", built):
        refused = surgery("inspect", f"{service.root}/{named}")
        is_there = named == built
        new = f"{service.root}/new"
        if state == "dead":
            assert "wait" not in refused.err
            assert refused.code == (3 if is_there else 2)
            if named == "new":  # before that a new start is refused
                assert f"`surgery clean {new}` removes what it left" in refused.err
            continue
        what, why, fix = refused.err.splitlines()[:3]
        assert refused.code == 3, refused.err
        assert f"another run is writing to '{new}'" in what
        assert f"process {owner['pid']} on " in why
        assert fix.strip().startswith("wait for it")
        if state == "living":
            assert "rescue" not in refused.err
        else:
            assert f"if it is over, `surgery clean {new} --stale`" in refused.err
            assert (f"`surgery rescue {service.root}/{built}`" in refused.err) == is_there


@pytest.mark.covers(1)
@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
@pytest.mark.parametrize("built", ["new", f"{BESIDE}/new"], ids=["plain", "resume"])
def test_no_rescue_of_what_a_living_run_writes(service, tmp_path, surgery, built, state):
    begun(service, tmp_path / "ck", built, state)
    before = service.names()
    for named in dict.fromkeys((built, built.partition("/")[0])):
        for to in ([], [str(tmp_path / "out")]):
            found = surgery("rescue", f"{service.root}/{named}", *to)
            said = " ".join((found.err + found.out).split())
            if state == "living":
                assert found.err == surgery("inspect", f"{service.root}/{named}").err
                assert f"another run is writing to '{service.root}/new'" in said
                assert (found.code, service.names()) == (3, before)
                continue
            assert found.code == 0, found.err
            is_doubted = "whether that still runs cannot be seen from here" in said
            assert is_doubted == (state == "elsewhere")
            shutil.rmtree(tmp_path / "out", ignore_errors=True)


def test_what_is_whole_and_to_be_replaced_is_rescued_as_it_stands(service, tmp_path):
    """Its mark stands until the run that replaces it has begun to: nothing of it is being written."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/new")
    said = {"run": "x", "builds": f"{service.root}/{BESIDE}", **msgspec.to_builtins(Owner.here())}
    service.put("bkt", ".new.surgery-tmp-lock", json.dumps(said).encode())
    assert library.rescue(there, str(tmp_path / "out")).whole == 3


NOT_YET = {"whole": [], "no store": ["manifest.ocdbt"], "no tree": ["_METADATA"], "one file": [""]}
"""What is not there yet, by the ends of names; '' is all but the first object."""


@pytest.mark.covers(1)
@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
@pytest.mark.parametrize("lacking", NOT_YET)
def test_whatever_is_there_by_then_every_command_names_the_run_and_how_to_remove_it(
    service, tmp_path, surgery, state, lacking
):
    owner = begun(service, tmp_path / "ck", "new", state)
    for end in NOT_YET[lacking]:
        for name in sorted(n for n in service.names() if n.startswith("new/"))[end == "" :]:
            if name.endswith(end):
                service.remove(name)
    new, other = f"{service.root}/new", str(tmp_path / "ck")
    said = {"dead": f"'{new}' was left by a run that was killed"}.get(
        state, f"another run is writing to '{new}'"
    )
    command = "kill" if state == "living" else f"surgery clean {new}"

    for arguments in (
        ["inspect", new],
        ["diff", new, other],
        ["verify", new],
        ["seal", new],
        ["rescale", new, str(tmp_path / "out"), "params/**", "--by", "2"],
        ["rescale", other, new, "params/**", "--by", "2"],
    ):
        refused = surgery(*arguments)
        assert refused.code in (2, 3), arguments
        assert refused.err.startswith(f"error: {said}"), arguments
        assert f"process {owner['pid']} on" in refused.err
        assert command in refused.err, arguments
    # and nothing else stands there
    assert surgery("inspect", service.root).err.startswith(f"error: {said}")
    report = library.doctor(new, settled_seconds=0)
    (place,) = report.places
    assert place.state == ("writing" if state == "living" else "unfinished")
    assert place.why[0] == said
    assert command in place.todo
    if state != "living":
        (note, *_) = library.rescue(new).notes
        assert note.startswith(said)


@pytest.mark.parametrize("others", [[], ["1"]], ids=["alone", "beside another"])
@pytest.mark.parametrize("lacking", ["whole", "one file"])
@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
def test_a_step_that_is_being_written_is_named_as_such_by_its_number(
    service, tmp_path, surgery, state, lacking, others
):
    begun(service, tmp_path / "ck", "run/20", state)
    service.put("bkt", "run/.20.surgery-tmp-lock", service.content(".new.surgery-tmp-lock"))
    service.remove(".new.surgery-tmp-lock")
    names = [name for name in service.names() if name.startswith("run/20/")]
    for name in names[1:] if lacking == "one file" else ():
        service.remove(name)
    run = f"{service.root}/run"
    for name in others:
        uploaded(service, tmp_path / "ck", f"{run}/{name}")
    if others and lacking == "whole":
        added = surgery("cast", f"{run}@1", run, "params/**", "--to=bfloat16", "--as-step", "20")
        assert f"{run}/20'" in added.err.splitlines()[0]

    refused = surgery("inspect", f"{run}@20")

    assert refused.err == surgery("inspect", f"{run}/20").err
    said = "was left by a run that was killed" if state == "dead" else "another run is writing to"
    assert said in refused.err
    assert f"'{run}/20'" in refused.err


@pytest.mark.parametrize("lacking", ["whole", "no store", "one file"])
@pytest.mark.parametrize("state", ["living", "elsewhere", "dead"])
def test_the_mark_of_a_step_says_nothing_of_an_item_that_is_being_put_into_it(
    service, tmp_path, surgery, state, lacking
):
    """It would open as whole where several transactions are to come: the tree of the source, edited in part."""
    step = uploaded(service, SAMPLES / "digits_manager" / "250", f"{service.root}/run/250")
    begun(service, tmp_path / "ck", "run/250/extra", state)
    lock = service.content(".new.surgery-tmp-lock")
    service.remove(".new.surgery-tmp-lock")
    names = service.names("run/250/extra/")
    gone = {"no store": [n for n in names if n.endswith("manifest.ocdbt")], "one file": names[1:]}
    for name in gone.get(lacking, ()):
        service.remove(name)
    service.put("bkt", "run/250/.extra.surgery-tmp-lock", lock)
    said = "was left by a run that was killed" if state == "dead" else "another run is writing to"

    for arguments in (
        ["inspect", f"{step}/extra"],
        ["inspect", step],
        ["inspect", step, "--item", "default"],
        ["inspect", step, "--item", "extra"],
        ["verify", f"{service.root}/run@250", "--item", "extra"],
        ["verify", f"{service.root}/run"],
        ["cast", f"{service.root}/run@250", str(tmp_path / "out"), "--to", "bfloat16"],
    ):
        refused = surgery(*arguments)
        assert refused.code == 3, arguments
        assert said in refused.err, arguments
        assert f"'{step}/extra'" in refused.err.splitlines()[0], arguments
    (place,) = library.doctor(f"{service.root}/run", settled_seconds=0).places
    assert place.state == ("writing" if state == "living" else "unfinished")

    service.remove("run/250/.extra.surgery-tmp-lock")
    for name in service.names("run/250/extra/"):
        service.remove(name)
    assert surgery("verify", step).code == 0
