"""The house rules that no single module can hold: floors, start-up, pinned versions, no paths of a person's machine."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "surgery_cli"

DESIGN = REPOSITORY / "docs" / "design.md"

FLOORS = {
    room: int(floor)
    for floor, room in re.findall(r"^\| (\d) \| `([\w.]+)` \|", DESIGN.read_text(), re.MULTILINE)
}
"""The floor of every room, as the page on the design says it."""

HEAVY = {"flax", "jax", "ml_dtypes", "numpy", "optax", "orbax", "rich", "tensorstore"}
LAZY_AT_START_UP = {"flax", "jax", "jaxlib", "numpy", "optax", "orbax", "rich", "tensorstore"}


def module_name(file):
    parts = file.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


SOURCES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def room(module):
    """The entry of FLOORS that a module lives under: `surgery_cli.tree.paths` is in `tree`."""
    parts = module.split(".")[1:3]
    return ".".join(parts) if ".".join(parts) in FLOORS else next(iter(parts), None)


def is_type_checking(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imported(nodes):
    """Dotted names that the statements import when they run; blocks under TYPE_CHECKING never run."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are banned"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in SOURCES else node.module
        elif is_type_checking(node):
            yield from imported(node.orelse)
        else:
            yield from imported(ast.iter_child_nodes(node))


@cache
def imports_of(module):
    tree = ast.parse(SOURCES[module].read_text())
    return set(imported(tree.body))


@cache
def everything_imported(module):
    """As ``imports_of``, and what is imported for types or inside functions."""
    found = set()
    for node in ast.walk(ast.parse(SOURCES[module].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in SOURCES else node.module for name in inner}
    return found


LONGEST_MODULE, LONGEST_FUNCTION = 300, 60
"""In lines: what one reading holds."""

TABLES = {"surgery_cli.optimizer.knowledge.kinds"}
"""Modules of data, which grow with what they know."""


def lengths():
    """The lines of every module that is no table, and of every function, by dotted name."""
    for module, file in SOURCES.items():
        text = file.read_text()
        if module not in TABLES and text.count("\n") > LONGEST_MODULE:
            yield module
        for node in ast.walk(ast.parse(text)):
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and node.end_lineno - node.lineno >= LONGEST_FUNCTION:
                yield f"{module}.{node.name}"


def test_no_module_and_no_function_is_long():
    assert set(lengths()) == set()


def test_every_room_has_a_floor_and_every_floor_a_room():
    assert {room(module) for module in SOURCES if room(module)} == FLOORS.keys()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("module", [module for module in SOURCES if room(module)])
def test_a_module_imports_only_from_its_floor_and_below(module):
    floor = FLOORS[room(module)]
    climbing = {
        name
        for name in everything_imported(module)
        if name in SOURCES and room(name) and FLOORS[room(name)] > floor
    }
    assert climbing == set()


def folder(module):
    """The folder that a module stands in; a package's own file stands in the package."""
    inside = module if SOURCES[module].name == "__init__.py" else module.rpartition(".")[0]
    return inside.partition(".")[2] or module.partition(".")[2]


def circles(graph):
    """Groups of nodes that lead to each other, each as a set."""
    reach = {node: {node} for node in graph}
    for _ in graph:
        wider = {
            node: set().union(*(reach.get(n, {n}) for n in seen)) for node, seen in reach.items()
        }
        wider = {
            node: seen.union(*(graph.get(n, ()) for n in seen)) for node, seen in wider.items()
        }
        if wider == reach:
            break
        reach = wider
    groups = {frozenset(b for b in reach if b in reach[a] and a in reach[b]) for a in reach}
    return [set(group) for group in groups if len(group) > 1]


def top(module):
    """The room at the top level that a module is or stands in."""
    return module.split(".")[1] if "." in module else ""


@pytest.mark.parametrize("part", [str, folder, top], ids=["files", "folders", "rooms"])
def test_what_imports_each_other_has_no_circle(part):
    """For types, inside functions and through others included."""
    graph = {}
    for module in SOURCES:
        found = {part(name) for name in everything_imported(module) if name in SOURCES}
        graph.setdefault(part(module), set()).update(found - {part(module), ""})
    assert circles(graph) == []


def test_the_probe_has_one_door():
    """The list of commands knows its command, as an entry point would; all others import the package itself."""
    doors = {
        "surgery_cli.probing": None,
        "surgery_cli.probing.command": "surgery_cli.cli.commands.table",
    }
    passing_by = {
        (module, name)
        for module in SOURCES
        if not module.startswith("surgery_cli.probing")
        for name in everything_imported(module)
        if name.startswith("surgery_cli.probing") and doors.get(name, "") not in (None, module)
    }
    assert passing_by == set()


@pytest.mark.parametrize(
    "module",
    [module for module in SOURCES if room(module) and FLOORS[room(module)] < FLOORS["store"]],
)
def test_no_heavy_library_is_imported_below_the_store(module):
    assert {name.split(".")[0] for name in imports_of(module)} & HEAVY == set()


def test_help_starts_without_the_heavy_libraries():
    script = (
        "import sys\n"
        "sys.argv = ['surgery', '--help']\n"
        "from surgery_cli.cli.main import run\n"
        "try:\n    run()\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    assert "inspect" in result.stdout
    loaded = set(result.stdout.rpartition("LOADED")[2].split())
    assert "typer" in loaded
    assert loaded & LAZY_AT_START_UP == set()


def test_python_dash_m_is_the_same_command():
    result = subprocess.run(
        [sys.executable, "-m", "surgery_cli", "--version"],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert result.returncode == 0, result.stderr
    assert "0.1.0" in result.stdout


def test_constraints_are_names_with_exact_versions_and_nothing_else():
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = [re.fullmatch(r"([A-Za-z0-9._-]+)==[0-9][A-Za-z0-9.+!]*", line) for line in lines]

    assert all(pinned), [line for line, match in zip(lines, pinned, strict=True) if not match]
    names = {re.sub(r"[-_.]+", "-", match[1]).lower() for match in pinned}
    assert "surgery-cli" not in names
    assert {"jax", "flax", "optax", "orbax-checkpoint", "tensorstore", "pytest"} <= names


def test_no_file_names_a_folder_of_somebodys_machine():
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout
    somebodys = re.compile(rb"/(?:home|root|Users|work|workspace)/[A-Za-z0-9._-]")
    found = {
        name: match[0]
        for name in listing.split("\0")
        if name and (REPOSITORY / name).is_file()
        and (match := somebodys.search((REPOSITORY / name).read_bytes()))
    }  # fmt: skip
    assert found == {}


def test_an_edit_on_the_host_loads_neither_jax_nor_orbax_nor_pydantic(tmp_path):
    script = (
        "import sys\n"
        "from surgery_cli.cli.main import run\n"
        "try:\n"
        "    run(sys.argv[1:])\n"
        "except SystemExit as end:\n"
        "    assert not end.code, end.code\n"
        "print('LOADED', *sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    source = REPOSITORY / "sample_checkpoints/digits_standard"
    words = ["rescale", str(source), str(tmp_path / "out"), "params/Dense_1", "--by", "0.5"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.rsplit("LOADED", 1)[1].split())
    assert not loaded & {"flax", "jax", "jaxlib", "matplotlib", "optax", "orbax", "pydantic"}
