"""A function of the user's is called by each process that needs its leaf: what it gave must be one and the same."""

import numpy as np
import pytest

from tests.hosts.companies import Processes, restored, saved

FUNCTIONS = """
import os
import numpy as np

def of_the_process(array, path):
    return array + array.dtype.type(os.getpid() % 1000 + 1)

def of_the_path(array, path):
    draw = np.random.default_rng([7, *path.encode()])
    return (array + draw.standard_normal(array.shape)).astype(array.dtype)
"""
PLAN = """
edits:
  - {{op: map, at: params/a, with: "{file}:{function}"}}
  - {{op: copy, at: params/a, to: params/b}}
"""


def applied(tmp_path, function):
    (tmp_path / "edit.py").write_text(FUNCTIONS)
    (tmp_path / "plan.yaml").write_text(PLAN.format(file=tmp_path / "edit.py", function=function))
    leaf = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)
    source = saved(tmp_path / "source", {"params": {"a": leaf}})
    where = tmp_path / "out"
    where.mkdir()
    started = Processes(2, "apply", source, where / "new", tmp_path / "plan.yaml")
    return where, started.ended()


@pytest.mark.check_all
def test_what_differs_between_processes_is_refused_before_it_is_a_result(tmp_path):
    where, ended = applied(tmp_path, "of_the_process")
    assert ended[0].code == 1, ended
    assert "edit.py:of_the_process' on 'params/a' gave something else" in ended[0].err
    assert not list(where.iterdir())


@pytest.mark.check_all
def test_what_hangs_on_the_path_alone_is_the_same_everywhere(tmp_path):
    where, ended = applied(tmp_path, "of_the_path")
    assert [one.code for one in ended] == [0, 0], ended
    params = restored(where / "new")["params"]
    np.testing.assert_array_equal(params["a"], params["b"])
