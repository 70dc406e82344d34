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


_BESIDE = ("databases", "leaf folders")

EXPLAINED = {
    "damaged step metadata": Explained(
        _BESIDE,
        "read by us alone",
        "_CHECKPOINT_METADATA changed, told by verify",
        "Orbax refuses a step whose `_CHECKPOINT_METADATA` has a field of another type, whatever its leaves are. Here"
        " they are read, all with the values that were saved, and `verify` and `doctor` name the field.",
    ),
    "damaged shardings": Explained(
        _BESIDE,
        "read by us alone",
        "_sharding changed, told by verify",
        "A restore without arguments takes the devices from `_sharding`, and Orbax ends in an error where an entry is"
        " damaged or gone; into a target that says shardings it restores. Here no value is read by it: all are those"
        " that were saved, and `verify` and `doctor` say what Orbax no longer does.",
    ),
    "damaged tree metadata": Explained(
        _BESIDE,
        "read by us alone",
        "_METADATA changed, told by verify",
        "Orbax refuses a tree of which one entry in `_METADATA` lacks a field, or has one of a type that it does not"
        " take. Here the arrays are read, all with the values that were saved; `verify` and `doctor` find it, and an"
        " edit, which would carry it along, is refused.",
    ),
    "a gap in a list": Explained(
        _BESIDE,
        "read by us alone",
        "_METADATA changed, leaves are gone, told by verify",
        "Where `_METADATA` has lost an entry of a list, Orbax ends in an error. Here the others are read, all with the"
        " values that were saved; `verify` and `doctor` name the gap, and edits are refused.",
    ),
    "keys that are no list": Explained(
        _BESIDE,
        "refused by us alone",
        "key_metadata`",
        "Where the keys of a path in `_METADATA` are an empty object in place of a list, Orbax restores the others and"
        " drops the leaf without a word, unless a target names it. Here the file is refused.",
    ),
    "references to other names": Explained(
        ("leaf folders",),
        "refused by us alone",
        "it refers to the array ",
        "In releases that wrote no `_METADATA`, `checkpoint` refers to an array by the name of its leaf, and Orbax"
        " takes the leaf's, whatever the reference says. One that says another name is damaged, or the name of the leaf"
        " is: which of them, nothing tells, and it is refused.",
    ),
    "damaged checkpoint file": Explained(
        ("leaf folders",),
        "read by us alone",
        "checkpoint changed, told by verify",
        "Where `checkpoint` is no msgpack, or has a number for a key, Orbax refuses the tree even if `_METADATA` says"
        " it, too. Here it is read as far as one of the two tells it; every value is the one that was saved, and"
        " `verify` and `doctor` find the damage.",
    ),
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
    "text in the place of an array": Explained(
        ("leaf folders",),
        "refused by us alone",
        "it has a text that does not refer to the array",
        "In releases without `_METADATA`, a text in `checkpoint` stands for an array. Where it is damaged, Orbax"
        " restores the text; here the tree is refused, as the array of that name is stored.",
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
