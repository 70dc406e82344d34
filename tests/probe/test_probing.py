"""Probes of checkpoints on disk: what is found, read, shown, written and refused."""

import json
import re
from pathlib import Path

import jax
import ml_dtypes
import numpy as np
import orbax.checkpoint as ocp
import pytest
from flax import nnx

from surgery_cli import surgery
from surgery_cli.cli.main import run
from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.planning import plan_from_document
from surgery_cli.probing.model.misfits import Misfit
from surgery_cli.probing.use_case import session
from surgery_cli.store.filesystem import memory_limits
from surgery_cli.store.open.checkpoint import Checkpoint
from tests.probe import edited_models as own
from tests.probe.conftest import X, save
from tests.probe.looking import HERE, linen_variables
from tests.verification.test_checked_source import flip_a_byte

MODEL = f"{HERE / 'edited_models.py'}:MLP"


def probe(checkpoint, batch, model=MODEL, **options):
    inputs = (batch,) if isinstance(batch, str) else batch
    return surgery.probe(
        checkpoint, model=model, inputs=inputs, options=surgery.ProbeOptions(**options)
    )


def test_params_of_a_train_state_are_found_and_only_they_are_read(saved, batch):
    found = probe(saved, batch)

    assert found.bound == {"params": "params"}
    assert found.leaves_read == 2
    assert found.bytes_read == (5 * 8 + 8 * 3) * 4
    assert [(s.name, s.kind, s.shape) for s in found.sites] == [
        ("hidden", "Dense", (4, 8)), ("out", "Dense", (4, 3)), (".", "MLP", (4, 3)),
    ]  # fmt: skip
    assert found.is_sound


def test_statistics_are_those_of_numpy(saved, batch, params):
    row = probe(saved, batch).sites[0].statistics
    hidden = X.astype(np.float64) @ np.float64(params["hidden"]["kernel"])

    assert row.mean == pytest.approx(hidden.mean(), rel=1e-4)
    assert row.std == pytest.approx(hidden.std(), rel=1e-5)
    assert row.min == pytest.approx(hidden.min(), rel=1e-5)
    assert row.max == pytest.approx(hidden.max(), rel=1e-5)
    assert row.rms == pytest.approx(np.sqrt((hidden**2).mean()), rel=1e-5)
    assert (row.zeros, row.nan, row.inf) == (0.0, 0, 0)


def test_another_place_can_be_named(saved, batch):
    ema = probe(saved, batch, params="ema_params")
    mine = probe(saved, batch)

    assert ema.bound == {"params": "ema_params"}
    assert ema.sites[0].statistics.rms == pytest.approx(mine.sites[0].statistics.rms / 2, rel=1e-5)
    assert probe(saved, batch, bind={"params": "opt_state/0/mu"}).sites[0].statistics.zeros == 1.0


def test_a_place_that_is_not_there_is_answered_with_the_nearest(saved, batch):
    with pytest.raises(SurgeryError, match="no node 'parms'") as error:
        probe(saved, batch, params="parms")
    assert "'params'" in str(error.value)


def test_shapes_reads_no_tensor(saved, batch):
    found = probe(saved, batch, shapes=True)

    assert (found.leaves_read, found.bytes_read) == (0, 0)
    assert [s.shape for s in found.sites] == [(4, 8), (4, 3), (4, 3)]
    assert all(s.statistics is None for s in found.sites)


def test_stopping_after_a_module_reads_only_what_comes_before(saved, batch):
    found = probe(saved, batch, until="hidden")

    assert [s.name for s in found.sites] == ["hidden"]
    assert found.leaves_read == 1
    with pytest.raises(SurgeryError, match="did you mean `--until hidden`"):
        probe(saved, batch, until="hiden")


def test_filters_by_path_and_class_choose_rows_and_refuse_to_leave_none(saved, batch):
    assert [s.name for s in probe(saved, batch, at=("h*",)).sites] == ["hidden"]
    assert [s.name for s in probe(saved, batch, only=("MLP",)).sites] == ["."]
    with pytest.raises(SurgeryError, match=r"'Dense', 'MLP'"):
        probe(saved, batch, only=("Conv",))
    with pytest.raises(SurgeryError, match="leaves no call"):
        probe(saved, batch, at=("decoder/**",))
    with pytest.raises(SurgeryError, match="leaves no call"):
        probe(saved, batch, methods=("encode",))


def test_a_model_of_another_size_gets_every_misfit_at_once(saved, batch):
    with pytest.raises(Misfit) as error:
        probe(saved, batch, model=f"{MODEL}(features=16)")

    assert error.value.exit_code == 1
    texts = [p.what for p in error.value.problems]
    assert texts == [
        "'params/hidden/kernel' is float32[5,8], the model wants float32[5,16]",
        "'params/out/kernel' is float32[8,3], the model wants float32[16,3]",
    ]


def test_renamed_layers_are_recognised_by_their_shapes(saved, batch):
    with pytest.raises(Misfit) as error:
        probe(saved, batch, model=f"{HERE / 'edited_models.py'}:RenamedMLP", params="params")

    fixes = [p.fix for p in error.value.problems]
    assert "rename SRC DST params/hidden/kernel --to params/encoder/kernel" in fixes[0]
    assert "rename SRC DST params/out/kernel --to params/head/kernel" in fixes[1]


def test_an_input_of_another_size_is_said_to_be_the_likely_cause(tmp_path, batch):
    with pytest.raises(Misfit, match="is `--input` of the shape") as error:
        probe(
            save(tmp_path / "c", {"params": linen_variables(own.MLP(), X)["params"]}),
            ("float32[4,6]",),
        )
    assert len(error.value.problems) == 1


def test_a_stacked_checkpoint_is_told_from_an_unrolled_model(tmp_path):
    stacked = {"block_0": {"inner": {"kernel": np.zeros((3, 4, 4), np.float32),
                                     "bias": np.zeros((3, 4), np.float32)}}}  # fmt: skip
    stacked |= {f"block_{n}": stacked["block_0"] for n in (1, 2)}
    path = save(tmp_path / "stacked", stacked)

    with pytest.raises(Misfit, match="stacks 3 layers"):
        probe(path, ("float32[2,4]",), model=f"{HERE / 'edited_models.py'}:Unrolled")


@pytest.mark.parametrize("name", ["opt_state", "critic_opt"])
def test_a_checkpoint_of_an_optimizer_alone_is_not_taken_for_params(tmp_path, batch, params, name):
    path = save(tmp_path / "opt", {name: {"mu": params, "nu": params}})

    with pytest.raises(SurgeryError, match="fit only the optimizer state") as error:
        probe(path, batch)
    assert f"--params {name}/" in str(error.value)


def test_two_equally_good_places_are_a_question(tmp_path, batch, params):
    path = save(tmp_path / "two", {"actor": {"params": params}, "other": {"params": params}})

    with pytest.raises(SurgeryError, match="several places equally well") as error:
        probe(path, batch)
    assert "--params actor/params" in str(error.value)
    assert probe(path, batch, params="other/params").bound == {"params": "other/params"}


def test_gradients_of_a_users_loss_are_those_of_jax(saved, batch, params):
    found = probe(saved, batch, grad=True, loss=f"{HERE / 'edited_models.py'}:squared")

    def loss(params):
        return own.squared(own.MLP().apply({"params": params}, X), np.ones((4, 3), np.float32))

    value, expected = jax.value_and_grad(loss)(params)
    assert found.loss == pytest.approx(float(value), rel=1e-6)
    by_path = {p.path: p.gradient.rms for p in found.params}
    for name in ("hidden", "out"):
        rms = np.sqrt((np.float64(expected[name]["kernel"]) ** 2).mean())
        assert by_path[f"params/{name}/kernel"] == pytest.approx(rms, rel=1e-5)


def test_a_loss_that_needs_more_or_gives_no_number_is_refused(saved, batch):
    file = HERE / "edited_models.py"
    with pytest.raises(SurgeryError, match="needs 'weight'"):
        probe(saved, batch, grad=True, loss=f"{file}:wants_weight")
    with pytest.raises(SurgeryError, match=r"the loss gives float32\[4,3\]"):
        probe(saved, batch, grad=True, loss=f"{file}:no_number")
    with pytest.raises(SurgeryError, match="only together with `--grad`"):
        probe(saved, batch, loss=f"{file}:squared")


def test_a_dead_layer_is_marked(tmp_path, batch, params):
    dead = {**params, "hidden": {"kernel": -np.abs(params["hidden"]["kernel"])}}
    path = save(tmp_path / "dead", {"params": dead})
    np.savez(tmp_path / "positive.npz", x=np.abs(X))

    found = probe(path, (str(tmp_path / "positive.npz"),), grad=True)

    assert {s.name: s.marks for s in found.sites} == {"hidden": ["dead"], "out": [], ".": []}
    assert {p.path: p.marks for p in found.params} == {
        "params/hidden/kernel": ["dead"], "params/out/kernel": ["dead"],
    }  # fmt: skip


def test_a_gradient_that_is_not_finite_is_a_finding(tmp_path):
    kernel = np.full((4, 4), 0.5, np.float32)
    kernel[:, 1] = 0
    path = save(tmp_path / "root", {"params": {"Dense_0": {"kernel": kernel}}})

    model = f"{HERE / 'edited_models.py'}:RootGradient"
    assert probe(path, ("float32[2,4]=1",), model=model).is_sound
    found = probe(path, ("float32[2,4]=1",), model=model, grad=True)

    assert not found.is_sound
    assert (found.first_non_finite.where, found.first_non_finite.role) == ("Dense_0", "gradient")


def test_captured_values_and_gradients_are_saved(saved, batch, params, tmp_path):
    file = tmp_path / "values.npz"
    found = probe(saved, batch, save=str(file), grad=True, only=("Dense",))

    assert found.files == [str(file)]
    with np.load(file) as values:
        assert set(values) == {
            "hidden", "out", "gradient:hidden", "gradient:out",
            "gradient:params/hidden/kernel", "gradient:params/out/kernel",
        }  # fmt: skip
        hidden = jax.jit(lambda x: x @ params["hidden"]["kernel"])(X)
        np.testing.assert_allclose(values["hidden"], hidden, rtol=1e-6)
    assert [p.name for p in tmp_path.iterdir()] == ["values.npz"]


def test_bfloat16_is_saved_as_float32(tmp_path, batch, params):
    half = jax.tree.map(lambda p: np.asarray(p).astype(ml_dtypes.bfloat16), params)
    path = save(tmp_path / "half", {"params": half})

    found = probe(path, ("bfloat16[4,5]",), save=str(tmp_path / "v.npz"))

    assert {s.dtype for s in found.sites} == {"bfloat16"}
    with np.load(tmp_path / "v.npz") as values:
        assert values["hidden"].dtype == np.float32


def test_files_are_refused_inside_the_checkpoint_and_with_other_suffixes(saved, batch):
    before = sorted(Path(saved).rglob("*"))
    with pytest.raises(SurgeryError, match="inside the checkpoint"):
        probe(saved, batch, save=f"{saved}/values.npz")
    with pytest.raises(SurgeryError, match=r"does not end in \.npz"):
        probe(saved, batch, save="values.npy")
    with pytest.raises(SurgeryError, match=r"does not end in \.png"):
        probe(saved, batch, plot="scales.gif")
    assert sorted(Path(saved).rglob("*")) == before


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_a_plot_shows_every_place(saved, batch, tmp_path, suffix):
    pytest.importorskip("matplotlib")
    file = tmp_path / f"scales{suffix}"
    probe(saved, batch, plot=str(file), grad=True)

    content = file.read_bytes()
    assert content.startswith(b"\x89PNG") if suffix == ".png" else b"hidden" in content


def test_without_matplotlib_a_plot_names_what_to_install(saved, batch, monkeypatch):
    monkeypatch.setattr("surgery_cli.probing.use_case.plotting.find_spec", lambda _: None)

    with pytest.raises(SurgeryError, match=r"pip install 'surgery-cli\[plot\]'"):
        probe(saved, batch, plot="scales.svg")


def test_an_nnx_checkpoint_binds_by_the_paths_of_its_state(tmp_path):
    from tests.probe import odd_models as odd

    model = odd.Inheriting(nnx.Rngs(0))
    path = save(tmp_path / "nnx", nnx.to_pure_dict(nnx.state(model)))
    spec = f"{HERE / 'odd_models.py'}:Inheriting"

    found = probe(path, ("float32[2,4]",), model=spec)

    assert found.bound == {"Param": "."}
    assert [s.name for s in found.sites][-1] == "."
    assert found.leaves_read == 4


def test_nnx_random_states_that_are_not_saved_are_made_by_the_model(tmp_path):
    from tests.probe import odd_models as odd

    model = odd.NnxListed(nnx.Rngs(0))
    kept = nnx.state(model, (nnx.Param, nnx.BatchStat))
    path = save(tmp_path / "listed", {"model": nnx.to_pure_dict(kept)})
    spec = f"{HERE / 'odd_models.py'}:NnxListed"

    found = probe(path, ("float32[2,4]",), model=spec, call={"train": True})

    assert found.bound == {"Param": "model", "BatchStat": "model"}
    assert "2 random states" in found.notes[0]
    dropped = found.sites[-2]
    assert dropped.kind == "Dropout"
    assert 0 < dropped.statistics.zeros < 1


def test_the_command_prints_rows_and_the_verdict(saved, batch, capsys):
    with pytest.raises(SystemExit) as end:
        run(["probe", saved, "--model", MODEL, "--input", batch])

    out, err = capsys.readouterr()
    assert end.value.code == 0
    assert err.startswith("importing ")
    rows = [line.split()[0] for line in out.splitlines() if re.match(r"(hidden|out|\.) ", line)]
    assert rows == ["hidden", "out", "."]
    assert "every value is finite" in out


def test_the_command_prints_one_json_document(saved, batch, capsys):
    with pytest.raises(SystemExit) as end:
        run(["probe", saved, "--model", MODEL, "--input", batch, "--against", saved, "--json"])

    document = json.loads(capsys.readouterr().out)
    assert end.value.code == 0
    assert document["schema_version"] == 1
    assert document["comparison"]["agrees"] is True
    assert document["sites"][0]["statistics"]["nan"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--call", "train"], "`--call` takes NAME=VALUE"),
        (["--bind", "batch_stats"], "`--bind` takes NAME=AT"),
        (["--rng", "dropout=x"], "`--rng` takes NAME=SEED"),
        (["--device", "abacus"], "'abacus' is not a device"),
        (["--call", "training=true"], "takes no 'training'"),
        (["--model-b", MODEL], "only together with `--against`"),
        (["--shapes", "--grad"], "reads no tensor"),
    ],
)
def test_a_wrong_option_is_exit_code_2(saved, batch, capsys, arguments, message):
    with pytest.raises(SystemExit) as end:
        run(["probe", saved, "--model", MODEL, "--input", batch, *arguments])

    assert end.value.code == 2
    assert message in capsys.readouterr().err


@pytest.fixture(scope="module")
def autoencoders(tmp_path_factory):
    """An autoencoder with a method `encode`, in linen and in NNX."""
    from tests.probe import seed_models as seeds

    folder = tmp_path_factory.mktemp("autoencoders")
    linen = linen_variables(seeds.AutoEncoder(), np.ones((2, 8), np.float32))
    module = nnx.state(seeds.NnxAutoEncoder(rngs=nnx.Rngs(0)))
    return {
        "AutoEncoder": save(folder / "linen", linen),
        "NnxAutoEncoder": save(folder / "nnx", nnx.to_pure_dict(module)),
    }


@pytest.mark.parametrize("name", ["AutoEncoder", "NnxAutoEncoder"])
def test_calls_of_a_method_are_shown_when_asked_for(autoencoders, name):
    spec = f"{HERE / 'seed_models.py'}:{name}"
    shown = probe(autoencoders[name], ("float32[2,8]",), model=spec, shapes=True)
    encode = probe(
        autoencoders[name], ("float32[2,8]",), model=spec, methods=("encode",), shapes=True
    )
    everything = probe(
        autoencoders[name], ("float32[2,8]",), model=spec, methods=("*",), shapes=True
    )

    assert [s.name for s in shown.sites] == ["encoder", "decoder", "."]
    assert [(s.name, s.method, s.shape) for s in encode.sites] == [("encode", "encode", (2, 3))]
    assert [s.name for s in everything.sites] == ["encoder", "encode", "decoder", "."]


@pytest.mark.parametrize("name", ["AutoEncoder", "NnxAutoEncoder"])
@pytest.mark.parametrize(
    ("part", "rows"), [("encode", ["encoder", "encode"]), ("encoder", ["encoder"])]
)
def test_a_method_or_a_submodule_runs_on_its_own_with_its_own_leaves(
    autoencoders, name, part, rows
):
    spec = f"{HERE / 'seed_models.py'}:{name}"
    found = probe(autoencoders[name], ("float32[2,8]",), model=spec, run=part, shapes=True)

    assert [s.name for s in found.sites] == rows
    with pytest.raises(SurgeryError, match="has no method or submodule 'encodes'"):
        probe(autoencoders[name], ("float32[2,8]",), model=spec, run="encodes", shapes=True)


def test_a_call_that_lacks_something_names_the_option_that_gives_it(tmp_path):
    from tests.probe import odd_models as odd

    path = save(tmp_path / "normed", linen_variables(odd.Normed(), np.ones((2, 4), np.float32)))

    def fix_of(model, **options):
        with pytest.raises(SurgeryError) as error:
            probe(path, ("float32[2,4]",), model=f"{HERE / 'odd_models.py'}:{model}", **options)
        return error.value.problems[0].fix

    assert "`--vmap batch`" in fix_of("Normed(axis_name='batch')", call={"train": True})
    assert "`--call scale=…`" in fix_of("Scaled")


def test_an_input_that_was_named_and_that_nothing_takes_is_refused(saved, batch):
    loss = f"{HERE / 'edited_models.py'}:squared"
    extra = (batch, "z=float32[4,3]=0")

    with pytest.raises(SurgeryError, match="neither the model nor a loss takes the input 'z'"):
        probe(saved, extra)
    with pytest.raises(SurgeryError, match="takes the input 'z'"):
        probe(saved, extra, shapes=True)
    with pytest.raises(SurgeryError, match="did you mean `--input 'x=float32"):
        probe(saved, ("float32[4,5]", "xs=float32[4,5]"))
    with pytest.raises(SurgeryError, match="takes the input 'y'"):
        probe(saved, ("x=float32[4,5]", "y=float32[4,3]"), grad=True)
    assert probe(saved, ("x=float32[4,5]", "y=float32[4,3]"), grad=True, loss=loss).is_sound
    assert probe(saved, batch).notes[-1] == "neither the model nor a loss takes 'y' of the inputs"
    assert probe(saved, batch, grad=True, loss=loss).notes == []


def test_a_seed_for_a_stream_from_which_nothing_is_drawn_is_refused(tmp_path):
    from tests.probe import odd_models as odd

    linen = linen_variables(odd.Normed(), np.ones((2, 4), np.float32))
    listed = nnx.state(odd.NnxListed(nnx.Rngs(0)), (nnx.Param, nnx.BatchStat))
    places = {
        "Normed": save(tmp_path / "linen", linen),
        "NnxListed": save(tmp_path / "nnx", nnx.to_pure_dict(listed)),
    }

    def shapes(name, train, **streams):
        model = f"{HERE / 'odd_models.py'}:{name}"
        options = {"call": {"train": train}, "streams": streams, "shapes": True}
        return probe(places[name], ("float32[2,4]",), model=model, **options)

    for name in places:
        assert shapes(name, train=True, dropout=3).sites
        with pytest.raises(SurgeryError, match="does not draw from 'dropot'") as error:
            shapes(name, train=True, dropout=3, dropot=0)
        assert "did you mean `--rng dropout=0`?" in str(error.value)
        with pytest.raises(SurgeryError, match="draws from no random stream"):
            shapes(name, train=False, dropout=3)


def test_every_filter_must_name_something(saved, batch):
    for field, good, bad, near in (
        ("at", "hidden", "hiden", "--at hidden"),
        ("only", "Dense", "Danse", "--only Dense"),
        ("methods", "__call__", "__cal__", "--calls __call__"),
    ):
        with pytest.raises(SurgeryError, match=f"{bad}` leaves no call") as error:
            probe(saved, batch, shapes=True, **{field: (good, bad)})
        assert f"did you mean `{near}`?" in str(error.value)


def test_a_part_of_an_output_is_named_as_its_row_is(tmp_path):
    from tests.probe import odd_models as odd

    path = save(tmp_path / "c", linen_variables(odd.Structured(), np.ones((2, 4), np.float32)))
    model = f"{HERE / 'odd_models.py'}:Structured"
    found = probe(path, ("float32[2,4]",), model=model, shapes=True, at=("pair['both'][1]",))

    assert [s.name for s in found.sites] == ["pair['both'][1]"]


def test_a_filter_may_name_a_module_of_the_other_model_alone(saved, tmp_path, batch, params):
    renamed = {"encoder": params["hidden"], "head": params["out"]}
    other = save(tmp_path / "renamed", {"params": renamed})
    model_b = f"{HERE / 'edited_models.py'}:RenamedMLP"
    options = {"against": other, "model_b": model_b}

    found = probe(saved, batch, at=("hidden", "encoder"), **options)
    assert [s.name for s in found.sites] == ["hidden"]
    with pytest.raises(SurgeryError, match="`--at decoder` leaves no call"):
        probe(saved, batch, at=("hidden", "decoder"), **options)


def test_an_empty_batch_is_refused_but_for_its_shapes(saved):
    with pytest.raises(SurgeryError, match="is an empty batch"):
        probe(saved, ("float32[0,5]",))
    assert [s.shape for s in probe(saved, ("float32[0,5]",), shapes=True).sites][-1] == (0, 3)


def test_shapes_allocates_no_input(saved):
    found = probe(saved, ("float32[4000000000000,5]",), shapes=True)

    assert found.sites[-1].shape == (4_000_000_000_000, 3)


def test_a_batch_that_does_not_fit_into_memory_is_refused_with_its_size(saved, tmp_path):
    with pytest.raises(SurgeryError, match="does not fit into memory") as error:
        probe(saved, ("float32[4000000000000,5]",))
    assert "smaller batch" in str(error.value)

    (tmp_path / "wide.py").write_text(
        "import jax.numpy as jnp\nfrom flax import linen as nn\nclass MLP(nn.Module):\n"
        "    @nn.compact\n    def __call__(self, x):\n"
        "        x = nn.Dense(8, use_bias=False, name='hidden')(x)\n"
        "        x = nn.Dense(3, use_bias=False, name='out')(nn.relu(x))\n"
        "        return jnp.sort(x[:, 0, None] + jnp.arange(1 << 45, dtype=x.dtype)).sum()\n"
    )
    with pytest.raises(SurgeryError, match="not enough memory") as error:
        probe(saved, ("float32[4,5]",), model=f"{tmp_path / 'wide.py'}:MLP")
    assert "float32[4,5]: 80 B" in str(error.value)


def test_files_that_cannot_be_written_are_refused_before_the_run(saved, batch, tmp_path):
    (tmp_path / "v.npz").mkdir()
    for place, why in (("/proc/v.npz", ""), (str(tmp_path / "v.npz"), "it is a directory")):
        with pytest.raises(SurgeryError, match="cannot be written") as error:
            probe(saved, batch, save=place)
        assert why in str(error.value)
        assert error.value.exit_code == 2


def test_a_loss_that_is_not_finite_is_named_as_such(saved, batch, tmp_path, capsys):
    file = tmp_path / "losses.py"
    file.write_text(
        "import jax.numpy as jnp\ndef bad(out): return jnp.sqrt(-1 - (out * out).sum())\n"
    )
    with pytest.raises(SystemExit) as end:
        run(["probe", saved, "--model", MODEL, "--input", batch, "--grad", "--loss", f"{file}:bad"])

    out = capsys.readouterr().out
    assert end.value.code == 1
    assert "the loss is not finite: NaN" in out
    assert "gradient 12 NaN" in next(line for line in out.splitlines() if line.startswith("out "))
    assert "exploding" not in out


def test_the_verdict_says_on_which_side_every_value_is_finite(
    saved, batch, params, tmp_path, capsys
):
    bad = jax.tree.map(np.array, params)
    bad["hidden"]["kernel"][0, 0] = np.nan
    other = save(tmp_path / "bad", {"params": bad})

    for here, there, line in (
        (saved, other, "here every value is finite"),
        (other, saved, "here:"),
    ):
        with pytest.raises(SystemExit):
            run(["probe", here, "--model", MODEL, "--input", batch, "--against", there])
        lines = capsys.readouterr().out.splitlines()
        assert line in lines
        assert "every value is finite" not in lines


@pytest.mark.parametrize("name", ["nope", "name", "features"])
def test_only_what_can_be_run_is_offered_to_run(saved, batch, name):
    with pytest.raises(SurgeryError, match="has no method or submodule") as error:
        probe(saved, batch, run=name)
    assert "it has 'hidden', 'out'" in str(error.value)


def test_params_of_another_model_are_said_to_be_there(tmp_path, batch):
    path = save(tmp_path / "c", {"params": {"other": {"kernel": np.ones((2, 2), np.float32)}}})

    with pytest.raises(Misfit, match="has 'params', but none of the model's params in it"):
        probe(path, batch)


def test_an_argument_that_is_a_dict_is_given_by_its_entries(saved, tmp_path):
    file = tmp_path / "dicts.py"
    file.write_text(
        "from flax import linen as nn\nclass MLP(nn.Module):\n    @nn.compact\n"
        "    def __call__(self, batch):\n        x = batch['x'] * batch['more']['weight']\n"
        "        x = nn.relu(nn.Dense(8, use_bias=False, name='hidden')(x))\n"
        "        return nn.Dense(3, use_bias=False, name='out')(x)\n"
        "def loss(output, batch): return (output * batch['more']['weight']).sum()\n"
    )
    inputs = ("batch.x=float32[4,5]=1", "batch.more.weight=float32[4,1]=2")
    found = probe(saved, inputs, f"{file}:MLP", grad=True, loss=f"{file}:loss")
    same = probe(saved, ("float32[4,5]=2",))

    assert found.sites[0].statistics == same.sites[0].statistics
    with pytest.raises(SurgeryError, match=r"--input batch\.KEY=…"):
        probe(saved, ("x=float32[4,5]",), f"{file}:MLP")
    with pytest.raises(SurgeryError, match=r"'batch' is an array, and 'batch\.x' makes it a dict"):
        probe(saved, ("batch=float32[4]", *inputs), f"{file}:MLP")


@pytest.fixture
def sealed(tmp_path, params):
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(tmp_path / "sealed", {"params": params, "ema_params": params})
    surgery.seal(str(tmp_path / "sealed"))
    return tmp_path / "sealed"


def test_what_the_model_is_given_is_held_against_digests_on_record(sealed, batch):
    assert probe(str(sealed), batch).is_sound

    flip_a_byte(sealed, "params.hidden.kernel")

    with pytest.raises(CheckpointError, match=r"'params/hidden/kernel' .* digest on record"):
        probe(str(sealed), batch)
    assert probe(str(sealed), batch, params="ema_params").is_sound


def test_a_result_is_not_held_against_the_digests_of_its_source(sealed, batch, tmp_path):
    halve = plan_from_document({"edits": [{"op": "rescale", "at": "params", "by": 0.5}]})
    probed = surgery.Options(probe=MODEL, probe_inputs=(batch,))
    report = surgery.apply(str(sealed), str(tmp_path / "out"), halve, options=probed)
    assert report.verified


def test_params_for_which_there_is_no_memory_are_refused_before_any_is_read(
    saved, batch, monkeypatch
):
    there = memory_limits.Room(100, "are left of what its container or job may have", True)
    monkeypatch.setattr(session, "room", lambda: there)
    monkeypatch.setattr(Checkpoint, "read", None)
    with pytest.raises(CheckpointError, match="the 2 leaves that the model takes do not") as caught:
        probe(saved, batch)
    assert caught.value.problems[0].why == (
        "they have 256 B, 100 B are left of what its container or job may have"
    )
