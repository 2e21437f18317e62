"""The application that is measured: one table, and the jobs that each write one row of it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Identity, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

__all__ = ["TASK", "Base", "Effect"]

TASK: Final = "record"
"""The task whose handler makes one effect."""


class Base(DeclarativeBase):
    """Base of the application's classes."""

    metadata = MetaData()


class Effect(Base):
    """What job number ``n`` did; nothing but the queue keeps it from being done twice."""

    __tablename__ = "bench_effect"

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    n: Mapped[int]
