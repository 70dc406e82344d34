"""What is printed at every width, in every locale, with and without colours."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from surgery_cli.planning import read_plan

WIDTHS = (40, 57, 80, 100, 132, 250)
RED = "\x1b[1;31m"
STYLES = re.compile(r"\x1b\[[0-9;]*m")
LINES = (
    "inspect BAD",
    "inspect BAD --stats",
    "inspect RUN --stats --optimizer",
    "diff RUN@250 RUN params",
    "diff RUN BAD",
    "verify BAD",
    "verify RUN --like BAD",
    "check BAD POLICY",
    "assert BAD a --finite",
    "plan RUN PLAN --verbose",
    "rescale RUN NEW params --by 0.5 --dry-run",
    "inspect RUN --layout --hosts 2",
    "log RUN",
    "doctor RUN",
    "operations",
    "operations rescale",
    "help rescale",
    "derive BAD RUN",
)


@pytest.fixture(scope="module")
def words(tmp_path_factory, request):
    """What stands for the places in command lines."""
    folder = tmp_path_factory.mktemp("terminals")
    values = np.array([1.0, 2.5, np.nan], np.float32)
    np.savez(folder / "bad.npz", **{"a": values, "größe→核": np.arange(3, dtype=np.float32)})
    (folder / "plan.yaml").write_text("edits:\n  - {op: rescale, at: params, by: 0.5}\n")
    (folder / "policy.yaml").write_text("rules:\n  - {id: sound, at: a, finite: true}\n")
    run = request.config.rootpath / "sample_checkpoints" / "digits_manager"
    return {
        "RUN": str(run), "BAD": str(folder / "bad.npz"), "NEW": str(folder / "new"),
        "PLAN": str(folder / "plan.yaml"), "POLICY": str(folder / "policy.yaml"),
    }  # fmt: skip


def filled(line, words):
    return re.sub("[A-Z]{3,}", lambda found: words[found[0]], line).split()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("line", LINES)
def test_colours_and_widths_change_no_outcome(surgery, words, monkeypatch, line):
    plain = surgery(*filled(line, words))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    for width in (WIDTHS[0], WIDTHS[-1]):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.delenv("NO_COLOR", raising=False)
        coloured = surgery(*filled(line, words))
        monkeypatch.setenv("NO_COLOR", "1")
        bare = surgery(*filled(line, words))

        assert plain.code == coloured.code == bare.code
        assert "\x1b" not in bare.out
        assert timeless(STYLES.sub("", coloured.out)) == timeless(bare.out)


def timeless(text):
    return re.sub(r"\d+\.\d s", "", text)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_bad_value_is_red_at_any_width_and_what_is_left_out_is_said(
    surgery, words, monkeypatch, width
):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", str(width))

    lines = surgery("inspect", words["BAD"], "--stats").out.splitlines()

    (bad,) = [line for line in lines if "1 NaN" in line]
    assert RED in bad.partition("1 NaN")[0]
    assert bad.startswith(f"{RED}a")
    left_out = [line for line in lines if "for want of width without: histogram" in line]
    assert len(left_out) == (width < 100)
    table = lines[lines.index("") :]
    assert max(len(STYLES.sub("", line)) for line in table if "without" not in line) <= width


@pytest.mark.parametrize("width", [40, 70, *WIDTHS[2:]])
def test_rows_of_a_diff_do_not_wrap(surgery, words, monkeypatch, width):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    lines = surgery("diff", f"{words['RUN']}@250", words["RUN"]).out.splitlines()
    rows = lines[lines.index("differ: 26 leaves") + 1 : lines.index("", 6)]
    assert len(rows) >= 26
    assert max(len(row) for row in rows if "for want of width" not in row) <= width
    assert any("by up to 250" in row for row in rows)


def test_in_a_locale_of_ascii_everything_is_said_in_ascii(words):
    script = (
        "import sys\n"
        "from surgery_cli.cli.main import run\n"
        "for line in sys.stdin.read().splitlines():\n"
        "    try:\n"
        "        run(line.split())\n"
        "    except SystemExit as end:\n"
        "        assert end.code in (0, 1), (line, end.code)\n"
    )
    lines = [" ".join(filled(line, words)) for line in LINES if not line.startswith("derive")]
    ended = subprocess.run(
        [sys.executable, "-c", script], input="\n".join(lines).encode(), capture_output=True,
        check=False, env={**in_ascii(), "PYTHONIOENCODING": ""},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.decode("ascii") + ended.stderr.decode("ascii")
    assert "-> " in said
    assert r"gr\xf6\xdfe->\u6838" in said
    assert "\\u2192" not in said
    assert "\\u2588" not in said


def test_what_programs_read_is_whole_in_a_locale_of_ascii(words, tmp_path):
    """A plan is read back as UTF-8: an escape in it would be another name."""
    np.savez(
        tmp_path / "other.npz", **{"a": np.zeros(3, np.float32), "ö/b": np.zeros(3, np.float32)}
    )
    ended = subprocess.run(
        [sys.executable, "-m", "surgery_cli", "derive", words["BAD"], tmp_path / "other.npz"],
        capture_output=True, check=False, env=in_ascii(),
    )  # fmt: skip
    assert ended.returncode in (0, 1), ended.stderr
    (tmp_path / "plan.yaml").write_bytes(ended.stdout)
    assert "größe→核" in ended.stdout.decode("utf-8")
    read_plan(str(tmp_path / "plan.yaml"))


def in_ascii():
    return {
        **os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0",
    }  # fmt: skip
