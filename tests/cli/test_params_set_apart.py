"""Of params that an optimizer leaves out it keeps empty places: no rule takes these for twins, and each is named."""

import json
from xml.etree import ElementTree as ET

import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from tests.cli.junit_schema import outcomes

PARAMS = {name: {"bias": jnp.ones(4), "kernel": jnp.ones((4, 4))} for name in "abc"}
EVERY = [f"params/{name}/{part}" for name in "abc" for part in ("bias", "kernel")]
OF_B = ["params/b/bias", "params/b/kernel"]
KERNELS_OF_B = {n: {"bias": True, "kernel": n != "b"} for n in PARAMS}
ADAM, PLAIN, MOMENTUM = optax.adam(0.1), optax.sgd(0.1), optax.sgd(0.1, momentum=0.9)
GROUPS = {name: {"bias": name, "kernel": name} for name in PARAMS}


def of_groups(**transforms):
    return optax.multi_transform(transforms, GROUPS)


# what optax keeps of each param: an array in any state, or `MaskedNode` in all
OPTIMIZERS = {
    "all of them": (ADAM, []),
    "one leaf masked": (optax.masked(ADAM, KERNELS_OF_B), ["params/b/kernel"]),
    "a node masked": (optax.masked(ADAM, {"a": True, "b": False, "c": True}), OF_B),
    "a group without slots": (of_groups(a=ADAM, b=PLAIN, c=MOMENTUM), OF_B),
    "a frozen group": (of_groups(a=ADAM, b=optax.set_to_zero(), c=ADAM), OF_B),
    "groups with slots": (of_groups(a=ADAM, b=MOMENTUM, c=ADAM), []),
    "masked in one of two": (
        optax.chain(optax.masked(optax.trace(0.9), KERNELS_OF_B), optax.scale_by_adam()),
        [],
    ),
    "masked in both": (
        optax.chain(optax.masked(optax.trace(0.9), KERNELS_OF_B), optax.masked(ADAM, KERNELS_OF_B)),
        ["params/b/kernel"],
    ),
}


@pytest.fixture
def saved(tmp_path):
    def save(optimizer, params=PARAMS):
        with ocp.PyTreeCheckpointer() as checkpointer:
            tree = {"params": params, "opt_state": optimizer.init(params)}
            checkpointer.save(tmp_path / "source", tree)
        return tmp_path / "source"

    return save


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.yaml"
    file.write_text("- {id: twins, at: params, optimizer_mirrors_params: true}\n")
    return file


def sentence(leaves):
    noun = "param" if len(leaves) == 1 else "params"
    names = ", ".join(f"'{leaf}'" for leaf in leaves)
    return f"{len(leaves)} {noun} of which the optimizer keeps nothing (masked): {names}"


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_params_of_which_nothing_is_kept_are_named_in_every_format(
    surgery, saved, policy, tmp_path, name
):
    optimizer, left_out = OPTIMIZERS[name]
    files = {kind: tmp_path / f"found.{kind}" for kind in ("json", "junit", "markdown")}
    outputs = [word for kind, to in files.items() for word in ("--output", f"{kind}={to}")]
    result = surgery("check", saved(optimizer), policy, *outputs, "--html", tmp_path / "page.html")
    assert result.code == 0
    (rule,) = json.loads(files["json"].read_text())["rules"]
    assert (rule["holds"], rule["leaves"]) == (True, len(EVERY))
    assert [leaf for one in rule.get("apart", []) for leaf in one["leaves"]] == left_out

    assert outcomes(files["junit"]) == {"twins": "passed"}
    said = {
        "text": " ".join(result.out.split()),
        "junit": ET.fromstring(files["junit"].read_bytes()).findtext(".//system-out"),
        "markdown": files["markdown"].read_text().replace("&#40;", "(").replace("&#41;", ")"),
        "page": (tmp_path / "page.html").read_text().replace("&#x27;", "'").replace("&#39;", "'"),
    }
    for where, text in said.items():
        assert ("keeps nothing" in text) == bool(left_out), where
        assert not left_out or sentence(left_out) in text, where


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.masked(ADAM, {"a": False, "b": False, "c": False}),
        of_groups(a=PLAIN, b=PLAIN, c=PLAIN),
    ],
    ids=["all masked", "no group has slots"],
)
def test_a_state_of_empty_places_alone_mirrors_nothing(surgery, saved, policy, optimizer):
    result = surgery("check", saved(optimizer), policy, "--json")
    assert result.code == 1
    (finding,) = result.document["rules"][0]["findings"]
    assert finding["why"] == "there is no optimizer state that mirrors any params"


def test_what_is_set_apart_is_said_where_a_param_beside_breaks_the_rule(
    surgery, saved, policy, tmp_path
):
    source = saved(of_groups(a=ADAM, b=PLAIN, c=MOMENTUM))
    gone = ("delete", source, tmp_path / "less", "opt_state/**/a/kernel", "--twins", "named")
    assert surgery(*gone, "--quiet").code == 0
    junit = tmp_path / "found.xml"
    result = surgery("check", tmp_path / "less", policy, "--json", "--output", f"junit={junit}")
    assert result.code == 1
    (rule,) = result.document["rules"]
    assert {found["path"] for found in rule["findings"]} == {"params/a/kernel"}
    assert [one["leaves"] for one in rule["apart"]] == [OF_B]
    assert sentence(OF_B) in ET.fromstring(junit.read_bytes()).findtext(".//failure")


def test_plans_and_records_say_of_which_params_nothing_is_kept(surgery, saved, tmp_path):
    source, plan = saved(OPTIMIZERS["a node masked"][0]), tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n- {op: assert, at: params, optimizer_mirrors_params: true}\n"
        "check:\n- {id: twins, at: params, optimizer_mirrors_params: true}\n"
    )
    result = surgery("apply", source, tmp_path / "new", plan)
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert f"optimizer mirrors params: {sentence(OF_B)}" in lines
    assert f"twins: {sentence(OF_B)}" in lines
    record = json.loads((tmp_path / "new" / "surgery.json").read_text())
    assert [check["apart"][0]["leaves"] for check in record["checks"]] == [OF_B] * 2
    result = surgery("assert", source, "params", "--optimizer-mirrors-params")
    assert sentence(OF_B) in " ".join(result.out.split())


def test_of_many_params_the_first_are_named_and_all_with_verbose(surgery, saved, policy):
    params = {"w": jnp.ones(3), "frozen": {f"p{n:02}": np.ones(2, np.float32) for n in range(30)}}
    source = saved(optax.masked(ADAM, {"w": True, "frozen": False}), params)
    said = " ".join(surgery("check", source, policy).out.split())
    assert "30 params of which the optimizer keeps nothing (masked): 'params/frozen/p00'," in said
    assert "and 24 more" in said
    said = surgery("check", source, policy, "--verbose").out
    assert all(f"'params/frozen/p{n:02}'" in said for n in range(30))
