"""Scripts are written against options: none that was once there is lost, or is typed in another way."""

import json
from pathlib import Path

import pytest

from tests.cli.command_lines import spellings

PROMISED = json.loads(Path(__file__).with_name("promised_options.json").read_text())


@pytest.mark.parametrize("spelled", PROMISED)
def test_every_command_takes_what_it_once_took(spelled):
    assert set(PROMISED[spelled].split()) <= set(spellings().get(spelled, ()))
