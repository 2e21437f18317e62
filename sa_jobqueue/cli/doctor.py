"""``sa-jobqueue doctor``: what stands in the way of the jobs, and what to do about it."""

from __future__ import annotations

from typing import Final

import typer
from rich.text import Text

from sa_jobqueue.cli.checks import Finding, Level, examine
from sa_jobqueue.cli.database import open_engine
from sa_jobqueue.cli.options import AsJson, Schema, Url
from sa_jobqueue.cli.problems import FAILED
from sa_jobqueue.cli.show import cell, console, print_json, table

__all__ = ["doctor"]

_STYLES: Final = {Level.OK: "green", Level.WARN: "yellow", Level.FAIL: "bold red"}


def doctor(*, url: Url = None, schema: Schema = None, as_json: AsJson = False) -> None:
    """Examine the server and the tables. Exit code 1 if a check fails; warnings leave it 0."""
    with open_engine(url) as engine, engine.connect() as connection:
        findings = examine(connection, schema)
    sound = all(finding.level is not Level.FAIL for finding in findings)
    if as_json:
        print_json({"ok": sound, "findings": findings})
    else:
        columns = {"": "left", "check": "left", "seen": "left"}
        console().print(table(columns, [_row(finding) for finding in findings]))
    raise typer.Exit(0 if sound else FAILED)


def _row(finding: Finding) -> tuple[Text, str, Text]:
    seen = cell(finding.seen)
    if finding.advice:
        seen.append_text(Text("\n").append_text(cell(finding.advice)))
    return Text(finding.level, style=_STYLES[finding.level]), finding.check, seen
