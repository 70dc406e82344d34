"""Resume a sample's training, as its own script would: Orbax, a TrainState target, and nothing of surgery.

`python resume.py CKPT [--step N] [--steps 100] [--evaluate]` opens a StandardCheckpointer directory, a
CheckpointManager root or a v1 checkpoint.
"""

import argparse
from pathlib import Path

import orbax.checkpoint as ocp
from digits import TrainState, abstract_state, accuracy, splits, train
from orbax.checkpoint import v1


def restore(path: Path, step: int | None = None, classes: int = 10) -> TrainState:
    """The state saved at ``path``; of a manager's root the latest step, or ``step``.

    Raises whatever Orbax raises if the checkpoint does not fit the target.
    """
    target = abstract_state(classes)
    if (path / "orbax.checkpoint").exists():
        return v1.load(path, target)
    if (path / "_METADATA").exists():
        with ocp.StandardCheckpointer() as checkpointer:
            return checkpointer.restore(path, target)
    options = ocp.CheckpointManagerOptions(read_only=True)
    with ocp.CheckpointManager(path, options=options) as manager:
        chosen = manager.latest_step() if step is None else step
        return manager.restore(chosen, args=ocp.args.StandardRestore(target))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--step", type=int, help="step of a manager's root (default: the latest)")
    parser.add_argument("--steps", type=int, default=100, help="how many steps to train on")
    parser.add_argument("--evaluate", action="store_true", help="only print the test accuracy")
    arguments = parser.parse_args()

    training, test = splits()
    state = restore(arguments.checkpoint.resolve(), arguments.step)
    before = f"step {int(state.step)}: test accuracy {accuracy(state, test):.1%}"
    if arguments.evaluate:
        print(before)
        return
    state, loss = train(state, training, arguments.steps)
    after = f"step {int(state.step)}: test accuracy {accuracy(state, test):.1%}, loss {loss:.4f}"
    print(f"{before}\n{after}")


if __name__ == "__main__":
    main()
