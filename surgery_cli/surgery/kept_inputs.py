"""What a run reads, each input for itself: so that whoever may not go on from it is told which has changed since."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from surgery_cli.draft.recipe import SOURCE
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.files.array_file import ArrayFile
from surgery_cli.store.write.journal import Input
from surgery_cli.surgery.file_versions import file_versions, versions_carried
from surgery_cli.surgery.gate import files_of_probe
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.same_places import was
from surgery_cli.words.lists import listed, quoted

_OF_SOURCE: Final = "source"
_OF_DONOR: Final = "donor"
_OF_ARRAYS: Final = "array file"
_OF_FUNCTIONS: Final = "file of functions"
_OF_EDIT: Final = "file that an edit names"
_OF_BESIDE: Final = "file beside what an edit names"
_OF_RULE: Final = "manifest of the rule"
_OF_PROBE: Final = "file of the probe"
_JUDGED_BY: Final = (_OF_RULE, _OF_PROBE)
"""What no draft knows of."""

_SAME_SIZES: Final = "its files have the same names and sizes, and were written since"
_OTHER_FILES: Final = "its metadata, or the names, sizes or times of its files, are others now"
_OTHER_FILE: Final = "its size, or when it was written, is another now"
_OTHER_CONTENT: Final = "its content is another now"


def judged_by(prepared: Prepared, options: Options) -> dict[str, Input]:
    """What a result is held against and no value of it depends on, so that no draft knows of it: see ``inputs_of``."""
    found: dict[str, Input] = {}
    for text, mark in prepared.manifests.marks.items():
        place = str(filesystem.absolute(path_at(address(text))))
        found[f"digests of {text}"] = Input(_OF_RULE, place, mark)
    for text, file in files_of_probe(options).items():
        found[f"probe {text}"] = Input(_OF_PROBE, str(filesystem.absolute(file)), _sha256(file))
    return found


def _sha256(file: Path) -> str:
    """Of its content; '' for none: that it cannot be read is said where it is needed."""
    filesystem.forget(file)
    if not filesystem.is_file(file):
        return ""
    with filesystem.reader(file) as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def inputs_of(prepared: Prepared) -> dict[str, Input]:
    """Everything that values, layout or order of a result depend on, by its name."""
    versions, carried = file_versions(prepared.sources), versions_carried(prepared)
    found: dict[str, Input] = {}
    for name, source in prepared.sources.items():
        kind = _OF_ARRAYS if isinstance(source, ArrayFile) else _OF_DONOR
        found[name] = Input(
            _OF_SOURCE if name == SOURCE else kind,
            source.address,
            source.fingerprint,
            versions[name],
            carried if name == SOURCE else {},
        )
        for beside, content in source.read_beside.items():
            place = str(filesystem.absolute(beside))
            mark = "" if content is None else hashlib.sha256(content).hexdigest()
            found[place] = Input(_OF_BESIDE, place, mark)
    for text, mark in prepared.files.fingerprints.items():
        place = str(filesystem.absolute(path_at(address(text))))
        found[text] = Input(_OF_EDIT, place, mark)
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
    def is_read_the_same(self) -> bool:
        """True where what comes along is another, and what is read is not."""
        return (self.was.fingerprint, self.was.versions) == (
            self.now.fingerprint,
            self.now.versions,
        )

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
        if self.is_read_the_same:
            return _how_carried(self.was.carried, self.now.carried)
        if self.was.fingerprint == self.now.fingerprint:
            return _SAME_SIZES
        if not self.now.versions:
            return _OTHER_CONTENT
        return _OTHER_FILE if self.now.kind == _OF_ARRAYS else _OTHER_FILES


def changed_inputs(
    before: Mapping[str, Input], now: Mapping[str, Input], *, of_one_draft: bool
) -> list[Changed]:
    """Those that both runs read, and that are not what they were.

    Of one draft, the fingerprints of what it knows of tell nothing more: a file that says the same in other words is no
    other input.
    """
    pairs = ((name, was(name, one, before), one) for name, one in now.items())
    both = [Changed(name, then, one) for name, then, one in pairs if then is not None]
    return [
        one
        for one in both
        if (one.was.versions, one.was.carried) != (one.now.versions, one.now.carried)
        or (
            one.was.fingerprint != one.now.fingerprint
            and (not of_one_draft or one.now.kind in _JUDGED_BY)
        )
    ]


def _how_carried(was: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has become of what comes along."""
    became = {
        "was not there": sorted(now.keys() - was.keys()),
        "is gone": sorted(was.keys() - now.keys()),
        "was written since": sorted(n for n in was.keys() & now.keys() if was[n] != now[n]),
    }
    said = [f"{quoted(names, 3, word='and')} {how}" for how, names in became.items() if names]
    return f"of what comes along with its values, {listed(said, word='and')}"


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
