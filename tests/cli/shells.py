"""A shell of its own in a terminal: what stands on its line after Tab."""

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

SAMPLE = Path(__file__).resolve().parents[2] / "sample_checkpoints" / "digits_manager"

SETTINGS = """
PS1='> '
unset zle_bracketed_paste
setopt no_beep
autoload -Uz compinit; compinit -u -D
source $HOME/surgery.zsh
typeset -ga offered_words
compadd() {
  if (( ! ${@[(I)-[OAD]]} )); then
    local -a matching; builtin compadd -O matching "$@"; offered_words+=("${matching[@]}")
  fi
  builtin compadd "$@"
}
tell() {
  print -rl -- "$BUFFER" "${offered_words[@]}" > $HOME/told.part; mv $HOME/told.part $HOME/told
  offered_words=(); BUFFER=
}
zle -N tell; bindkey '^X^E' tell; bindkey '^U' kill-whole-line
print > $HOME/told
"""
"""`compadd` also notes what it offers, and Control-X Control-E writes down the line and the offers."""

BASH_SETTINGS = """
PS1='> '
bind 'set bell-style none' 'set enable-bracketed-paste off'
source $HOME/surgery.bash
tell() { printf '%s\\n' "$READLINE_LINE" > $HOME/told.part; mv $HOME/told.part $HOME/told; READLINE_LINE=; }
bind -x '"\\C-x\\C-e": tell'
echo > $HOME/told
"""

STARTING = 60
ANSWERING = 60


def zsh(home, folder):
    """A function of a line: the line that Tab makes of it, and all that was offered."""
    return _shell(home, folder, SETTINGS, ["zsh", "-f"], ["zsh", "-i"], ".zshrc")


def bash(home, folder):
    """A function of a line: the line that Tab makes of it, and nothing more."""
    rc = ["bash", "--rcfile", str(home / ".bashrc"), "-i"]
    return _shell(home, folder, BASH_SETTINGS, ["bash", "--norc"], rc, ".bashrc")


@contextmanager
def beside_copies(shell, place, *names):
    """What one of these shells makes of a line, in a folder that holds the sample under each of the names."""
    if shutil.which(shell.__name__) is None:
        pytest.skip(f"{shell.__name__} is not installed")
    folder = place / "work"
    folder.mkdir()
    for name in names:
        shutil.copytree(SAMPLE, folder / name)
    with shell(place / "home", folder) as ask:
        yield ask


@contextmanager
def _shell(home, folder, settings, plain, interactive, rc):
    surgery = home / "bin" / "surgery"
    surgery.parent.mkdir(parents=True)
    program = "import sys; sys.argv[0] = 'surgery'; from surgery_cli.__main__ import main; main()"
    surgery.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{program}" "$@"\n')
    surgery.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{surgery.parent}:{os.environ['PATH']}", "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(home), "ZDOTDIR": str(home), "TERM": "dumb", "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    shown = subprocess.run(  # a second command: the shell would become the program, and not be found
        [*plain, "-c", "surgery --show-completion; :"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (home / f"surgery.{plain[0]}").write_text(shown.stdout)
    (home / rc).write_text(settings)
    number, terminal = pty.fork()
    if number == 0:
        os.chdir(folder)
        os.execvpe(interactive[0], interactive, environment)
    try:
        _told(home, terminal, STARTING)

        def completed(line):
            os.write(terminal, f"\x15{line}\t\x18\x05".encode())
            buffer, *offered = _told(home, terminal, ANSWERING).split("\n")[:-1]
            return buffer, offered

        yield completed
    finally:
        os.close(terminal)  # hangs up
        os.waitpid(number, 0)


def _told(home, terminal, seconds):
    """What it has written down; what it shows meanwhile is read, or it would wait."""
    told, end = home / "told", time.monotonic() + seconds
    while not told.exists():
        assert time.monotonic() < end, "the shell did not answer"
        if select.select([terminal], [], [], 0.05)[0]:
            os.read(terminal, 1 << 16)
    text = told.read_text()
    told.unlink()
    return text
