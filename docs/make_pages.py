"""Make the pictures of docs/pages.md: `PYTHONPATH=. python docs/make_pages.py [NAME…]`, with Chromium and Pillow.

With names only those are made, and the pages that they take something from.
"""

import io
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

from tests.browser.chromium import Chromium

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pages"
SIZE = {"width": 1360, "height": 820}
EDIT = [
    "rescale",
    "runs/letters",
    "runs/calmer",
    "params/layers_1/mlp/*/kernel",
    "--by",
    "0.9",
    "--optimizer-kind",
    "adamw",
]
MODEL = ["--model", "deep.py:deep", "--input", "int32[4,16]<28"]
DEEP = """\
from pathlib import Path

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from letters import Layout, Letters


def deep():
    return Letters(Layout(depth=12))


if __name__ == "__main__":
    variables = deep().init(jax.random.key(0), jnp.zeros((1, 16), int))
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(Path("runs/deep").absolute(), variables)
"""

OTHER = [
    "rescale",
    "runs/deep",
    "runs/other",
    "params/layers_7/attention/out/kernel",
    "--by",
    "1.05",
]

PLAN = """\
edits:
- {op: rescale, at: 'params/layers_1/mlp/*/kernel', by: 0.9}
- {op: rename, at: params/layers_2, to: params/last}
- {op: delete, at: ema}
optimizer_kind: adamw
"""

POLICY = """\
- {id: sound, at: params, finite: true}
- {id: wide, at: 'params/**/kernel', dtype: bfloat16}
"""

PAGES = {
    "inspect": ["inspect", "runs/letters", "--stats"],
    "plan": ["plan", "runs/letters", "plan.yaml"],
    "check": ["check", "runs/letters", "policy.yaml"],
    "apply": EDIT,
    "diff": ["diff", "runs/letters", "runs/calmer"],
    "verify": ["verify", "runs/calmer", "--like", "runs/letters"],
    "probe": ["probe", "runs/deep", *MODEL, "--against", "runs/other"],
}
"""Each a command; those behind one take what it has written."""

ROW = {"inspect": "params/layers_1/mlp/up/kernel"}
DARK = {"probe"}


def main() -> None:
    """Run the commands beside copies of the samples, and take a picture of each page."""
    wanted = set(sys.argv[1:] or PAGES)
    wanted |= {"apply"} if wanted & {"diff", "verify"} else set()
    PICTURES.mkdir(exist_ok=True)
    browser = Chromium()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copytree(ROOT / "sample_checkpoints" / "letters_run", "runs/letters")
        shutil.copy(ROOT / "sample_checkpoints" / "letters.py", ".")
        Path("deep.py").write_text(DEEP)
        Path("plan.yaml").write_text(PLAN)
        Path("policy.yaml").write_text(POLICY)
        if "probe" in wanted:
            run("deep.py")
            run("-m", "surgery_cli", *OTHER)
        for name, words in PAGES.items():
            if name not in wanted:
                continue
            run("-m", "surgery_cli", *words, "--html", f"{name}.html")
            browser.open(Path(folder) / f"{name}.html", **SIZE, is_dark=name in DARK)
            if name in ROW:
                show(browser, ROW[name])
            picture = Image.open(io.BytesIO(browser.picture())).convert("RGB")
            picture.quantize(96).save(PICTURES / f"{name}.png", optimize=True)
    browser.close()


def run(*words: str) -> None:
    """A command of Python's; what it finds is on its page."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)  # noqa: S603


def show(browser: Chromium, path: str) -> None:
    """Find a param, and choose it."""
    browser.click("input")
    browser.type(path.removeprefix("params/").rpartition("/")[0])
    browser.click("td.name bdi", path.rpartition("/")[2])


if __name__ == "__main__":
    main()
