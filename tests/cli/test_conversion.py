"""What is typed becomes what Typer makes of it, though it is asked only where there is something to convert."""

import pytest
from typer._click.core import Context
from typer._click.exceptions import BadParameter
from typer._coercion import build_runtime_param

from surgery_cli.cli.options.conversion import convert_directly
from surgery_cli.errors import SurgeryError
from tests.cli.command_lines import commands

TYPED = ["", "a", "3", " 3", "-1", "1e3", "0.5", "1/3", "yes", "é", "runs/x@3", "gs://bkt", "AUTO"]


def outcome(conversion, value, parameter, context):
    try:
        return "value", conversion.coerce(value, param=parameter, ctx=context)
    except BadParameter as error:
        return "bad", error.format_message()
    except SurgeryError as error:
        return "refused", str(error)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", commands())
def test_every_parameter_reads_what_typer_would(name):
    command = commands()[name]
    context = Context(command)
    parameters = command.get_params(context)
    convert_directly(parameters)
    for parameter in parameters:
        described = parameter.type_descriptor
        texts = [*TYPED, *(described.choices or ())]
        takes_several = parameter.multiple or parameter.nargs == -1
        values = [[text] for text in texts] + [texts] if takes_several else texts
        by_typer = build_runtime_param(described)
        for value in [None, parameter.default, *values]:
            found = outcome(parameter.get_runtime_param(), value, parameter, context)
            expected = outcome(by_typer, value, parameter, context)
            assert found == expected, (parameter.opts, value)
            assert type(found[1]) is type(expected[1])
