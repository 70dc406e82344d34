"""The recipe without surgery: restore the whole state with Orbax, edit one kernel, save the whole state.

`python recipe.py SRC DST PATH --by 0.5 [--moments]`. With `--moments`, Adam's mu and nu follow the edit.
"""

import argparse
from pathlib import Path

import orbax.checkpoint as ocp
from flax import traverse_util


def rescaled(tree: dict, path: str, factor: float) -> dict:
    """``tree`` with the leaf at the slash-joined ``path`` multiplied by ``factor``."""
    flat = traverse_util.flatten_dict(tree, sep="/")
    flat[path] = flat[path] * factor
    return traverse_util.unflatten_dict(flat, sep="/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("path", help="leaf below params, slash-joined")
    parser.add_argument("--by", type=float, required=True)
    parser.add_argument("--moments", action="store_true", help="edit Adam's mu and nu too")
    arguments = parser.parse_args()

    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(arguments.source.resolve())
        state["params"] = rescaled(state["params"], arguments.path, arguments.by)
        if arguments.moments:
            adam = state["opt_state"][0]
            adam["mu"] = rescaled(adam["mu"], arguments.path, 1 / arguments.by)
            adam["nu"] = rescaled(adam["nu"], arguments.path, 1 / arguments.by**2)
        checkpointer.save(arguments.destination.resolve(), state)


if __name__ == "__main__":
    main()
