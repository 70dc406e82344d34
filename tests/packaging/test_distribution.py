"""What is installed from a wheel or an sdist is the program, and what it needs is said with its oldest version."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.packaging.oldest import ROOT, bounds, pins


def numbers(text):
    return tuple(int(part) for part in text.split(".") if part.isdigit())


@pytest.mark.parametrize("package", bounds())
def test_every_package_has_a_lower_bound_that_these_tests_keep(package):
    assert numbers(version(package)) >= numbers(bounds()[package])


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "surgery_cli", "--version"]
    assert run(*command).startswith("surgery 0.")


def in_the_package():
    """Every file of the package that git knows."""
    return run("git", "ls-files", "surgery_cli").splitlines()


def test_every_file_of_the_package_that_is_no_code_is_named_as_its_data():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["surgery_cli"]
    files = {file.removeprefix("surgery_cli/") for file in in_the_package()}
    named = {file for file in files for pattern in patterns if Path(file).match(pattern)}
    assert {file for file in files if not file.endswith(".py")} - named == set()


def test_every_package_of_an_extra_is_pinned():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras.keys() == {"dev", "demo", "docs", "gcs", "plot", "s3"}
    names = {re.match(r"[\w-]+", one)[0].lower() for extra in extras.values() for one in extra}
    assert names - pins().keys() == set()


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    place, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source")
    for name in run(
        "git", "ls-files"
    ).splitlines():  # a build writes beside what it builds, and another may run
        copy = source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy)
    run(sys.executable, "-m", "build", "--outdir", place, source)
    return {path.name.rpartition(".")[2]: path for path in place.iterdir()}


def run(*words, cwd=ROOT):
    # a checkout on the path would be found in the place of what is installed
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(word) for word in words]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, cwd=cwd, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.check_all
def test_the_wheel_is_the_package_with_its_license_and_nothing_else(distributions):
    with zipfile.ZipFile(distributions["whl"]) as wheel:
        names = [name for name in wheel.namelist() if ".dist-info/" not in name]
        (license_file,) = (name for name in wheel.namelist() if name.endswith("/LICENSE"))
        assert wheel.read(license_file) == (ROOT / "LICENSE").read_bytes()
    assert sorted(names) == sorted(in_the_package())


@pytest.mark.check_all
@pytest.mark.parametrize("kind", ["whl", "gz"])
def test_an_edit_runs_from_what_was_built(distributions, kind, tmp_path):
    """In an empty directory: nothing of the checkout can be imported there."""
    fresh = tmp_path / "env"
    run(sys.executable, "-m", "venv", fresh)
    pip = (fresh / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "-c", ROOT / "constraints.txt", distributions[kind])
    sample, new = ROOT / "sample_checkpoints" / "digits_standard", tmp_path / "new"
    for words in (
        (fresh / "bin" / "surgery", "--version"),
        (fresh / "bin" / "python", "-m", "surgery_cli", "operations"),
        (fresh / "bin" / "surgery", "rescale", sample, new, "params/**/kernel", "--by", "0.5"),
        (fresh / "bin" / "surgery", "verify", new),
    ):
        assert run(*words, cwd=tmp_path)
    run(*pip, "mypy", cwd=tmp_path)
    (tmp_path / "user.py").write_text(
        "from surgery_cli import surgery\nreveal_type(surgery.seal)\n"
    )
    assert "reports" in run(fresh / "bin" / "mypy", "user.py", cwd=tmp_path)
