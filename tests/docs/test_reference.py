"""The tables of the documentation say what the code says."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import typer
from sqlalchemy.exc import DBAPIError

import sa_jobqueue
from sa_jobqueue import errors, models
from sa_jobqueue.cli.app import app
from sa_jobqueue.states import TRANSITIONS, DeathReason
from sa_jobqueue.worker.verdict import is_infrastructure
from tests.docs.pages import ROOT, tables

_DOCS = ROOT / "docs"
_REFERENCE = _DOCS / "reference"
_SETTINGS: dict[str, Callable[..., Any]] = {
    "Worker": sa_jobqueue.Worker,
    "Tasks": sa_jobqueue.TaskRegistry().task,
    "Backoff": sa_jobqueue.Backoff,
    "A job": sa_jobqueue.NewJob,
    "JobSession": sa_jobqueue.JobSession,
}
_UNTABLED = {"self", "tasks", "function", "session", "task", "subscribers", "_random"}


def test_the_page_of_the_states_shows_the_table_that_the_code_reads() -> None:
    shown = next(table for table in tables(_DOCS / "explanation" / "states.md") if table[0][0] == "from")
    dead = "dead letter"
    assert shown[1:] == [
        [
            str(each.source or (dead if each.buried else "-")),
            str(each.target or (dead if each.buried else "gone")),
            *(each.verb, each.who, each.notes),
        ]
        for each in TRANSITIONS
    ]


def test_the_page_of_the_dead_letters_explains_every_reason() -> None:
    shown = next(table for table in tables(_DOCS / "how-to" / "dead-letters.md") if table[0][0] == "reason")
    assert [row[0] for row in shown[1:]] == [str(reason) for reason in DeathReason]


def test_the_limits_are_those_of_the_code() -> None:
    shown = next(table for table in tables(_REFERENCE / "limits.md") if table[0][0] == "what")
    for what, limit, _unit, where in shown[1:]:
        module, _, name = where.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        assert value == type(value)(limit), what


@pytest.mark.parametrize("heading", _SETTINGS)
def test_the_settings_and_their_defaults_are_those_of_the_code(heading: str) -> None:
    section = (_REFERENCE / "settings.md").read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", section, re.MULTILINE))
    parameters = inspect.signature(_SETTINGS[heading]).parameters
    assert shown == {name: _default(each) for name, each in parameters.items() if name not in _UNTABLED}


def test_every_public_name_is_in_the_reference() -> None:
    page = (_REFERENCE / "api.md").read_text(encoding="utf-8")
    assert [name for name in sa_jobqueue.__all__ if f"`{name}`" not in page] == []


def test_every_operation_of_a_session_is_in_the_reference() -> None:
    page = (_REFERENCE / "api.md").read_text(encoding="utf-8")
    operations = [name for name in vars(sa_jobqueue.JobSession) if not name.startswith("_")]
    assert [name for name in operations if f"`{name}" not in page] == []


def test_every_error_is_in_the_reference_with_its_base() -> None:
    shown = next(table for table in tables(_REFERENCE / "errors.md") if table[0][0] == "error")
    assert {row[0] for row in shown[1:]} == set(errors.__all__)
    for name, base, *_ in shown[1:]:
        assert base in {each.__name__ for each in getattr(errors, name).__mro__[1:]}, name


def test_every_column_and_index_of_the_tables_is_in_the_reference() -> None:
    page = (_REFERENCE / "tables.md").read_text(encoding="utf-8")
    for table in models.metadata.tables.values():
        section = page.split(f"\n## {table.name}\n")[1].split("\n## ")[0]
        named = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
        rules = {str(rule.name) for rule in table.constraints} | {str(index.name) for index in table.indexes}
        assert named == {column.name for column in table.columns} | rules


def test_every_command_and_option_is_in_the_reference() -> None:
    page = (_REFERENCE / "command-line.md").read_text(encoding="utf-8")
    for heading, options in _commands().items():
        section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
        assert set(re.findall(r"--[a-z][a-z-]+", section)) >= options, heading


def test_no_option_of_the_reference_is_unknown_to_the_command_line() -> None:
    page = (_REFERENCE / "command-line.md").read_text(encoding="utf-8")
    known: set[str] = set().union(*_commands().values())
    assert set(re.findall(r"`(--[a-z][a-z-]+)`", page)) - known == set()


def test_the_sqlstates_of_the_page_are_those_that_spend_no_attempt() -> None:
    page = _DOCS / "explanation" / "infrastructure-failures.md"
    cells = next(table for table in tables(page) if table[0][0] == "SQLSTATE")[1:]
    states = [state.replace("xxx", "000") for row in cells for state in row[0].split(", ")]
    assert [state for state in states if not is_infrastructure(_database_error(state))] == []
    assert not is_infrastructure(_database_error("25P03"))


def _database_error(sqlstate: str) -> DBAPIError:
    return DBAPIError("", {}, psycopg.errors.lookup(sqlstate)())


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    return str(value.total_seconds() if isinstance(value, timedelta) else value)


def _commands() -> dict[str, set[str]]:
    """The long options of each command; those of a group's commands together."""
    root: Any = typer.main.get_command(app)
    return {name: _options(command) for name, command in root.commands.items()}


def _options(command: Any) -> set[str]:
    below = getattr(command, "commands", {}).values()
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    names = (name for each in shown for name in (*each.opts, *each.secondary_opts))
    own = {name for name in names if name.startswith("--")} - {"--help"}
    return own.union(*(_options(each) for each in below))
