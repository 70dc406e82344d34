"""The formats in which the steps of a root are named: a script sees those of its own, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from surgery_cli.errors import PlanError
from surgery_cli.store.filesystem.names import step_name
from surgery_cli.words.lists import listed

_SHOWN_STEPS = 4


class StepFormat(NamedTuple):
    """How names of steps are made: a prefix, and the number with zeros before it up to ``width`` digits, 0 for none.

    Source: ``standard_name_format`` of orbax-checkpoint (``path/step.py``).
    """

    prefix: str
    width: int

    def __str__(self) -> str:
        name = f"`{self.prefix}_N`" if self.prefix else "`N`"
        return f"{name} of {self.width} digits" if self.width else name

    def reads(self, name: str) -> bool:
        """True for a name of this format. A number that has as many digits without zeros is of one with zeros, too."""
        found = step_name(name)
        digits = _digits(name)
        if found is None or found.prefix != self.prefix:
            return False
        if _is_padded(digits):
            return len(digits) == self.width
        return len(digits) >= self.width

    def name(self, number: int) -> str:
        """What a step of this number is called."""
        return (
            f"{self.prefix}_{number:0{self.width}d}" if self.prefix else f"{number:0{self.width}d}"
        )


def step_formats(names: Iterable[str]) -> dict[StepFormat, list[str]]:
    """The fewest formats that read all the names of steps, each with those that it reads, in the order given.

    >>> [str(one) for one in step_formats(["1", "10", "step_2"])], len(step_formats(["0500", "1000", "20000"]))
    (['`N`', '`step_N`'], 1)
    """
    named = list(names)
    padded = dict.fromkeys(
        StepFormat(found.prefix, len(_digits(name)))
        for name in named
        if (found := step_name(name)) is not None and _is_padded(_digits(name))
    )
    plain = dict.fromkeys(
        StepFormat(found.prefix, 0)
        for name in named
        if (found := step_name(name)) is not None and not any(one.reads(name) for one in padded)
    )
    return {one: [name for name in named if one.reads(name)] for one in sorted(padded | plain)}


def formats_text(formats: dict[StepFormat, list[str]]) -> str:
    """Each format with its last few steps, as they are called.

    >>> formats_text(step_formats(["1", "3", "step_2"]))
    '`N` (1, 3), `step_N` (step_2)'
    """
    return ", ".join(f"{one} ({_last(names)})" for one, names in formats.items())


def are_of_one_format(*names: str) -> bool:
    """True if a script that sees one of the steps sees all of them."""
    return len(step_formats(names)) == 1


def renumbered(name: str, number: int, among: Sequence[str] = ()) -> str:
    """What a step is called that has another number, in the format of ``name``, a step ``among`` others.

    >>> renumbered("checkpoint_500", 7), renumbered("00000500", 7), renumbered("1000", 7, ["0500"])
    ('checkpoint_7', '00000007', '0007')

    Raises:
        PlanError: the others leave open of which format the name is.
    """
    formats = [one for one, names in step_formats([*among, name]).items() if name in names]
    if len(formats) > 1:
        raise PlanError(
            f"what step {number} would be called is not known",
            why=f"'{name}' may be of the format {listed(map(str, formats), word='or')}",
            fix="take a step of one format, or give the new one a folder of its own",
        )
    return formats[0].name(number)


def _digits(name: str) -> str:
    return name[len(name.rstrip("0123456789")) :]


def _is_padded(digits: str) -> bool:
    return len(digits) > 1 and digits.startswith("0")


def _last(names: Sequence[str]) -> str:
    return ("…, " if len(names) > _SHOWN_STEPS else "") + ", ".join(names[-_SHOWN_STEPS:])
