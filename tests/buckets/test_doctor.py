"""`doctor` on a bucket: what its listing and metadata tell of a run, with nothing written there."""

import json

import pytest

from surgery_cli import surgery as library
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, SAMPLES, saved, uploaded


def _locked(service, name, owner):
    fields = {field: getattr(owner, field) for field in owner.__struct_fields__}
    said = {**fields, "run": "1", "builds": f"{service.root}/run/{name}"}
    service.put("bkt", f"run/.{name}.surgery-tmp-lock", json.dumps(said).encode())


def test_steps_marks_and_locks_of_a_run_are_told_and_nothing_is_written(service):
    run = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    service.upload(SAMPLES / "digits_manager" / "250", f"{service.root}/run/750")
    service.upload(SAMPLES / "digits_manager" / "250", f"{service.root}/run/800")
    service.remove(f"run/750/{MARK}")
    service.remove("run/800/default/manifest.ocdbt")
    here = Owner.here()
    _locked(service, "900", here)
    _locked(service, "910", Owner(here.host, here.machine, 2**22 - 1, "1"))
    before = service.names()

    report = library.doctor(run, settled_seconds=0)

    needs_mark = service.root.startswith("gs://")
    assert service.names() == before
    assert {one.path: (one.state, one.of) for one in report.places} == {
        "250": ("whole", ""),
        "500": ("whole", ""),
        "750": ("unfinished", "Orbax") if needs_mark else ("whole", ""),
        "800": ("damaged", ""),
        ".900.surgery-tmp-lock": ("writing", "surgery"),
        ".910.surgery-tmp-lock": ("leftover", "surgery"),
    }
    assert report.exit_code == 1
    dead = report.places[-1]
    assert "surgery clean" in dead.todo
    assert library.doctor(f"{run}/250").counts == {"whole": 1}


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_a_data_file_that_the_tree_of_a_store_lies_in_is_named_as_what_it_is(
    service, tmp_path, surgery, harm
):
    """By name, and not in the words of the service."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    (file,) = (name for name in service.names() if name.startswith("ck/d/"))
    if harm == "missing":
        service.remove(file)
    else:
        service.put("bkt", file, service.content(file)[:20])
    told = f"the data file '{service.root}/{file}' is {harm}"
    opened, seen = surgery("inspect", there), surgery("doctor", there, "--settled", "0")
    assert (opened.code, seen.code) == (3, 1)
    assert told in opened.err
    assert told in seen.out
