"""A record beside what another training has saved: its run is not undone there, and no edit goes on from it.

Layers that both have frozen lie under all the samples of a file: the leaves that the run changed tell.
"""

from __future__ import annotations

import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.proof.file_marks import file_mark, is_its_file
from surgery_cli.proof.on_record import read_record
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import uploaded
from tests.store.saving_over import EXPORTS, FORMS, HALVE, OTHER, made, state


def check_that_it_is_refused(place: str, new: str) -> None:
    asked = [lambda: surgery.plan(place, OTHER), lambda: surgery.apply(place, new, OTHER)]
    for ask in [*asked, *([] if place.endswith(EXPORTS) else [lambda: surgery.inverse(place)])]:
        with pytest.raises(CheckpointError) as refused:
            ask()
        (problem,) = refused.value.problems
        assert "damaged since, or something else was saved over it" in problem.why
        assert problem.fix.startswith("`surgery verify ")


@pytest.mark.parametrize("is_sealed", [False, True], ids=["edited", "sealed"])
@pytest.mark.parametrize("form", FORMS)
def test_what_another_training_saved_is_not_undone_nor_given_the_history(form, is_sealed, tmp_path):
    _, result, save = made(form, tmp_path / "run", is_sealed=is_sealed)
    before = file_mark(result)
    if form not in EXPORTS:
        assert surgery.inverse(str(result)).plan["edits"]
    surgery.apply(str(result), str(tmp_path / "from the result"), OTHER)
    save(result, state(2))
    if form == "flax":
        assert file_mark(result) == before
    check_that_it_is_refused(str(result), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("form", ["flax", "bare"])
def test_nor_is_it_in_a_bucket(form, service, tmp_path):
    source, result, save = made(form, tmp_path / "run")
    place = f"{service.root}/run/{result.name}"
    uploaded(service, result.parent, f"{service.root}/up")
    surgery.apply(f"{service.root}/up/{source.name}", place, plan_from_document(HALVE))
    assert surgery.inverse(place).plan["edits"]
    surgery.apply(place, f"{service.root}/from the result", OTHER)
    save(result, state(2))
    for name in service.names(f"run/{result.name}"):
        if form == "bare":
            service.remove(name)
    if form == "bare":
        uploaded(service, result, place)
    else:
        service.put("bkt", f"run/{result.name}", result.read_bytes())
    check_that_it_is_refused(place, f"{service.root}/new")


def test_where_a_service_tells_what_a_file_holds_no_leaf_is_read(bucket, tmp_path):
    source, result, _ = made("flax", tmp_path / "run")
    uploaded(bucket, source.parent, f"{bucket.root}/up")
    place = f"{bucket.root}/run/{result.name}"
    surgery.apply(f"{bucket.root}/up/{source.name}", place, plan_from_document(HALVE))
    checkpoint = open_checkpoint(place)
    record = read_record(checkpoint)
    assert record is not None
    assert is_its_file(record, checkpoint)


def test_no_run_is_undone_of_which_a_leaf_was_sealed_anew(tmp_path):
    _, result, save = made("flax", tmp_path / "run")
    save(result, state(2))
    surgery.seal(str(result), anew=True)
    assert not any(entry.undoable for entry in surgery.log(str(result)).entries)
    with pytest.raises(CheckpointError, match="has not written 'head'"):
        surgery.inverse(str(result))
    surgery.apply(str(result), str(tmp_path / "new"), OTHER)
