"""Runs that stop after a call, inside compiled parts and branches too; and ensembles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError, ValueRefusal
from surgery_cli.probing.model.misfits import Misfit
from surgery_cli.probing.trace.forward import run_forward, sites_of
from surgery_cli.probing.trace.traces import cannot_stop_at, over_members, stopped_at
from tests.probe import ensemble_models as own
from tests.probe import odd_models as odd
from tests.probe.conftest import save
from tests.probe.looking import HERE, filled, linen_variables, look, same, traced, variables_of

X = np.random.default_rng(0).standard_normal((2, 4), np.float32)
FILE = HERE / "ensemble_models.py"


def stopped(name, place, x=X, file="odd_models.py"):
    """Variables, what is seen and given by a run that stops after a place, and the same place in the whole run."""
    module = {"odd_models.py": odd, "ensemble_models.py": own}[file]
    variables = linen_variables(getattr(module, name)(), x)
    values, _ = look(name, variables, x, file=file)
    _, found = traced(name, x, file=file)
    calls = [s.point for s in sites_of(found) if s.label.text == place and s.label.role == "out"]
    cut = stopped_at(found, calls)
    seen = run_forward(cut, variables_of(cut, variables), [x])
    return seen, values, [s.name for s in sites_of(cut) if s.label.role == "out"]


@pytest.mark.parametrize(
    ("name", "place", "before"),
    [("Jitted", "first", []), ("Jitted", "second", ["first"]), ("Remat", "second", ["first"])],
)
def test_a_run_stops_inside_compiled_and_rematerialized_parts(name, place, before):
    seen, values, names = stopped(name, place)

    assert names == [*before, place]
    assert same(seen.outputs[0], values[place])


def test_in_a_branch_that_is_taken_a_run_stops_too():
    seen, values, names = stopped("Branching", "wide", np.abs(X))

    assert names == ["wide"]
    assert same(seen.outputs[0], values["wide"])
    assert seen.seen.popitem()[1].ran


def test_the_users_lines_survive_the_cut():
    _, found = traced("Jitted", X, file="odd_models.py")
    site = next(s for s in sites_of(found) if s.name == "second")
    cut = stopped_at(found, [site.point])

    own_frames = [
        frame.line_num
        for equation in cut.closed.jaxpr.eqns
        for frame in equation.source_info.traceback.frames
        if frame.file_name.endswith("odd_models.py")
    ]
    assert own_frames


def test_a_call_of_several_arrays_stops_with_all_of_them():
    _, found = traced("Structured", X, file="odd_models.py")
    calls = [s.point for s in sites_of(found) if s.label.path == "pair" and s.label.role == "out"]
    cut = stopped_at(found, calls)

    variables = linen_variables(odd.Structured(), X)
    outputs = run_forward(cut, variables_of(cut, variables), [X]).outputs
    assert [o.shape for o in outputs] == [(2, 4)] * 3
    assert cut.structure.num_leaves == 3
    assert same(outputs[0], X)


@pytest.mark.parametrize(
    ("name", "place", "why"),
    [
        ("Scanned", "blocks/inner", "a loop (`scan`), which runs it 3 times"),
        ("Whiling", "dense (2)", "a `while`, which cannot be seen inside"),
    ],
)
def test_inside_loops_there_is_no_place_to_stop(name, place, why):
    _, found = traced(name, X, file="odd_models.py")
    site = next(s for s in sites_of(found) if s.name == place)

    assert cannot_stop_at(site.point) == why


@pytest.fixture(scope="module")
def members():
    """Variables of five models, as `jax.vmap` of their `init` gives them."""
    single = jax.eval_shape(lambda: own.Normed().init(jax.random.key(0), X))
    stacked = jax.tree.map(lambda s: jax.ShapeDtypeStruct((5, *s.shape), s.dtype), single)
    return jax.tree.map(np.abs, filled(stacked, 0.5))


@pytest.fixture(scope="module")
def checkpoint(members, tmp_path_factory):
    return save(tmp_path_factory.mktemp("ensemble") / "five", members)


def probe(checkpoint, *inputs, model="Normed", **options):
    return surgery.probe(
        checkpoint, model=f"{FILE}:{model}", inputs=inputs or ("float32[2,4]",),
        options=surgery.ProbeOptions(**options),
    )  # fmt: skip


def test_every_member_of_an_ensemble_computes_what_it_computes_alone(members):
    _, found = traced("Normed", X, file="ensemble_models.py", static={"train": True})
    ensemble = over_members(found, 5)
    positions = {s.point.position for s in sites_of(ensemble)}
    seen = run_forward(ensemble, variables_of(ensemble, members), [X], captured=positions)

    def one(variables):
        return own.Normed().apply(variables, X, train=True, mutable=["batch_stats"])[0]

    expected = jax.jit(jax.vmap(one))(members)
    np.testing.assert_allclose(seen.outputs[0], expected, rtol=1e-5, atol=1e-6)
    shapes = {e.site.name: np.asarray(e.values).shape for e in seen.seen.values()}
    assert shapes["Dense_0"] == (5, 2, 8)
    assert shapes["."] == (5, 2, 3)


def test_an_ensemble_is_offered_where_the_checkpoint_is_stacked_and_shown_with_its_count(
    checkpoint,
):
    with pytest.raises(Misfit, match="an ensemble runs with `--ensemble 5`"):
        probe(checkpoint)
    with pytest.raises(Misfit, match=r"only the first axis differs, \(5,\) stored and \(4,\) here"):
        probe(checkpoint, ensemble=4)

    found = probe(checkpoint, ensemble=5, shapes=True)
    assert [(s.name, s.iterations, s.shape) for s in found.sites] == [
        ("Dense_0", (5,), (2, 8)), ("BatchNorm_0", (5,), (2, 8)),
        ("Dense_1", (5,), (2, 3)), (".", (5,), (2, 3)),
    ]  # fmt: skip
    assert "an ensemble of 5" in found.notes[0]


def test_the_loss_of_an_ensemble_is_the_sum_over_its_members(checkpoint, members):
    y = ("x=float32[2,4]=1", "y=float32[2,3]=0.5")
    found = probe(checkpoint, *y, ensemble=5, grad=True, loss=f"{FILE}:squared")

    def loss(variables):
        output = own.Normed().apply(variables, jnp.ones((2, 4)))
        return own.squared(output, jnp.full((2, 3), 0.5))

    values, gradients = jax.jit(jax.vmap(jax.value_and_grad(loss)))(members)
    assert found.loss == pytest.approx(float(values.sum()), rel=1e-5)
    by_path = {p.path: p.gradient.rms for p in found.params}
    kernel = np.float64(gradients["params"]["Dense_0"]["kernel"])
    assert by_path["params/Dense_0/kernel"] == pytest.approx(np.sqrt((kernel**2).mean()), rel=1e-4)
    assert not any(path.startswith("batch_stats") for path in by_path)


def test_a_bad_member_is_named_by_its_number(members, tmp_path):
    bad = jax.tree.map(np.array, members)
    bad["params"]["Dense_1"]["kernel"][3, 2, 1] = np.nan
    found = probe(save(tmp_path / "bad", bad), ensemble=5).first_non_finite

    assert (found.where, found.iteration, found.nan) == ("Dense_1", (3,), 2)


def test_an_ensemble_of_nnx_models_shares_the_random_streams_that_are_not_saved(tmp_path):
    single = nnx.state(nnx.eval_shape(lambda: own.NnxDropping(rngs=nnx.Rngs(0))), nnx.Param)
    stacked = jax.tree.map(lambda s: jax.ShapeDtypeStruct((5, *s.shape), s.dtype), single)
    path = save(tmp_path / "nnx", nnx.to_pure_dict(filled(stacked)))

    found = probe(path, model="NnxDropping", ensemble=5, call={"train": True}, until="dropout")

    assert [s.iterations for s in found.sites] == [(5,), (5,)]
    zeros = found.sites[1].statistics.zeros
    assert zeros * 16 == int(zeros * 16) > 0


def test_stopping_is_refused_in_loops_and_where_the_batch_goes_elsewhere(tmp_path):
    variables = linen_variables(odd.Branching(), X)
    path = save(tmp_path / "branching", variables)

    def until(place, fill):
        return surgery.probe(
            path, model=f"{HERE / 'odd_models.py'}:Branching", inputs=(f"float32[2,4]={fill}",),
            options=surgery.ProbeOptions(until=place),
        )  # fmt: skip

    assert [s.name for s in until("wide", 1).sites] == ["wide"]
    with pytest.raises(ValueRefusal, match="does not come by 'wide'"):
        until("wide", -1)
    with pytest.raises(SurgeryError, match="no call 'wid'"):
        until("wid", 1)
