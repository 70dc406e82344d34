"""Run in a process of its own, with the shim preloaded: commands, each in a fork, with one fault.

Takes a JSON line for each request, and answers with one. `start` names `args`, a `fault` in the shim's words, perhaps a
`log`, a file that the shim writes to; `after` and `signal`, for a moment that no call tells; `small` makes blocks and
transactions small. The answer comes once the command has ended or stopped; `go_on` names the one that stopped.
Imports before, so that each fork is quick, and starts no threads.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import signal
import sys
import threading
import time
from ctypes import CDLL, c_long, c_uint32

import msgpack  # noqa: F401
import safetensors  # noqa: F401
import tensorstore  # noqa: F401

import surgery_cli.cli.commands
import surgery_cli.cli.rendering
import surgery_cli.surgery
from surgery_cli.cli.main import run
from surgery_cli.engine import grid, stream

for room in (surgery_cli.surgery, surgery_cli.cli.commands, surgery_cli.cli.rendering):
    for module in pkgutil.iter_modules(room.__path__, f"{room.__name__}."):
        importlib.import_module(module.name)
for name in ("surgery_cli.compute.kits", "surgery_cli.console.progress"):
    importlib.import_module(name)

SHIM = CDLL(None)
SHIM.seen.restype = c_long
running = {}
"""Files with what they print, and how long they may take, by process."""


CAPABILITIES_VERSION = 0x20080522
"""linux/capability.h"""


def _give_up_powers():
    """Give up what root may do beside what modes allow; who it is stays, as Python's own files may be root's."""
    header, nothing = (c_uint32 * 2)(CAPABILITIES_VERSION, 0), (c_uint32 * 6)()
    assert SHIM.capset(header, nothing) == 0


def _child(asked, out, counted):
    os.dup2(out.fileno(), 1)
    os.dup2(out.fileno(), 2)
    if asked.get("small"):  # small leaves have several blocks, and every block is a transaction
        grid.block_shape.__defaults__ = (4096,)
        stream.BATCH_BYTES = 1
    words = asked["fault"]
    if asked.get("log"):
        log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        words = f"{words} log={log}"
    assert SHIM.arm(words.encode()) == 0, words
    if asked.get("powerless"):
        _give_up_powers()
    code = 70
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # as `run` finds it; what comes before ends this process
    try:
        run(asked["args"])
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        calls = SHIM.seen()
        SHIM.arm(b"scope=/nowhere")
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(counted.fileno(), str(calls).encode())
        os._exit(code)


def _struck_later(child, asked):
    time.sleep(asked["after"])
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.Signals[f"SIG{asked['signal']}"])


def start(asked):
    out, counted = (os.fdopen(os.memfd_create(name), "w+b") for name in ("out", "counted"))
    child = os.fork()
    if child == 0:
        _child(asked, out, counted)
    running[child] = (out, counted, asked["seconds"])
    if "after" in asked:  # a thread that ends before the next fork
        later = threading.Thread(target=_struck_later, args=(child, asked))
        later.start()
        answer = wait(child, reap=False)
        later.join()
        return answer | wait(child)
    return wait(child)


def wait(child, *, reap=True):
    """How the command has ended, or that it stopped; one that takes too long is killed."""
    out, counted, seconds = running[child]
    late = []

    def end(*_):
        late.append(True)
        os.kill(child, signal.SIGKILL)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    how = os.WEXITED | os.WSTOPPED | (0 if reap else os.WNOWAIT)
    ended = os.waitid(os.P_PID, child, how)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if ended.si_code == os.CLD_STOPPED:
        return {"child": child, "stopped": True}
    if not reap:
        return {}
    del running[child]
    out.seek(0)
    counted.seek(0)
    is_own = ended.si_code == os.CLD_EXITED
    answer = {
        "child": child,
        "stopped": False,
        "late": bool(late),
        "code": ended.si_status if is_own else -ended.si_status,
        "said": out.read().decode(errors="replace"),
        "counted": int(counted.read() or 0),
    }
    out.close()
    counted.close()
    return answer


def go_on(asked):
    os.kill(asked["child"], signal.SIGCONT)
    return wait(asked["child"])


for line in sys.stdin:
    request = json.loads(line)
    answer = start(request) if "args" in request else go_on(request)
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
