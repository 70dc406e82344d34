"""Draw docs/head-replaced.png: a new head in a half-trained model, and how its training goes on.

`python continuation.py [PNG]` needs the extras `demo` and `plot`. The sample at step 500 gets a new head three times:
by surgery, whose default warms the head's moments and leaves all others; by a script that puts the params into a new
TrainState; and by a script that sets all moments to zero under the old count. Batches and learning rate are the same.
"""

import argparse
import tempfile
from pathlib import Path

import digits
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import resume
from digits import TrainState

from surgery_cli import surgery
from surgery_cli.operations.reinit import Reinit
from surgery_cli.planning import plan_of

HERE = Path(__file__).resolve().parent
SAMPLE = HERE / "digits_standard"
STEPS = 60


def replaced_by_surgery() -> TrainState:
    """The sample with a new head: `surgery reinit SRC DST params/Dense_1 --init zeros`."""
    with tempfile.TemporaryDirectory() as folder:
        goal = Path(folder) / "replaced"
        surgery.apply(str(SAMPLE), str(goal), plan_of([Reinit(at="params/Dense_1", init="zeros")]))
        return resume.restore(goal)


def with_new_optimizer(state: TrainState) -> TrainState:
    """What a script does that takes the params alone."""
    return state.replace(opt_state=state.tx.init(state.params))


def with_zero_moments(state: TrainState) -> TrainState:
    """What a script does that forgets the count."""
    return state.replace(
        opt_state=jax.tree.map(lambda x: jnp.zeros_like(x) if x.ndim else x, state.opt_state)
    )


def losses(state: TrainState) -> np.ndarray:
    """The loss over the whole training split, before the first and after each of the next steps: [STEPS + 1]."""
    data = jax.device_put(digits.splits()[0])
    whole = jax.jit(lambda s: digits.cross_entropy(s.params, s, data.images, data.labels))
    found = [float(whole(state))]
    for _ in range(STEPS):
        state, _ = digits.train_step(state, data)
        found.append(float(whole(state)))
    return np.array(found)


def draw(curves: dict[str, np.ndarray], picture: Path) -> None:
    """One panel, logarithmic; every curve is named where it runs."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    styles = {
        "no edit": {"color": "0.6", "linestyle": ":", "linewidth": 1.5},
        "params alone, new optimizer": {"color": "#d98c1f", "linewidth": 1.6},
        "all moments zeroed, count kept": {"color": "#c23b3b", "linewidth": 1.6},
        "surgery reinit": {"color": "#1f5fa8", "linewidth": 2.4},
    }
    for name, values in curves.items():
        axes.plot(values, label=name, **styles[name])
    axes.set_yscale("log")
    axes.set_xlim(0, STEPS)
    axes.set_xlabel("training steps after the head was replaced (step 500)")
    axes.set_ylabel("training loss")
    axes.set_title("A new head in a half-trained model", loc="left", fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False)
    figure.savefig(picture)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default = HERE.parent / "docs" / "head-replaced.png"
    parser.add_argument("picture", nargs="?", type=Path, default=default)
    picture = parser.parse_args().picture

    replaced = replaced_by_surgery()
    states = {
        "no edit": resume.restore(SAMPLE),
        "params alone, new optimizer": with_new_optimizer(replaced),
        "all moments zeroed, count kept": with_zero_moments(replaced),
        "surgery reinit": replaced,
    }
    curves = {name: losses(state) for name, state in states.items()}
    for name, values in curves.items():
        reached = np.flatnonzero(values < 0.2)
        when = f"below 0.2 after {reached[0]:2} steps" if reached.size else "not below 0.2"
        rise = max(0.0, float(np.diff(values).max()))
        print(f"{name:31} {when}, largest rise in a step {rise:.2f}, at the end {values[-1]:.3f}")
    draw(curves, picture)


if __name__ == "__main__":
    main()
