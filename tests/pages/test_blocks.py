"""Every command block of the pages is run: here, by the tests of its page, or it says why it is not."""

import contextlib
import io
import re
import shutil
import subprocess

import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.cli.main import run
from tests.pages.recipes import REPOSITORY

DOCS = REPOSITORY / "docs"
SAMPLES = REPOSITORY / "sample_checkpoints"
BLOCK = re.compile(
    r"(<!-- not run here: .+? -->\n)?^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL
)
STATUS = re.compile(r"# exit code (\d+)$")

ELSEWHERE = {
    "batch-jobs": "tests/pages/test_batch_jobs.py",
    "changing-the-optimizer": "tests/test_optimizer_page.py",
    "contract-check": "tests/test_contract_page.py",
    "conversions": "tests/conversions/test_page.py",
    "cookbook": "tests/pages/recipes.py",
    "finding-the-first-nan": "tests/probe/test_probe_pages.py",
    "proving-an-edit": "tests/probe/test_probe_pages.py",
    "tutorial": "tests/pages/test_tutorial.py",
}
"""Pages that are run by tests of their own, which say more of what becomes of them."""


def save(path, **tree):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.absolute(), tree)


def layers(count, **parts):
    return {f"layers_{n}": {**parts} for n in range(count)}


def sample(path, name="digits_manager"):
    shutil.copytree(SAMPLES / name, path)


def checks(here):
    sample(here / "runs/mnist")


def derived(here):
    surgery("keep", SAMPLES / "digits_standard", "runs/mine", "params")
    surgery("export", "runs/mine", "model.safetensors", "--to", "safetensors")


def exported(here):
    attention = {"attn": {"q": {"kernel": np.ones((4, 4), np.float32)}}}
    save(here / "runs/mnist", params=layers(2, **attention), step=np.int32(3))
    edits = (
        "{op: rename, at: 're:params/layers_(\\d+)/attn/(.)/kernel', to: 'layers.\\1.\\2.weight'}"
    )
    (here / "to_hugging_face.yaml").write_text(f"edits: [{{op: keep, at: params}}, {edits}]")


def history(here):
    sample(here / "RUN")
    surgery("rename", "RUN", "RUN", "params/Dense_1", "--to", "params/head", "--as-step", "1000")
    (here / "fix.yaml").write_text("edits: [{op: rescale, at: params/head, by: 2}]")
    surgery("rescale", SAMPLES / "digits_standard", "once", "params/Dense_0", "--by", "2")
    surgery("rescale", "once", "NEW", "params/Dense_0", "--by", "2")


def thousand(here):
    sample(here / "runs/mnist")
    (here / "runs/mnist/500").rename(here / "runs/mnist/1000")


def laid_out(here):
    part = {"kernel": jnp.ones((32, 8))}
    experts = {"experts": {"up": jnp.ones((2, 16, 4))}}
    embed = {"embed": jnp.ones((64, 8))}
    save(here / "runs/big", params={**layers(2, mlp=part, **experts), **embed})


def numbered(here):
    save(here / "RUN", params=layers(12, kernel=np.ones((2, 2), np.float32)))


def rescued(here):
    sample(here / "runs")
    shutil.copytree(here / "runs/500", here / "runs/7.orbax-checkpoint-tmp")
    (here / "runs/7.orbax-checkpoint-tmp/_CHECKPOINT_METADATA").unlink()
    shutil.copy(SAMPLES / "digits.py", here / "train.py")
    shutil.copytree(here / "runs/500/default", here / "BROKEN")
    file = max((here / "BROKEN/d").iterdir(), key=lambda path: path.stat().st_size)
    file.unlink()


def undone(here):
    sample(here / "RUN", "digits_standard")
    shutil.copy(SAMPLES / "head.yaml", here)


def cloned(here):
    (here / "sample_checkpoints").symlink_to(SAMPLES)


HERE = {
    "checks": checks,
    "deriving-plans": derived,
    "doctor": checks,
    "export": exported,
    "history": history,
    "how-it-writes": thousand,
    "json": cloned,
    "layout": laid_out,
    "patterns": numbered,
    "rescue": rescued,
    "rules": thousand,
    "undoing": undone,
}
"""Pages that are run here, with what makes the checkpoints that they speak of."""


def surgery(*words, status=0):
    """Run a command in this process; gives what it prints on standard output."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        run([str(word) for word in words])
    assert (end.value.code or 0) == status, f"{words}\n{out.getvalue()}{err.getvalue()}"
    return out.getvalue()


def line_run(line, here):
    """A line as a shell runs it, which expands its words; `surgery` is run in this process."""
    if not line.startswith("surgery "):
        subprocess.run(["bash", "-c", line], cwd=here, check=True, capture_output=True)
        return
    status = STATUS.search(line)
    command, _, file = re.sub(r"\s# .*", "", line).partition(" > ")
    listed = ["bash", "-c", f"printf '%s\\0' {command.removeprefix('surgery ')}"]
    words = subprocess.run(listed, check=True, capture_output=True, text=True).stdout
    said = surgery(*words.split("\0")[:-1], status=int(status[1]) if status else 0)
    if file:
        (here / file.strip()).write_text(said)


def blocks(page):
    return [(bool(mark), *block) for mark, *block in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("name", HERE)
def test_the_commands_of_a_page_run_in_their_order(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for _, language, text in blocks(DOCS / f"{name}.md"):
        if language == "yaml" and (named := re.match(r"# (\S+\.yaml)\n", text)):
            (tmp_path / named[1]).write_text(text)
    HERE[name](tmp_path)
    for is_left_out, language, text in blocks(DOCS / f"{name}.md"):
        if language == "sh" and not is_left_out:
            for line in text.replace("\\\n", " ").splitlines():
                shutil.rmtree(tmp_path / "DST", ignore_errors=True)  # each line has it anew
                line_run(line, tmp_path)


def test_every_block_of_commands_is_run_or_says_why_it_is_not():
    for page in DOCS.glob("*.md"):
        commands = [
            is_left_out
            for is_left_out, language, _ in blocks(page)
            if language in {"sh", "console", "bash"}
        ]
        if page.stem in ELSEWHERE:
            test = (REPOSITORY / ELSEWHERE[page.stem]).read_text()
            assert page.stem in test, page.name
        elif page.stem not in HERE:
            assert all(commands), page.name
