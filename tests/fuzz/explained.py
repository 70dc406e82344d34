"""Where another reader takes what this program refuses, or makes something else of it, and why that is meant."""

from typing import NamedTuple


class Explained(NamedTuple):
    """A disagreement that is meant: with whom, in which words it shows, and why."""

    kinds: tuple[str, ...]
    sort: str
    words: str
    why: str

    def covers(self, kind: str, sort: str, said: str) -> bool:
        return kind in self.kinds and sort == self.sort and self.words in said


EXPLAINED = {
    "no text": Explained(
        ("databases", "leaf folders"),
        "refused",
        "has no text where Orbax looks for it",
        "Of a string leaf whose value in `_strings.json` is no text, Orbax restores whatever stands there: a number, a"
        " dict. Here it is refused: it is not what was saved.",
    ),
    "damaged placeholder": Explained(
        ("leaf folders",),
        "differs",
        "another text: array(",
        "In releases that wrote both `_METADATA` and `checkpoint`, a text in the latter stands for an array. Where it"
        " is damaged, Orbax restores the text; here the array is read, which `_METADATA` describes and which is there.",
    ),
}
"""By a name in a few words; the docs have them all."""
