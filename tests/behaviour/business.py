"""The application around the queue: what its handlers change."""

from __future__ import annotations

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Effect(Base):
    """A business row; ``name`` is what a half-built one lacks."""

    __tablename__ = "effect"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
