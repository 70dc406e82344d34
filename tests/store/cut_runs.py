"""Run in a process of its own: commands, each in a fork, struck at a moment that is counted and not waited for.

Takes a JSON line for each: `args`, and perhaps `cut`, [what is counted, at which of them, which signal]. `entry` counts
what is written down in a journal, and strikes before it is; `entry+` strikes after; `file` counts what Python does to
files in the destination's folder; `request` what is written to a bucket, and strikes as it begins; `request+` as it is
answered; `size` is the largest file that may be written; `stop` counts nothing, but tells the process, and that it was
stopped, and lets it go on at the next line. Writes a JSON line for each: exit code, output, and how many
were counted. Imports modules before, so that each fork is quick.
"""

import importlib
import json
import os
import resource
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path

import tensorstore  # noqa: F401

from surgery_cli.cli.main import run
from surgery_cli.engine import grid, stream
from surgery_cli.store.filesystem import bucket, processes
from surgery_cli.store.write import journal

EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.link",
    "os.remove",
    "os.rmdir",
    "os.chmod",
    "shutil.",
)
BEFORE = ("surgery.apply", "compute.kits", "cli.rendering.preview", "console.progress")
if elsewhere := os.environ.get("CUT_RUNS_MACHINE"):
    processes.this_machine = lambda: elsewhere
for name in [*(f"surgery_cli.{name}" for name in BEFORE), *sys.argv[1:]]:
    importlib.import_module(name)
# so that small leaves have several blocks, and every block is a transaction
grid.block_shape.__defaults__ = (4096,)
stream.BATCH_BYTES = 1


def _count(cut, folder):
    """Count moments of one sort, and strike this process at one of them."""
    what, moment, name = cut
    seen = [0]
    if what == "stop":
        return seen
    if what == "size":
        sys.dont_write_bytecode = True  # what others read of it would be cut off
        resource.setrlimit(resource.RLIMIT_FSIZE, (moment, moment))
        return seen

    def one_more():
        seen[0] += 1
        if seen[0] == moment:
            os.kill(os.getpid(), signal.Signals[name])

    def listen(event, arguments):
        if event.startswith(EVENTS) and (event != "open" or str(arguments[0]).startswith(folder)):
            one_more()

    note = journal.Journal.note

    def noted(self, entry):
        if what == "entry":
            one_more()
        note(self, entry)
        if what == "entry+":
            one_more()

    if what.startswith("request"):
        bucket.to_the_end = partial(_counted, what, one_more, bucket.to_the_end)
    elif what == "file":
        sys.addaudithook(listen)
    else:
        journal.Journal.note = noted
    return seen


def _counted(what, one_more, to_the_end, request):
    """A request to a bucket that is counted as it begins, or as it is answered."""

    def counted():
        if what == "request":
            one_more()
        made = request()
        if what == "request+":
            one_more()
        return made

    return to_the_end(counted)


def _say(what):
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _run(args, cut):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as counted:
        child = os.fork()
        if child == 0:
            os.dup2(out.fileno(), 1)
            os.dup2(out.fileno(), 2)
            seen = _count(cut, str(Path(args[2]).parent)) if cut else [0]
            code = 70
            try:
                run(args)
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os.write(counted.fileno(), str(seen[0]).encode())
                os._exit(code)
        if cut and cut[0] == "stop":
            _say({"pid": child})
            _, status = os.waitpid(child, os.WUNTRACED)
            if os.WIFSTOPPED(status):
                _say({"stopped": True})
                sys.stdin.readline()
                os.kill(child, signal.SIGCONT)
        if not cut or cut[0] != "stop" or os.WIFSTOPPED(status):
            _, status = os.waitpid(child, 0)
        out.seek(0)
        counted.seek(0)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "said": out.read().decode(errors="replace"),
            "counted": int(counted.read() or 0),
        }


while line := sys.stdin.readline():
    asked = json.loads(line)
    _say(_run(asked["args"], asked.get("cut")))
