"""An application as its developer would test it: one table, and tasks that write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from sa_jobqueue import Backoff, RejectJob, SnoozeJob, TaskRegistry, current_job

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession
    from sqlalchemy.orm import Session


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    note: Mapped[str]


tasks = TaskRegistry()
async_tasks = TaskRegistry()


@tasks.task(queue="shop", dedup_key=lambda note: f"note:{note}")
def book(session: Session, note: str) -> None:
    session.add(Order(note=note))


@tasks.task(queue="shop", max_attempts=3, backoff=Backoff(base=600))
def fail(session: Session, note: str) -> None:
    session.add(Order(note=note))
    session.flush()
    message = "no stock"
    raise RuntimeError(message)


@tasks.task(queue="shop")
def stumble(session: Session, note: str) -> None:
    if current_job().attempt == 1:
        message = "not yet"
        raise RuntimeError(message)
    session.add(Order(note=note))


@tasks.task(queue="shop")
def order_chain(session: Session, length: int) -> None:
    session.add(Order(note=f"link {length}"))
    if length > 1:
        order_chain.enqueue(session, length - 1)


@tasks.task(queue="shop")
def reject(_session: Session) -> None:
    raise RejectJob


@tasks.task(queue="shop")
def snooze(_session: Session) -> None:
    raise SnoozeJob(60)


@tasks.task(queue="shop")
def keep(session: Session, value: Any) -> None:
    session.info["kept"] = value


@async_tasks.task(queue="shop", dedup_key=lambda note: f"note:{note}")
async def abook(session: AsyncSession, note: str) -> None:
    session.add(Order(note=f"{note} by job {current_job().task}"))


@async_tasks.task(queue="shop")
async def afail(session: AsyncSession) -> None:
    session.add(Order(note="half"))
    await session.commit()


@async_tasks.task(queue="shop")
def book_in_sync(session: Session, note: str) -> None:
    session.add(Order(note=note))


def notes(session: Session) -> list[str]:
    return list(session.scalars(select(Order.note).order_by(Order.id)))
