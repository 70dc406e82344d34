"""Every leaf whose bytes are whole comes back, none with a wrong value, every lost one is named."""

import json
import shutil
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.salvage.leaves import FoundArray
from surgery_cli.salvage.place import fingerprint
from tests.cli.conftest import surgery as command_line

__all__ = ["command_line"]

CASES = 24
NOTHING_LEFT = {3, 14}
"""Of these the one file with all values is gone, or empty."""


def restored(directory):
    """What Orbax restores, by stored name."""
    checkpointer = ocp.PyTreeCheckpointer()
    tree = checkpointer.metadata(directory).item_metadata.tree
    import jax

    wanted = jax.tree.map(
        lambda _: ocp.RestoreArgs(restore_type=np.ndarray),
        tree,
        is_leaf=lambda node: not isinstance(node, dict | list | tuple),
    )
    found = {}

    def walk(node, name):
        for key, below in node.items() if isinstance(node, dict) else enumerate(node):
            if isinstance(below, dict | list | tuple):
                walk(below, (*name, str(key)))
            elif below is not None:
                found[".".join((*name, str(key)))] = np.asarray(below)

    walk(checkpointer.restore(directory, restore_args=wanted), ())
    return found


@pytest.mark.sampled(12)
@pytest.mark.parametrize("number", sorted({*range(CASES)} - NOTHING_LEFT))
def test_what_is_whole_is_rescued_and_the_rest_is_named(corpus, number, tmp_path):
    case = corpus[number]
    before = fingerprint(case.broken)

    found = surgery.rescue(str(case.broken))

    states = {".".join(row.path.split("/")): row for row in found.leaves}
    states = {name.removeprefix("state."): row for name, row in states.items()}
    for name, truth in case.leaves.items():
        if not case.decodes_wrong(name):
            row = states.get(name)
            if (
                row is not None and row.described_by
            ):  # by another leaf, which the corpus does not ask for
                assert (truth["state"], row.state, bool(row.assumes)) == ("lost", "whole", True), (
                    name
                )
                continue
            assert (row.state if row else "lost") == truth["state"], name
            assert row is None or row.share == pytest.approx(truth.get("share", 0.0)), name
    if not found.whole:
        with pytest.raises(CheckpointError):
            surgery.rescue(str(case.broken), str(tmp_path / "new"), allow_partial=True)
        return

    surgery.rescue(str(case.broken), str(tmp_path / "new"), allow_partial=True)

    place = tmp_path / "new"
    values = restored(place / "state" if (place / "state").exists() else place)
    for name, row in states.items():
        if name in case.values and not case.decodes_wrong(name):
            assert (name in values) == (row.state == "whole"), name
            if name in values:
                assert values[name].tobytes() == case.values[name].tobytes(), name
    assert fingerprint(case.broken) == before


@pytest.mark.sampled(4)
@pytest.mark.parametrize("number", sorted({*range(CASES)} - NOTHING_LEFT))
def test_what_is_called_whole_is_written_and_nothing_else(corpus, number, tmp_path):
    """A job that goes by the exit code of the look has none of the green lights that the rescue would not give."""
    broken = str(corpus[number].broken)
    is_whole = surgery.rescue(broken).is_whole
    try:
        surgery.rescue(broken, str(tmp_path / "new"))
    except CheckpointError:
        assert not is_whole
    else:
        assert is_whole


@pytest.mark.parametrize("number", sorted(NOTHING_LEFT))
def test_where_nothing_is_left_that_is_said(corpus, number):
    with pytest.raises((CheckpointError, PlanError), match=r"nothing of a tree|does not exist"):
        surgery.rescue(str(corpus[number].broken))


def test_a_flipped_bit_is_no_proof_and_with_a_digest_on_record_a_loss(tmp_path, saved):
    surgery.seal(str(saved))
    (chunk,) = (saved / "params.kernel").glob("0.0")
    raw = bytearray(chunk.read_bytes())
    raw[len(raw) // 2] ^= 1
    chunk.write_bytes(raw)

    rows = {row.path: row for row in surgery.rescue(str(saved)).leaves}

    assert (rows["params/bias"].state, rows["params/bias"].proof) == ("whole", "digest")
    assert rows["params/kernel"].state == "lost"
    assert "not those of the digest on record" in rows["params/kernel"].why
    (saved / "surgery.json").unlink()
    rows = {row.path: row for row in surgery.rescue(str(saved)).leaves}
    assert {(row.state, row.proof) for row in rows.values()} == {("whole", "decodes")}


def test_what_is_on_record_is_read_once(saved, monkeypatch):
    surgery.seal(str(saved))
    decoded = []
    read = FoundArray.read
    monkeypatch.setattr(
        FoundArray, "read", lambda self, *a: decoded.append(self.name) or read(self, *a)
    )

    surgery.rescue(str(saved))

    assert sorted(decoded) == ["params.bias", "params.kernel"]


@pytest.fixture
def saved(tmp_path):
    """A checkpoint with a folder for each leaf, without compression: every flipped bit decodes."""
    target = tmp_path / "run"
    tree = {"params": {"kernel": np.arange(64, dtype=np.float32).reshape(8, 8), "bias": np.ones(8)}}
    args = ocp.args.PyTreeSave(tree)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(target, args)
    for name in ("kernel", "bias"):
        _stored_plainly(target / f"params.{name}", tree["params"][name])
    return target


def _stored_plainly(folder, values):
    """Write the array of a folder anew without a compressor, in the one chunk that it has."""
    document = json.loads((folder / ".zarray").read_text())
    (folder / ".zarray").write_text(json.dumps({**document, "compressor": None}))
    (folder / ".".join("0" * values.ndim)).write_bytes(values.tobytes())


@pytest.fixture
def older(tmp_path):
    target = tmp_path / "older"
    tree = {
        "params": {"kernel": -np.arange(64, dtype=np.float32).reshape(8, 8), "bias": np.zeros(8)}
    }
    args = ocp.args.PyTreeSave(tree)
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(target, args)
    return target


def test_what_is_lost_is_taken_from_an_older_step(saved, older, tmp_path):
    (saved / "params.kernel" / "0.0").unlink()
    with pytest.raises(CheckpointError, match="are whole"):
        surgery.rescue(str(saved), str(tmp_path / "new"))

    found = surgery.rescue(str(saved), str(tmp_path / "new"), fill_from=str(older))

    values = restored(tmp_path / "new")
    assert np.array_equal(values["params.kernel"], -np.arange(64).reshape(8, 8))
    assert np.array_equal(values["params.bias"], np.ones(8))
    rows = {row.path: row.filled_from for row in found.leaves}
    assert rows == {"params/kernel": str(older), "params/bias": ""}


def _command(*words):
    line = [sys.executable, "-m", "surgery_cli", *map(str, words)]
    return subprocess.run(line, capture_output=True, text=True, check=False)


def test_the_command_says_what_is_lost_with_its_exit_code(saved, tmp_path):
    (saved / "params.kernel" / "0.0").unlink()

    shown = _command("rescue", saved)
    refused = _command("rescue", saved, tmp_path / "new")
    done = _command("rescue", saved, tmp_path / "new", "--allow-partial")

    assert (shown.returncode, refused.returncode, done.returncode) == (1, 3, 0)
    assert "lost params/kernel" in shown.stdout
    assert "'params/kernel' lost" in refused.stderr
    assert not list(tmp_path.glob(".new*"))
    assert "rescued: 1 leaf" in done.stdout


@pytest.mark.parametrize("number", [2, 13, 20])
def test_inspect_says_what_a_rescue_would_find(corpus, number):
    broken = corpus[number].broken
    whole = surgery.rescue(str(broken)).whole

    with pytest.raises(CheckpointError) as refused:
        surgery.inspect(str(broken))

    fix = refused.value.problems[0].fix
    assert fix.startswith(f"`surgery rescue {broken}` would find {whole} of ")


@pytest.mark.parametrize(
    "words",
    [
        ["inspect", "{}"],
        ["verify", "{}"],
        ["verify", "{whole}", "--like", "{}"],
        ["seal", "{}"],
        ["diff", "{whole}", "{}"],
        ["derive", "{}", "{whole}"],
        ["rescale", "{}", "{new}", "params/bias", "--by", "2", "--optimizer", "keep"],
        ["replace", "{whole}", "{new}", "params/bias", "--with", "{}"],
        ["export", "{}", "{new}.npz", "--to", "npz"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_whatever_command_refuses_what_is_broken_points_to_rescue(
    words, older, saved, tmp_path, command_line
):
    (saved / "params.kernel" / "0.0").unlink()
    places = {"whole": older, "new": tmp_path / "new"}

    refused = command_line(*(word.format(saved, **places) for word in words))

    assert refused.code == 3
    assert f"`surgery rescue {saved}` would find 1 of 2 leaves" in refused.err


def test_of_a_run_the_broken_step_is_what_a_rescue_is_of(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for number in (1, 2):
            manager.save(number, args=ocp.args.StandardSave({"a": np.ones(9), "b": np.ones(9)}))
    (tmp_path / "run" / "2" / "default" / "manifest.ocdbt").unlink()

    with pytest.raises(CheckpointError, match=rf"rescue {tmp_path}/run@2` would find 2 of 2"):
        surgery.inspect(str(tmp_path / "run"))


def _steps(tmp_path, **items):
    """A step with these items, as a manager saves them."""
    with ocp.CheckpointManager(tmp_path / "run", item_names=tuple(items)) as manager:
        manager.save(3, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    return tmp_path / "run" / "3"


def _items():
    tree = {"w": np.arange(400, dtype=np.float32)}
    return {
        "params": ocp.args.PyTreeSave(tree),
        "opt": ocp.args.PyTreeSave({"mu": np.ones(300, np.float32)}),
        "metrics": ocp.args.JsonSave({"loss": 1.0}),
    }


def test_an_item_that_was_not_finished_is_named_and_left_out(tmp_path):
    step = _steps(tmp_path, **_items())
    (step / "metrics").rename(step / "metrics.orbax-checkpoint-tmp")

    found = surgery.rescue(str(step))
    assert {row.path: row.state for row in found.leaves} == {"params/w": "whole", "opt/mu": "whole"}
    assert [one.name for one in found.lost_items] == ["metrics"]
    surgery.rescue(str(step), str(tmp_path / "new"), allow_partial=True)

    assert np.array_equal(restored(tmp_path / "new" / "params")["w"], np.arange(400))


@pytest.mark.parametrize("damage", ["gone", "empty", "metadata alone"])
def test_an_item_of_which_nothing_is_left_is_a_loss(tmp_path, damage):
    step = _steps(tmp_path, **_items())
    shutil.rmtree(step / "params")
    if damage != "gone":
        (step / "params").mkdir()
    if damage == "metadata alone":
        (step / "params" / "_METADATA").touch()

    found = surgery.rescue(str(step))
    assert {row.path: row.state for row in found.leaves} == {"opt/mu": "whole"}
    assert [one.name for one in found.lost_items] == ["params"]
    with pytest.raises(CheckpointError, match=r"'params' \(how many .* is lost as a whole"):
        surgery.rescue(str(step), str(tmp_path / "new"))
    surgery.rescue(str(step), str(tmp_path / "new"), allow_partial=True)

    assert np.array_equal(restored(tmp_path / "new" / "opt")["mu"], np.ones(300))


def test_chunks_that_are_missing_are_taken_from_an_older_step(tmp_path):
    def save(name, factor):
        tree = {"w": factor * np.arange(64, dtype=np.float32).reshape(8, 8)}
        saving = {"w": ocp.SaveArgs(chunk_byte_size=64)}
        handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False)
        ocp.Checkpointer(handler).save(tmp_path / name, ocp.args.PyTreeSave(tree, save_args=saving))
        return tmp_path / name

    broken, older = save("broken", 1), save("older", -1)
    lost = min(file for file in (broken / "w").iterdir() if file.name != ".zarray")
    lost.unlink()

    done = surgery.rescue(str(broken), str(tmp_path / "new"), fill_from=str(older), fill_by="chunk")

    (row,) = done.leaves
    rows, columns = (
        slice(*map(int, part.split(":"))) for part in row.missing[0].strip("[]").split(",")
    )
    expected = np.arange(64, dtype=np.float32).reshape(8, 8)
    expected[rows, columns] *= -1
    assert np.array_equal(restored(tmp_path / "new")["w"], expected)


def test_a_description_that_others_contradict_is_damage(saved):
    document = saved / "params.bias" / ".zarray"
    fields = json.loads(document.read_text())
    document.write_text(json.dumps({**fields, "shape": [4]}))

    rows = {row.path: row for row in surgery.rescue(str(saved)).leaves}

    assert rows["params/bias"].state == "lost"
    assert "shape [4] is smaller than one of its chunks, [8]" in rows["params/bias"].why
    assert rows["params/kernel"].state == "whole"


def test_what_is_known_by_its_name_alone_is_restored(saved, tmp_path):
    (saved / "_METADATA").unlink()
    assert not surgery.rescue(str(saved)).is_whole
    with pytest.raises(
        CheckpointError, match="the tree they were saved in is not known"
    ) as refused:
        surgery.rescue(str(saved), str(tmp_path / "new"))
    assert refused.value.exit_code == 3
    assert not (tmp_path / "new").exists()
    surgery.rescue(str(saved), str(tmp_path / "new"), allow_partial=True)
    found = ocp.PyTreeCheckpointer().restore(tmp_path / "new")
    assert np.array_equal(found["params"]["bias"], np.ones(8))


def test_a_folder_of_several_checkpoints_is_none(saved, older):
    with pytest.raises(PlanError, match="is no one checkpoint"):
        surgery.rescue(str(saved.parent))


def test_steps_of_a_run_are_named_in_the_order_of_their_numbers(saved, tmp_path):
    for name in ("50", "100", "200", "1000"):
        shutil.copytree(saved, tmp_path / "steps" / name)
    with pytest.raises(PlanError, match="is no one checkpoint") as refused:
        surgery.rescue(str(tmp_path / "steps"))
    (problem,) = refused.value.problems
    assert problem.why == "'50', '100', '200' and '1000' stand there"
    assert problem.fix.endswith("/steps@1000'")


@pytest.mark.parametrize("is_ocdbt", [True, False], ids=["ocdbt", "a file a chunk"])
@pytest.mark.parametrize(
    "name",
    [
        *("d", "ocdbt_data", "array_metadatas", "manifest.ocdbt", "metadata", "descriptor"),
        *("ocdbt.process_0", "ocdbt.donor_0"),
    ],
)
def test_checkpoints_may_be_called_as_what_stands_in_one(tmp_path, name, is_ocdbt):
    """The folder that holds them is no tree for that."""
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=is_ocdbt)
    with ocp.Checkpointer(handler) as checkpointer:
        for one in (name, "other"):
            checkpointer.save(tmp_path / "all" / one, {"w": np.ones(3, np.float32)})
    seen = {one.path: one.state for one in surgery.doctor(str(tmp_path / "all")).places}
    assert seen == dict.fromkeys((name, "other"), "whole")
    with pytest.raises(PlanError, match="is no one checkpoint"):
        surgery.rescue(str(tmp_path / "all"))
    assert surgery.rescue(str(tmp_path / "all" / name)).is_whole


def test_what_runs_leave_in_a_tree_is_none_of_its_leaves(tmp_path):
    tree = tmp_path / "tree"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
        checkpointer.save(tree, {"w": np.ones(3, np.float32)})
    for left in (".new.surgery-tmp-0123abcd/new", "old.surgery-old"):
        shutil.copytree(tree / "w", tree / left / "w")
    (tree / "_METADATA").unlink()
    assert [row.path for row in surgery.rescue(str(tree)).leaves] == ["w"]


def test_a_small_file_that_is_not_what_was_sealed_is_named(saved, tmp_path):
    surgery.seal(str(saved))
    metadata = saved / "_METADATA"
    metadata.write_text(
        metadata.read_text().replace('"custom_metadata": null', '"custom_metadata": {}')
    )

    done = surgery.rescue(str(saved), str(tmp_path / "new"), allow_partial=True)

    assert any("'_METADATA' is damaged: it is not what was sealed" in note for note in done.notes)
    assert np.array_equal(restored(tmp_path / "new")["params.bias"], np.ones(8))


def test_a_damaged_seal_proves_nothing_and_that_is_said(saved):
    surgery.seal(str(saved))
    record = saved / "surgery.json"
    record.write_text(record.read_text().replace('"grid"', '"gird"', 1))

    found = surgery.rescue(str(saved))

    assert {row.proof for row in found.leaves} == {"decodes"}
    assert any(
        "'surgery.json' is damaged, and no digest on record counts" in n for n in found.notes
    )
