"""What the name of a file or directory says: a step, an unfinished save, a leftover, a record, a database."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from surgery_cli.inputs.suffixes import FILE_SUFFIXES, MSGPACK_SUFFIX

Made = TypeVar("Made", bound=Path)

STAGING_MARK: Final = ".surgery-tmp-"
"""In the name of a directory in which surgery builds: ``.<name>.surgery-tmp-<random>``."""
SET_ASIDE_SUFFIX: Final = ".surgery-old"
"""What ``--force`` calls the old destination where it cannot exchange two directories at once."""

RECORD: Final = "surgery.json"
"""What surgery calls the record that it writes into a checkpoint, or behind the name of one."""

_NO_STEPS: Final = FILE_SUFFIXES - {MSGPACK_SUFFIX}
"""How names end that Flax gives to no step."""

_DATABASE: Final = "ocdbt."
"""How the name of a database begins that a process wrote into an item: ``ocdbt.process_0`` is no step, and no item."""

# orbax-checkpoint: path/atomicity_types.py (TMP_DIR_SUFFIX) and experimental/v1 partial/path.py. Releases differ in
# what follows the suffix: nothing, a counter, or a time stamp.
_UNFINISHED: Final = re.compile(r"(?P<name>.+?)\.(orbax-checkpoint-tmp|partial_save)([.-].*)?")
# t5x: checkpoints.py; the number is a time stamp.
_UNFINISHED_T5X: Final = re.compile(r"(?P<name>checkpoint_\d+)\.tmp-\d+")
# orbax-checkpoint: path/step.py; flax.training.checkpoints uses the prefix `checkpoint_`.
_STEP: Final = re.compile(r"(?:(?P<prefix>.+)_)?(?P<number>[0-9]{1,18})")


class StepName(NamedTuple):
    """A step's number and the text before it, as its directory's name gives them."""

    prefix: str
    number: int


def step_name(name: str) -> StepName | None:
    """The step that a directory's or file's name stands for, in every name format of Orbax and Flax.

    >>> step_name("1000").number, step_name("ckpt_000003"), step_name("params")
    (1000, StepName(prefix='ckpt', number=3), None)
    """
    if is_database(name):
        return None
    found = _STEP.fullmatch(name)
    return StepName(found["prefix"] or "", int(found["number"])) if found else None


def is_database(name: str) -> bool:
    """True for a database that a process wrote into an item."""
    return name.startswith(_DATABASE)


def unfinished_name(name: str) -> str | None:
    """The name that an unfinished save would have been given, or None if the name is not of that kind.

    On a local disk only the name tells: Orbax does not look for ``commit_success.txt`` there either.

    >>> unfinished_name("7.orbax-checkpoint-tmp-1795167049873362")
    '7'
    """
    found = _UNFINISHED.fullmatch(name) or _UNFINISHED_T5X.fullmatch(name)
    return found["name"] if found else None


def is_leftover(name: str) -> bool:
    """True for what an interrupted run of surgery leaves: a staging directory, a destination set aside."""
    return (name.startswith(".") and STAGING_MARK in name) or name.endswith(SET_ASIDE_SUFFIX)


def destination_of(path: Made) -> Made:
    """Of what a run has made beside its destination, that; of another path, itself."""
    name, mark, _ = path.name.rpartition(STAGING_MARK)
    return path.with_name(name[1:]) if mark and name.startswith(".") else path


def is_record(name: str) -> bool:
    """True for the record that surgery leaves in, or beside, what it wrote."""
    return name == RECORD or name.endswith(f".{RECORD}")


def name_of_record(name: str) -> str:
    """The name of the record beside a file, or a bare directory, of that name.

    Hidden, unless the name ends as that of a file of a known format that is not Flax's own. Flax takes all that begins
    with its prefix for a step, and what sorts last for the newest: of `checkpoint_best` as of `checkpoint_5` that was
    the record. Without a prefix hidden files count as well, but `.7.surgery.json` sorts as 0.7, before every step but
    `0`.

    >>> name_of_record("new.npz"), name_of_record("checkpoint_5"), name_of_record("best.msgpack")
    ('new.npz.surgery.json', '.checkpoint_5.surgery.json', '.best.msgpack.surgery.json')
    """
    return names_of_record(name)[0]


def names_of_record(name: str) -> tuple[str, ...]:
    """Every name that the record beside a file of that name has, or had in older releases: that of today first.

    >>> names_of_record("7")
    ('.7.surgery.json', '7.surgery.json')
    """
    visible = f"{name}.{RECORD}"
    return (visible,) if Path(name).suffix in _NO_STEPS else (f".{visible}", visible)
