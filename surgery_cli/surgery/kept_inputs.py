"""What a run reads, each input for itself: so that whoever may not go on from it is told which has changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from surgery_cli.draft.recipe import SOURCE
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.write.journal import Head, Input
from surgery_cli.surgery.file_versions import file_versions
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.lists import listed, quoted

_OF_SOURCE: Final = "source"
_OF_DONOR: Final = "donor"
_OF_ARRAYS: Final = "array file"
_OF_FUNCTIONS: Final = "file of functions"
_OF_EDIT: Final = "file that an edit names"

_SAME_SIZES: Final = "its files have the same names and sizes, and were written since"
_OTHER_FILES: Final = "its metadata, or the names, sizes or times of its files, are others now"
_OTHER_FILE: Final = "its size, or when it was written, is another now"
_OTHER_CONTENT: Final = "its content is another now"


def inputs_of(prepared: Prepared) -> dict[str, Input]:
    """Everything that values, layout or order of a result depend on, by its name."""
    versions = file_versions(prepared.sources)
    found: dict[str, Input] = {}
    for name, source in prepared.sources.items():
        kind = _OF_ARRAYS if isinstance(source, ArrayFile) else _OF_DONOR
        found[name] = Input(
            _OF_SOURCE if name == SOURCE else kind,
            source.address,
            source.fingerprint,
            versions[name],
        )
    for text, mark in prepared.files.fingerprints.items():
        place = filesystem.absolute(path_at(address(text)))
        found[text] = Input(_OF_EDIT, str(place), mark)
    for file, mark in prepared.functions.files.items():
        found[str(file)] = Input(_OF_FUNCTIONS, str(file), mark)
    return found


class Changed(NamedTuple):
    """An input that is another than it ``was``."""

    name: str
    was: Input
    now: Input

    @property
    def is_elsewhere(self) -> bool:
        """True where another place is read by now: another step of the run, say."""
        return self.was.place != self.now.place

    @property
    def label(self) -> str:
        """Where it stands, and as what it is read."""
        kind = self.now.kind
        if self.name == SOURCE:
            said = f"the {kind}"
        elif self.name != self.now.place:
            said = f"the {kind} '{self.name}'"
        else:
            said = f"{'an' if kind == _OF_ARRAYS else 'a'} {kind}"
        return f"'{self.now.place}' ({said})"

    @property
    def how(self) -> str:
        """What tells that it is another."""
        if self.was.fingerprint == self.now.fingerprint:
            return _SAME_SIZES
        if not self.now.versions:
            return _OTHER_CONTENT
        return _OTHER_FILE if self.now.kind == _OF_ARRAYS else _OTHER_FILES


def changed_inputs(kept: Head, head: Head) -> list[Changed]:
    """Those that both runs read, and that are not what they were.

    Of the same draft, fingerprints tell nothing more: a file that says the same in other words is no other input.
    """
    is_same = kept.draft == head.draft
    both = [
        Changed(name, kept.inputs[name], now)
        for name, now in head.inputs.items()
        if name in kept.inputs
    ]
    return [
        one
        for one in both
        if one.was.versions != one.now.versions
        or (one.was.fingerprint != one.now.fingerprint and not is_same)
    ]


def how_changed(changed: Sequence[Changed]) -> str:
    """What tells of each that it is another."""
    by_how: dict[str, list[str]] = {}
    for one in changed:
        by_how.setdefault(one.how, []).append(one.now.place)
    if len(changed) == 1:
        return changed[0].how
    return "; ".join(f"of {quoted(where, word='and')}: {how}" for how, where in by_how.items())


def labels_of(changed: Sequence[Changed]) -> str:
    """All of them in one phrase."""
    return listed([one.label for one in changed], word="and")
