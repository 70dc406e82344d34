"""Train the samples and save them as training scripts do: `python train.py [FOLDER]` (default: beside this file)."""

import argparse
import shutil
import tempfile
from pathlib import Path

import orbax.checkpoint as ocp
from digits import TrainState, accuracy, create_state, splits, train
from orbax.checkpoint import v1

FIRST_STEP, LAST_STEP = 250, 500


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(__file__).parent)
    folder = parser.parse_args().folder.resolve()

    training, test = splits()
    state, _ = train(create_state(), training, FIRST_STEP)
    states = {FIRST_STEP: (state, accuracy(state, test))}
    state, loss = train(state, training, LAST_STEP - FIRST_STEP)
    states[LAST_STEP] = (state, accuracy(state, test))
    for step, (_, reached) in states.items():
        print(f"step {step}: test accuracy {reached:.1%}")
    print(f"loss {loss:.4f}")

    # Orbax notes the absolute path of a save in commit_success.txt: the samples must not carry a person's folders.
    with tempfile.TemporaryDirectory(prefix="samples-") as scratch:
        saved = Path(scratch)
        save_standard(saved / "digits_standard", state)
        save_managed(saved / "digits_manager", states)
        save_v1(saved / "digits_v1", state)
        for checkpoint in saved.iterdir():
            shutil.rmtree(folder / checkpoint.name, ignore_errors=True)
            shutil.copytree(checkpoint, folder / checkpoint.name)


if __name__ == "__main__":
    main()
