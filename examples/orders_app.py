"""An application with tasks and a worker: one job changes a row and enqueues the next one in the same transaction.

Run it with DATABASE_URL set: ``python examples/orders_app.py``. It drains its queues and ends. As a process that stays:
``sa-jobqueue worker orders_app:tasks`` in this folder.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable

from sqlalchemy import create_engine, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

import sa_jobqueue
from sa_jobqueue import Backoff, RejectJob, TaskRegistry, Worker, current_job

logger = logging.getLogger("orders_app")
tasks = TaskRegistry()


class Base(DeclarativeBase):
    """The application's own tables."""


class Order(Base):
    """An order; it is paid first, then shipped."""

    __tablename__ = "orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]
    paid: Mapped[bool] = mapped_column(default=False)
    shipped: Mapped[bool] = mapped_column(default=False)


@tasks.task(queue="billing", dedup_key=lambda order_id: f"order:{order_id}")
def charge(session: Session, order_id: int) -> None:
    """Mark the order as paid, and let it be shipped: both or neither."""
    order = session.get_one(Order, order_id)
    if order.cents <= 0:
        msg = f"order {order_id} has no price"
        raise RejectJob(msg)
    order.paid = True
    ship.enqueue(session, order_id=order_id)


@tasks.task(queue="shipping", max_attempts=3, backoff=Backoff(base=0.05, cap=1.0, jitter=0.01))
def ship(session: Session, order_id: int) -> None:
    """Ship; the carrier is busy at the first try."""
    if current_job().attempt == 1:
        msg = "the carrier is busy"
        raise ConnectionError(msg)
    session.get_one(Order, order_id).shipped = True


def place_orders(session: Session, prices: Iterable[int]) -> None:
    """Store each order and enqueue its charge in the caller's transaction."""
    orders = [Order(cents=cents) for cents in prices]
    session.add_all(orders)
    session.flush()
    for order in orders:
        charge.enqueue(session, order_id=order.id)


def main() -> None:
    """Place three orders, one without a price; run the worker until nothing is left; show what became of them."""
    logging.basicConfig(level="INFO", format="%(message)s")
    engine = create_engine(os.environ["DATABASE_URL"])
    Base.metadata.create_all(engine)
    sa_jobqueue.metadata.create_all(engine)
    sessions = sessionmaker(engine)
    with sessions.begin() as session:
        place_orders(session, [1250, 300, 0])
    Worker(tasks, sessions, concurrency=4).run(until_empty=True)
    with sessions() as session:
        for order in session.scalars(select(Order).order_by(Order.id)):
            logger.info("order %d: paid %s, shipped %s", order.id, order.paid, order.shipped)
    engine.dispose()


if __name__ == "__main__":
    main()
