"""What is asked of a probe is what is shown: caches as they are stored, sown rows, inputs of a call, shared scopes."""

import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of
from surgery_cli.probing.model.misfits import Misfit

MODELS = """
    import pathlib
    from flax import linen as nn

    with pathlib.Path(__file__).with_suffix(".imports").open("a") as file:
        file.write("imported\\n")

    class Decoder(nn.Module):
        width: int = 8

        @nn.compact
        def __call__(self, x):
            x = nn.Embed(11, self.width)(x)
            x = nn.MultiHeadDotProductAttention(num_heads=2, decode=True)(x, x)
            self.sow("intermediates", "attended", x)
            return nn.Dense(11)(x)

    class Normed(nn.Module):
        features: int = 4

        @nn.compact
        def __call__(self, x):
            return nn.BatchNorm(use_running_average=True)(nn.Dense(self.features)(x))

    class Inner(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(4)(x)

    class Outer(nn.Module):
        def setup(self):
            self.inner = Inner()
            nn.share_scope(self, self.inner)

        def __call__(self, x):
            return self.inner(x) * 2

    def loss(output):
        return (output ** 2).mean()
"""


def written(folder, name, text):
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return file


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return written(tmp_path_factory.mktemp("models"), "models.py", MODELS)


def save(path, variables):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path, jax.tree.map(np.asarray, variables))
    return str(path)


def variables_of(models, name, x, **fields):
    namespace = {"__file__": str(models), "__name__": "models"}
    exec(compile(models.read_text(), str(models), "exec"), namespace)
    variables = dict(namespace[name](**fields).init(jax.random.key(0), x))
    variables.pop("intermediates", None)
    return namespace[name](**fields), variables


@pytest.fixture(scope="module")
def decoder(models, tmp_path_factory):
    """A decoder whose cache was made for sequences of 16."""
    _, variables = variables_of(models, "Decoder", jnp.zeros((1, 16), jnp.int32))
    return save(tmp_path_factory.mktemp("decoder") / "ckpt", variables)


@pytest.mark.check_all
def test_a_cache_of_another_length_than_the_input_is_taken_as_it_is(models, decoder):
    module, variables = variables_of(models, "Decoder", jnp.zeros((1, 16), jnp.int32))
    token = np.array([[3]], np.int32)
    np.savez(models.parent / "batch.npz", x=token)
    saved_to = models.parent / "seen.npz"
    options = surgery.ProbeOptions(save=str(saved_to))
    found = surgery.probe(
        decoder, model=f"{models}:Decoder", inputs=(f"{models.parent}/batch.npz",), options=options
    )
    expected, _ = module.apply(variables, token, mutable=["cache", "intermediates"])
    assert found.bound["cache"] == "cache"
    np.testing.assert_allclose(np.load(saved_to)["."], expected, rtol=1e-5, atol=1e-6)


def test_a_statistic_of_another_size_is_still_a_misfit(models, tmp_path):
    _, variables = variables_of(models, "Normed", jnp.zeros((1, 3)))
    path = save(tmp_path / "ckpt", variables)
    with pytest.raises(Misfit, match="the model wants"):
        surgery.probe(path, model=f"{models}:Normed(features=5)", inputs=("float32[2,3]",))


def test_a_cache_of_another_number_of_axes_is_a_misfit(models, decoder, tmp_path):
    _, variables = variables_of(models, "Decoder", jnp.zeros((1, 16), jnp.int32))
    variables["cache"] = jax.tree.map(lambda x: x[0] if x.ndim else x, variables["cache"])
    path = save(tmp_path / "ckpt", variables)
    with pytest.raises(Misfit, match="the model wants"):
        surgery.probe(path, model=f"{models}:Decoder", inputs=("int32[1,1]<11",))


def names(found):
    return [site.name for site in found.sites]


def test_every_call_includes_what_is_sown(models, decoder):
    options = surgery.ProbeOptions(methods=("*",), shapes=True)
    found = surgery.probe(
        decoder, model=f"{models}:Decoder", inputs=("int32[1,1]<11",), options=options
    )
    assert "attended" in names(found)
    assert names(found)[-2:] == ["Dense_0", "."]


def test_a_run_that_stops_before_a_call_shows_what_enters_it(models, decoder):
    options = surgery.ProbeOptions(until="Dense_0:in")
    found = surgery.probe(
        decoder, model=f"{models}:Decoder", inputs=("int32[1,1]<11",), options=options
    )
    assert names(found)[-1] == "Dense_0 (input)"
    assert "Dense_0" not in names(found)
    entering, sown = found.sites[-1].statistics, found.sites[-2].statistics
    assert entering.mean == sown.mean  # the value that was sown just before


def test_modules_that_share_a_scope_are_both_shown(models, tmp_path):
    module, variables = variables_of(models, "Outer", jnp.zeros((1, 3)))
    saved_to = tmp_path / "seen.npz"
    x = np.ones((2, 3), np.float32)
    np.savez(tmp_path / "batch.npz", x=x)
    found = surgery.probe(
        save(tmp_path / "ckpt", variables),
        model=f"{models}:Outer",
        inputs=(str(tmp_path / "batch.npz"),),
        options=surgery.ProbeOptions(save=str(saved_to)),
    )
    assert [(site.name, site.kind) for site in found.sites] == [
        ("Dense_0", "Dense"),
        (".", "Inner"),
        (". (2)", "Outer"),
    ]
    expected = module.apply(variables, x)
    seen = np.load(saved_to)
    np.testing.assert_allclose(seen[". (2)"], expected, rtol=1e-6)
    np.testing.assert_allclose(seen["."] * 2, expected, rtol=1e-6)


def imports_of(models):
    file = models.with_suffix(".imports")
    count = file.read_text().count("imported") if file.exists() else 0
    file.unlink(missing_ok=True)
    return count


def test_a_file_that_is_named_several_times_is_imported_once(models, tmp_path):
    _, variables = variables_of(models, "Normed", jnp.zeros((1, 3)))
    path = save(tmp_path / "ckpt", variables)
    imports_of(models)
    options = surgery.ProbeOptions(
        grad=True, loss=f"{models}:loss", model_b=f"{models}:Normed(features=4)"
    )
    said = []
    surgery.probe(
        path,
        model=f"{models}:Normed",
        inputs=("float32[2,3]",),
        options=surgery.ProbeOptions(grad=True, loss=f"{models}:loss"),
        say=said.append,
    )
    assert (imports_of(models), len(said)) == (1, 1)
    surgery.apply(
        path,
        str(tmp_path / "new"),
        plan_of([Rescale(at="params/Dense_0/bias", by=2)]),
        options=surgery.Options(
            probe=f"{models}:Normed", probe_inputs=("float32[2,3]",), probe_options=options
        ),
    )
    assert imports_of(models) == 1


@pytest.mark.parametrize(
    ("package", "called"), [("equinox", "Equinox"), ("haiku", "Haiku"), ("torch", "PyTorch")]
)
def test_models_of_other_libraries_are_named_as_such(package, called, tmp_path, monkeypatch):
    """Packages of these names stand in for the libraries: where a class comes from is all that is looked at."""
    root = tmp_path / "libraries"
    (root / package).mkdir(parents=True)
    (root / package / "__init__.py").write_text("class Module:\n    pass\n")
    monkeypatch.syspath_prepend(root)
    user = written(
        tmp_path,
        "theirs.py",
        f"""
        import {package}
        class Net({package}.Module):
            def __init__(self, key): ...
            def __call__(self, x): return x
        def make(): return Net(key=0)
        """,
    )
    path = save(tmp_path / "ckpt", {"w": np.ones(3, np.float32)})
    for name in ("Net", "make"):
        with pytest.raises(SurgeryError, match=f"'{name}' is a model of {called}"):
            surgery.probe(path, model=f"{user}:{name}", inputs=("float32[2,3]",))
