"""The business of the chaos run: orders, and what became of them.

No constraint forbids a second effect: one that the queue lets through must be able to show.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Identity, MetaData, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = ["Base", "EffectRow", "Order", "RedriveRow", "StartRow"]


class Base(DeclarativeBase):
    """Base of the chaos run's own tables."""

    metadata = MetaData()


def _number() -> Any:
    return mapped_column(BigInteger, Identity(), primary_key=True)


class Order(Base):
    """Written by the transaction that enqueues: it tells whether that one committed, even if nobody heard so."""

    __tablename__ = "chaos_order"

    tag: Mapped[str] = mapped_column(Text, primary_key=True)
    key: Mapped[str | None] = mapped_column(Text)


class StartRow(Base):
    """A run that began, committed before anything else is done, with what could be seen then."""

    __tablename__ = "chaos_start"

    run: Mapped[str] = mapped_column(Text, primary_key=True)
    tag: Mapped[str] = mapped_column(Text)
    token: Mapped[int] = mapped_column(BigInteger)
    worker: Mapped[str] = mapped_column(Text)
    snapshot: Mapped[str] = mapped_column(Text, server_default=text("pg_current_snapshot()::text"))


class EffectRow(Base):
    """What a handler does, in its own transaction."""

    __tablename__ = "chaos_effect"

    id: Mapped[int] = _number()
    run: Mapped[str] = mapped_column(Text)
    tag: Mapped[str] = mapped_column(Text)
    key: Mapped[str | None] = mapped_column(Text)
    token: Mapped[int] = mapped_column(BigInteger)
    transaction: Mapped[int] = mapped_column(BigInteger, server_default=text("pg_current_xact_id()::text::bigint"))

    def as_values(self) -> dict[str, Any]:
        """For an INSERT without a session."""
        return {"run": self.run, "tag": self.tag, "key": self.key, "token": self.token}


class RedriveRow(Base):
    """Written by the transaction in which the operator brings a dead letter back."""

    __tablename__ = "chaos_redrive"

    id: Mapped[int] = _number()
    job_id: Mapped[int] = mapped_column(BigInteger)
