"""What older and newer releases of Orbax have saved, and nobody has damaged, is whole for a rescue."""

import shutil

import pytest

from surgery_cli import surgery
from tests.fixture_truths import FIXTURES

DATABASES = sorted(
    {
        str(f.parent.relative_to(FIXTURES)).split("/ocdbt")[0]
        for f in FIXTURES.glob("orbax-*/**/manifest.ocdbt")
    }
)


@pytest.mark.parametrize("name", DATABASES)
def test_a_database_without_its_manifests_is_whole(name, tmp_path):
    """A merge may have copied small values out of the nodes of a process: two places of one value are no dispute."""
    shutil.copytree(FIXTURES / name, tmp_path / "broken")
    for manifest in (tmp_path / "broken").rglob("manifest.ocdbt"):
        manifest.unlink()

    report = surgery.rescue(str(tmp_path / "broken"))

    undamaged = surgery.rescue(str(FIXTURES / name))
    assert report.whole > 0
    assert {row.path: row.state for row in report.leaves} == {
        row.path: row.state for row in undamaged.leaves
    }


@pytest.mark.parametrize("name", DATABASES)
def test_manifests_of_one_save_are_not_called_those_of_two(name):
    report = surgery.rescue(str(FIXTURES / name))
    assert not [note for note in report.notes if "two saves" in str(note)]
