"""Text leaves stand where Orbax looks for them, whatever their keys hold."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orbax.checkpoint as ocp
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from surgery_cli import surgery
from surgery_cli.errors import PlanError
from surgery_cli.operations.rename import Rename
from surgery_cli.planning import plan_of
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath

KEYS = st.text(alphabet="a0~1/%2F.", min_size=1, max_size=5)
PROPERTY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def _tree(texts: dict[str, str]) -> dict[str, Any]:
    return {"w": np.ones(2, np.float32), **texts}


def _saved(folder: Path, tree: dict[str, Any]) -> bool:
    """Whether Orbax saves the tree, and restores it."""
    with ocp.PyTreeCheckpointer() as checkpointer:
        try:
            checkpointer.save(folder, tree)
            restored = checkpointer.restore(folder)
        except (ValueError, AssertionError, OSError):
            return False
    return {k: v for k, v in restored.items() if k != "w"} == {
        k: v for k, v in tree.items() if k != "w"
    }


@PROPERTY
@example(texts={"c/d": "hi"})
@example(texts={"~01": "one", "a/b": "two", "a~1b": "three"})
@given(texts=st.dictionaries(KEYS, st.text(max_size=3), min_size=1, max_size=3))
def test_text_that_orbax_saves_is_read_as_orbax_restores_it(texts: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source = Path(folder) / "x"
        if not _saved(source, _tree(texts)):
            return
        checkpoint = open_checkpoint(str(source))
        assert {key: checkpoint.read(LeafPath((key,))) for key in texts} == texts


@PROPERTY
@example(name="s/t", texts={"s": "hi"})
@example(name="t~", texts={"s": "hi"})
@example(name="t~0", texts={"s": "hi", "t": "ho"})
@given(
    name=KEYS, texts=st.fixed_dictionaries({"s": st.text(max_size=3)}, optional={"a": st.text()})
)
def test_renamed_text_is_restored_by_orbax_or_refused_where_orbax_could_not(
    name: str, texts: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        source, result, judge = (Path(folder) / n for n in ("x", "y", "z"))
        assert _saved(source, _tree(texts))
        wanted = {name if key == "s" else key: text for key, text in texts.items()}
        rename = Rename(at="s", to=LeafPath((name,)).spelling)
        if len(wanted) < len(texts) or name == "s":
            return
        try:
            surgery.apply(str(source), str(result), plan_of([rename]))
        except PlanError:
            assert not result.exists()
            is_odd = any(part in ("", ".", "..") for part in name.split("/"))
            assert is_odd or not _saved(judge, _tree(wanted))
            return
        with ocp.PyTreeCheckpointer() as checkpointer:
            restored = checkpointer.restore(result)
        assert {key: restored[key] for key in wanted} == wanted


def test_text_stored_where_orbax_does_not_look_is_damage(tmp_path: Path) -> None:
    assert _saved(tmp_path / "x", _tree({"c/d": "hi"}))
    (tmp_path / "x" / "_strings.json").write_text('{"c/d": "hi"}')
    with pytest.raises(Exception, match="no text where Orbax looks for it"):
        surgery.inspect(str(tmp_path / "x"))
