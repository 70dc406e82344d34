"""What a pattern that names nothing is told can be pasted, and names what was meant."""

import re

import numpy as np
import orbax.checkpoint as ocp
import pytest

LEAF = np.ones((2, 2), np.float32)
TREE = {
    "params": {
        "enc/l0": {"w": LEAF, "b": LEAF},
        "enc/l1": {"w": LEAF, "b": LEAF},
        "x/y/z": {"w": LEAF},
        "layers_0": {"w": LEAF, "deep": {"w": LEAF}},
        "layers_1": {"w": LEAF},
    }
}


@pytest.mark.parametrize(
    ("typed", "better", "leaves"),
    [
        (r"re:params/layers_\d+", r"re:params/layers_\d+/.*", 3),
        (r"re:params/layers_\d+$", r"re:params/layers_\d+/.*", 3),
        (r"re:params/layers_\d+/", r"re:params/layers_\d+/.*", 3),
        ("params/enc*/w", "params/enc*/*/w", 2),
        ("params/e*/b", "params/e*/*/b", 2),
        ("params/x*/w", "params/x*/*/*/w", 1),
    ],
)
def test_the_pattern_that_was_meant_is_shown(surgery, tmp_path, typed, better, leaves):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", TREE)
    edit = ("rescale", tmp_path / "a", tmp_path / "b", "--by", "2", "--dry-run")
    refused = surgery(*edit, typed)
    assert refused.code == 2
    (shown,) = re.findall("write '([^']*)'", refused.err)
    assert shown == better
    assert f"{leaves} lea" in surgery(*edit, shown).out


@pytest.mark.parametrize("typed", ["re:params/nothing", "params/nothing*/w", "params/*/k"])
def test_nothing_is_shown_where_that_would_name_nothing_either(surgery, tmp_path, typed):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", TREE)
    refused = surgery("rescale", tmp_path / "a", tmp_path / "b", typed, "--by", "2")
    assert "write '" not in refused.err


def test_keys_with_the_separator_are_parted_by_what_the_refusal_says(surgery, tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "a", TREE)
    at = ("params", "--separator", "/")
    refused = surgery("flatten", tmp_path / "a", tmp_path / "b", *at)
    assert refused.code == 2
    assert "`unflatten` with `--separator /` parts such keys first" in refused.err
    assert surgery("unflatten", tmp_path / "a", tmp_path / "parted", *at).code == 0
    assert surgery("flatten", tmp_path / "parted", tmp_path / "b", *at).code == 0
    with ocp.PyTreeCheckpointer() as checkpointer:
        assert "x/y/z/w" in checkpointer.restore(tmp_path / "b")["params"]


@pytest.mark.parametrize(
    ("edit", "is_said"),
    [
        (("rescale", "--by", "2"), True),
        (("reinit", "--init", "zeros"), True),
        (("transpose",), False),
        (("cast", "--to", "bfloat16"), False),
    ],
)
def test_a_slot_edited_by_name_beside_one_that_follows_is_said(surgery, tmp_path, edit, is_said):
    import optax

    params = {"w": LEAF}
    with ocp.PyTreeCheckpointer() as checkpointer:
        state = optax.adam(1e-3).init(params)
        checkpointer.save(tmp_path / "a", {"params": params, "opt_state": state})
    name, *words = edit
    at = ("params/w", "opt_state/0/mu/w", "--twins", "named", "--optimizer-kind", "adam")
    done = surgery(name, tmp_path / "a", tmp_path / "b", *at, *words, "--json")
    assert done.code == 0, done.err
    said = [note for note in done.document["notes"] if "is edited as named" in note]
    assert bool(said) == is_said
    assert all("'opt_state/0/nu' follows the params" in note for note in said)
