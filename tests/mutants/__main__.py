"""Change the code in one place after the other, and say which changes no test notices.

`python -m tests.mutants N [--modules …] [--seed S] [--results FILE]` tries N mutants of each module, drawn at
random. Each runs in a process forked from one that has loaded the libraries, so that most take a second or two. One
that takes a minute of computing is noticed; one that does not end otherwise says nothing, and is counted apart.
Results add up while the module's source is the same: draws of other seeds try others.
`--again` tries those that the results name as having survived, wherever their lines are now.
"""

import argparse
import hashlib
import importlib.abc
import importlib.util
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from random import Random

from tests.mutants.mutations import mutants_of
from tests.mutants.rows import ROWS, tests_of

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
"""Of computing."""
PATIENCE = 10 * SECONDS
"""Of waiting, for whoever shares the machine."""
_QUIETLY = "ignore::pytest.PytestAssertRewriteWarning"
PRELOADED = (
    "numpy",
    "ml_dtypes",
    "msgspec",
    "msgpack",
    "hypothesis",
    "pytest",
    "xdist",
    "tensorstore",
    "typer",
    "rich",
)


class _InPlace(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from other source."""

    def __init__(self, name, source, file):
        self.name, self.source, self.file = name, source, file

    def find_spec(self, fullname, path=None, target=None):
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.file, loader=self)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(compile(self.source, self.file, "exec"), module.__dict__)


def survives(module, source, tests):
    """True if every test passes with that source in the place of the module's; None if nobody knows."""
    child = os.fork()
    if child == 0:
        _run(module, source, tests)
    end = time.time() + PATIENCE
    while time.time() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status) == 0
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _run(module, source, tests):
    """In the child: run the tests, and end with pytest's exit code."""
    import pytest

    nowhere = os.open(os.environ.get("MUTANT_OUT", os.devnull), os.O_RDWR | os.O_CREAT)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    name = f"surgery_cli.{module}"
    sys.meta_path.insert(0, _InPlace(name, source, str(_file(module))))
    code = 1
    try:
        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-W", _QUIETLY]
        code = int(pytest.main([*options, *map(str, tests)]))
    except BaseException:  # noqa: BLE001 - the child must not go on as its parent
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _file(module):
    return ROOT / "surgery_cli" / (module.replace(".", "/") + ".py")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int, nargs="?", default=10, help="mutants of each module")
    parser.add_argument("--modules", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--results", type=Path, help="a JSON file that keeps what is found, by module"
    )
    parser.add_argument("--again", action="store_true", help="only those that survived")
    given = parser.parse_args()
    for name in PRELOADED:
        importlib.import_module(name)
    for module in given.modules:
        source = _file(module).read_text()
        every = mutants_of(source)
        if not survives(module, source, tests_of(module)):
            sys.exit(f"the tests of {module} fail without any change")
        chosen = _survivors(given, module, every) if given.again else _drawn(given, every)
        answers = {mutant: survives(module, mutant.source, tests_of(module)) for mutant in chosen}
        alive = [mutant for mutant, answer in answers.items() if answer]
        mute = [mutant for mutant, answer in answers.items() if answer is None]
        _say(
            f"{module}: {len(chosen)} of {len(every)} mutants tried, {len(alive)} survive,"
            f" {len(mute)} without an answer"
        )
        for mutant in (*alive, *mute):
            _say(f"    {_file(module).relative_to(ROOT)}:{mutant.line}: {mutant.change}")
        if given.results:
            _keep(given, module, source, every, answers)


def _say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _drawn(given, every):
    return sorted(Random(given.seed).sample(every, min(given.count, len(every))))


def _survivors(given, module, every):
    """The mutants that survived; their lines may have moved."""
    known = _known(given).get(module, {"survived": []})["survived"]
    survived = {(one["code"], one["change"]) for one in known}
    lines = _file(module).read_text().splitlines()
    return [one for one in every if (lines[one.line - 1].strip(), one.change) in survived]


def _known(given):
    return json.loads(given.results.read_text()) if given.results.exists() else {}


def _keep(given, module, source, every, answers):
    known = _known(given)
    lines = source.splitlines()
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    before = known.get(module, {})
    added = [mutant for mutant, answer in answers.items() if answer is not None]
    drawn = {every.index(mutant) for mutant in added}
    survived = [
        {"line": one.line, "code": lines[one.line - 1].strip(), "change": one.change}
        for one in added
        if answers[one]
    ]
    if given.again:
        known[module] = {"tried": 0, **before, "mutants": len(every), "survived": survived}
    else:
        if before.get("source") == digest:
            again = {(lines[one.line - 1].strip(), one.change, one.line) for one in added}
            others = [
                one
                for one in before["survived"]
                if (one["code"], one["change"], one["line"]) not in again
            ]
            drawn |= set(before["drawn"])
            survived = sorted(others + survived, key=lambda one: (one["line"], one["change"]))
        known[module] = {"mutants": len(every), "source": digest, "drawn": sorted(drawn), "tried": len(drawn),
                         "survived": survived}  # fmt: skip
    given.results.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
