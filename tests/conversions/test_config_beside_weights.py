"""A number of the plan that contradicts the `config.json` beside the weights is said: shapes may fit both."""

import json
import shutil

import pytest

from tests.conversions.parts import FIXTURES
from tests.conversions.routes import PLANS, surgery

PLAN = PLANS / "llama" / "hf-to-linen.yaml"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "model").mkdir()
    shutil.copy(FIXTURES / "llama/model.safetensors", tmp_path / "model")
    return tmp_path / "model"


def notes(source, tmp_path, *words):
    """Those about the config, of the preview and of what is applied, which say the same."""
    found = []
    for more in (["--dry-run"], []):
        said, code = surgery("apply", source, tmp_path / "new", PLAN, *words, *more, "--json")
        assert code == 0, said
        found.append([note for note in json.loads(said)["consequences"] if "config.json" in note])
    assert found[0] == found[1]
    return found[0]


SAYING = {
    "`head_dim: 4`": {"head_dim": 4, "hidden_size": 99, "num_attention_heads": 1},
    "`hidden_size / num_attention_heads: 4`": {"hidden_size": 24, "num_attention_heads": 6},
    "`text_config.head_dim: 4`": {"text_config": {"head_dim": 4}, "vision_config": {"depth": 2}},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("words", SAYING)
@pytest.mark.parametrize("is_folder", [True, False])
def test_another_number_than_the_config_has_is_said(folder, tmp_path, words, is_folder):
    (folder / "config.json").write_text(json.dumps(SAYING[words]))
    source = folder if is_folder else folder / "model.safetensors"
    (said,) = notes(source, tmp_path, "--set", "head_dim=8")
    assert said.startswith(
        f"the plan has `head_dim=8`, and `config.json` beside the weights says {words}: shapes may fit both"
    )


@pytest.mark.parametrize("words", SAYING)
def test_the_same_number_is_not(folder, tmp_path, words):
    (folder / "config.json").write_text(json.dumps(SAYING[words]))
    assert notes(folder, tmp_path, "--set", "head_dim=4") == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("text", [None, "{", "[]", '{"head_dim": null}', '{"head_dim": "8"}'])
def test_a_config_that_does_not_say_it_tells_nothing(folder, tmp_path, text):
    if text is not None:
        (folder / "config.json").write_text(text)
    assert notes(folder, tmp_path, "--set", "head_dim=8") == []


LAYERS = {"num_hidden_layers": 5}


@pytest.mark.parametrize("config", [LAYERS, {"text_config": LAYERS, "vision_config": {"depth": 2}}])
def test_weights_of_fewer_layers_than_the_config_has_are_said(folder, tmp_path, config):
    """A download may lack its last file, and the names that are left tell nothing of it."""
    (folder / "config.json").write_text(json.dumps(config))
    (said,) = notes(folder, tmp_path, "--set", "head_dim=4")
    prefix = "text_config." if config is not LAYERS else ""
    there = layers_in(folder / "model.safetensors")
    assert f"`{prefix}num_hidden_layers: 5`, and they have {there} layers" in said


@pytest.mark.parametrize("more", [0, -1])
def test_weights_of_as_many_layers_or_more_are_not(folder, tmp_path, more):
    """Some models have one beside those that they count, for the token after the next."""
    count = layers_in(folder / "model.safetensors") + more
    (folder / "config.json").write_text(json.dumps({"num_hidden_layers": count}))
    assert notes(folder, tmp_path, "--set", "head_dim=4") == []


def layers_in(file):
    from safetensors import safe_open

    with safe_open(file, "numpy") as weights:
        return len({name.split(".")[2] for name in weights.keys() if ".layers." in name})  # noqa: SIM118
