"""What a conversion does not fit is said in the preview, all of it: leaves left over, rules without leaves, shapes."""

import json
import re

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.conversions.parts import FIXTURES
from tests.conversions.routes import PLANS, applied, surgery


def previewed(tmp_path, fixture, plan, change=lambda tensors: tensors, **settings):
    """What the preview says of a model with some tensors changed; it must refuse them."""
    tensors = load_file(FIXTURES / fixture / "model.safetensors")
    save_file(change(tensors), tmp_path / "model.safetensors")
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    text, code = surgery(
        "apply",
        tmp_path / "model.safetensors",
        tmp_path / "new",
        PLANS / plan,
        "--dry-run",
        *given,
    )
    assert code == 2
    return text.split("error: ")[1:]


def test_everything_that_does_not_fit_is_said_at_once(tmp_path):
    def damage(tensors):
        del tensors["model.layers.1.mlp.up_proj.weight"]
        tensors["model.layers.2.self_attn.q_proj.bias"] = np.zeros(24, np.float32)
        tensors["model.layers.0.self_attn.k_proj.weight"] = np.zeros((7, 24), np.float32)
        del tensors["model.norm.weight"]
        del tensors["lm_head.weight"]
        return tensors

    said = previewed(tmp_path, "llama", "llama/hf-to-linen.yaml", damage, head_dim=4)
    head, norm, over, layers, sizes, shape = said
    assert "'lm_head.weight' matches nothing" in head
    assert "'model.norm.weight' matches nothing" in norm
    assert "there must be none, and there stand 'model.layers.2.self_attn.q_proj.bias'" in over
    assert "'params/layers_1' lacks 'mlp/up/kernel' (2 others have it)" in layers
    assert (
        "'params/layers_0/attention/key/kernel' is float32[7,24] (float32[8,24] in most)" in layers
    )
    assert (
        "'params/layers_0/attention/key/kernel' is float32[7,24] (float32[8,24] in most)" in sizes
    )
    assert "axis 1 of float32[24,7] does not become `shape: [-1, 4]`" in shape


def test_another_family_is_refused_by_what_it_has_and_has_not(tmp_path):
    missing, over = previewed(tmp_path, "phi3", "llama/hf-to-linen.yaml", head_dim=4)
    assert "'model.layers.*.self_attn.q_proj.weight' matches nothing" in missing
    assert "and so it is with 4 more: 'model.layers.*.self_attn.k_proj.weight', " in missing
    assert "'model.layers.*.mlp.up_proj.weight'" in missing
    assert "there stand 'model.layers.0.mlp.gate_up_proj.weight'" in over


def test_numbers_that_nobody_gave_are_asked_for(tmp_path):
    said = previewed(tmp_path, "llama", "llama/hf-to-linen.yaml")
    assert all("the variable `head_dim` is not set" in text for text in said)


SETTINGS = {
    "llama": {"head_dim": 4},
    "gemma": {"head_dim": 16, "hidden_size": 24, "vocab": 64},
    "phi3": {"head_dim": 4, "heads": 6, "kv_heads": 2},
    "vit": {"heads": 3},
}


def settings_of(plan):
    """The numbers that a plan asks for."""
    family, text = plan.parent.name, plan.read_text()
    return {name: value for name, value in SETTINGS[family].items() if f"${{{name}}}" in text}


def renumbered(tensors, to):
    """Layers under other numbers; those of None are left out."""
    kept = {}
    for name, tensor in tensors.items():
        number = re.search(r"(?<=\blayer\.)\d+|(?<=\blayers\.)\d+", name)
        new = to(int(number[0])) if number else ""
        if new is not None:
            kept[f"{name[: number.start()]}{new}{name[number.end() :]}" if number else name] = (
                tensor
            )
    return kept


@pytest.mark.parametrize(
    "plan", sorted(PLANS.glob("*/hf-to-*.yaml")), ids=lambda p: f"{p.parent.name}-{p.stem}"
)
def test_a_layer_that_is_missing_is_named_by_every_plan(plan, tmp_path):
    name, given = plan.relative_to(PLANS), settings_of(plan)
    family = plan.parent.name
    fine = load_file(FIXTURES / family / "model.safetensors")
    last = max(int(n) for text in fine for n in re.findall(r"\blayers?\.(\d+)", text))

    def gap(tensors):
        return renumbered(tensors, lambda n: n + (n == last))

    said, *_ = previewed(tmp_path, family, name, gap, **given)
    assert re.search(rf"layers[_/]{last}\b[^:]*not there", said), said

    def without_first(tensors):
        return renumbered(tensors, lambda n: n or None)

    said, *_ = previewed(tmp_path, family, name, without_first, **given)
    assert re.search(r"layers[_/]0' matches nothing", said), said


RESIZING = [plan for plan in sorted(PLANS.glob("*/*.yaml")) if "op: resize" in plan.read_text()]


@pytest.mark.parametrize("plan", RESIZING, ids=lambda plan: f"{plan.parent.name}-{plan.stem}")
def test_rows_are_neither_dropped_on_the_way_there_nor_made_up_on_the_way_back(plan, tmp_path):
    """Of 40 rows, padded to 64."""
    family, name = plan.parent.name, plan.relative_to(PLANS)
    given = settings_of(plan)
    assert "vocab" in given
    if plan.name.startswith("hf-to-"):
        said = previewed(tmp_path, family, name, **given | {"vocab": 39})
        wrong, found = "[..39,", "[40,"
    else:
        other, kind = plan.with_name(f"hf-to-{plan.stem.removesuffix('-to-hf')}.yaml"), "there"
        applied(
            FIXTURES / family / "model.safetensors", tmp_path / kind, other, **settings_of(other)
        )
        words = [
            word
            for item in (given | {"vocab": 65}).items()
            for word in ("--set", "=".join(map(str, item)))
        ]
        text, code = surgery("apply", tmp_path / kind, tmp_path / "x", plan, "--dry-run", *words)
        assert code == 2
        said = text.split("error: ")[1:]
        wrong, found = "[65..,", "[64,"
    (only,) = said
    assert f"breaks `shape {wrong}" in only
    assert found in only


@pytest.mark.parametrize(
    "plan", sorted(PLANS.glob("*/linen-to-hf.yaml")), ids=lambda p: p.parent.name
)
def test_so_it_is_on_the_way_back(plan, tmp_path):
    forth = plan.with_name("hf-to-linen.yaml")
    model = FIXTURES / plan.parent.name / "model.safetensors"
    applied(model, tmp_path / "linen", forth, **settings_of(forth))
    text, code = surgery(
        "rename", tmp_path / "linen", tmp_path / "gap", "params/layers_1", "--to", "params/layers_9"
    )
    assert code == 0, text
    given = [w for item in settings_of(plan).items() for w in ("--set", "=".join(map(str, item)))]
    text, code = surgery("apply", tmp_path / "gap", tmp_path / "back", plan, "--dry-run", *given)
    assert code == 2
    assert "not there" in text, text


ALL = sorted(PLANS.glob("*/*.yaml"))


def id_of(plan):
    return f"{plan.parent.name}-{plan.stem}"


def source_of(plan, tmp_path):
    """What a plan is for: the model of transformers, or what the plan of the way there makes of it."""
    model = FIXTURES / plan.parent.name / "model.safetensors"
    if plan.stem.startswith("hf-to-"):
        return model
    forth = plan.with_name(f"hf-to-{plan.stem.removesuffix('-to-hf')}.yaml")
    return applied(model, tmp_path / "source", forth, **settings_of(forth))


def kinds_of(source):
    """A pattern for every kind of leaf, over all layers, with the leaves."""
    said, code = surgery("inspect", source, "--json")
    assert code == 0
    kinds = {}
    for leaf in json.loads(said)["leaves"]:
        kind = re.sub(r"(?<=layers[./_])\d+|(?<=layer\.)\d+", "*", leaf["path"])
        kinds.setdefault(kind, []).append(leaf)
    return kinds


def is_refused(plan, source, tmp_path, damage=""):
    """Whether the preview refuses a source on which an edit did damage first."""
    damaged = tmp_path / "damaged.yaml"
    damaged.write_text(plan.read_text().replace("edits:\n", f"edits:\n{damage}", 1))
    given = [w for item in settings_of(plan).items() for w in ("--set", "=".join(map(str, item)))]
    text, code = surgery("apply", source, tmp_path / "no", damaged, "--dry-run", *given)
    assert code in (0, 2), text
    return code == 2


@pytest.mark.sampled(12)
@pytest.mark.parametrize("plan", ALL, ids=id_of)
def test_a_kind_of_leaf_that_is_missing_in_all_layers_is_refused_by_every_plan(plan, tmp_path):
    source = source_of(plan, tmp_path)
    kinds = kinds_of(source)
    assert not is_refused(plan, source, tmp_path)
    assert len(kinds) > 8
    taken = [
        kind
        for kind in kinds
        if not is_refused(plan, source, tmp_path, f"  - {{op: delete, at: '{kind}'}}\n")
    ]
    assert taken == []


MUST_AGREE = re.compile(
    r".*norm.*|.*\.(k|v|gate|up)_proj\.weight|.*/(key|value|mlp/gate|mlp/up|wi_0|wi_1)/kernel(/value)?"
)
"""Sizes that others beside it have as well: of norms, of keys and values, of gate and up."""


@pytest.mark.sampled(10)
@pytest.mark.parametrize("plan", ALL, ids=id_of)
def test_sizes_that_do_not_agree_are_refused_by_every_plan(plan, tmp_path):
    source = source_of(plan, tmp_path)
    kinds = {k: leaves for k, leaves in kinds_of(source).items() if MUST_AGREE.fullmatch(k)}
    assert len(kinds) >= 3
    taken = []
    for kind, leaves in kinds.items():
        shape = leaves[0]["shape"]
        axis = 0 if kind.endswith("_proj.weight") else len(shape) - 1
        longer = f"{{op: resize, at: '{kind}', axis: {axis}, size: {2 * shape[axis]}, fill: zeros}}"
        if not is_refused(plan, source, tmp_path, f"  - {longer}\n"):
            taken.append(kind)
    assert taken == []
