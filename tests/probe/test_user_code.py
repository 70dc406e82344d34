"""Importing the user's file: as if it were run from its folder, and without a trace afterwards."""

import atexit
import os
import subprocess
import sys
from textwrap import dedent

import pytest

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.call_specs import call_spec, literal
from surgery_cli.script.user_code import load_object


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return write


def loaded(path, name, **more):
    found = load_object(f"{path}:{name}")
    return found.call(**more) if callable(found.value) else found.value


def test_a_call_takes_literals(write):
    file = write("train.py", "def make(*args, **kwargs):\n    return args, kwargs\n")

    spec = call_spec(f"{file}:make(3, 'same', (2, 2), train=false, name=null)")

    assert (spec.name, spec.is_call) == ("make", True)
    assert spec.args == (3, "same", (2, 2))
    assert spec.kwargs == {"train": False, "name": None}
    assert loaded(file, "make(1, k=[2])") == ((1,), {"k": [2]})
    assert literal("-1e-3") == -1e-3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.py", "does not name an object"),
        ("nowhere.py:CNN", "there is no file 'nowhere.py'"),
        ("FILE:CNN(", "neither a name nor a call"),
        ("FILE:CNN(features=jnp)", "'jnp' is not a literal"),
        ("FILE:a+b", "neither a name nor a call"),
    ],
)
def test_what_is_no_spec_is_refused(write, text, message):
    file = write("train.py", "")

    with pytest.raises(SurgeryError, match=message.replace("(", r"\(")):
        call_spec(text.replace("FILE", str(file)))


def test_a_missing_name_is_answered_with_what_is_there(write):
    file = write("train.py", "import math\nfrom pathlib import Path\nclass CNN: ...\nSEED = 0\n")

    with pytest.raises(SurgeryError) as error:
        load_object(f"{file}:CMN")
    assert error.value.problems[0].why == "it has 'CNN', 'SEED'"
    assert error.value.problems[0].fix == f"did you mean `{file}:CNN`?"


def test_missing_and_unknown_arguments_are_answered_with_what_it_takes(write):
    file = write("train.py", "class CNN:\n    def __init__(self, features, depth=2): ...\n")

    with pytest.raises(SurgeryError, match="needs 'features'") as error:
        loaded(file, "CNN")
    assert "it takes features, depth=2" in str(error.value)
    with pytest.raises(SurgeryError, match="does not take 'width'"):
        loaded(file, "CNN(1, width=3)")
    with pytest.raises(SurgeryError, match="has no argument for 3"):
        loaded(file, "CNN(1, 2, 3)")


def test_a_failing_import_shows_the_users_own_line(write):
    file = write("train.py", "import json\nx = json.loads('{')\n")

    with pytest.raises(SurgeryError) as error:
        load_object(f"{file}:x")
    why = error.value.problems[0].why
    assert f"{file}:2: x = json.loads('{{')" in why
    assert "JSONDecodeError" in why


def test_a_syntax_error_shows_its_line(write):
    file = write("train.py", "x = 1\ny = = 2\n")

    with pytest.raises(SurgeryError) as error:
        load_object(f"{file}:x")
    assert f"{file}:2: y = = 2" in error.value.problems[0].why


def test_a_missing_package_is_named(write):
    file = write("train.py", "import no_such_package_here\n")

    with pytest.raises(SurgeryError) as error:
        load_object(f"{file}:x")
    assert error.value.problems[0].fix == "install 'no_such_package_here' where `surgery` runs"


def test_a_script_that_ends_the_program_is_told_to_guard_itself(write):
    file = write("train.py", "import sys\nsys.exit(3)\n")

    with pytest.raises(SurgeryError, match=r"ended the program \(exit code 3\)") as error:
        load_object(f"{file}:x")
    assert "__main__" in error.value.problems[0].fix


def test_imports_are_announced_first_and_prints_go_to_standard_error(write, capsys):
    file = write("train.py", "print('training')\nx = 1\n")
    said = []

    load_object(f"{file}:x", say=said.append)

    assert said == [f"importing {file}"]
    assert capsys.readouterr() == ("", "training\n")


def test_siblings_are_found_and_the_script_sees_itself_as_run(write):
    write("layers.py", "WIDTH = 7\n")
    file = write(
        "train.py", "import sys\nfrom layers import WIDTH\nargv = sys.argv\nseen = list(argv)\n"
    )
    before = (sys.path[:], sys.argv[:], sys.dont_write_bytecode)

    assert loaded(file, "WIDTH") == 7
    assert loaded(file, "seen") == [str(file)]
    assert (sys.path, sys.argv, sys.dont_write_bytecode) == before
    assert "layers" not in sys.modules
    assert not list(file.parent.rglob("__pycache__"))


def test_two_models_with_siblings_of_one_name_do_not_meet(write):
    write("a/layers.py", "WIDTH = 1\n")
    write("b/layers.py", "WIDTH = 2\n")
    text = "def late():\n    from layers import WIDTH\n    return WIDTH\n"
    first, second = (load_object(f"{write(f'{f}/train.py', text)}:late") for f in "ab")

    assert (first.call(), second.call(), first.call()) == (1, 2, 1)


@pytest.mark.parametrize("call", ["insert(0, path)", "insert(1, path)", "append(path)"])
def test_a_function_finds_what_the_file_put_on_the_search_path(write, call):
    """Two files of one name in two libraries do not meet either."""
    before = sys.path[:]
    for name in ("one", "two"):
        write(f"{name}/lib/parts.py", f"NAME = '{name}'\n")
        text = f"""
            import sys, pathlib
            path = str(pathlib.Path(__file__).parent / "lib")
            sys.path.{call}
            def lazily():
                from parts import NAME
                return NAME
            """
        assert loaded(write(f"{name}/train.py", text), "lazily") == name
    assert sys.path == before
    assert "parts" not in sys.modules


def test_a_file_inside_a_package_is_imported_from_the_packages_root(write):
    write("project/__init__.py", "")
    write("project/models/__init__.py", "")
    write("project/layers.py", "WIDTH = 5\n")
    file = write("project/models/cnn.py", "from ..layers import WIDTH\nname = __name__\n")

    assert loaded(file, "WIDTH") == 5
    assert loaded(file, "name") == "project.models.cnn"
    assert "project" not in sys.modules


def test_what_a_users_function_raises_shows_the_users_line(write):
    file = write("train.py", "def make():\n    return 1 / 0\n")

    with pytest.raises(SurgeryError, match="'make' failed") as error:
        loaded(file, "make")
    assert error.value.problems[0].why == (
        f"{file}:2: return 1 / 0\nZeroDivisionError: division by zero"
    )


@pytest.mark.parametrize("call", ["os._exit(0)", "os.abort()", "sys.exit()", "quit()"])
@pytest.mark.parametrize("where", ["import", "call"])
def test_no_way_to_end_the_program_is_taken_in_silence(write, call, where):
    body = f"import os, sys\n{call}\n" if where == "import" else "import os, sys\n"
    file = write("train.py", f"{body}def make():\n    {call}\n")
    before = os._exit, os.abort, atexit.register

    with pytest.raises(SurgeryError, match="ended the program") as error:
        load_object(f"{file}:make").call()

    (problem,) = error.value.problems
    assert call in problem.why
    assert ("on import" in problem.fix) == (where == "import")
    assert (os._exit, os.abort, atexit.register) == before


def test_what_a_file_leaves_for_the_program_s_end_changes_no_exit_code_and_its_children_end(write):
    file = write(
        "train.py",
        """
        import atexit, os
        atexit.register(os._exit, 0)
        atexit.register(print, "bye")
        def gone(): os.abort()
        atexit.register(gone)
        atexit.unregister(gone)
        def forking():
            child = os.fork()
            if not child:
                os._exit(3)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        """,
    )
    program = f"""
        import sys
        from surgery_cli.script.user_code import load_object
        assert load_object({f"{file}:forking"!r}).call() == 3
        sys.exit(7)
    """
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "", "bye\n")
