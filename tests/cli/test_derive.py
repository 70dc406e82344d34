"""`surgery derive`: its plan makes of A what B is, or says what is open and is refused until that is closed."""

import json
import os

import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import save_file

from surgery_cli import surgery as api
from surgery_cli.errors import PlanError
from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.pairing import paired
from surgery_cli.matching.vocabulary import FUSED
from surgery_cli.planning import plan_from_document
from surgery_cli.store.files.npy_arrays import array_spec
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.conversions.routes import applied as conversion
from tests.conversions.test_logits import CASES, source
from tests.matching.public_models import TORCH, conversions
from tests.matching.random_trees import Trial, leaf_pairs

CONVERSIONS = conversions()


def nested(flat):
    tree = {}
    for name, values in flat.items():
        *above, last = name.split("/")
        node = tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = values
    return tree


def saved(path, flat):
    ocp.PyTreeCheckpointer().save(path, nested(flat))
    return path


def drawn(shapes, seed=0):
    draw = np.random.default_rng(seed)
    return {name: draw.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def both(tmp_path):
    """A model as PyTorch has it and as JAX has it, with the same values."""

    def made(name, **changed):
        known = CONVERSIONS[name]
        old = drawn(TORCH[known.model])
        save_file(old, tmp_path / "torch.safetensors")
        new = known.values(old) | {
            key: value for key, value in changed.items() if value is not None
        }
        return tmp_path / "torch.safetensors", saved(tmp_path / "jax", new)

    return made


def applied(surgery, tmp_path, a, *words):
    """The result of the plan that `derive` prints, applied as it stands; and what `derive` said."""
    derived = surgery("derive", a, *words)
    tmp_path.mkdir(exist_ok=True)
    plan = tmp_path / "there.yaml"
    plan.write_text(derived.out)
    return derived, surgery("apply", a, tmp_path / "new", plan)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
@pytest.mark.parametrize("name", ["llama-maxtext-scanned", "vit-big-vision"])
def test_the_plan_makes_of_one_model_the_other_value_by_value(surgery, tmp_path, both, name, back):
    a, b = both(name)[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path, a, b)
    assert (derived.code, result.code) == (0, 0), result.err
    assert "0 likely, 0 gaps" in derived.err
    assert surgery("diff", tmp_path / "new", b).code == 0


def test_without_values_the_plan_makes_the_tree_and_calls_nothing_sure_that_shapes_leave_open(
    surgery, tmp_path, both
):
    a, b = both("llama-flax")
    derived, result = applied(surgery, tmp_path, a, b, "--no-values")
    assert (derived.code, result.code) == (0, 0)
    assert "no values read" in derived.err
    assert surgery("diff", tmp_path / "new", b, "--structure").code == 0
    document = surgery("derive", a, b, "--no-values", "--json").document
    assert document["bytes_read"] == 0
    square = [pair for pair in document["pairs"] if "q_proj" in pair["from"]]
    assert [pair["certainty"] for pair in square] == ["likely"]


def test_layers_are_one_pair_and_one_line_of_the_plan(surgery, both):
    document = surgery("derive", *both("llama-flax"), "--json").document
    (pair,) = [pair for pair in document["pairs"] if "up_proj" in pair["from"]]
    assert pair == {
        "from": "model.layers.{0..2}.mlp.up_proj.weight",
        "to": "params/model/layers/{0..2}/mlp/up_proj/kernel",
        "leaves": 3,
        "operations": ["transpose [1, 0]"],
        "certainty": "sure",
        "why": ["its values are the same, bit by bit"],
    }
    assert "params/model/layers/\\1/mlp/up_proj/kernel" in json.dumps(document["plan"]).replace(
        "\\\\", "\\"
    )


def test_a_leaf_without_a_place_is_a_gap_and_the_plan_is_refused_until_it_is_closed(
    surgery, tmp_path, both
):
    derived, result = applied(surgery, tmp_path, *both("gpt2-flax"))
    assert derived.code == 1
    assert "gap: lm_head.weight has no place in B" in derived.err
    assert result.code == 2
    assert "lm_head.weight" in result.err
    plan = tmp_path / "there.yaml"
    closed = plan.read_text().split("  # gap")[0] + "  - {op: delete, at: lm_head.weight}\n"
    plan.write_text(closed)
    assert surgery("apply", tmp_path / "torch.safetensors", tmp_path / "new", plan).code == 0
    assert surgery("diff", tmp_path / "new", tmp_path / "jax").code == 0


def test_a_leaf_without_a_source_is_a_gap(surgery, tmp_path, both):
    a, b = both("gpt2-flax", **{"adapter/w_new": np.ones((7, 5), np.float32)})
    derived, result = applied(surgery, tmp_path, a, b)
    assert (derived.code, result.code) == (1, 2)
    assert (
        "gap: adapter (1 leaf) has no source in A" in derived.err or "gap: adapter" in derived.err
    )


def test_what_is_open_alike_in_all_layers_is_one_gap_that_holds_until_each_is_closed(
    surgery, tmp_path
):
    here, there = {}, {}
    for layer in range(24):
        node = f"params/layer_{layer}"
        here |= {f"{node}/w": (3,), f"{node}/left": (2, 5)}
        there |= {f"{node}/w": (3,), f"{node}/more/x": (7,), f"{node}/more/y": (7,)}
    a, b = saved(tmp_path / "a", drawn(here)), saved(tmp_path / "b", drawn(there))
    derived = surgery("derive", a, b, "--no-values")
    assert derived.code == 1
    gaps = [line.strip() for line in derived.err.splitlines() if "gap: " in line]
    assert [gap.partition(";")[0] for gap in gaps] == [
        "gap: params/layer_{0..23}/left (24 nodes) has no place in B",
        "gap: params/layer_{0..23}/more (24 nodes, 2 leaves each) has no source in A",
    ]
    plan = tmp_path / "plan.yaml"
    edits = r"""
  - {op: delete, at: 'params/layer_{LAYERS}/left'}
  - {op: copy, at: 'params/layer_{LAYERS}/w', to: 'params/layer_\1/more/x'}
  - {op: copy, at: 'params/layer_{LAYERS}/w', to: 'params/layer_\1/more/y'}
"""
    for layers, code in (("0..22", 2), ("0..23", 0)):
        own = edits.replace("LAYERS", layers)
        plan.write_text(derived.out.replace("edits:\n", f"edits:{own}"))
        planned = surgery("plan", a, plan)
        assert planned.code == code, planned.err
        if code:
            assert "there must be none" in planned.err
            assert "there must be 24, and there are 23 nodes" in planned.err


def test_leaves_that_are_paired_by_name_and_hold_something_else_are_gaps(surgery, tmp_path, both):
    """A leaf that was trained since, or computed, has the shape and the name, and would be silently wrong."""
    known = CONVERSIONS["gemma-flax"]
    values = known.values(drawn(TORCH["gemma"]))
    norm = "params/model/norm/weight"
    derived, result = applied(surgery, tmp_path, *both("gemma-flax", **{norm: values[norm] ** 2}))
    assert (derived.code, result.code) == (1, 2)
    assert f"gap: {norm} (float32[64]) has other values in B" in derived.err


def test_tied_leaves_are_copied_or_dropped_where_their_values_are_the_same(surgery, tmp_path):
    old = {"embed/embedding": drawn({"e": (9, 4)})["e"]}
    new = {**old, "head/kernel": np.ascontiguousarray(old["embed/embedding"].T)}
    one, two = saved(tmp_path / "one", old), saved(tmp_path / "two", new)
    for a, b in ((one, two), (two, one)):
        plan = tmp_path / "plan.yaml"
        derived = surgery("derive", a, b)
        plan.write_text(derived.out)
        made = tmp_path / f"made_{a.name}"
        assert derived.code == 0
        assert surgery("apply", a, made, plan).code == 0
        assert surgery("diff", made, b).code == 0


def test_values_that_have_nothing_in_common_are_not_read_to_the_end_and_it_is_said(
    surgery, tmp_path, both
):
    a, _ = both("llama-flax")
    known = CONVERSIONS["llama-flax"]
    b = saved(tmp_path / "other", known.values(drawn(TORCH["llama"], seed=1)))
    derived, result = applied(surgery, tmp_path, a, b)
    assert (derived.code, result.code) == (0, 0)
    assert "which have nothing in common" in derived.err
    assert surgery("diff", tmp_path / "new", b, "--structure").code == 0


def test_a_tree_that_is_there_already_needs_no_plan(surgery, tmp_path):
    a = saved(tmp_path / "a", drawn({"params/w": (3, 4), "params/b": (4,)}))
    derived = surgery("derive", a, a)
    assert derived.code == 0
    assert "edits: []" in derived.out
    assert "nothing to do" in derived.err


@pytest.fixture
def fused(tmp_path):
    """One projection to queries, keys and values here, three with heads there; gate and up alike."""
    draw = np.random.default_rng(0)
    old, new = {}, {}
    for n in range(2):
        q, k, v, gate, up = (
            draw.standard_normal((size, 32)).astype(np.float32) for size in (32, 16, 16, 80, 80)
        )
        old[f"model.layers.{n}.self_attn.qkv_proj.weight"] = np.concatenate([q, k, v])
        old[f"model.layers.{n}.mlp.gate_up_proj.weight"] = np.concatenate([gate, up])
        for name, values in (("query", q), ("key", k), ("value", v)):
            new[f"params/layers_{n}/attention/{name}/kernel"] = values.T.reshape(32, -1, 8)
        new[f"params/layers_{n}/mlp/gate/kernel"] = gate.T
        new[f"params/layers_{n}/mlp/up/kernel"] = up.T
    save_file(old, tmp_path / "fused.safetensors")
    new = {name: np.ascontiguousarray(values) for name, values in new.items()}
    return tmp_path / "fused.safetensors", saved(tmp_path / "parts", new)


@pytest.mark.parametrize("values", ["--values", "--no-values"])
@pytest.mark.parametrize("back", [False, True], ids=["split", "concat"])
def test_fused_projections_are_cut_and_put_together(surgery, tmp_path, fused, back, values):
    a, b = fused[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path, a, b, values)
    assert (derived.code, result.code) == (0, 0), result.err
    assert surgery("diff", tmp_path / "new", b).code == 0
    pairs = surgery("derive", a, b, values, "--json").document["pairs"]
    expected = "sure" if values == "--values" else "likely"
    assert {pair["certainty"] for pair in pairs} == {expected}


def test_a_fused_leaf_whose_parts_cannot_be_found_is_a_gap(surgery, tmp_path):
    """Its axis of two, for keys and values, is as long as the one of the heads: shapes tell which is cut by nothing."""
    draw = np.random.default_rng(0)
    old, new = {}, []
    for n in range(3):
        parts = [draw.standard_normal((24, 2, 6)).astype(np.float32) for _ in range(2)]
        for name, values in zip("kv", parts, strict=True):
            torch = np.ascontiguousarray(values.reshape(24, 12).T)
            old[f"model.layers.{n}.self_attn.{name}_proj.weight"] = torch
        new.append(np.stack(parts, 1))
    old["model.embed_tokens.weight"] = same = draw.standard_normal((50, 24)).astype(np.float32)
    save_file(old, tmp_path / "parts.safetensors")
    fused = {"params/embed/embedding": same, "params/trunk/wkv/kernel": np.stack(new, 1)}
    whole = saved(tmp_path / "whole", fused)
    derived = surgery("derive", tmp_path / "parts.safetensors", whole)
    assert derived.code == 1, derived.err
    assert "params/trunk/wkv/kernel" in derived.err


SOME = ("llama-linen", "llama_tied-maxtext", "phi3-linen", "gemma-maxtext")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_a_shipped_conversion_makes_is_found_by_values_whatever_it_computes(
    surgery, tmp_path, request, case
):
    """Rotary halves, norms that are offsets, scaled queries and embeddings among it."""
    is_every = request.config.getoption("--every-combination")
    if not is_every and str(case) not in SOME:
        pytest.skip("one of each sort is tried; --every-combination tries them all")
    here = source(case.fixture)
    plan = f"{case.family}/hf-to-{case.route}.yaml"
    there = conversion(here, tmp_path / "there", plan, **case.there)
    for n, (a, b) in enumerate([(here, there), (there, here)][: 2 if is_every else 1]):
        derived, result = applied(surgery, tmp_path / str(n), a, b)
        assert (derived.code, result.code) == (0, 0), result.err
        assert "0 likely, 0 gaps" in derived.err
        assert surgery("diff", tmp_path / str(n) / "new", b).code == 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_names_and_shapes_alone_pair_what_a_shipped_conversion_pairs(tmp_path, case):
    """At least nine of ten leaves, and none otherwise than values do."""
    here = source(case.fixture)
    plan = f"{case.family}/hf-to-{case.route}.yaml"
    there = conversion(here, tmp_path / "there", plan, **case.there)
    old, new = open_checkpoint(str(here)), open_checkpoint(str(there))
    known = paired(old.tree, new.tree, Holdings((old.tree, old), (new.tree, new), 1 << 28))
    assert {pair.certainty for pair in known.pairs} == {"sure"}
    truth = set().union(*map(leaf_pairs, known.pairs))
    for sides in ((old.tree, new.tree), (new.tree, old.tree)):
        found = set().union(*map(leaf_pairs, paired(*sides).pairs))
        assert not found - truth
        assert len(found) >= 0.9 * len(truth)
        truth = {(b, a) for a, b in truth}


def test_without_values_it_is_said_that_rotary_halves_are_not_seen(surgery, both):
    found = surgery("derive", *both("llama-flax"), "--no-values", "--json").document
    assert any("halves of query and key" in note for note in found["notes"])


@pytest.mark.parametrize("seed", range(int(os.environ.get("DERIVED_PLANS", "8"))))
def test_a_plan_for_random_trees_makes_the_tree_that_there_is_or_is_refused(tmp_path, seed):
    """What is called whole is whole; what is sure has the values of B."""
    trial = Trial(seed)
    a, b = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_file(trial.old, a)
    save_file(trial.new, b)
    found = api.derive(str(a), str(b), values=True)
    plan = plan_from_document(found.plan)
    if found.gaps:
        with pytest.raises(PlanError):
            api.plan(str(a), plan)
        return
    api.apply(str(a), str(tmp_path / "new"), plan)
    left = api.diff(str(tmp_path / "new"), str(b))
    assert (left.only_in_a, left.only_in_b, left.changed) == ([], [], [])


def test_dtypes_are_cast(surgery, tmp_path):
    values = drawn({"a/kernel": (6, 4), "b/kernel": (3, 5)})
    a = saved(tmp_path / "a", values)
    b = saved(tmp_path / "b", {f"net/{k}": v.astype(np.float16) for k, v in values.items()})
    derived, result = applied(surgery, tmp_path, a, b)
    assert (derived.code, result.code) == (0, 0), result.err
    assert surgery("diff", tmp_path / "new", b).code == 0


def test_one_tree_to_go_to_is_named(surgery, tmp_path):
    a = saved(tmp_path / "a", drawn({"w": (3, 4)}))
    assert surgery("derive", a).code == 2
    assert surgery("derive", a, a, "--like-init", "train.py:made").code == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("beside", ["nothing", "the same", "another"])
@pytest.mark.parametrize("order", ["qkv", "kqv", "vkq"])
def test_fused_leaves_in_any_order_are_found_by_values_or_left_open(
    surgery, tmp_path, order, beside
):
    """No leaf of the one side is one of the other before they are taken apart: that is no sign of other values."""
    parts = drawn(dict.fromkeys("qkv", (8, 8)))
    gate, up = drawn({"g": (12, 8), "u": (12, 8)}, seed=1).values()
    old = {
        "attn.qkv.weight": np.concatenate([parts[name] for name in order]),
        "mlp.gate_up_proj.weight": np.concatenate([up, gate]),
    }
    new = {f"attn/{name}/kernel": part.T for name, part in parts.items()}
    new |= {"mlp/gate/kernel": gate.T, "mlp/up/kernel": up.T}
    if beside != "nothing":
        embedding = drawn({"e": (20, 8)}, seed=2)["e"]
        old["emb.weight"] = embedding
        new["emb/embedding"] = embedding + (beside == "another")
    save_file(old, tmp_path / "a.safetensors")
    b = saved(tmp_path / "b", new)
    derived = surgery("derive", tmp_path / "a.safetensors", b)
    assert derived.code == 0, derived.err
    (tmp_path / "plan.yaml").write_text(derived.out)
    assert (
        surgery("apply", tmp_path / "a.safetensors", tmp_path / "c", tmp_path / "plan.yaml").code
        == 0
    )
    assert surgery("diff", tmp_path / "c", b).code == 0
    told = json.loads(surgery("derive", tmp_path / "a.safetensors", b, "--json").out)
    sure = {pair["to"] for pair in told["pairs"] if pair["certainty"] == "sure"}
    assert sure >= {f"attn/{name}/kernel" for name in "qkv"} | {"mlp/gate/kernel", "mlp/up/kernel"}


NAMED_AS_ONE = [(one, names) for names in FUSED.values() for one in names]


@pytest.mark.sampled(2)
@pytest.mark.covers(1)
@pytest.mark.parametrize("back", [False, True], ids=["split", "concat"])
@pytest.mark.parametrize(("one", "names"), NAMED_AS_ONE, ids=str)
def test_a_fused_leaf_that_is_named_as_one_of_its_parts_is_cut_by_values_or_a_gap(
    surgery, tmp_path, one, names, back
):
    """As `wi` is, which T5 has for the one kernel before the activation, and others for gate and up in one."""
    whole, parts, others = {}, {}, {}
    for n in range(2):
        kernels = drawn(dict.fromkeys(names, (16, 24)), seed=n)
        below = f"layers_{n}/block"
        in_order = list(kernels.values())[::-1]
        whole[f"{below}/{one}/kernel"] = np.concatenate(in_order, 1)
        whole[f"{below}/{one}/bias"] = np.zeros(24 * len(names), np.float32)
        parts |= {f"{below}/{name}/kernel": kernel for name, kernel in kernels.items()}
        parts |= {f"{below}/{name}/bias": np.zeros(24, np.float32) for name in names}
    others = {name: values + 1 for name, values in parts.items()}
    a, b, c = (saved(tmp_path / k, v) for k, v in zip("abc", (whole, parts, others), strict=True))
    a, b, c = (b, a, a) if back else (a, b, c)

    derived, result = applied(surgery, tmp_path / "there", a, b)
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert surgery("diff", tmp_path / "there" / "new", b).code == 0
    told = surgery("derive", a, b, "--json").document
    assert {p["certainty"] for p in told["pairs"] if p["to"].endswith("kernel")} == {"sure"}

    other = saved(tmp_path / "others", others) if back else a
    for words in ((a, b, "--no-values"), (other, c, "--values")):
        told = surgery("derive", *words, "--json")
        assert told.code == 1
        assert {pair["to"] for pair in told.document["pairs"]} == set()


def test_values_in_another_order_are_values_in_common(surgery, tmp_path):
    values = drawn({"w": (6, 4)})["w"]
    save_file({"w": values}, tmp_path / "a.safetensors")
    shuffled = np.random.default_rng(1).permutation(values.reshape(-1)).reshape(6, 4)
    b = saved(tmp_path / "b", {"head/w": shuffled})
    derived = surgery("derive", tmp_path / "a.safetensors", b)
    assert derived.code == 1
    assert "nothing in common" not in derived.err


def test_a_pair_that_is_the_last_of_its_shape_is_not_called_the_only_one(surgery, tmp_path):
    values = drawn({"encoder/kernel": (6, 4), "decoder/kernel": (6, 4), "head/bias": (5,)})
    trained = {**values, "decoder/kernel": drawn({"w": (6, 4)}, 1)["w"]}
    a = saved(tmp_path / "a", {f"params/{name}": value for name, value in values.items()})
    b = saved(tmp_path / "b", {f"model/{name}": value for name, value in trained.items()})
    told = json.loads(surgery("derive", a, b, "--json").out)
    why = {pair["to"]: ", ".join(pair["why"]) for pair in told["pairs"]}
    assert "the only one left" in why["model/decoder/kernel"]
    assert not any("no other has" in reason for reason in why.values())


def test_a_gap_names_what_may_be_it_but_for_the_length_of_an_axis(surgery, tmp_path):
    values = drawn({"wte.weight": (57, 8), "lm_head.weight": (57, 8), "h.fc.weight": (8, 12)})
    save_file(values, tmp_path / "a.safetensors")
    other = drawn({"embed": (64, 8)}, 1)["embed"]
    wanted = {"embed/embedding": other, "fc/kernel": values["h.fc.weight"], "odd": np.ones(3)}
    told = json.loads(
        surgery("derive", tmp_path / "a.safetensors", saved(tmp_path / "b", wanted), "--json").out
    )
    perhaps = {gap["path"]: " ".join(gap.get("perhaps", [])) for gap in told["gaps"]}
    assert (
        "wte.weight (57 places of an axis there, 64 here: `resize`)" in perhaps["embed/embedding"]
    )
    assert perhaps["odd"] == ""
    assert "embed/embedding" not in {pair["to"] for pair in told["pairs"]}


@pytest.mark.parametrize("number", [0, 0.5])
@pytest.mark.parametrize("back", [False, True], ids=["padded", "cut"])
def test_a_vocabulary_that_is_padded_is_proved_and_its_plan_makes_it_value_by_value(
    surgery, tmp_path, back, number
):
    old = drawn({"wte.weight": (57, 8), "lm_head.weight": (57, 8), "h.fc.weight": (8, 12)})
    more = np.full((7, 8), number, np.float32)
    new = {
        "embed/embedding": np.concatenate([old["wte.weight"], more]),
        "head/kernel": np.ascontiguousarray(np.concatenate([old["lm_head.weight"], more]).T),
        "fc/kernel": old["h.fc.weight"],
    }
    sides = [saved(tmp_path / "one", old), saved(tmp_path / "two", new)]
    a, b = sides[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path / "plans", a, b)
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert "3 leaves sure, 0 likely, 0 gaps" in derived.err
    assert ("without the last 7 places" if back else "in the last 7 places") in derived.out
    assert surgery("diff", tmp_path / "plans" / "new", b).code == 0


def test_rows_that_only_b_has_are_a_gap_and_the_others_are_proved(surgery, tmp_path):
    old = drawn({"wte": (57, 8), "fc": (8, 12)})
    more = drawn({"more": (7, 8)}, 1)["more"]
    a, b = (
        saved(tmp_path / name, values)
        for name, values in (("a", old), ("b", {**old, "wte": np.concatenate([old["wte"], more])}))
    )
    derived, result = applied(surgery, tmp_path / "plans", a, b)
    assert (derived.code, result.code) == (1, 2)
    assert "the last 7 places of axis 0 hold what A has not" in derived.err
    plan = tmp_path / "plans" / "there.yaml"
    plan.write_text(plan.read_text().split("  # gap")[0])
    assert surgery("apply", a, tmp_path / "plans" / "new", plan).code == 0
    made = ocp.PyTreeCheckpointer().restore(tmp_path / "plans" / "new")
    np.testing.assert_array_equal(made["wte"][:57], old["wte"])
    assert made["wte"].shape == (64, 8)


def test_so_few_values_as_may_be_the_same_by_chance_are_no_proof_of_a_longer_axis(
    surgery, tmp_path
):
    few = np.array([0, 1, 2, 0, 1, 2], np.float32)
    a = saved(tmp_path / "a", {"x/bias": few, "w": np.arange(40, dtype=np.float32)})
    b = saved(tmp_path / "b", {"y/bias": np.append(few, few), "w": np.arange(40, dtype=np.float32)})
    told = surgery("derive", a, b, "--json").document
    assert not [pair for pair in told["pairs"] if "bias" in pair["from"]]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("back", [False, True], ids=["stack", "unstack"])
def test_layers_that_are_stacked_in_another_order_are_found_by_their_values(
    surgery, tmp_path, back, axis
):
    old = drawn({f"layers_{n}/{name}": (6, 4) for n in range(4) for name in ("w", "v")})
    order = (2, 0, 3, 1)
    new = {
        f"layers/{name}": np.stack([old[f"layers_{n}/{name}"].T for n in order], axis)
        for name in ("w", "v")
    }
    sides = [saved(tmp_path / "one", old), saved(tmp_path / "two", new)]
    a, b = sides[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path / "plans", a, b)
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert "layers_{2,0,3,1}/w" in derived.out
    assert "in another order" in derived.out
    assert surgery("diff", tmp_path / "plans" / "new", b).code == 0


@pytest.mark.parametrize("back", [False, True], ids=["stack", "unstack"])
def test_a_stack_in_an_order_that_nothing_explains_is_a_gap_with_its_path_and_what_was_tried(
    surgery, tmp_path, back
):
    old = drawn({f"layers_{n}/w": (6, 4) for n in range(4)} | {"head": (5, 3)})
    mixed = np.random.default_rng(1).permutation(
        np.concatenate([old[f"layers_{n}/w"].reshape(-1) for n in range(4)])
    )
    sides = [
        saved(tmp_path / "one", old),
        saved(tmp_path / "two", {"layers/w": mixed.reshape(4, 6, 4), "head": old["head"]}),
    ]
    a, b = sides[:: -1 if back else 1]
    told = surgery("derive", a, b, "--json").document
    gaps = {(gap["side"], gap["path"]): " ".join(gap.get("perhaps", [])) for gap in told["gaps"]}
    side = "a" if back else "b"
    assert "layers_{0..3}/w" in gaps[side, "layers/w"]
    assert "stack on axis 0" in gaps[side, "layers/w"] or "unstack axis 0" in gaps[side, "layers/w"]
    assert "layers in every order" in gaps[side, "layers/w"]


def test_a_renamed_subtree_goes_as_a_whole_with_what_is_empty_in_it(surgery, tmp_path):
    """No name says the same, and no value is: of its structure there is no other."""
    layer = drawn({"w": (3, 4), "v": (3, 4)})
    a, b = tmp_path / "a", tmp_path / "b"
    other = drawn({"k": (4, 4)}, 1)
    ocp.PyTreeCheckpointer().save(a, {"params": {"a": {**layer, "none": None}, "o": other}})
    trained = {name: 3 * values for name, values in layer.items()}
    ocp.PyTreeCheckpointer().save(b, {"params": {"x": {**trained, "none": None}, "o": other}})
    derived, result = applied(surgery, tmp_path / "plans", a, b, "--no-values")
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert "at: params/a\n    to: params/x" in derived.out
    assert (
        "likely: params/a/w → params/x/w: no other on either side has its structure" in derived.out
    )
    assert surgery("diff", tmp_path / "plans" / "new", b, "--structure").code == 0


@pytest.mark.parametrize("back", [False, True], ids=["to a list", "to a dict"])
def test_a_list_is_made_where_there_is_one_and_a_dict_where_there_is_none(surgery, tmp_path, back):
    """They print alike, and a restore takes neither for the other."""
    layers = [drawn({"w": (3, 4), "b": (4,)}, seed) for seed in range(3)]
    both = {
        "head": drawn({"k": (2, 2)}, 9),
        "outer": {"x": {"0": {"e": drawn({"w": (5, 5)})["w"]}}},
    }
    sides = tmp_path / "one", tmp_path / "two"
    ocp.PyTreeCheckpointer().save(
        sides[0], {"params": {**both, **{f"l{n}": one for n, one in enumerate(layers)}}}
    )
    ocp.PyTreeCheckpointer().save(sides[1], {"params": {**both, "l": [*layers]}})
    a, b = sides[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path / "plans", a, b)
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert surgery("diff", tmp_path / "plans" / "new", b).code == 0


def test_a_list_that_is_a_dict_in_b_under_the_same_name_is_made_one(surgery, tmp_path):
    layers = [drawn({"w": (3, 4), "b": (4,)}, seed) for seed in range(2)]
    a, b = tmp_path / "a", tmp_path / "b"
    ocp.PyTreeCheckpointer().save(a, {"params": {"l": [*layers]}})
    ocp.PyTreeCheckpointer().save(b, {"params": {"l": dict(zip("01", layers, strict=True))}})
    for here, there, operation in ((a, b, "to-dict"), (b, a, "to-list")):
        derived, result = applied(surgery, tmp_path / operation, here, there)
        assert (derived.code, result.code) == (0, 0), derived.err + result.err
        assert f"op: {operation}" in derived.out
        assert surgery("diff", tmp_path / operation / "new", there).code == 0


def test_leaves_without_elements_are_paired(surgery, tmp_path):
    empty = np.zeros((0, 4), np.float32)
    save_file({"m.a.w": drawn({"w": (3, 4)})["w"], "m.a.z": empty}, tmp_path / "a.safetensors")
    save_file({"n.b.w": drawn({"w": (3, 4)})["w"], "n.b.z": empty}, tmp_path / "b.safetensors")
    derived, result = applied(
        surgery, tmp_path / "plans", tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    )
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert surgery("diff", tmp_path / "plans" / "new", tmp_path / "b.safetensors").code == 0


def test_the_record_of_earlier_edits_tells_equal_layers_apart(surgery, tmp_path):
    layer = drawn({"w": (4, 4), "b": (4,)})
    a = tmp_path / "a"
    ocp.PyTreeCheckpointer().save(a, {"params": {"a": layer, "b": layer}})
    moves = ["--move", "params/a=params/y", "--move", "params/b=params/x"]
    assert surgery("rename", a, tmp_path / "new", *moves).code == 0
    derived = surgery("derive", tmp_path / "new", a, "--no-values")
    assert "sure: params/x/w → params/b/w: the record says that it stood there" in derived.out
    assert "sure: params/y/w → params/a/w: the record says that it stood there" in derived.out


@pytest.fixture
def layers_of_one_width(tmp_path):
    """Kernels and biases that are all of one width, and fused along an axis of their own, or side by side."""

    def made(*, is_stacked, zero_biases):
        draw = np.random.default_rng(0)
        old, new = {}, {}
        for n in range(2):
            for layer, fused, names in (
                ("self_attn", "attn/qkv", ("q", "k", "v")),
                ("mlp", "mlp/gate_up", ("gate", "up")),
            ):
                kernels = [draw.standard_normal((24, 24)).astype(np.float32) for _ in names]
                biases = [draw.standard_normal(24).astype(np.float32) for _ in names]
                biases = [0 * one for one in biases] if zero_biases else biases
                for name, kernel, bias in zip(names, kernels, biases, strict=True):
                    old[f"model.layers.{n}.{layer}.{name}_proj.weight"] = kernel
                    old[f"model.layers.{n}.{layer}.{name}_proj.bias"] = bias
                turned = [kernel.T for kernel in kernels]
                join = np.stack if is_stacked else np.concatenate
                new[f"params/layers_{n}/{fused}/kernel"] = join(turned, 1)
                new[f"params/layers_{n}/{fused}/bias"] = join(biases, 0)
        save_file(old, tmp_path / "a.safetensors")
        return tmp_path / "a.safetensors", saved(tmp_path / "b", new)

    return made


@pytest.mark.sampled(4)
@pytest.mark.parametrize("values", ["--values", "--no-values"])
@pytest.mark.parametrize("zero_biases", [False, True])
@pytest.mark.parametrize("is_stacked", [False, True], ids=["side by side", "stacked"])
@pytest.mark.parametrize("back", [False, True], ids=["concat", "split"])
def test_a_fused_kernel_and_its_bias_are_cut_along_one_axis(
    surgery, tmp_path, layers_of_one_width, back, is_stacked, zero_biases, values
):
    """Every axis of a square kernel could be the one, and what is zero everywhere proves none."""
    a, b = layers_of_one_width(is_stacked=is_stacked, zero_biases=zero_biases)[:: -1 if back else 1]
    derived, result = applied(surgery, tmp_path / "plans", a, b, values)
    assert (derived.code, result.code) == (0, 0), derived.err + result.err
    assert surgery("diff", tmp_path / "plans" / "new", b).code == 0


MLP = {"gate_proj": (48, 32), "up_proj": (48, 32), "down_proj": (32, 48)}


def test_kernels_of_one_module_whose_axes_would_be_in_two_orders_are_gaps(surgery, tmp_path):
    """`fc1`, `fc2` and `fc3` are gate, up and down here, and the vocabulary has `fc2` for down: its shape fits."""
    here = {f"layers.{n}.mlp.{name}.weight": MLP[name] for n in range(3) for name in MLP}
    there = dict(zip(("fc1", "fc2", "fc3"), MLP.values(), strict=True))
    new = {f"layers_{n}/mlp/{fc}/kernel": there[fc][::-1] for n in range(3) for fc in there}
    save_file(drawn(here), tmp_path / "a.safetensors")
    b = saved(tmp_path / "b", drawn(new, seed=1))
    derived = surgery("derive", tmp_path / "a.safetensors", b, "--json")
    assert derived.code == 1
    assert derived.document["pairs"] == []
    assert {gap["path"] for gap in derived.document["gaps"]} >= {
        f"layers.{{0..2}}.mlp.{name}.weight" for name in MLP
    }
    said = surgery("derive", tmp_path / "a.safetensors", b).err
    assert "its axes, or those of what stands beside it, would be in another order" in said
    same = saved(
        tmp_path / "c", {f"x/{name.replace('.', '/')}": drawn(here)[name].T for name in here}
    )
    proved = surgery("derive", tmp_path / "a.safetensors", same)  # values tell
    assert (proved.code, "9 leaves sure, 0 likely, 0 gaps" in proved.err) == (0, True)


def test_a_pair_by_values_that_contradicts_names_is_said(surgery, tmp_path):
    old = drawn({f"layers.{n}.attn.{name}.weight": (8, 6) for n in (0, 1) for name in "qkv"})
    save_file(old, tmp_path / "a.safetensors")
    crossed = {"q": "k", "k": "q", "v": "v"}
    for name, swap in (("crossed", crossed), ("straight", dict.fromkeys("qkv"))):
        new = {
            f"layers_{n}/attn/{swap[part] or part}/kernel": old[f"layers.{n}.attn.{part}.weight"].T
            for n in (0, 1)
            for part in "qkv"
        }
        derived = surgery("derive", tmp_path / "a.safetensors", saved(tmp_path / name, new))
        assert derived.code == 0
        said = [line for line in derived.err.splitlines() if "against the names" in line]
        if swap is crossed:
            (only,) = said
            assert "layers.{0..1}.attn.q.weight → layers_{0..1}/attn/k/kernel" in only
            assert "layers.{0..1}.attn.k.weight → layers_{0..1}/attn/q/kernel" in only
            assert "attn.v" not in only
        else:
            assert said == []
        assert "6 leaves sure" in derived.err


def test_it_is_said_of_which_others_axes_are_taken():
    """Of square kernels those of other names are meant, whose shapes decide; where all are square it is the custom."""
    wide = {"up.weight": (48, 32)}
    square = {"q_proj.weight": (32, 32), "k_proj.weight": (32, 32)}
    for shapes, wanted in (
        (
            wide | square,
            "its axes are taken as those of others, 'weight' to 'kernel', whose shapes decide them",
        ),
        (square, "its axes are taken as is the custom: its shape does not tell them"),
    ):
        olds = {LeafPath((name,)): array_spec(shape, "float32") for name, shape in shapes.items()}
        news = {
            LeafPath((name.removesuffix(".weight"), "kernel")): array_spec(shape[::-1], "float32")
            for name, shape in shapes.items()
        }
        why = {str(pair.old): pair.why for pair in paired(olds, news).pairs}
        assert wanted in why["q_proj.weight"]


def test_a_key_with_slashes_is_not_the_place_that_it_spells(surgery, tmp_path):
    """Exit code 0 says that the plan makes the tree of B: of a plan that is refused it was said, too."""
    leaf = np.arange(6, dtype=np.float32)
    np.savez(tmp_path / "flat.npz", **{"params/a/bias": leaf})
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "nested", {"params": {"a": {"bias": leaf}}})
    found = surgery("derive", tmp_path / "flat.npz", tmp_path / "nested")
    assert "0 gaps" not in found.err
    (tmp_path / "plan.yaml").write_text(found.out)
    planned = surgery("plan", tmp_path / "flat.npz", tmp_path / "plan.yaml")
    assert (found.code == 0) == (planned.code == 0)
