"""Models for mergekit, in safetensors: random ones, and whether two results are the same."""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from checkpoint import leaf
from safetensors import safe_open
from safetensors.numpy import save_file

WIDTH, INNER, VOCABULARY = 1024, 2816, 8192
TOLERANCE = {"rtol": 2e-5, "atol": 1e-6}  # mergekit adds in float32


def config(layers: int, width: int, inner: int, vocabulary: int) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": vocabulary,
        "tie_word_embeddings": False,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "float32",
    }


def shapes(layers: int, width: int, inner: int, vocabulary: int) -> dict[str, tuple[int, ...]]:
    """Of every tensor, by its name, as transformers has them."""
    found = {
        "model.embed_tokens.weight": (vocabulary, width),
        "lm_head.weight": (vocabulary, width),
    }
    for number in range(layers):
        layer = f"model.layers.{number}"
        for name in "qkvo":
            found[f"{layer}.self_attn.{name}_proj.weight"] = (width, width)
        for name, shape in (
            ("gate", (inner, width)),
            ("up", (inner, width)),
            ("down", (width, inner)),
        ):
            found[f"{layer}.mlp.{name}_proj.weight"] = shape
        for name in ("input", "post_attention"):
            found[f"{layer}.{name}_layernorm.weight"] = (width,)
    return found | {"model.norm.weight": (width,)}


def make(directory: Path, size: int, seed: int) -> None:
    """The base is seed 0; a fine-tune is a tenth of another model beside it. ``size`` is in bytes, 0 for a tiny one."""
    widths = (WIDTH, INNER, VOCABULARY) if size else (16, 32, 24)
    layer = 4 * (4 * widths[0] ** 2 + 3 * widths[0] * widths[1])
    layers = max(1, (size - 8 * widths[0] * widths[2]) // layer)
    tensors = {}
    for number, (name, shape) in enumerate(shapes(layers, *widths).items()):
        values = _normal(shape, 0, number)
        tensors[name] = values + np.float32(0.1) * _normal(shape, seed, number) if seed else values
    directory.mkdir(parents=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    (directory / "config.json").write_text(json.dumps(config(layers, *widths)))


def _normal(shape: tuple[int, ...], seed: int, number: int) -> np.ndarray:
    generator = np.random.default_rng((seed, number))
    return generator.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5)


def check_same(ours: Path, theirs: Path) -> None:
    """Exit if a tensor of ``theirs`` is another in ``ours``, an Orbax checkpoint."""
    for file in sorted(theirs.glob("*.safetensors")):
        with safe_open(file, "numpy") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it is no dictionary
                one, other = leaf(ours, name), tensors.get_tensor(name)
                off = ~np.isclose(one, other, **TOLERANCE)
                # of a hundred thousand, one may be cut here and left there: differences are rounded before
                if one.dtype != other.dtype or off.mean() > 1e-5:
                    sys.exit(f'"{name}" differs in {off.sum()} of {off.size} places')


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("directory", type=Path)
    making.add_argument("size", type=int)
    making.add_argument("seed", type=int)
    same = commands.add_parser("same")
    same.add_argument("ours", type=Path)
    same.add_argument("theirs", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "make":
        make(arguments.directory, arguments.size, arguments.seed)
    else:
        check_same(arguments.ours, arguments.theirs)


if __name__ == "__main__":
    main()
