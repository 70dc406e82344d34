"""Llama between transformers and Flax: logits are those of transformers, and weights come back bit for bit."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.conversions.parts import FIXTURES, Sizes
from tests.conversions.routes import MUTANTS, applied, missed, model


def source(fixture):
    return FIXTURES / fixture / "model.safetensors"


def same_weights(path, fixture):
    """That a file holds what transformers saved, and no other leaf."""
    expected = load_file(source(fixture))
    found = load_file(path / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert found[name].dtype == weight.dtype
        np.testing.assert_array_equal(found[name], weight, strict=True)


@pytest.mark.parametrize("fixture", ["llama", "llama_tied"])
@pytest.mark.parametrize("route", ["linen"])
def test_logits_are_those_of_transformers_and_weights_come_back(tmp_path, route, fixture):
    sizes = Sizes.of(fixture)
    tied = {"lm_head": False} if sizes.is_tied else {}
    there = applied(
        source(fixture),
        tmp_path / "there",
        f"llama/hf-to-{route}.yaml",
        head_dim=sizes.head_dim,
        **tied,
    )
    params = model(route, fixture).restored(there)
    assert missed(route, fixture, params) < 1e-4
    for name, mutant in MUTANTS.items():
        assert missed(route, fixture, mutant(params)) > 0.1, name
    same_weights(applied(there, tmp_path / "back", f"llama/{route}-to-hf.yaml", **tied), fixture)
