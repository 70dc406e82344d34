"""What the user's own code raises, said with the user's own line."""

from __future__ import annotations

import linecache
import traceback
from pathlib import Path

from surgery_cli.errors import SurgeryError
from surgery_cli.script.exits import EndedTheProgram


def failure_of_user_code(
    error: BaseException, folder: Path, what: str, *, is_import: bool = False
) -> SurgeryError:
    """The error of user code as a problem that shows the user's own line."""
    if isinstance(error, SystemExit):
        code = f"exit code {error.code or 0}"
        how = error.how if isinstance(error, EndedTheProgram) else code
        return SurgeryError(
            f"{what} ended the program ({how})",
            why=line_of_user_code(error, folder),
            fix='put what must not run on import below `if __name__ == "__main__":`'
            if is_import
            else "it must return: take the call that ends the program out of what it runs",
        )
    message = str(error).strip().splitlines() or [""]
    why = f"{type(error).__name__}: {message[0]}"
    place = line_of_user_code(error, folder)
    missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
    return SurgeryError(
        f"{what} failed",
        why=f"{place}\n{why}" if place else why,
        fix=f"install '{missing}' where `surgery` runs" if missing else "",
    )


def line_of_user_code(error: BaseException, folder: Path) -> str:
    """``file:line: source`` of the innermost frame below ``folder``, or of the syntax error itself."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {(error.text or '').strip()}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if is_user_file(f.filename, folder)]
    if not own:
        return ""
    return source_line(own[-1].filename, own[-1].lineno or 0)


def is_user_file(name: str, folder: Path) -> bool:
    """True for files below ``folder`` that are not installed packages."""
    path = Path(name)
    return "site-packages" not in path.parts and path.is_relative_to(folder)


def source_line(file: str, line: int) -> str:
    """``file:line: source`` with the source's text if it can be read."""
    return f"{file}:{line}: {linecache.getline(file, line).strip()}".rstrip(": ")
