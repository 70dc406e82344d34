"""The shipped conversions: logits are those of transformers, and weights come back bit for bit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import tensorstore as ts
from safetensors.numpy import load_file, save_file

from tests.conversions.parts import FIXTURES
from tests.conversions.routes import MUTANTS, PLANS, applied, missed, model

HEADS = {"head_dim": 4}
TIED = {"lm_head": False}
NEIGHBOURS = {"interleave": 2}
GEMMA = {"head_dim": 16, "hidden_size": 24}


class Case(NamedTuple):
    """A model of transformers, the folder of its plans, a kind of Flax model, and what the two plans are told."""

    fixture: str
    family: str
    route: str
    there: dict[str, Any]
    back: dict[str, Any]
    model: Mapping[str, Any] = MappingProxyType({})

    def __str__(self):
        return "-".join([self.fixture, self.route, *self.model])


CASES = [
    Case("llama", "llama", "linen", HEADS, {}),
    Case("llama_tied", "llama", "linen", HEADS | TIED, TIED),
    Case("llama", "llama", "nnx", HEADS, {}),
    Case("llama_tied", "llama", "nnx", HEADS | TIED, TIED),
    Case("llama", "llama", "maxtext", HEADS, HEADS),
    Case("llama", "llama", "maxtext", HEADS | NEIGHBOURS, HEADS | NEIGHBOURS, {"neighbours": True}),
    Case("llama_tied", "llama", "maxtext", HEADS | TIED, HEADS | TIED | {"dtype": "bfloat16"}),
    Case("phi3", "phi3", "linen", HEADS | {"heads": 6, "kv_heads": 2}, {}),
    Case("gemma", "gemma", "linen", {"head_dim": 16}, {}),
    Case("gemma", "gemma", "nnx", {"head_dim": 16}, {}),
    Case(
        "gemma",
        "gemma",
        "maxtext",
        GEMMA | {"vocab": 40},
        GEMMA | {"vocab": 40, "dtype": "bfloat16"},
    ),
]


def source(fixture):
    return FIXTURES / fixture / "model.safetensors"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_logits_are_those_of_transformers_and_weights_come_back(tmp_path, case):
    there = applied(
        source(case.fixture),
        tmp_path / "there",
        f"{case.family}/hf-to-{case.route}.yaml",
        **case.there,
    )
    params = model(case.route, case.fixture, **case.model).restored(there)
    assert missed(case.route, case.fixture, params, **case.model) < 1e-4
    for name, mutant in MUTANTS.items():
        assert missed(case.route, case.fixture, mutant(params), **case.model) > 0.1, name
    plan = f"{case.family}/{case.route}-to-hf.yaml"
    back = applied(there, tmp_path / "back", plan, **case.back) / "model.safetensors"
    found, expected = load_file(back), load_file(source(case.fixture))
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        np.testing.assert_array_equal(found[name], weight, strict=True)


def test_layers_of_a_scan_are_chunks_of_their_own_and_others_no_larger_than_a_part_of_memory(
    tmp_path,
):
    weights = {name: np.zeros(shape, np.float32) for name, shape in _wide_model().items()}
    save_file(weights, tmp_path / "model.safetensors")
    there = applied(
        tmp_path / "model.safetensors", tmp_path / "there", "llama/hf-to-maxtext.yaml", head_dim=4
    )
    base = {"driver": "file", "path": f"{there}/"}
    chunks = {}
    for name in ("decoder.layers.mlp.wo.kernel", "token_embedder.embedding"):
        kvstore = {"driver": "ocdbt", "base": base, "path": f"params.params.{name}/"}
        array = ts.open({"driver": "zarr", "kvstore": kvstore}, open=True).result()
        chunks[name] = (array.shape, array.chunk_layout.read_chunk.shape)
    (whole, layer), (rows, part) = chunks.values()
    assert (whole, layer) == ((28, 3, 24), (28, 1, 24))
    assert rows == (900_000, 24)
    assert part[1] == 24
    assert part[0] * 24 * 4 <= 64 << 20


def _wide_model():
    """The shapes of the small Llama with a vocabulary of 86 MB."""
    shapes = {name: weight.shape for name, weight in load_file(source("llama")).items()}
    return shapes | {"model.embed_tokens.weight": (900_000, 24)}


def test_every_plan_of_a_family_is_tried():
    tried = {
        f"{case.family}/{name}.yaml"
        for case in CASES
        for name in (f"hf-to-{case.route}", f"{case.route}-to-hf")
    }
    families = {case.family for case in CASES}
    shipped = {str(path.relative_to(PLANS)) for path in PLANS.glob("*/*.yaml")}
    assert tried == {name for name in shipped if name.partition("/")[0] in families}


def test_what_maxtext_folds_into_gemmas_values_comes_back_as_the_plan_says(tmp_path):
    """Of float32 within 2^-22 of its size, of norms within 2^-24; of bfloat16 exactly, norms from 2^-16 on."""
    rng = np.random.default_rng(0)
    shapes = {name: weight.shape for name, weight in load_file(source("gemma")).items()}
    scales = 2.0 ** -rng.integers(0, 20, size=24)
    weights = {
        name: (rng.normal(size=shape) * (scales if len(shape) == 1 else 1)).astype(np.float32)
        for name, shape in shapes.items()
    }
    narrow = {name: weight.astype(ml_dtypes.bfloat16) for name, weight in weights.items()}
    for dtype, tensors in (("float32", weights), ("bfloat16", narrow)):
        save_file(tensors, tmp_path / f"{dtype}.safetensors")
        there = applied(
            tmp_path / f"{dtype}.safetensors",
            tmp_path / f"there_{dtype}",
            "gemma/hf-to-maxtext.yaml",
            vocab=64,
            **GEMMA,
        )
        settings = {**GEMMA, "vocab": 40, "dtype": dtype}
        back = applied(
            there, tmp_path / f"back_{dtype}.safetensors", "gemma/maxtext-to-hf.yaml", **settings
        )
        for name, found in load_file(back).items():
            given = tensors[name]
            off = np.abs(found.astype(np.float64) - given.astype(np.float64))
            assert found.dtype == given.dtype
            if given.ndim == 1:
                assert off[np.abs(given) < 1].max() <= 2**-24
                is_exact = np.abs(given) >= 2**-16
            else:
                assert (off <= np.abs(given.astype(np.float64)) * 2**-22).all()
                is_exact = np.full(given.shape, fill_value=True)
            if dtype == "bfloat16":
                assert not off[is_exact].any()
