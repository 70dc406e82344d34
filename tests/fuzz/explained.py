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
        "refused by us alone",
        "has no text where Orbax looks for it",
        "Of a string leaf whose value in `_strings.json` is no text, Orbax restores whatever stands there: a number, a"
        " dict. Here it is refused: it is not what was saved.",
    ),
    "a leaf above leaves": Explained(
        ("databases", "leaf folders"),
        "refused by us alone",
        "and nothing with its name is stored",
        "Where a key of a path is lost in `_METADATA`, a leaf may stand where others have a node. Orbax restores the"
        " others and drops it without a word. Here the leaf is refused, as nothing is stored under that name.",
    ),
    "missing chunks": Explained(
        ("databases", "leaf folders"),
        "refused by us alone",
        "chunks are not stored",
        "Of a save whose `_METADATA` does not say that every chunk was written (`store_array_data_equal_to_fill_value`,"
        " younger than Orbax 0.5), Orbax restores zeros where a chunk is missing. Where the array's own file names no"
        " value for such places, its writer stored every chunk, and the array is refused as incomplete.",
    ),
    "damaged placeholder": Explained(
        ("leaf folders",),
        "differs",
        "another text: array(",
        "In releases that wrote both `_METADATA` and `checkpoint`, a text in the latter stands for an array. Where it"
        " is damaged, Orbax restores the text; here the array is read, which `_METADATA` describes and which is there.",
    ),
    "other extensions": Explained(
        ("msgpack",),
        "refused by us alone",
        "is none of Flax",
        "Flax restores what it does not know of msgpack's extensions as a pair of a number and bytes. No tree has such"
        " a leaf, and it is refused.",
    ),
    "other dtypes": Explained(
        ("msgpack",),
        "refused by us alone",
        "which is not a number's",
        "Flax restores arrays of every dtype that NumPy and ml_dtypes know by a name, `int1` and dates too. What Orbax"
        " does not store is refused.",
    ),
    "bytes at the end": Explained(
        ("donor arrays", "npz"),
        "refused by us alone",
        "should have # bytes of values, and has #",
        "NumPy reads an `.npy` file behind whose values more bytes stand. Here its size must be what its header says.",
    ),
    "lying sizes": Explained(
        ("npz",),
        "refused by us alone",
        "claims # bytes, and # are stored",
        "NumPy reads the arrays of an archive whose list of entries says other sizes than they have. Here what claims"
        " more than its stored bytes can be is refused before it is unpacked.",
    ),
    "open shapes": Explained(
        ("msgpack",),
        "refused by us alone",
        "holds something that is no size",
        "NumPy, which Flax asks, takes one size of a shape from how many values there are where it is -1. Nobody writes"
        " that; here it is refused.",
    ),
    "shapes that are numbers": Explained(
        ("msgpack",),
        "refused by us alone",
        "has no shape",
        "NumPy, which Flax asks, takes a number for a shape of one axis. Flax writes lists of sizes; here a number is"
        " refused.",
    ),
    "keys that are alike": Explained(
        ("msgpack",),
        "refused by us alone",
        "stands twice in",
        "Flax restores dicts in which one key stands twice, as the last of them, and such with the number 1 beside the"
        " text `1`. Their paths would be the same; here they are refused.",
    ),
    "keys of bytes": Explained(
        ("msgpack",),
        "refused by us alone",
        "is neither text nor a number",
        "Flax restores dicts whose keys are bytes, truth values or nothing. Nobody writes them, and no path spells"
        " them.",
    ),
    "no array in an archive": Explained(
        ("npz",),
        "refused by us alone",
        "is an archive: surgery reads checkpoints",
        "NumPy reads an archive without one array, as an empty one. Here it is no checkpoint.",
    ),
    "numbers first": Explained(
        ("msgpack",),
        "refused by us alone",
        "is not a checkpoint file",
        "A Flax file is told by its first key, which is text. Where that is a number, it is not told from other files.",
    ),
}
"""By a name in a few words; the docs have them all."""
