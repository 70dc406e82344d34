"""Folders of leaves whose names a copy has spelled anew: told from what is lost."""

import unicodedata

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from tests.salvage.test_corpus import restored


def _save(place, tree):
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
    ocp.Checkpointer(handler).save(place, ocp.args.PyTreeSave(tree))
    return place


def test_a_name_in_another_form_of_unicode_is_that_name(tmp_path):
    tree = {"é ü": jnp.arange(4.0), "A": jnp.ones(2), "a": jnp.zeros(3)}
    place = _save(tmp_path / "saved", tree)
    (place / "é ü").rename(place / unicodedata.normalize("NFD", "é ü"))
    with pytest.raises(SurgeryError):
        surgery.inspect(str(place))

    report = surgery.rescue(str(place), str(tmp_path / "new"))

    assert report.is_whole
    assert any("differ only in Unicode form: 'é ü'" in str(note) for note in report.notes)
    back = restored(tmp_path / "new")
    assert back.keys() == tree.keys()
    assert np.array_equal(back["é ü"], tree["é ü"])


def test_two_forms_of_one_name_are_not_paired(tmp_path):
    """Where both are there, nothing says which was meant."""
    forms = [unicodedata.normalize(form, "é") for form in ("NFC", "NFD")]
    place = _save(tmp_path / "saved", {name: jnp.full(2, n) for n, name in enumerate(forms)})
    (place / forms[0]).rename(place / "elsewhere")

    rows = [row.state for row in surgery.rescue(str(place)).leaves]

    assert sorted(rows) == ["lost", "whole", "whole"]


def test_a_name_with_a_backslash_is_said_to_be_the_cause(tmp_path):
    place = _save(tmp_path / "saved", {"a\\b": jnp.arange(4.0)})
    with pytest.raises(SurgeryError, match="is stored in") as refused:
        surgery.inspect(str(place))
    assert "backslash" in refused.value.problems[0].why
