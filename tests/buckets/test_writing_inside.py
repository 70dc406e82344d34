"""Nothing is put into a step, or a run, in a bucket that another run has, or has left: it would go with it."""

import json

import pytest

from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, SAMPLES, uploaded

HERE = Owner.here()
OWNERS = {"alive": HERE, "dead": Owner(HERE.host, HERE.machine, 2**22 - 1, "1")}
STANDS = ["data", "all but its mark", "all"]
EDIT = ("params/Dense_1", "--by", "2", "--optimizer", "keep")


def locked(service, name, owner):
    folder, _, last = name.rpartition("/")
    fields = {field: getattr(owner, field) for field in owner.__struct_fields__}
    said = {**fields, "run": "1", "builds": f"{service.root}/{name}"}
    place = f"{folder}/" * bool(folder)
    service.put("bkt", f"{place}.{last}.surgery-tmp-lock", json.dumps(said).encode())


@pytest.mark.sampled(8)
@pytest.mark.parametrize("stands", STANDS)
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("destination", ["new/50", "new"], ids=["a step", "a run"])
def test_what_another_run_builds_or_has_left_gets_nothing(
    service, surgery, destination, owner, stands
):
    source = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    service.upload(SAMPLES / "digits_manager" / "250", f"{service.root}/new/50")
    for name in service.names():
        is_metadata = "/d/" not in name and name.startswith("new/50/")
        if stands == "data" and is_metadata:
            service.remove(name)
    mark = f"new/50/{MARK}"
    if stands == "all":
        service.put("bkt", mark, b"")
    elif mark in service.names():
        service.remove(mark)
    locked(service, destination, OWNERS[owner])
    before = service.names()
    places = [f"{service.root}/new/50/extra"] + [f"{service.root}/new/60"] * (destination == "new")
    for place in places:
        run = surgery("rescale", f"{source}/250/default", place, *EDIT)
        if stands == "all" and owner == "dead":
            assert run.code == 0, run.err
            assert surgery("verify", place).code == 0
        else:
            assert run.code == 2, (place, run.out)
            assert f"'{service.root}/{destination}'" in run.err
            assert service.names() == before


@pytest.mark.parametrize("owner", OWNERS)
def test_what_another_run_builds_is_no_folder_to_write_into_whatever_it_will_be(
    service, surgery, owner
):
    """A tree without steps or items, of which data objects alone are there by now."""
    source = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    service.put("bkt", "runs/new/d/00000000000000000000000000000000", b"data")
    locked(service, "runs/new", OWNERS[owner])
    before = service.names()
    run = surgery("rescale", f"{source}/250/default", f"{service.root}/runs/new/extra", *EDIT)
    assert run.code == 2, run.out
    assert f"'{service.root}/runs/new'" in run.err
    assert service.names() == before


@pytest.mark.parametrize("owner", OWNERS)
def test_what_stands_beside_is_nobodys_business(service, surgery, owner):
    source = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    for other in ("run/600", "run/250/other", "other"):
        locked(service, other, OWNERS[owner])
    for place in (f"{source}/250/extra", f"{source}/700"):
        assert surgery("rescale", f"{source}/500/default", place, *EDIT).code == 0
