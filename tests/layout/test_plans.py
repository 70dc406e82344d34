"""What a plan says of a layout is read key by key, and what is wrong with it is said at its line."""

from pathlib import Path

import pytest

from surgery_cli.errors import PlanError
from surgery_cli.planning import read_plan
from surgery_cli.planning.schema import schema
from surgery_cli.settings.reshard import Reshard


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("reshard:\n  mash: {fsdp: 4}\n", "plan.yaml:2:3: `reshard` has no key `mash`"),
        ("reshard:\n  mesh: {fsdp: four}\n", "plan.yaml:2:10: `mesh` must be"),
        ("reshard:\n  mesh: {fsdp: 0}\n", "plan.yaml:2:10: `mesh` must be"),
        ("reshard:\n  spec: {params: 3}\n", "plan.yaml:2:10: `spec` must be"),
        ("reshard: fsdp=4\n", "plan.yaml:1:1: `reshard` must be a mapping"),
    ],
)
def test_what_is_wrong_with_a_layout_is_said_at_its_line(
    tmp_path: Path, text: str, said: str
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    with pytest.raises(PlanError) as caught:
        read_plan(str(plan))
    assert said in str(caught.value)


def test_paths_in_it_are_relative_to_the_plan(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("reshard: {like: model, like_init: train.py:state, chunk_bytes: 64MiB}\n")
    read = read_plan(str(plan)).reshard
    assert read == Reshard(
        like=f"{tmp_path}/model", like_init=f"{tmp_path}/train.py:state", chunk_bytes="64MiB"
    )
    assert read.chunk_limit == 64 << 20
    plan.write_text("sources: {other: model}\nreshard: {like: other}\n")
    assert read_plan(str(plan)).reshard == Reshard(like="other")


def test_the_schema_of_plans_knows_it() -> None:
    assert set(schema()["$defs"]["Reshard"]["properties"]) == set(Reshard.__struct_fields__)
