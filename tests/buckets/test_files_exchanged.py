"""A checkpoint, or a donor, that is one file in a bucket is exchanged for another whole one while it is read."""

import io
import zipfile

import numpy as np
import pytest
from flax.serialization import to_bytes
from safetensors import numpy as reference

from surgery_cli import surgery as use_cases
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.probing.model.inputs import read_inputs
from surgery_cli.settings.export import Export
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import saved
from tests.fixture_truths import FIXTURES

VALUES = np.random.default_rng(0).standard_normal((300, 500)).astype(np.float32)
MOST = 80
"""No command here makes more requests than this."""


def npz(values):
    file = io.BytesIO()
    np.savez(file, w=values, b=values[0])
    return file.getvalue()


def packed(values):
    file = io.BytesIO()
    np.savez_compressed(file, w=values, b=values[0])
    return file.getvalue()


def fortran(values):
    return npz(np.asfortranarray(values))


def npy(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def npy_fortran(values):
    return npy(np.asfortranarray(values))


def safetensors(values):
    return reference.save({"w": values, "b": values[0]})


def msgpack(values):
    return to_bytes({"params": {"w": values, "b": values[0]}})


def torch(values):
    """What PyTorch has saved, all entries as they are; of the other one all values are others."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(FIXTURES / "torch" / "state.pt") as there,
        zipfile.ZipFile(file, "w") as new,
    ):
        for entry in there.infolist():
            content = there.read(entry)
            is_other = "/data/" in entry.filename and values is not VALUES
            new.writestr(entry.filename, bytes(len(content)) if is_other else content)
    return file.getvalue()


CHECKPOINTS = {"msgpack": msgpack, "npz": npz, "safetensors": safetensors, "pt": torch}
CHECKPOINTS |= {"packed.npz": packed, "fortran.npz": fortran}
DONORS = {"npy": npy, "fortran.npy": npy_fortran, "npz": npz, "packed.npz": packed}
DONORS |= {"fortran.npz": fortran, "safetensors": safetensors}


def exchanged_at(service, name, number, content):
    """Put another object in a file's place before a request; gives how many came."""
    came = []

    def before(request):
        came.append(request)
        if len(came) == number:
            service.put("bkt", name, content)

    service.before = before
    return came


def swept(service, name, make, deed, results):
    """Do it with the file exchanged at each request: the result is that of one of both, or it has changed."""
    one, other = make(VALUES), make(-VALUES)
    assert len(one) == len(other) or "packed" in name
    told = []
    for number in range(1, MOST):
        service.before = lambda _: None
        service.put("bkt", name, one)
        start = f"{service.scheme}://"
        known = filesystem._SERVICES[start]
        filesystem._SERVICES[start] = Buckets(known._service)  # nothing read is known any more
        came = exchanged_at(service, name, number, other)
        found = problem = None
        try:
            found = deed(number)
        except SurgeryError as error:
            problem = error
        if problem is None:
            assert found in results(one, other), number
        else:
            first = problem.problems[0]
            assert "changed while it was read" in first.what or "was replaced" in first.why, number
            assert "damaged" not in str(problem)
            assert problem.exit_code in (2, 3)
            told.append(number)
        service.settle()
        if len(came) < number:
            break
    else:
        raise AssertionError("there was no end of requests")
    assert told


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", CHECKPOINTS)
def test_a_checkpoint_of_one_file_that_is_exchanged_is_not_called_damaged(service, tmp_path, form):
    """Replaced while an archive's list was read, it was "an archive", or "cut short or damaged"."""
    name = f"m.{form}" if form != "msgpack" else "checkpoint_1"

    def exported(address, out):
        use_cases.apply(str(address), str(out), plan_of([], output=Export(format="npz")))
        with np.load(out) as arrays:
            return {key: arrays[key].tobytes() for key in arrays.files}

    def expected(one, other):
        found = []
        for number, content in enumerate((one, other)):
            here, out = tmp_path / f"{number}-{name}", tmp_path / f"expected-{number}.npz"
            here.write_bytes(content)
            if not out.exists():
                exported(here, out)
            with np.load(out) as arrays:
                found.append({key: arrays[key].tobytes() for key in arrays.files})
        assert found[0] != found[1]
        return found

    swept(
        service,
        name,
        CHECKPOINTS[form],
        lambda number: exported(f"{service.root}/{name}", tmp_path / f"{number}.npz"),
        expected,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", DONORS)
def test_a_donor_of_one_file_that_is_exchanged_is_not_called_damaged(service, tmp_path, form):
    there = f"{service.root}/m.{form}"
    source = str(saved(tmp_path / "ck", {"params": {"w": np.zeros_like(VALUES)}}))
    entry = "" if form.endswith("npy") else ":w"
    plan = plan_of([operation_from_options("replace", {"at": "params/w", "with": there + entry})])

    def replaced(number):
        out = tmp_path / f"out-{number}"
        use_cases.apply(source, str(out), plan)
        return open_checkpoint(str(out)).read(LeafPath(("params", "w"))).tobytes()

    expected = [VALUES.tobytes(), (-VALUES).tobytes()]
    swept(service, f"m.{form}", DONORS[form], replaced, lambda *_: expected)


@pytest.mark.parametrize("form", ["npz", "packed.npz", "npy"])
def test_a_batch_that_is_exchanged_is_not_called_damaged(service, form):
    def read(_):
        found = read_inputs(
            [f"x={service.root}/m.{form}" + ("" if form == "npy" else ":w")], seed=0
        )
        return found[0].values.tobytes()

    expected = [VALUES.tobytes(), (-VALUES).tobytes()]
    swept(service, f"m.{form}", DONORS[form], read, lambda *_: expected)


def test_a_batch_that_is_cut_short_is_no_bug_of_ours(tmp_path):
    place = tmp_path / "m.npz"
    place.write_bytes(npz(VALUES)[:1000])
    with pytest.raises(SurgeryError, match="cannot be read"):
        read_inputs([str(place)], seed=0)
