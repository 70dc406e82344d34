"""JSON that is whole, and is not what its reader takes it for: held against what Orbax does with it."""

import json
import random
import shutil
from pathlib import Path

import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from tests.verification.test_items_of_every_handler import (
    RESTORES,
    _called_whole,
    _is_restored,
    saved,
)

__all__ = ["saved"]
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
RANDOM = random.Random(0)


def _is_managed(root: Path) -> bool:
    """Whether a manager that keeps the best steps finds this one."""
    options = ocp.CheckpointManagerOptions(
        best_fn=lambda metrics: metrics["loss"], enable_async_checkpointing=False
    )
    try:
        with ocp.CheckpointManager(root, options=options) as manager:
            return manager.best_step() == 1
    except (TypeError, LookupError):
        return False


FORMS = ("[]", "1", '"x"', "true", "[1, 2]")
FORMS_OF_KEYS = (*FORMS, "null", "{}", '{"a": 1}')


def _documents(step: Path) -> list[Path]:
    """The JSON of all items, by path from the step."""
    found = (path for path in step.rglob("*") if path.is_file() and path.parent != step)
    return sorted(path.relative_to(step) for path in found if _is_json(path))


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


@pytest.mark.check_all
def test_json_of_a_form_that_orbax_does_not_take_is_called_whole_by_no_command(
    saved, tmp_path, pytestconfig
):
    """Every document of every item; of an item that is JSON itself, Orbax gives back whatever stands there."""
    cases = [
        (path, form)
        for path in _documents(saved / "1")
        for form in (FORMS_OF_KEYS if "metadata/" in str(path) else FORMS)
        if path.parts[0] in RESTORES and path != Path("json/metadata")
    ]
    by_orbax_alone = [
        (Path("metrics/metrics"), "[]"),
        (Path("jax_key/jax_random_key_metadata/metadata"), "{}"),
        (Path("numpy_key/np_random_key_metadata/metadata"), "null"),
    ]
    every = pytestconfig.getoption("--every-combination")
    for number, (path, form) in enumerate(
        cases if every else [*RANDOM.sample(cases, 8), *by_orbax_alone]
    ):
        root = Path(shutil.copytree(saved, tmp_path / str(number)))
        (root / "1" / path).write_text(form)
        item = path.parts[0]

        is_taken = _is_managed(root) if item == "metrics" else _is_restored(root / "1", item)
        called_whole = _called_whole(root)

        assert is_taken or not called_whole, f"{path} {form}"


def test_metrics_of_another_form_are_named_with_what_to_do(saved, tmp_path):
    root = Path(shutil.copytree(saved, tmp_path / "run"))
    (root / "1/metrics/metrics").write_text("[]")
    assert not _is_managed(root)
    (place,) = surgery.doctor(str(root), settled_seconds=0).places
    assert place.state == "damaged"
    assert [why.split(":")[0] for why in place.why] == ["`metrics/metrics`"]
    assert "copy 'metrics' again" in place.todo
