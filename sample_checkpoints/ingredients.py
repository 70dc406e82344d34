"""Make what recipes of the cookbook take and this folder does not hold: `python ingredients.py`."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import letters
import numpy as np
import optax
import orbax.checkpoint as ocp
import resume
from letters import Layout
from safetensors.numpy import save_file

FOLDER = Path(__file__).resolve().parent
WIDER = Layout(letters=40)
LION = optax.lion(1e-3)
ORDER = np.random.default_rng(0).permutation(28)


def save(name: str, tree: Any) -> None:
    """One directory of a ``StandardCheckpointer``, in the place of an older one."""
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(FOLDER / name, tree, force=True)


def broken() -> None:
    """The digits, with a NaN in one bias."""
    state = resume.restore(FOLDER / "digits_standard")
    state.params["Conv_1"]["bias"] = state.params["Conv_1"]["bias"].at[3].set(jnp.nan)
    save("broken", state)


def wider() -> None:
    """What the script of a model of 40 letters saves before its first step; every value drawn."""
    draws = np.random.default_rng(3)
    target = letters.abstract_state(WIDER)
    draw = lambda leaf: jnp.asarray(draws.normal(size=leaf.shape), leaf.dtype)  # noqa: E731
    save("wider", jax.tree.map(draw, target))


def fresh() -> None:
    """The letters with the optimizer Lion before its first step."""
    save("fresh", jax.tree.map(jnp.zeros_like, letters.abstract_state(Layout(), LION)))


def lora_parts() -> dict[int, list[np.ndarray]]:
    """A (8, 2) and B (2, 24), float32, for each layer by its number."""
    draw = np.random.default_rng(0)
    return {
        n: [draw.normal(size=shape).astype("f4") for shape in ((8, 2), (2, 24))] for n in range(3)
    }


def lora() -> None:
    """A LoRA of the letters in a checkpoint, and the same as PEFT saves it, in `adapter`."""
    parts = lora_parts()
    layers = {
        f"layers_{n}": {"attention": {"qkv": {"lora_a": a, "lora_b": b}}}
        for n, (a, b) in parts.items()
    }
    save("lora", {"params": layers})
    names = {
        f"base_model.model.layers.{n}.qkv.lora_{name}.weight": np.ascontiguousarray(part.T)
        for n, pair in parts.items()
        for name, part in zip("AB", pair, strict=True)
    }
    adapter = FOLDER / "adapter"
    adapter.mkdir(exist_ok=True)
    save_file(names, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "use_dora": False}
    (adapter / "adapter_config.json").write_text(json.dumps(config))


def llama() -> None:
    """A small Llama of transformers, and the plans that come with the repository."""
    repository = FOLDER.parent
    model = repository / "tests" / "fixtures" / "transformers" / "llama"
    if not model.is_dir():
        sys.exit(
            "`llama` and `plans` were not made: run this in `sample_checkpoints` of the repository, which has them"
        )
    shutil.copytree(model, FOLDER / "llama", dirs_exist_ok=True)
    shutil.copytree(repository / "plans", FOLDER / "plans", dirs_exist_ok=True)


def order() -> None:
    """For each new number of a token its old one."""
    np.save(FOLDER / "order.npy", ORDER)


def main() -> None:
    for make in (broken, wider, fresh, lora, order, llama):
        make()


if __name__ == "__main__":
    main()
