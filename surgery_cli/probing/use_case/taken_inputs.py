"""The inputs of a probe against those who take them: the model, the other model, and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.model.calls import Call
from surgery_cli.probing.model.inputs import Input
from surgery_cli.probing.use_case.running import loss_function
from surgery_cli.probing.use_case.session import Session, model_of
from surgery_cli.script.user_code import UserObject, parameters_of
from surgery_cli.tree.nearness import suggested
from surgery_cli.words.no_memory import is_of_memory
from surgery_cli.words.quantities import byte_text


def unused_inputs(
    session: Session, options: ProbeOptions, loss: UserObject | None, other: UserObject
) -> list[str]:
    """Entries of files that neither the session's model, the ``other`` one nor the loss takes.

    Raises:
        SurgeryError: an input that was given by name is one of them.
    """
    calls = [session.call]
    if other is not session.user:
        calls.append(model_of(other, session.inputs, options).call)
    of_loss = parameters_of(loss_function(loss)) if loss is not None else {}
    return _unused(session.inputs, calls, of_loss)


def _unused(
    inputs: Sequence[Input], calls: Sequence[Call], of_loss: Mapping[str, Parameter]
) -> list[str]:
    """Refuse a named input that nobody takes; the other entries of a file that nobody takes are returned by name.

    ``calls`` are those of every model that runs. A file holds a batch as training uses it, labels included, so that
    not all of it need be taken.

    Raises:
        SurgeryError: a name that was typed is no parameter of a model or of the loss.
    """
    takes_any = any(p.kind is p.VAR_KEYWORD for p in of_loss.values())
    left = [
        i for i in inputs
        if i.name and all(i.name in call.for_loss for call in calls)
        and not takes_any and i.name.partition(".")[0] not in of_loss
    ]  # fmt: skip
    typed = next((i for i in left if not i.is_entry), None)
    if typed is not None:
        names = list(dict.fromkeys(n for call in calls for n in call.takes))
        rest = typed.text.removeprefix(f"{typed.name}=")
        raise SurgeryError(
            f"neither the model nor a loss takes the input '{typed.name}'",
            why="the model takes " + (", ".join(f"'{n}'" for n in names) or "no named input"),
            fix=suggested(typed.name, [*names, *list(of_loss)[1:]], f"`--input '{{}}={rest}'`")
            or "leave it out",
            field="input",
        )
    return [i.name for i in left]


def check_not_empty(session: Session) -> None:
    """Refuse a batch of which nothing would be computed, so that nothing could be found.

    Raises:
        SurgeryError: the first axis of an input has no element.
    """
    empty = next((i for i in session.inputs if i.values.shape[:1] == (0,)), None)
    if empty is not None:
        raise SurgeryError(
            f"the input '{empty.text}' is an empty batch",
            why="the model would compute nothing, so there is nothing to judge",
            fix="give at least one example; for shapes alone, `--shapes`",
            field="input",
        )


@contextmanager
def fitting(session: Session) -> Iterator[None]:
    """While the block runs, memory that does not suffice is an error that names the batch.

    Raises:
        SurgeryError: so.
    """
    try:
        yield
    except Exception as error:
        cause = error.__cause__ if isinstance(error, SurgeryError) else error
        if cause is None or not is_of_memory(cause):
            raise
        message = str(cause).strip()
        size = sum(i.values.nbytes for i in session.inputs)
        names = ", ".join(i.text for i in session.inputs)
        raise SurgeryError(
            "there is not enough memory to run the model on this batch",
            why=f"{names}: {byte_text(size)}" + (f"; {message.splitlines()[0]}" if message else ""),
            fix="give a smaller batch, or stop early with `--until`",
            field="input",
        ) from error
