"""Real files of every format, small, by the libraries that write them: what is then changed."""

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.fixture_truths import FIXTURES

SAMPLES = Path(__file__).resolve().parents[2] / "sample_checkpoints"
PLANS = SAMPLES.parent / "plans"


class Seed(NamedTuple):
    """What is opened, and the files in it that are changed, one at a time."""

    place: Path
    files: tuple[Path, ...]


def _tree():
    values = np.random.default_rng(0).standard_normal
    layers = [
        {"kernel": values((6, 5)).astype(np.float32), "bias": np.arange(5, dtype=np.int32)}
        for _ in range(2)
    ]
    return {
        "params": {"layers": layers, "a.b": {"scale": values((3,)).astype(np.float16)}},
        "opt_state": [{"count": np.int32(7), "mu": {"w": values((4, 4))}}, None, {}],
        "step": 12,
        "name": "größer",
    }


def _seed(place):
    return Seed(place, tuple(sorted(file for file in place.rglob("*") if file.is_file())))


def _saved(place, **options):
    import jax
    import orbax.checkpoint as ocp

    handler = ocp.PyTreeCheckpointHandler(**options)
    saving = jax.tree.map(lambda _: ocp.SaveArgs(chunk_byte_size=64), _tree())
    args = ocp.args.PyTreeSave(_tree(), save_args=saving)
    ocp.Checkpointer(handler).save(place, args)
    return place


def _plain_nodes(place, node_bytes):
    """The same database, with nodes that are not compressed, so that changes in them mean something; many of them."""
    import tensorstore as ts

    values = ts.KvStore.open({"driver": "ocdbt", "base": f"file://{place}/"}).result()
    content = {key: values[key] for key in values.list().result()}
    for name in ("manifest.ocdbt", "d", "ocdbt.process_0"):
        target = place / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    config = {
        "compression": None,
        "max_decoded_node_bytes": node_bytes,
        "max_inline_value_bytes": 1024,
    }
    with ts.Transaction() as transaction:
        new = ts.KvStore.open(
            {"driver": "ocdbt", "base": f"file://{place}/", "config": config}
        ).result()
        for key, value in content.items():
            new.with_transaction(transaction)[key] = value
    return place


def databases(folder):
    found = []
    for name, options, node_bytes in (
        ("zarr2", {}, None),
        ("zarr2-plain", {}, 100_000),
        ("zarr2-nodes", {}, 900),
        ("zarr3-plain", {"use_zarr3": True}, 100_000),
    ):
        place = _saved(folder / name, **options)
        found.append(_seed(place if node_bytes is None else _plain_nodes(place, node_bytes)))
    return found


def leaf_folders(folder):
    return [
        _seed(_saved(folder / "zarr2", use_ocdbt=False)),
        _seed(_saved(folder / "zarr3", use_ocdbt=False, use_zarr3=True)),
        *(_seed(shutil.copytree(FIXTURES / f"orbax-{name}", folder / name.replace("/", "-"))) for name in (
            "0.2.7/odd_lst", "0.2.7/odd_none", "0.5.10/odd_lst", "0.8.0/odd_np_i64", "0.12.8/odd_tup",
        )),
    ]  # fmt: skip


def sealed(folder):
    from surgery_cli import planning as surgery_plan
    from surgery_cli import surgery

    place, edited = _saved(folder / "sealed", use_ocdbt=False), folder / "edited"
    surgery.seal(str(place))
    plan = surgery_plan.plan_from_document({"edits": [{"op": "set", "at": "step", "to": 3}]})
    surgery.apply(str(place), str(edited), plan)
    return [Seed(one, (one / "surgery.json",)) for one in (place, edited)]


def flax_files(folder):
    from flax import serialization

    trees = {
        "state": {
            **_tree(),
            "c": 1 + 2j,
            "large": 2**64 - 1,
            "f": np.float32(2.5),
            "b": b"ab",
            "t": True,
        },
        "flat": {"w": np.ones((2, 3), np.int8), "e": {}},
    }
    found = []
    for name, tree in trees.items():
        (folder / f"{name}.msgpack").write_bytes(serialization.msgpack_serialize(tree))
        found.append(folder / f"{name}.msgpack")
    old = FIXTURES / "orbax-0.2.7" / "flax_orbax_mode_chain" / "checkpoint_3" / "checkpoint"
    if old.stat().st_size < 20_000:
        found.append(shutil.copy(old, folder / "old"))
    return [Seed(Path(file), (Path(file),)) for file in found]


def t5x_folders(folder):
    from tests.store.t5x_checkpoints import write_t5x

    return [_seed(write_t5x(folder / f"v{version}", version)) for version in (2, 3)]


def safetensors_files(folder):
    from safetensors.numpy import save_file

    tree = {
        "a.w": np.ones((2, 3), np.float32),
        "a.b": np.arange(3),
        "z": np.zeros((0, 2), np.float16),
    }
    save_file(tree, folder / "one.safetensors", metadata={"format": "pt"})
    shards = folder / "shards"
    shards.mkdir()
    for number, name in enumerate(tree, 1):
        save_file({name: tree[name]}, shards / f"model-{number:05}-of-00003.safetensors")
    index = {
        "metadata": {},
        "weight_map": {n: f"model-{i:05}-of-00003.safetensors" for i, n in enumerate(tree, 1)},
    }
    (shards / "model.safetensors.index.json").write_text(json.dumps(index))
    one = folder / "one.safetensors"
    return [Seed(one, (one,)), _seed(shards)]


def npz_files(folder):
    tree = {
        "a": np.ones((2, 3), np.float32),
        "b": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "c": np.array(True),
    }
    np.savez(folder / "plain.npz", **tree)
    np.savez_compressed(folder / "packed.npz", **tree)
    return [Seed(file, (file,)) for file in sorted(folder.glob("*.npz"))]


def donor_files(folder):
    """Arrays in a file of their own, from which an edit takes values, and orders of elements."""
    arrays = {
        "plain": np.ones((2, 3), np.float32),
        "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "big": np.arange(4, dtype=">i8"),
    }
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "order.npy", np.array([2, 0, 1]))
    (folder / "order.json").write_text("[2, 0, 1]")
    (folder / "order.txt").write_text("2\n0\n1\n")
    return [Seed(file, (file,)) for file in sorted(folder.iterdir())]


def torch_files(folder):
    names = ("state", "training", "views", "dtypes", "protocol5")
    files = [Path(shutil.copy(FIXTURES / "torch" / f"{name}.pt", folder)) for name in names]
    return [Seed(file, (file,)) for file in files]


PLAN = """\
vars: {by: 0.5, names: [a, b]}
seed: 3
params: params
optimizer: keep
edits:
  - {op: rescale, at: "params/layers/*/kernel", by: "${by}", expect: 2, except: [params/layers/0]}
  - op: rename
    at: params/(a.b)/scale
    to: params/c/scale
    optional: true
  - {op: reinit, at: 're:params/layers/(\\d)/bias', init: zeros, optional: true, seed: 1}
  - {op: assert, at: "**", finite: true, norm: "..1e9", where_dtype: floating}
  - {op: assert, at: "params/**", dtype: [float32, int32, float16], shape: [..., 5], optional: true}
  - {op: unstack, at: "params/layers/*/kernel", to: 'params/rows/\\1_{0..5}', optional: true}
  - {op: set, at: step, to: 100}
"""


def plans(folder):
    import tomllib

    from surgery_cli.planning.yaml_text import parse_yaml

    value = parse_yaml(PLAN, "plan").value
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "plan.json").write_text(json.dumps(value, indent=1))
    (folder / "plan.toml").write_text(
        'seed = 3\nparams = "params"\n[vars]\nby = 0.5\n[[edits]]\nop = "rescale"\nat = "params/**"\nby = 1e-3\n'
        '[[edits]]\nop = "keep"\nat = ["params", "step"]\n[[edits]]\nop = "assert"\nat = "**"\nfinite = true\n'
    )
    tomllib.loads((folder / "plan.toml").read_text())
    shipped = sorted(PLANS.rglob("*.yaml"))[:6]
    for number, file in enumerate(shipped):
        shutil.copy(file, folder / f"shipped-{number}.yaml")
    return [Seed(file, (file,)) for file in sorted(folder.iterdir())]


def drafts(folder):
    """A plan for the example of every operation."""
    from surgery_cli.operations.table import operations
    from surgery_cli.planning.yaml_text import parse_yaml

    for name, kind in operations().items():
        edits = parse_yaml(kind.example, name).value
        plan = {"edits": edits if isinstance(edits, list) else [edits]}
        (folder / f"{name}.json").write_text(json.dumps(plan))
    for name in ("other", "lora"):
        shutil.copytree(SAMPLES / "digits_standard", folder / "runs" / name)
    return [Seed(file, (file,)) for file in sorted(folder.glob("*.json"))]


POLICY = {
    "vars": {"most": 100},
    "rules": [
        {"id": "no-nan", "at": "params", "finite": True, "message": "NaN"},
        {"id": "head", "at": "params/Dense_1/kernel", "shape": [64, 10], "dtype": "floating"},
        {
            "id": "calm",
            "at": ["params"],
            "norm": "..${most}",
            "severity": "warning",
            "except": "**/bias",
        },
        {"id": "few", "at": "params/**", "exists": True, "optional": True, "expect": 4},
    ],
}


def policies(folder):
    (folder / "policy.json").write_text(json.dumps(POLICY))
    (folder / "policy.yaml").write_text(
        "rules:\n  - id: no-nan\n    at: params\n    finite: true\n"
        "  - {id: head, at: params/Dense_1/kernel, shape: [64, 10]}\n"
        "  - {id: calm, at: params, norm: ..100, severity: warning}\n"
    )
    return [Seed(file, (file,)) for file in sorted(folder.iterdir())]


PATTERNS = (
    *(
        "params/**/kernel",
        "**",
        "params/layers/{0..11}/w",
        "re:params/(\\w+)/(kernel|bias)",
        "a/{b,c{d,e}}/*",
        "[[]x]/?",
    ),
    *(
        "layers_[0-9]/**/w",
        "a%2Fb/*",
        "{00..11..3}/*",
        "**/mlp/**/kernel",
        "*_*_*_*",
        "params/[!a]*",
        "x{1..3}{a,b,}y",
    ),
)


def patterns(folder):
    for number, text in enumerate(PATTERNS):
        (folder / f"{number:02}").write_text(text)
    return [Seed(file, (file,)) for file in sorted(folder.iterdir())]


SEEDS = {
    "databases": databases,
    "leaf folders": leaf_folders,
    "records": sealed,
    "msgpack": flax_files,
    "t5x": t5x_folders,
    "safetensors": safetensors_files,
    "npz": npz_files,
    "donor arrays": donor_files,
    "pytorch": torch_files,
    "plans": plans,
    "drafts": drafts,
    "policies": policies,
    "patterns": patterns,
}
"""Of each kind of input, what makes its real files in a folder."""
