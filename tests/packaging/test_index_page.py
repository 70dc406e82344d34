"""The page that an index shows of the package has no link that leads nowhere there."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.packaging.oldest import ROOT

ADDRESS = "https://git.example.org/team/surgery"
BUILD = (
    "from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel('out'))"
)


def long_description(folder, repository):
    """As the metadata of a wheel has it that is built with this address, or with none."""
    (folder / "surgery_cli").mkdir()
    for name in ("setup.py", "README.md", "LICENSE", "surgery_cli/__init__.py"):
        shutil.copy(ROOT / name, folder / name)
    said = (ROOT / "pyproject.toml").read_text()
    said = re.sub(r"(?m)^\[project\.urls\]\n(?:[^\[\n].*\n)*", "", said)
    urls = f'[project.urls]\nRepository = "{repository}"\n\n' if repository else ""
    (folder / "pyproject.toml").write_text(
        said.replace("[project.scripts]", f"{urls}[project.scripts]")
    )
    (folder / "out").mkdir()
    subprocess.run([sys.executable, "-c", BUILD], cwd=folder, check=True, capture_output=True)
    (metadata,) = (folder / "out").glob("*.dist-info/METADATA")
    headers, _, text = metadata.read_text().partition("\n\n")
    assert "\nDescription-Content-Type: text/markdown" in headers
    assert (f"Project-URL: Repository, {ADDRESS}" in headers) == bool(repository)
    return text


def targets(text):
    """Where links and pictures lead; whatever stands between brackets and parentheses."""
    return re.findall(r"\]\(([^)]*)\)", text)


@pytest.mark.parametrize("repository", [ADDRESS, f"{ADDRESS}/"])
def test_with_the_address_every_link_leads_into_the_repository(tmp_path, repository):
    readme, text = (ROOT / "README.md").read_text(), long_description(tmp_path, repository)
    led = targets(text)
    assert len(led) == len(targets(readme)) > 40
    assert [one for one in led if not re.match(r"https://|#", one)] == []
    assert f"]({ADDRESS}/blob/HEAD/docs/other-formats.md#t5x)" in text
    assert re.search(
        r"!\[[^]]*\]\(" + re.escape(f"{ADDRESS}/raw/HEAD/docs/head-replaced.png"), text
    )
    assert text.replace(f"{ADDRESS}/blob/HEAD/", "").replace(f"{ADDRESS}/raw/HEAD/", "") == readme


def test_without_the_address_no_link_is_made_up_and_its_text_remains(tmp_path):
    text = long_description(tmp_path, "")
    assert [one for one in targets(text) if not re.match(r"https://|#", one)] == []
    assert "example.org" not in text
    plain = re.sub(r"!?\[([^][]*)\]\((?!https:|#)[^)]*\)", r"\1", (ROOT / "README.md").read_text())
    assert text == plain
