"""What is said beside the edits, and refuses their result, costs no work: with `--resume` the same edits go on."""

import json
import shlex

import numpy as np
import orbax.checkpoint as ocp
import pytest

from tests.buckets.test_destinations import downloaded
from tests.store.cutting import Runs

TREE = {"params": {name: np.arange(1, 5, dtype=np.float32) for name in "abcd"}}
TREE["params"]["huge"] = np.full(4, 3e38, np.float32)
MODEL = """
import jax.numpy as jnp
from flax import linen as nn


class Model(nn.Module):
    @nn.compact
    def __call__(self, x):
        return x * self.param("a", nn.initializers.ones, (4,))
"""
EDIT = "edits:\n- {{op: rescale, at: '{at}', by: {by}, optimizer: keep}}\n"
RULE = "- {op: assert, at: 'params/[a-d]', absmax: 0..%s}\n"
POLICY = "check: policy.yaml\n"


@pytest.fixture(scope="module")
def run(google, amazon):
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


@pytest.fixture(params=["disk", "gs", "s3"])
def place(request, tmp_path):
    """Where the result goes: its name, what is kept beside it, and a copy of it on this disk."""
    if request.param == "disk":
        names = lambda: [path.name for path in tmp_path.iterdir() if "surgery-tmp" in path.name]  # noqa: E731
        return str(tmp_path / "new"), names, lambda: tmp_path / "new"
    service = request.getfixturevalue("bucket" if request.param == "gs" else "s3")
    names = lambda: [name for name in service.names() if "surgery-tmp" in name]  # noqa: E731
    return f"{service.root}/new", names, lambda: downloaded(service, "new", tmp_path / "down")


REFUSED = {
    "a rule": (EDIT.format(at="params/[a-d]", by=2) + RULE % 1, EDIT.format(at="params/[a-d]", by=2) + RULE % "4e38"),
    "a policy": (EDIT.format(at="params/[a-d]", by=2) + POLICY, EDIT.format(at="params/[a-d]", by=2)),
    "the probe": (EDIT.format(at="params/[a-d]", by=2),) * 2,
    "not finite": (EDIT.format(at="params/*", by=2),) * 2,
}  # fmt: skip


@pytest.mark.sampled(5)
@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused_is_gone_on_from_once_nothing_refuses_it(run, place, tmp_path, why):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", TREE)
    (tmp_path / "policy.yaml").write_text("rules: [{id: small, at: params/a, absmax: 0..1}]\n")
    (tmp_path / "model.py").write_text(MODEL)
    new, kept, copy = place
    plan = tmp_path / "plan.yaml"
    words = ["apply", tmp_path / "ck", new, plan, "--quiet", "--resume"]
    probe = ["--probe", f"{tmp_path / 'model.py'}:Model", "--input", "x=float32[4]=1"]
    more, then = {
        "the probe": ([*probe, "--tolerance", "1e-3"], [*probe, "--tolerance", "10"]),
        "not finite": ([], ["--allow-non-finite"]),
    }.get(why, ([], []))
    plan.write_text(REFUSED[why][0])
    for _ in range(2):  # the second goes on from there, to the same end
        ended = run(*words, *more)
        assert ended["code"] == 1, ended
        assert "goes on from there once nothing refuses it" in ended["said"]
        assert f"`surgery clean {shlex.quote(new)}` removes it" in ended["said"]
        assert kept()
    plan.write_text(REFUSED[why][1])
    passed = run(*words, *then, "--json")
    assert passed["code"] == 0, passed
    taken_up = json.loads(passed["said"])["taken_up_bytes"]
    assert taken_up >= 4 * 16 or (why == "not finite" and taken_up)
    assert kept() == []
    with ocp.PyTreeCheckpointer() as checkpointer:
        restored = checkpointer.restore(copy())
    for name, values in TREE["params"].items():
        by = np.float32(2 if name != "huge" or why == "not finite" else 1)
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(restored["params"][name], values * by)


@pytest.mark.parametrize("why", ["a rule", "no resume", "the edit"])
def test_it_can_be_removed_and_without_resume_or_by_the_edit_itself_nothing_is_kept(
    run, place, tmp_path, why
):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "ck", TREE)
    new, kept, _ = place
    plan = tmp_path / "plan.yaml"
    cast = "edits:\n- {op: cast, at: 'params/*', to: float16}\n"
    plan.write_text(cast if why == "the edit" else REFUSED["a rule"][0])
    words = ["apply", tmp_path / "ck", new, plan, "--quiet"]
    ended = run(*words, *["--resume"] * (why != "no resume"))
    assert ended["code"] == 1, ended
    assert bool(kept()) == (why == "a rule")
    assert run("clean", new, "--quiet")["code"] == 0
    assert kept() == []
