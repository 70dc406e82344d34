"""Llama between Hugging Face and scanned layers as a script does it: all of it in memory, by NumPy, Flax and Orbax.

`conversion.py model FOLDER --layers N --width W --vocabulary V` makes a random model; `there FOLDER DIRECTORY` and
`back DIRECTORY FOLDER` convert it.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rows import HEAD_DIM

FILE = "model.safetensors"
NORMS = {
    "input_layernorm": "pre_self_attention_layer_norm",
    "post_attention_layernorm": "post_self_attention_layer_norm",
}
HEADS = {"q_proj": "query", "k_proj": "key", "v_proj": "value"}
MLP = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}

Arrays = dict[str, np.ndarray]


def shapes(layers: int, width: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """What transformers names so, of a Llama whose heads share keys and values by four."""
    inner, shared = 8 * width // 3, max(width // 4, HEAD_DIM)
    layer = {
        "input_layernorm": (width,),
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (shared, width),
        "self_attn.v_proj": (shared, width),
        "self_attn.o_proj": (width, width),
        "post_attention_layernorm": (width,),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    found = {
        f"model.layers.{n}.{name}.weight": shape
        for n in range(layers)
        for name, shape in layer.items()
    }
    ends = {"model.embed_tokens.weight": (vocabulary, width), "model.norm.weight": (width,)}
    return {**ends, **found, "lm_head.weight": (vocabulary, width)}


def make_model(folder: Path, layers: int, width: int, vocabulary: int) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    random = np.random.default_rng(0)
    save_file(
        {
            name: random.standard_normal(shape, np.float32) * shape[-1] ** -0.5
            for name, shape in shapes(layers, width, vocabulary).items()
        },
        folder / FILE,
    )


def there(folder: Path, directory: Path) -> None:
    import orbax.checkpoint as ocp
    from flax.traverse_util import unflatten_dict
    from safetensors.numpy import load_file

    tensors = load_file(folder / FILE)
    count = sum(name.endswith("input_layernorm.weight") for name in tensors)

    def stacked(name: str) -> np.ndarray:
        parts = [
            converted(name, tensors.pop(f"model.layers.{n}.{name}.weight")) for n in range(count)
        ]
        return np.stack(parts, axis=1)

    layers = {(NORMS[name], "scale"): stacked(name) for name in NORMS}
    for name, new in {**HEADS, "o_proj": "out"}.items():
        layers["self_attention", new, "kernel"] = stacked(f"self_attn.{name}")
    for name, new in MLP.items():
        layers["mlp", new, "kernel"] = stacked(f"mlp.{name}")
    params = {
        ("token_embedder", "embedding"): tensors["model.embed_tokens.weight"],
        ("decoder", "decoder_norm", "scale"): tensors["model.norm.weight"],
        ("decoder", "logits_dense", "kernel"): np.ascontiguousarray(tensors["lm_head.weight"].T),
        **{("decoder", "layers", *path): value for path, value in layers.items()},
    }
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(directory.resolve(), {"params": {"params": unflatten_dict(params)}})


def converted(name: str, weight: np.ndarray) -> np.ndarray:
    short = name.rsplit(".", maxsplit=1)[-1]
    if weight.ndim == 1:
        return weight
    if short in HEADS:
        kernel = weight.T.reshape(weight.shape[1], -1, HEAD_DIM)
        return kernel * HEAD_DIM**-0.5 if short == "q_proj" else kernel
    if short == "o_proj":
        return weight.T.reshape(-1, HEAD_DIM, weight.shape[0])
    return weight.T


def back(directory: Path, folder: Path) -> None:
    import orbax.checkpoint as ocp
    from flax.traverse_util import flatten_dict
    from safetensors.numpy import save_file

    with ocp.StandardCheckpointer() as checkpointer:
        state = checkpointer.restore(directory.resolve())
    params: dict[Any, Any] = flatten_dict(state["params"]["params"])
    tensors = {
        "model.embed_tokens.weight": np.asarray(params["token_embedder", "embedding"]),
        "model.norm.weight": np.asarray(params["decoder", "decoder_norm", "scale"]),
        "lm_head.weight": np.asarray(params["decoder", "logits_dense", "kernel"]).T,
    }

    def part(name: str, *path: str) -> None:
        leaf = np.asarray(params["decoder", "layers", *path])
        for n in range(leaf.shape[1]):
            tensors[f"model.layers.{n}.{name}.weight"] = matrix(name, leaf[:, n])

    for name, new in NORMS.items():
        part(name, new, "scale")
    for name, new in {**HEADS, "o_proj": "out"}.items():
        part(f"self_attn.{name}", "self_attention", new, "kernel")
    for name, new in MLP.items():
        part(f"mlp.{name}", "mlp", new, "kernel")
    folder.mkdir()
    save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, folder / FILE)


def matrix(name: str, kernel: np.ndarray) -> np.ndarray:
    short = name.rsplit(".", maxsplit=1)[-1]
    if kernel.ndim == 1:
        return kernel
    if short == "q_proj":
        kernel = kernel * HEAD_DIM**0.5
    if short == "o_proj":
        return kernel.reshape(-1, kernel.shape[-1]).T
    return kernel.reshape(kernel.shape[0], -1).T


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=["model", "there", "back"])
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--vocabulary", type=int, default=16_000)
    arguments = parser.parse_args()
    if arguments.task == "model":
        make_model(*arguments.paths, arguments.layers, arguments.width, arguments.vocabulary)
    else:
        {"there": there, "back": back}[arguments.task](*arguments.paths)


if __name__ == "__main__":
    main()
