"""What a user's file changes of the process stays its own: our paths, streams and numbers are as they were."""

import json
import os
import shutil
import signal
import sys
import textwrap
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest

from surgery_cli.cli.main import run
from surgery_cli.script.user_code import load_object

SAMPLES = Path(__file__).parents[2] / "sample_checkpoints"


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


CHANGES = {
    "directory": ("import os, tempfile; os.chdir(tempfile.gettempdir())", Path.cwd),
    "umask": ("import os; os.umask(0o777)", _umask),
    "warnings": ("import warnings; warnings.simplefilter('error')", lambda: warnings.filters[:]),
    "numpy": ("import numpy; numpy.seterr(all='raise')", np.geterr),
    "signals": (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        lambda: signal.getsignal(signal.SIGTERM),
    ),
    "streams": (
        "import sys; sys.stdout.close(); sys.stderr = None",
        lambda: (sys.stdout, sys.stderr, sys.stdout.closed, sys.stderr.closed),
    ),
    "nan checks": (
        "import jax; jax.config.update('jax_debug_nans', True)",
        lambda: jax.config.jax_debug_nans,
    ),
    "transfers": (
        "import jax; jax.config.update('jax_transfer_guard', 'disallow')",
        lambda: jax.config.jax_transfer_guard_host_to_device,
    ),
    "promotion": (
        "import jax; jax.config.update('jax_numpy_dtype_promotion', 'strict')",
        lambda: jax.config.jax_numpy_dtype_promotion,
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("where", ["import", "call"])
def test_what_a_file_changes_is_given_back(tmp_path, monkeypatch, change, where):
    statement, state = CHANGES[change]
    text = "def make():\n    pass\n"
    text = f"{statement}\n{text}" if where == "import" else f"{text}    {statement}\n"
    (tmp_path / "train.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    before = state()

    load_object("train.py:make").call()

    assert state() == before


def test_a_function_finds_the_directory_into_which_its_file_went(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").write_text(
        "import os\nos.chdir(os.path.dirname(__file__) + '/there')\ndef make():\n    return os.getcwd()\n"
    )
    monkeypatch.chdir(tmp_path / "here")

    assert load_object("../train.py:make").call() == str(tmp_path / "there")
    assert Path.cwd() == tmp_path / "here"


def test_what_a_script_starts_prints_on_standard_error(tmp_path, capfd):
    (tmp_path / "train.py").write_text(
        "import os\nos.system('echo child')\nos.write(1, b'raw\\n')\nprint('own')\nx = 1\n"
    )

    load_object(f"{tmp_path / 'train.py'}:x")

    out, err = capfd.readouterr()
    assert out == ""
    assert sorted(err.split()) == ["child", "own", "raw"]


@pytest.mark.parametrize("option", ["--like-init", "--probe"])
def test_relative_paths_name_the_same_checkpoints_after_a_script_went_elsewhere(
    tmp_path, monkeypatch, capsys, option
):
    """`--force` must not replace the checkpoint of the same name in the script's folder."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "train.py").write_text(
        textwrap.dedent(
            f"""
            import os, sys
            os.chdir(os.path.dirname(__file__))
            sys.path.append({str(SAMPLES)!r})
            from digits import CNN, create_state
            """
        )
    )
    for place in (tmp_path / "src", tmp_path / "dst", folder / "dst"):
        shutil.copytree(SAMPLES / "digits_standard", place)
    monkeypatch.chdir(tmp_path)
    words = [option, "scripts/train.py:CNN", "--input", "float32[1,8,8,1]"]
    if option == "--like-init":
        words = [option, "scripts/train.py:create_state"]

    with pytest.raises(SystemExit) as end:
        run(["rescale", "src", "dst", "params/Dense_1", "--by", "0.5", "--force", "--json", *words])

    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["verified"]
    assert (tmp_path / "dst" / "surgery.json").exists()
    assert not (folder / "dst" / "surgery.json").exists()


def test_strict_settings_of_jax_do_not_reach_what_we_compute(tmp_path, capsys):
    """The model is traced under them; what measures its values and gradients is not."""
    (tmp_path / "model.py").write_text(
        textwrap.dedent(
            f"""
            import sys, jax
            jax.config.update("jax_debug_nans", True)
            jax.config.update("jax_transfer_guard", "disallow")
            jax.config.update("jax_numpy_rank_promotion", "raise")
            sys.path.append({str(SAMPLES)!r})
            from digits import CNN
            """
        )
    )
    words = ["--model", f"{tmp_path / 'model.py'}:CNN", "--input", "float32[1,8,8,1]"]

    with pytest.raises(SystemExit) as end:
        run(["probe", str(SAMPLES / "digits_standard"), *words, "--grad", "--json"])

    assert end.value.code == 0
    assert json.loads(capsys.readouterr().out)["first_non_finite"] is None
