"""Run in a process of its own: saves by Orbax, each in a fork that the kernel ends at a random moment.

`killed_saves.py FOLDER COUNT` makes FOLDER/<n>/ with what is left of the n-th; every third is of another layout.
"""

import os
import pickle
import random
import signal
import sys
import time
from pathlib import Path

import orbax.checkpoint as ocp

LAYOUTS = ({}, {"use_zarr3": True}, {"use_ocdbt": False})


def _saved(place, tree, layout, seconds):
    """Save in a fork; it is ended after so many seconds of writing, by a signal that nobody handles."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    checkpointer = ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**LAYOUTS[layout]))
    started = time.monotonic()
    if seconds is not None:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))
    checkpointer.save(place / "7", ocp.args.PyTreeSave(tree))
    (place / "seconds").write_text(str(time.monotonic() - started))
    os._exit(0)


def main(folder, count):
    tree = pickle.loads((folder / "tree").read_bytes())
    longest = []
    for layout in range(len(LAYOUTS)):
        place = folder / f"whole-{layout}"
        place.mkdir()
        _saved(place, tree, layout, None)
        longest.append(float((place / "seconds").read_text()))
    for number in range(count):
        place, layout = folder / str(number), number % len(LAYOUTS)
        place.mkdir()
        _saved(place, tree, layout, random.Random(number).uniform(0.2, 1.0) * longest[layout])


main(Path(sys.argv[1]), int(sys.argv[2]))
