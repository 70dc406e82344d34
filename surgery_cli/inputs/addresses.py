"""Text that names a file or directory: a path of this machine, or the address of another place. Parsed here alone."""

from __future__ import annotations

import posixpath
import re
from functools import partial
from typing import Final, NewType
from urllib.parse import unquote

from surgery_cli.errors import CheckpointError, PlanError, SurgeryError
from surgery_cli.inputs.buckets import SCHEMES, BucketPath, is_bucket_name

Address = NewType("Address", str)
"""Text that names a place where files are read, with its suffixes (`@STEP`, `:ENTRY`): here, or in a bucket, and then
in the one spelling that ``buckets.path_at`` knows."""

LocalAddress = NewType("LocalAddress", Address)
"""Text that names a place on this machine, with its suffixes (`@STEP`, `:ENTRY`, `:NAME`): no address of elsewhere."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_ONE_SLASH: Final = re.compile(r"(gs|s3):/([^/].*)", re.DOTALL | re.IGNORECASE)
_SUFFIX: Final = re.compile("[@:]")
_NO_KEY: Final = re.compile(r"[\x00-\x1f\x7f]|^\.well-known/acme-challenge/")
_HERE: Final = ("", "localhost")
_NAMED: Final = re.compile(r"[A-Za-z_][\w.]*=")
_FILE_WITH_PART: Final = re.compile(
    r"(.*?\.(?:py|npz|npy|safetensors|ya?ml|toml|json|msgpack))(?::.*)?"
)


def local_address(
    text: str, *, is_written: bool = False, refusal: type[SurgeryError] = PlanError
) -> LocalAddress:
    """The place that ``text`` names; ``file:///…`` is the path in it, percent-decoded.

    ``is_written``: something is to be made there, so that a refusal says how to bring it there.

    >>> local_address("runs/big@1000"), local_address("file://localhost/my%20runs"), local_address("./gs:")
    ('runs/big@1000', '/my runs', './gs:')

    Raises:
        refusal: it is an address of another place, in a bucket (then with the commands that copy) or elsewhere; or a
            dash, to which nothing of ours can be written.
    """
    if is_written and text == "-":
        raise refusal(
            "'-' is no place to write to",
            why="it means standard output, and what is written here is files",
            fix="name a file or directory; one that is called so is './-'",
        )
    found = _SCHEME.match(text)
    if found is None:
        if one_slash := _ONE_SLASH.fullmatch(text):
            raise refusal(
                f"'{text}' has one slash behind its scheme",
                why="`pathlib` leaves one of two, and what is left would be a folder here",
                fix=f"'{one_slash[1].lower()}://{one_slash[2]}' is in the bucket, './{text}' on this disk",
            )
        return _here(text)
    scheme = found[1].lower()
    if scheme == "file":
        return _path_in(text, text[found.end() :], refusal)
    if scheme in _COPYING:
        raise _in_bucket(text, scheme, refusal, is_written=is_written)
    raise refusal(
        f"'{text}' is an address, not a path",
        why="surgery reads and writes on disks, and in buckets as `gs://…` or `s3://…`",
        fix=f"the same bucket is '{known}://{text[found.end() :]}' here"
        if (known := _SAME_SERVICE.get(scheme))
        else "write to a path here, and bring the result there afterwards"
        if is_written
        else "copy it here first, then name its path",
    )


def address(text: str, *, refusal: type[SurgeryError] = PlanError) -> Address:
    """As ``local_address``, and of what can be read in a bucket its address: ``..`` taken out of it, no slash doubled.

    >>> address("GS://bucket//runs/../big@3/"), address("runs/big")
    ('gs://bucket/big@3', 'runs/big')

    Raises:
        refusal: as ``local_address``, and where no bucket is named, or what no bucket can be called.
    """
    found = _SCHEME.match(text)
    if found is None or (scheme := found[1].lower()) not in SCHEMES:
        return local_address(text, refusal=refusal)
    rest = text[found.end() :]
    bucket, _, key = rest.partition("/")
    if bucket in ("", ".", ".."):
        raise refusal(
            f"'{text}' names no bucket",
            why=f"the bucket's name stands after `{scheme}://`",
            fix=f"e.g. `{scheme}://BUCKET/runs/big`",
        )
    _check_names(
        text, scheme, bucket if key else _SUFFIX.split(bucket, maxsplit=1)[0], key, refusal
    )
    inside = posixpath.normpath(f"/{key}").lstrip("/")
    return Address(str(BucketPath(f"{scheme}://{bucket}/{inside}")))


def _check_names(
    text: str, scheme: str, bucket: str, key: str, refusal: type[SurgeryError]
) -> None:
    if not is_bucket_name(scheme, bucket):
        raise refusal(
            f"'{text}' names no bucket: none is called '{bucket}'",
            why="such names have lower-case letters, digits, '-', '_' and single dots, 3 to 63 characters",
            fix="check its spelling, as the service's own tool lists it",
        )
    if scheme == "gs" and (fault := _NO_KEY.search(key)):
        raise refusal(
            f"'{text}' names nothing that can be read there: it has {fault[0]!r}",
            why="TensorStore's driver for `gs://` takes no control characters, nor what the service keeps for itself",
            fix="give it another name, with the service's own tools",
        )


def destination_address(text: str, *, refusal: type[SurgeryError] = PlanError) -> Address:
    """As ``address``, for a place where a checkpoint is to appear. Raises as ``local_address`` of what is written."""
    found = _SCHEME.match(text)
    if found is not None and found[1].lower() in SCHEMES:
        return address(text, refusal=refusal)
    return local_address(text, is_written=True, refusal=refusal)


checkpoint_address: Final = partial(address, refusal=CheckpointError)
written_address: Final = partial(local_address, is_written=True)


def named_address(text: str) -> Address:
    """As ``address`` for text that may have a name in front: ``x=batch.npz``. Raises as it."""
    name, rest = _named(text)
    return Address(name + address(rest))


def named_output(text: str) -> LocalAddress:
    """As ``local_address`` of what is written, with a name in front: ``json=FILE``. Raises as it."""
    name, rest = _named(text)
    return _here(name + local_address(rest, is_written=True))


def _named(text: str) -> tuple[str, str]:
    """The name in front with its sign, or '', and what follows."""
    found = _NAMED.match(text)
    end = found.end() if found else 0
    return text[:end], text[end:]


def local_object(text: str) -> LocalAddress:
    """As ``local_address`` for ``FILE.py:NAME``: only the file is percent-decoded. Raises as it."""
    file, colon, name = text.rpartition(".py:")
    return _here(f"{local_address(f'{file}.py')}:{name}") if colon else local_address(text)


def _here(text: str) -> LocalAddress:
    return LocalAddress(Address(text))


def _path_in(text: str, rest: str, refusal: type[SurgeryError]) -> LocalAddress:
    """The path in what follows ``file://``."""
    host, slash, path = rest.partition("/")
    if host.lower() not in _HERE or not slash:
        raise refusal(
            f"'{text}' names a file of the machine '{host}'" if host else f"'{text}' has no path",
            why="a local path begins after `file://` with a slash of its own",
            fix=f"e.g. `file:///{host}{slash}{path}`, or the path alone",
        )
    try:
        return _here(f"/{unquote(path, errors='strict')}")
    except UnicodeDecodeError:
        raise refusal(
            f"the path in '{text}' is not UTF-8",
            why="TensorStore opens names in UTF-8 only",
            fix="rename the file or directory",
        ) from None


_SAME_SERVICE: Final = {"gcs": "gs", "s3a": "s3", "s3n": "s3"}
"""Schemes of other programs for the same buckets."""

_COPYING: Final = {"gs": "gcloud storage cp", "s3": "aws s3 cp"}
"""What copies from and to buckets."""


def _in_bucket(
    text: str, scheme: str, refusal: type[SurgeryError], *, is_written: bool
) -> SurgeryError:
    """The error for the address of a file in a bucket, with the command that copies it."""
    file = _FILE_WITH_PART.fullmatch(text)
    place = (file[1] if file else text).rstrip("/")
    name, command = place.rpartition("/")[2], _COPYING[scheme]
    if is_written:
        what, why = "writes this to a local or mounted disk", f"write it here first: './{name}'"
        fix = f"and copy it when it is done: `{command} ./{name} {place}`"
    else:
        what, why = (
            "reads this from a local or mounted disk",
            f"copy it here: `{command} {place} ./{name}`",
        )
        fix = f"and name './{name}'"
    return refusal(f"'{text}' is in a bucket; surgery {what}", why=why, fix=fix)
