"""Who plays what: which deliveries fail, which one holds its worker, and which are sent twice. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sa_jobqueue.cli.demo.business import Role

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sa_jobqueue.cli.demo.webhooks import Webhook

__all__ = ["cast", "sendings"]

_STUMBLES_EVERY: Final = 20
_TWICE_EVERY: Final = 8


def cast(webhooks: Sequence[Webhook]) -> dict[str, Role]:
    """The roles by delivery: one holds its worker, from two on one is poison, from three on some stumble."""
    ids = list(dict.fromkeys(webhook.delivery for webhook in webhooks))
    roles = dict.fromkeys(ids[len(ids) - 1 :: -_STUMBLES_EVERY], Role.STUMBLE)
    roles[ids[0]] = Role.POISON
    return roles | {ids[len(ids) // 2]: Role.HOLD}


def sendings(webhooks: Sequence[Webhook], roles: dict[str, Role]) -> list[Webhook]:
    """The webhooks in the order they arrive: every eighth twice, half of those at once, the others after all."""
    twice = [webhook for webhook in webhooks[1::_TWICE_EVERY] if webhook.delivery not in roles]
    at_once = {webhook.delivery for webhook in twice[::2]}
    arriving: list[Webhook] = []
    for webhook in webhooks:
        arriving += [webhook] * (2 if webhook.delivery in at_once else 1)
    return arriving + twice[1::2]
