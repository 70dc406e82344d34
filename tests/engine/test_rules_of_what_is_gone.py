"""Rules that compare a tree with another one: a leaf that is gone is found, not left out with what it was called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orbax.checkpoint as ocp
import pytest

import surgery_cli as surgery
from surgery_cli.planning import fields_of
from surgery_cli.rules.contract import Rule
from surgery_cli.rules.equality import EqualTo
from surgery_cli.rules.table import RULES
from tests.cli.conftest import SAMPLES

DIGITS = SAMPLES / "digits_standard"
COMPARING = {"equal_in", "same_structure_as", "digests_of", "unchanged"}
"""The rules that say what stood elsewhere; `equal_to` compares within one tree."""
LEAVES = [*surgery.inspect(DIGITS, "params").to_dict()["leaves"]]
WHOLE = {"at": "**", "except": ["step"]}


def test_every_rule_that_looks_elsewhere_is_tried() -> None:
    looks = {rule for rule in RULES if rule.other is not Rule.other or rule.path_fields}
    assert {fields_of(rule)[0].name for rule in looks} - {"equal_to"} == COMPARING
    assert all(rule.held_against is not Rule.held_against for rule in looks - {EqualTo})


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from surgery_cli.surgery import seal

    file = tmp_path_factory.mktemp("gone") / "manifest.json"
    seal(str(DIGITS), to=file)
    return file


@pytest.mark.parametrize("rule", sorted(COMPARING))
@pytest.mark.parametrize("gone", [LEAVES[0]["path"], "params/Dense_1", "opt_state"])
def test_what_is_gone_breaks_the_rule_that_says_that_it_stands_there(
    rule: str, gone: str, manifest: Path, tmp_path: Path
) -> None:
    of = {"unchanged": True, "digests_of": str(manifest)}.get(rule, str(DIGITS))
    named = {"id": "rest", **WHOLE, rule: of}
    delete, result = {"op": "delete", "at": gone}, tmp_path / "result"
    with pytest.raises(surgery.SurgeryError) as caught:
        surgery.apply(DIGITS, result, {"edits": [delete], "check": [named]})
    assert any(gone in str(problem.what) for problem in caught.value.problems)
    assert not result.exists()

    gone_too = f"**/{gone.removeprefix('params/')}"
    excepted = {**named, "except": ["step", gone, gone_too]}
    surgery.apply(DIGITS, result, {"edits": [delete], "check": [excepted]})


OTHER_IN_ITS_PLACE = {
    "copied": [
        {"op": "delete", "at": "params/Dense_1"},
        {"op": "copy", "at": "params/Dense_0", "to": "params/Dense_1"},
    ],
    "renamed": [
        {"op": "delete", "at": "params/Dense_1"},
        {"op": "rename", "at": "params/Dense_0", "to": "params/Dense_1"},
    ],
}


@pytest.mark.parametrize("at", ["params", "params/Dense_1", "params/Dense_1/kernel"])
@pytest.mark.parametrize("how", OTHER_IN_ITS_PLACE)
def test_a_leaf_is_gone_though_another_one_has_its_name(how: str, at: str, tmp_path: Path) -> None:
    check = [{"id": "rest", "at": at, "unchanged": True}]
    with pytest.raises(surgery.SurgeryError) as caught:
        surgery.plan(DIGITS, {"edits": OTHER_IN_ITS_PLACE[how], "check": check})
    said = str(caught.value)
    assert "params/Dense_1/kernel" in said
    assert "it is gone, and was float32" in said
    assert "what stands there came from 'params/Dense_0/kernel'" in said


def test_a_leaf_that_only_moved_is_not_gone(tmp_path: Path) -> None:
    plan = {
        "edits": [{"op": "rename", "at": "params/Dense_1", "to": "params/head"}],
        "check": [{"id": "rest", **WHOLE, "unchanged": True}],
    }
    surgery.apply(DIGITS, tmp_path / "result", plan)


def test_with_paths_of_its_own_the_other_may_have_more(tmp_path: Path) -> None:
    plan = {"edits": [{"op": "rename", "at": "params/Dense_1", "to": "params/head"}]}
    surgery.apply(DIGITS, tmp_path / "result", plan)
    rule = {"at": "params/head", "equal_in": str(DIGITS), "from": "params/Dense_1"}
    assert surgery.check(tmp_path / "result", [rule])


def test_lists_are_no_dicts_for_a_manifest_as_for_verify(tmp_path: Path) -> None:
    """Orbax restores neither into the other's tree."""
    arrays = [np.ones(2, np.float32), np.zeros(3, np.float32)]
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "list", {"params": {"l": arrays}})
        checkpointer.save(tmp_path / "dict", {"params": {"l": {"0": arrays[0], "1": arrays[1]}}})
        with pytest.raises(ValueError, match=r"structure|mismatch"):
            checkpointer.restore(tmp_path / "dict", item={"params": {"l": arrays}})
    manifest = tmp_path / "manifest.json"
    from surgery_cli.document import json_text

    manifest.write_text(json_text(surgery.inspect(tmp_path / "list", digests=True)))
    assert surgery.check(tmp_path / "list", [{"digests_of": str(manifest)}])
    assert not surgery.verify(tmp_path / "dict", like_manifest=manifest)
    found = surgery.check(tmp_path / "dict", [{"digests_of": str(manifest)}])
    assert not found
    (finding,) = found.rules[0].findings
    assert (finding.path, finding.why) == ("params/l", "it is a dict, in the manifest a list")


@pytest.mark.parametrize("at", ["opt_state", "step", "opt_state/0/mu"])
def test_where_no_param_is_named_nothing_mirrors_any(at: str) -> None:
    rule = {"at": at, "optimizer_mirrors_params": True}
    found = surgery.check(DIGITS, [rule])
    assert not found
    assert "no param is among them" in found.rules[0].findings[0].why
    assert surgery.check(DIGITS, [{**rule, "at": "params"}])
