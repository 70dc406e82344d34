"""Many leaves, with something to say of each: no command prints as many lines."""

import shutil

import numpy as np
import pytest

from tests.cli.command_lines import commands

BLOCKS = 26
MOST_LINES = 60


def tree(seed, *, names="layers", dtype=np.float32, spoilt=False):
    random = np.random.default_rng(seed)

    def leaf(*shape):
        values = random.normal(size=shape).astype(dtype)
        if spoilt:
            values.flat[0] = np.nan
        return values

    def params(names):
        return {
            f"{names}_{n}": {
                "attn": {"kernel": leaf(3, 4), "bias": leaf(4)},
                "mlp": {"kernel": leaf(4, 3), "scale": leaf(3)},
            }
            for n in range(BLOCKS)
        }

    moments = {"count": np.int32(7), "mu": params("layers"), "nu": params("layers")}
    return {"params": params(names), "opt_state": [moments, {}], "step": np.int32(7)}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Checkpoints of some hundred leaves, of which every one differs, is missing, or is bad."""
    import orbax.checkpoint as ocp

    folder = tmp_path_factory.mktemp("many")
    trees = {
        "whole": tree(0),
        "bad": tree(1, spoilt=True),
        "other": tree(2, names="blocks"),
        "narrow": tree(0, dtype=np.float16),
    }
    with ocp.StandardCheckpointer() as checkpointer:
        for name, saved in trees.items():
            checkpointer.save(folder / name, saved)
            checkpointer.wait_until_finished()
    rules = (
        "rules:\n"
        "  - {id: sound, at: '**', finite: true}\n"
        "  - {id: narrow, at: params, dtype: bfloat16}\n"
    )
    (folder / "policy.yaml").write_text(rules)
    (folder / "plan.yaml").write_text("edits:\n  - {op: rescale, at: params, by: 0.5}\n")
    shutil.copytree(folder / "whole", folder / "cut")
    largest = max((folder / "cut").rglob("d/*"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[: largest.stat().st_size * 2 // 3])
    return folder


LINES = {
    "inspect": "whole",
    "inspect with values": "bad --stats",
    "inspect with clocks": "whole --optimizer",
    "inspect with digests": "whole --digests",
    "plan": "whole plan.yaml",
    "apply": "whole NEW plan.yaml",
    "rescale": "bad NEW params --by 0.5",
    "cast": "whole NEW --to bfloat16 --dry-run",
    "delete": "whole NEW opt_state --dry-run",
    "keep": "whole NEW params --dry-run",
    "rename": "whole NEW params/*/attn --to params/\\1/attention --dry-run",
    "replace": "whole NEW params --with bad",
    "diff": "whole bad",
    "diff of places": "whole other",
    "diff of dtypes": "whole narrow --structure",
    "verify": "whole",
    "verify --like": "whole --like other",
    "verify against dtypes": "whole --like narrow",
    "verify what is bad": "bad",
    "verify what is damaged": "cut",
    "check": "bad policy.yaml",
    "assert": "bad params --finite",
    "derive": "whole other",
    "doctor": "cut --read-data",
    "rescue": "cut",
    "log": "whole",
    "export": "whole NEW --to npz --dry-run",
    "reshard": "whole NEW --mesh x=2 --spec params/**/kernel=x,None --dry-run",
    "compact": "whole NEW --dry-run",
}
"""A command line of commands that look at leaves; words behind the command's name only tell the cases apart."""


@pytest.mark.sampled(12)
@pytest.mark.parametrize("case", LINES)
def test_no_command_has_a_line_for_each(surgery, places, tmp_path, monkeypatch, case):
    monkeypatch.chdir(places)
    words = [word.replace("NEW", str(tmp_path / "new")) for word in LINES[case].split()]

    ended = surgery(case.split()[0], *words)

    assert ended.code in (0, 1, 2, 3)
    said = ended.err if case == "derive" else ended.out + ended.err
    assert 0 < said.count("\n") <= MOST_LINES


@pytest.mark.parametrize("case", ["inspect with values", "diff", "verify --like"])
def test_a_terminal_is_told_no_more(surgery, places, monkeypatch, case):
    monkeypatch.chdir(places)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert 0 < surgery(case.split()[0], *LINES[case].split()).out.count("\n") <= MOST_LINES


def test_whoever_asks_gets_every_leaf(surgery, places):
    everything = surgery("inspect", places / "bad", "--verbose").out
    assert everything.count("\n") > 12 * BLOCKS
    assert (
        surgery("diff", places / "whole", places / "bad", "-v").out.count(" values  ")
        == 12 * BLOCKS
    )
    document = surgery("inspect", places / "bad", "--json").document
    assert len(document["leaves"]) == 12 * BLOCKS + 3


def test_a_series_names_exactly_its_leaves(surgery, places):
    """What is printed for many leaves is a pattern of them: it can be typed."""
    listed = surgery("inspect", places / "whole").out.partition("\n\n")[2].splitlines()
    rows = [line.split() for line in listed if " leaves of " in line]
    assert len(rows) == 12
    for name, count, *_ in rows:
        found = surgery("inspect", places / "whole", name, "--json").document
        assert len(found["leaves"]) == int(count) == BLOCKS


def test_one_bad_leaf_among_many_has_a_line_of_its_own(surgery, tmp_path):
    import orbax.checkpoint as ocp

    saved = tree(0)
    saved["params"]["layers_17"]["mlp"]["scale"][1] = np.nan
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "one", saved)
    (line,) = [
        line
        for line in surgery("inspect", tmp_path / "one", "--stats").out.splitlines()
        if "NaN" in line
    ]
    assert line.startswith("params/layers_17/mlp/scale ")
    assert line.endswith("1 NaN")


def test_the_statistics_of_a_series_are_those_of_all_its_values(surgery, places):
    saved = tree(0)["params"]
    values = np.stack([saved[f"layers_{n}"]["mlp"]["kernel"] for n in range(BLOCKS)]).astype(float)
    (row,) = [
        line.split()
        for line in surgery("inspect", places / "whole", "--stats").out.splitlines()
        if line.startswith("params/layers_{0..25}/mlp/kernel ")
    ]
    found = [float(word) for word in row[row.index("KiB") + 1 :][:5]]
    norm = np.linalg.norm(values)
    expected = [values.mean(), values.std(), values.min(), values.max(), norm]
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_every_case_is_of_a_command():
    assert {case.split()[0] for case in LINES} <= set(commands())
