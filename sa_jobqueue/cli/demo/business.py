"""The demo's application, plain SQLAlchemy: it receives webhooks of a code host and books one event for each.

Nothing in these tables stops a second event of one delivery. That there is none is the queue's doing, and what the
demo counts.
"""

from __future__ import annotations

import threading
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import DateTime, ForeignKey, Integer, Text, func
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from sa_jobqueue.backoff import Backoff
from sa_jobqueue.cli.demo.webhooks import Webhook
from sa_jobqueue.tasks import TaskRegistry, current_job
from sa_jobqueue.values import EnqueuedJob

__all__ = ["QUEUE", "Base", "Delivery", "RepositoryEvent", "Role", "book_event", "receive", "tasks"]

QUEUE = "webhooks"
VISIBILITY_TIMEOUT = 3.0
"""Seconds after which the jobs of a killed worker come back; so short only because nobody wants to wait in a demo."""

_PRETENDED_WORK = 0.02


class Role(StrEnum):
    """What a delivery is there to show."""

    POISON = "poison"
    """Its handler fails whenever it runs."""
    STUMBLE = "stumble"
    """Its handler fails the first time."""
    HOLD = "hold"
    """Its handler, the first time, does not come to its end: its worker is killed then."""


class Base(DeclarativeBase):
    """The application's tables; the queue's own come from its migrations."""


class Delivery(Base):
    """One webhook as it was received; ``received`` counts how often its sender sent it."""

    __tablename__ = "demo_delivery"

    id: Mapped[str] = mapped_column(Text, primary_key=True)
    event: Mapped[str] = mapped_column(Text)
    action: Mapped[str | None] = mapped_column(Text)
    payload: Mapped[dict[str, Any]] = mapped_column(JSONB)
    role: Mapped[str | None] = mapped_column(Text)
    received: Mapped[int] = mapped_column(Integer, default=0)


class RepositoryEvent(Base):
    """The effect of one delivery."""

    __tablename__ = "demo_repository_event"

    id: Mapped[int] = mapped_column(primary_key=True)
    delivery_id: Mapped[str] = mapped_column(ForeignKey(Delivery.id), index=True)
    repository: Mapped[str | None] = mapped_column(Text)
    sender: Mapped[str | None] = mapped_column(Text)
    what: Mapped[str] = mapped_column(Text)
    booked_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.clock_timestamp())


tasks = TaskRegistry()


@tasks.task(
    queue=QUEUE,
    max_attempts=4,
    visibility_timeout=VISIBILITY_TIMEOUT,
    backoff=Backoff(base=0.2, cap=2.0, jitter=0.1),
    dedup_key=lambda delivery_id: delivery_id,
)
def book_event(session: Session, delivery_id: str) -> None:
    """The handler: one event row for one delivery, in the session whose commit also acknowledges the job."""
    delivery = session.get_one(Delivery, delivery_id)
    session.add(
        RepositoryEvent(
            delivery_id=delivery.id,
            repository=_text(delivery.payload, "repository", "full_name"),
            sender=_text(delivery.payload, "sender", "login"),
            what=" ".join(filter(None, (delivery.event, delivery.action))),
        )
    )
    session.flush()
    threading.Event().wait(_PRETENDED_WORK)
    _play(delivery.role)


def receive(session: Session, webhook: Webhook, role: Role | None = None) -> EnqueuedJob:
    """What the application's endpoint does: store the delivery and enqueue its job, in the caller's transaction."""
    delivery = session.get(Delivery, webhook.delivery)
    if delivery is None:
        delivery = Delivery(
            id=webhook.delivery,
            event=webhook.event,
            action=webhook.action,
            payload=webhook.payload,
            role=role,
            received=0,
        )
        session.add(delivery)
    delivery.received += 1
    return book_event.enqueue(session, delivery_id=webhook.delivery)


def _play(role: str | None) -> None:
    first = current_job().attempt == 1
    if role == Role.POISON or (role == Role.STUMBLE and first):
        msg = f"this delivery is here to {'fail always' if role == Role.POISON else 'fail once'}"
        raise RuntimeError(msg)
    if role == Role.HOLD and first:
        threading.Event().wait()


def _text(payload: dict[str, Any], *path: str) -> str | None:
    value: Any = payload
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
