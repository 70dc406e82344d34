"""Checkpoints lie behind one protocol: nothing else touches their files; another service is one class and a line."""

import ast
import errno
from pathlib import Path

import flax.serialization
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

import surgery_cli
from surgery_cli import surgery
from surgery_cli.inputs.buckets import path_at
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.filesystem.local_disk import LocalDisk
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath

PACKAGE = Path(surgery_cli.__file__).parent
SWEPT = [
    *(path for path in (PACKAGE / "store").rglob("*.py") if path.parent.name != "filesystem"),
    *(PACKAGE / "proof").glob("*.py"),
    *(PACKAGE / "surgery").glob("*.py"),
]
EXCEPTIONS = {
    "space.py": {"os.statvfs"},
}
LEXICAL = {"os.fsencode", "os.fsdecode", "os.environ", "os.fspath"}
MODULES = {"fcntl", "glob", "mmap", "shutil", "tempfile"}
METHODS = {
    *("chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat", "mkdir"),
    *("open", "read_bytes", "read_text", "readlink", "rename", "resolve", "rglob", "rmdir", "samefile", "stat"),
    *("symlink_to", "touch", "unlink", "write_bytes", "write_text"),
}  # fmt: skip
OWN_WORDS = {"archive", "filesystem", "item", "self._buffered", "ts", "ts.KvStore"}
"""What has methods of the same names: a zip file, TensorStore and its databases, an item, the protocol itself."""


def _touches(tree):
    """The calls in a module that reach the system past the protocol."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = {alias.name for alias in node.names} | {getattr(node, "module", None)}
            yield from names & MODULES
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("os."):
            name = ast.unparse(node)
            if name not in LEXICAL and isinstance(node.value, ast.Name) ^ name.startswith(
                "os.path"
            ):
                yield name
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in METHODS and ast.unparse(node.func.value) not in OWN_WORDS:
                yield f".{node.func.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "open":
            yield "open"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("path", SWEPT, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_files_are_touched_through_the_protocol(path):
    assert set(_touches(ast.parse(path.read_text()))) == EXCEPTIONS.get(path.name, set())


def test_the_sweep_sees_what_it_is_for():
    text = "import shutil\nos.link(a, b)\nopen(p)\npath.read_bytes()\n(a / b).is_file()\n"
    found = {"shutil", "os.link", "open", ".read_bytes", ".is_file"}
    assert set(_touches(ast.parse(text))) == found


class Vault(LocalDisk):
    """A service whose files stand on this disk under other names: whoever passes it by finds nothing. No links."""

    def __init__(self, hidden):
        self.hidden = str(hidden)

    def _at(self, place):
        return str(place).replace("gs://vault", self.hidden, 1)

    def entries(self, folder):
        return super().entries(self._at(folder))

    def status(self, place):
        return super().status(self._at(place))

    def real(self, place):
        return path_at(str(place))

    def is_link(self, place):
        return False

    def open(self, place):
        return super().open(self._at(place))

    def clone(self, source, target):
        raise OSError(errno.EOPNOTSUPP, "no clones")

    link = clone

    def kvstore(self, folder):
        return super().kvstore(self._at(folder))


TREE = {"params": {"w": np.arange(12, dtype=np.float32), "b": np.ones((3, 2), np.float32)}}


def _saved(folder, layout):
    if layout == "msgpack":
        (folder / "ck").write_bytes(flax.serialization.msgpack_serialize(TREE))
    elif layout == "safetensors":
        save_file(TREE["params"], folder / "ck.safetensors")
        (folder / "ck").mkdir()
        (folder / "ck.safetensors").rename(folder / "ck" / "model.safetensors")
    else:
        with ocp.PyTreeCheckpointer(use_ocdbt=layout == "ocdbt") as checkpointer:
            checkpointer.save(folder / "ck", TREE)


@pytest.mark.parametrize("layout", ["ocdbt", "leaves", "msgpack", "safetensors"])
def test_a_service_is_put_in_by_one_class_and_one_line(layout, tmp_path, monkeypatch):
    (tmp_path / "hidden").mkdir()
    _saved(tmp_path / "hidden", layout)
    monkeypatch.setitem(filesystem._SERVICES, "gs://", Vault(tmp_path / "hidden"))
    there, here = "gs://vault/ck", str(tmp_path / "hidden" / "ck")
    assert open_checkpoint(there).tree == open_checkpoint(here).tree
    assert open_checkpoint(there).fingerprint == open_checkpoint(here).fingerprint
    assert surgery.diff(there, here).equal
    assert surgery.verify(there, like=here).agrees
    assert surgery.inspect(there).leaves == surgery.inspect(here).leaves
    path = next(path for path in open_checkpoint(there).tree if path[-1] == "w")
    plan = plan_of([operation_from_options("rescale", {"at": str(path), "by": 2.0})])
    surgery.apply(there, str(tmp_path / "new"), plan)
    assert (open_checkpoint(str(tmp_path / "new")).read(path) == 2 * TREE["params"]["w"]).all()
    assert not Path("gs:").exists()


@pytest.mark.parametrize("name", ["x.npy", "x.npz", "packed.npz", "x.safetensors"])
def test_files_of_arrays_are_read_from_there_too(name, tmp_path, monkeypatch):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    if name == "x.npy":
        np.save(tmp_path / name, values)
    elif name == "x.safetensors":
        save_file({"x": values}, tmp_path / name)
    else:
        (np.savez if name == "x.npz" else np.savez_compressed)(tmp_path / name, x=values)
    monkeypatch.setitem(filesystem._SERVICES, "gs://", Vault(tmp_path))
    file = ArrayFile(f"gs://vault/{name}")
    assert (file.read(LeafPath(("x",))) == values).all()
    assert file.is_unchanged()
