"""Which arguments a job must have for its handler to be called with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sa_jobqueue.errors import ArgumentsMismatch, InvalidArgument

__all__ = ["Arguments"]


@dataclass(frozen=True, slots=True)
class Arguments:
    """Those of one task: the parameters of its handler but the first, a session or connection.

    ``names`` are the arguments that fit without a closer look, one for each parameter; None if they cannot be told by
    name. A handler of batches alone knows the arguments of its jobs: any do, if they are named.
    """

    task: str
    signature: inspect.Signature
    names: frozenset[str] | None
    batch: bool

    @classmethod
    def of(cls, task: str, function: Callable[..., Any], *, batch: bool) -> Arguments:
        """Those that the function takes."""
        signature = inspect.signature(function)
        return cls(task, signature, _names_of(signature), batch)

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """All by name, as they are stored; raises InvalidArgument if they do not fit."""
        if not self.batch:
            return self._by_name(args, kwargs)
        if args:
            msg = f"task {self.task!r} takes its jobs in batches: name each argument of the job"
            raise InvalidArgument(msg)
        return dict(kwargs)

    def check(self, stored: Mapping[str, Any]) -> None:
        """Raise ArgumentsMismatch unless the stored ones fit the handler."""
        if self.names is not None and stored.keys() == self.names:
            return
        try:
            self.signature.bind(None, **stored)
        except TypeError as error:
            raise ArgumentsMismatch(self.task, str(error)) from None

    def _by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = self.signature.bind(None, *args, **kwargs)
        except TypeError as error:
            msg = f"task {self.task!r}: {error}"
            raise InvalidArgument(msg) from None
        given = dict(list(bound.arguments.items())[1:])
        for parameter in self.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        return given


def _names_of(signature: inspect.Signature) -> frozenset[str] | None:
    parameters = list(signature.parameters.values())[1:]
    named = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    return frozenset(each.name for each in parameters) if all(each.kind in named for each in parameters) else None
