"""From ``module:name`` to the application's object."""

from __future__ import annotations

import importlib
import operator
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sa_jobqueue.cli.problems import MISUSED, Problem

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["load"]


def load(target: str, *kinds: type[Any]) -> Any:
    """Import the object that ``target`` names; the working directory can be imported from.

    Raises:
        Problem: nothing to import, or not one of ``kinds``. If the module itself fails, its traceback goes to stderr
            first, because the mistake is in there.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        msg = f"{target!r} does not say which object; write module:name, such as myapp.jobs:tasks"
        raise Problem(msg, code=MISUSED)
    module = _import(module_name)
    found = _attribute(module, name, kinds)
    if not isinstance(found, kinds):
        msg = f"{target} is a {type(found).__name__}, not a {_names(kinds)}{_hint(module, kinds)}"
        raise Problem(msg, code=MISUSED)
    return found


def _import(name: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - whatever an application's module raises
        traceback.print_exc()
        msg = f"cannot import {name}: {type(error).__name__}; the traceback above says where"
        raise Problem(msg) from None


def _attribute(module: ModuleType, name: str, kinds: tuple[type[Any], ...]) -> Any:
    try:
        return operator.attrgetter(name)(module)
    except AttributeError:
        msg = f"module {module.__name__} has no {name}{_hint(module, kinds)}"
        raise Problem(msg, code=MISUSED) from None


def _hint(module: ModuleType, kinds: tuple[type[Any], ...]) -> str:
    fitting = sorted(name for name, value in vars(module).items() if isinstance(value, kinds))
    return f"; it has {', '.join(fitting)}" if fitting else ""


def _names(kinds: tuple[type[Any], ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)
