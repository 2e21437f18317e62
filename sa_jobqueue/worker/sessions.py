"""The sessions of handlers: the application's own, with the worker's ears on them.

Listening to each new session would cost more than the session. So the worker makes its sessions from a subclass of the
application's session class and listens to that; the application's class, its listeners and settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import fence
from sa_jobqueue.worker import watch

__all__ = ["SessionSource", "source_of"]


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Makes sessions whose jobs are in ``home``; ``overheard`` says that their class is listened to already."""

    make: Callable[[], Any]
    home: Engine
    overheard: bool = False

    def forget(self) -> None:
        """The session is closed; a ``scoped_session`` must not hand it out again."""
        if hasattr(self.make, "remove"):
            self.make.remove()

    def watched(self, session: Session, by: watch.Watch) -> None:
        """Let ``by`` follow the session, and guard its commits."""
        guard = fence.Fence(expected=set(by.expected))
        fence.put_up(session, guard, heard=self.overheard)
        watch.follow(session, by, heard=self.overheard)


def source_of(factory: Any, home: Engine) -> SessionSource:
    """The source for a factory. One that is not SQLAlchemy's own keeps its way, and each session is listened to."""
    made = getattr(factory, "class_", None)
    if made is None or not type(factory).__module__.startswith("sqlalchemy."):
        return SessionSource(factory, home)
    if issubclass(made, Session):
        return SessionSource(sessionmaker(class_=_ear(made), **factory.kw), home, overheard=True)
    inner = factory.kw.get("sync_session_class") or made.sync_session_class
    settings = {**factory.kw, "sync_session_class": _ear(inner)}
    return SessionSource(type(factory)(class_=made, **settings), home, overheard=True)


def _ear(session_class: type[Session]) -> type[Session]:
    subclass = type(session_class.__name__, (session_class,), {})
    fence.listen(subclass)
    watch.listen(subclass)
    return subclass
