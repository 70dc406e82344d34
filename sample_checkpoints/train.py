"""Train the samples and save them as training scripts do: `python train.py [FOLDER]` (default: beside this file).

`--only digits`, `letters`, `patches` or `towers` leaves the others as they are.
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import jax
import letters
import orbax.checkpoint as ocp
import patches
import towers
from digits import TrainState, accuracy, create_state, splits, train
from orbax.checkpoint import v1

FIRST_STEP, LAST_STEP = 250, 500
LETTERS_STEPS = (60, 70, 80, 90, 100)


def save_standard(path: Path, state: TrainState) -> None:
    """One directory of a ``StandardCheckpointer``."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path, state)


def save_managed(path: Path, states: dict[int, tuple[TrainState, float]]) -> None:
    """The root of a ``CheckpointManager``: one step for each state, with its accuracy as a metric."""
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["accuracy"])
    with ocp.CheckpointManager(path, options=options) as manager:
        for step, (state, reached) in states.items():
            manager.save(step, args=ocp.args.StandardSave(state), metrics={"accuracy": reached})
        manager.wait_until_finished()


def save_v1(path: Path, state: TrainState) -> None:
    """One checkpoint of Orbax's v1 API."""
    v1.save(path, state)


def save_digits(folder: Path) -> None:
    """One run of the CNN, saved in three ways."""
    training, test = splits()
    state, _ = train(create_state(), training, FIRST_STEP)
    states = {FIRST_STEP: (state, accuracy(state, test))}
    state, loss = train(state, training, LAST_STEP - FIRST_STEP)
    states[LAST_STEP] = (state, accuracy(state, test))
    for step, (_, reached) in states.items():
        print(f"step {step}: test accuracy {reached:.1%}")
    print(f"loss {loss:.4f}")
    save_standard(folder / "digits_standard", state)
    save_managed(folder / "digits_manager", states)
    save_v1(folder / "digits_v1", state)


def save_letters(folder: Path) -> None:
    """A run with five steps whose layers stand in a row, and two whose layers are stacked."""
    with ocp.CheckpointManager(folder / "letters_run") as manager:
        state, done = jax.jit(letters.create_state)(), 0
        for step in LETTERS_STEPS:
            (state, loss), done = letters.train(state, step - done), step
            manager.save(step, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
    print(f"letters: loss {loss:.4f}")
    for name, axis in {"letters_scanned": 0, "letters_maxtext": 1}.items():
        layout = letters.Layout(scan_axis=axis)
        state, loss = letters.train(
            jax.jit(letters.create_state, static_argnums=0)(layout), LETTERS_STEPS[-1]
        )
        print(f"{name}: loss {loss:.4f}")
        save_standard(folder / name, state)


def save_patches(folder: Path) -> None:
    """A model of Flax NNX with its optimizer."""
    model, optimizer = patches.create()
    for step in range(100):
        loss = patches.train_step(model, optimizer, *patches.batch(step))
    print(f"patches: loss {loss:.4f}")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "patches", patches.tree(model, optimizer))


def save_towers(folder: Path) -> None:
    """Two towers after a few steps."""
    state = jax.jit(towers.create_state)()
    for step in range(20):
        state, loss = towers.train_step(state, *patches.batch(step))
    print(f"towers: loss {loss:.4f}")
    save_standard(folder / "towers", state)


SAVED: dict[str, Callable[[Path], None]] = {
    "digits": save_digits,
    "letters": save_letters,
    "patches": save_patches,
    "towers": save_towers,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    parser.add_argument("--only", choices=SAVED, action="append", help="train and save these")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()

    # Orbax notes the absolute path of a save in commit_success.txt: the samples must not carry a person's folders.
    with tempfile.TemporaryDirectory(prefix="samples-") as scratch:
        saved = Path(scratch)
        for name in arguments.only or SAVED:
            SAVED[name](saved)
        for checkpoint in saved.iterdir():
            shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
            shutil.copytree(checkpoint, folder / checkpoint.name)


if __name__ == "__main__":
    main()
