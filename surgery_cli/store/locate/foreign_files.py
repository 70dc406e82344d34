"""Files that are no checkpoints: what they are, told from their first bytes. Nothing is ever unpickled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from surgery_cli.errors import CheckpointError
from surgery_cli.inputs.suffixes import PICKLE_SUFFIXES
from surgery_cli.store.filesystem.listing import beginning
from surgery_cli.store.locate.file_formats import zip_names
from surgery_cli.store.locate.lfs_pointers import POINTER_MARK, pointer


def describe_file(path: Path) -> CheckpointError:
    """The error for a file that is no checkpoint, told from its first bytes."""
    head = beginning(path, 512)
    if head.startswith(POINTER_MARK):
        return pointer(path, path.parent)
    for recognises, what, why, fix in _FILE_KINDS:
        if recognises(path, head):
            return CheckpointError(f"'{path}' {what}", why=why, fix=fix)
    return CheckpointError(
        f"'{path}' is not a checkpoint file",
        why="it is neither Flax msgpack nor safetensors nor PyTorch's nor npz"
        if head
        else "it is empty",
        fix="name a checkpoint's directory, a Flax `checkpoint_<N>`, a `.safetensors`, `.npz` or PyTorch file",
    )


def _is_pickle(path: Path, head: bytes) -> bool:
    binary = len(head) > 1 and head[0] == 0x80 and head[1] in (2, 3, 4, 5)
    return binary or (path.suffix in PICKLE_SUFFIXES and head[:1] in (b"(", b"c", b"}", b"]"))


def _is_old_torch(_path: Path, head: bytes) -> bool:
    """Told by the number that the first pickle of the file is, or by the first name in a tar archive."""
    return head.startswith(_OLD_TORCH) or (head.startswith(b"sys_info\0") and _is_tar(head))


def _is_archive(_path: Path, head: bytes) -> bool:
    return head.startswith(
        (b"PK\x03\x04", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ")
    ) or _is_tar(head)


def _is_tar(head: bytes) -> bool:
    return head[257:262] == b"ustar"


def _holds(*ends: str) -> Callable[[Path, bytes], bool]:
    """Told by a name that ends so in a zip archive."""
    return lambda path, _head: any(name.endswith(ends) for name in zip_names(path))


def _begins(magic: bytes) -> Callable[[Path, bytes], bool]:
    return lambda _path, head: head.startswith(magic)


_is_npy, _is_npz = _begins(b"\x93NUMPY"), _holds(".npy")
_OLD_TORCH: Final = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch.serialization.MAGIC_NUMBER
_NEVER_UNPICKLED = "a pickle runs code when it is loaded; surgery never does that"
TENSORFLOW_HELP: Final = "read it with `tf.train.load_checkpoint` and save the arrays with Orbax"
READ_FORMATS: Final = (
    "surgery edits Orbax checkpoints, Flax msgpack, safetensors, npz and what `torch.save` writes"
)
_BY_SUFFIX = "what an edit takes arrays from is told by its suffix"
_FILES_OF_CHECKPOINTS = frozenset(
    {"_METADATA", "_CHECKPOINT_METADATA", "_sharding", "manifest.ocdbt", ".zarray", "zarr.json"}
)
_FILE_KINDS: Final[tuple[tuple[Callable[[Path, bytes], bool], str, str, str], ...]] = (
    (
        _is_old_torch,
        "is a PyTorch checkpoint in the format that was written before PyTorch 1.6",
        "its tensors stand between pickles, where none can be found without unpickling what is before it",
        "convert it where you trust it: `torch.save(torch.load('OLD', map_location='cpu'), 'NEW.pt')`",
    ),
    (
        _holds("weights.h5"),
        "is a Keras archive",
        READ_FORMATS,
        "load it with `keras.models.load_model` and save its variables with Orbax",
    ),
    (
        lambda path, head: path.suffix != ".npy" and _is_npy(path, head),
        "is a NumPy array file, and its name does not say so",
        _BY_SUFFIX,
        "rename it so that it ends in `.npy`",
    ),
    (
        lambda path, head: path.suffix != ".npz" and _is_npz(path, head),
        "is a NumPy array file, and its name does not say so",
        _BY_SUFFIX,
        "rename it so that it ends in `.npz`",
    ),
    (
        lambda path, head: _is_npy(path, head) or _is_npz(path, head),
        "is a NumPy array file, not a checkpoint",
        "arrays in it can be put into a checkpoint",
        "name a checkpoint here; the file stands after `--with`: `surgery replace SRC DST AT --with FILE`",
    ),
    (
        _is_pickle,
        "is a pickle",
        _NEVER_UNPICKLED,
        "load it where you trust it and save the tree with `orbax.checkpoint.StandardCheckpointer`",
    ),
    (
        _begins(b"\x89HDF\r\n\x1a\n"),
        "is an HDF5 file (Keras weights are such files)",
        READ_FORMATS,
        "load it with h5py or Keras and save the arrays with Orbax or as `.npz`",
    ),
    (
        lambda path, _: path.name.endswith((".index", "saved_model.pb")) or ".data-0" in path.name,
        "belongs to a TensorFlow checkpoint",
        READ_FORMATS,
        TENSORFLOW_HELP,
    ),
    (
        _begins(b"GGUF"),
        "is a GGUF file",
        READ_FORMATS,
        "edit the checkpoint that it was made from",
    ),
    (
        lambda path, _: path.name in _FILES_OF_CHECKPOINTS,
        "is one file of a checkpoint",
        "a checkpoint of this kind is a directory",
        "name the directory that it stands in",
    ),
    (
        _is_archive,
        "is an archive",
        "surgery reads checkpoints as they stand on disk",
        "unpack it and name the directory that comes out",
    ),
)
