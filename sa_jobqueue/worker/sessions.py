"""The sessions of handlers: the application's own, with the worker's ears on them.

Listening to each new session would cost more than the session. So the worker makes its sessions from a subclass of the
application's session class and listens to that; the application's class, its listeners and settings stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session, sessionmaker

from sa_jobqueue import fence
from sa_jobqueue.worker import watch
from sa_jobqueue.worker.closing import acknowledge_at_commit
from sa_jobqueue.worker.hand import Hand
from sa_jobqueue.worker.run import Run
from sa_jobqueue.worker.scopes import Books, alone

__all__ = ["SessionScope", "SessionSource", "source_of"]


@dataclass(slots=True)
class SessionScope:
    """Handlers in one session."""

    session: Session
    watch: watch.Watch
    books: Books
    what: ClassVar[str] = "session"

    @property
    def closed(self) -> bool:
        """Told by the watch: a session itself does not say so."""
        return self.watch.closed

    @property
    def over(self) -> bool:
        """A session can be used after its close, too."""
        return False

    def keep(self) -> None:
        """Flush changed rows: the next handler may expire or refresh them. New rows can wait."""
        if self.session.dirty or self.session.deleted:
            self.session.flush()

    def settle(self, runs: Sequence[Run]) -> None:
        """Flush first: the ack is the last statement before the commit, and before any commit to another database."""
        settled = fence.fence_of(self.session).settled
        left = [run for run in runs if run.job.id not in settled]
        self.session.flush()
        for run in left:
            run.settling = True
        if self.watch.elsewhere or not self._settle_at_commit(left):
            self.books.write(self.session, left)

    def commit(self) -> None:
        """Commit to all databases that the handlers have used."""
        try:
            self.session.commit()
        except BaseException:
            _roll_back(self.session)
            raise

    def _settle_at_commit(self, runs: Sequence[Run]) -> bool:
        job = alone(runs)
        return job is not None and acknowledge_at_commit(self.session, self.books.models, job, self.books.last_word)


@dataclass(frozen=True, slots=True)
class SessionSource:
    """Makes sessions whose jobs are in ``home``; ``overheard`` says that their class is listened to already."""

    make: Callable[[], Any]
    home: Engine
    overheard: bool = False

    def open(self, hand: Hand) -> Any:
        """A ``Session``, which will take its connection out of the pool by itself."""
        hand.close()
        return self.make()

    def scope(self, given: Any, by: watch.Watch, books: Books) -> SessionScope:
        """Let ``by`` follow the session, and guard its commits."""
        session: Session = getattr(given, "sync_session", given)
        fence.put_up(session, fence.Fence(expected=set(by.expected)), heard=self.overheard)
        watch.follow(session, by, heard=self.overheard)
        return SessionScope(session, by, books)

    async def aopen(self, hand: Hand) -> Any:
        """An ``AsyncSession``."""
        await hand.aclose()
        return self.make()

    async def ascope(self, given: Any, by: watch.Watch, books: Books) -> SessionScope:
        """The same: nothing is sent."""
        return self.scope(given, by, books)

    def forget(self) -> None:
        """A ``scoped_session`` must not hand a closed session out again."""
        if hasattr(self.make, "remove"):
            self.make.remove()


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


def _roll_back(session: Session) -> None:
    """SQLAlchemy takes a transaction whose commit has raised for ended, and would give it to the pool as it is."""
    transaction: Any = session.get_transaction()
    for connection, *_ in set(transaction._connections.values()) if transaction else ():  # noqa: SLF001 - no other way
        connection._rollback_impl()  # noqa: SLF001 - a transaction that counts as ended cannot be told to


def _ear(session_class: type[Session]) -> type[Session]:
    subclass = type(session_class.__name__, (session_class,), {})
    fence.listen(subclass)
    watch.listen(subclass)
    return subclass
