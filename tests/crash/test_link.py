"""The line between a test and a process that it has stopped and let go on."""

from __future__ import annotations

import socket

import pytest

from sa_jobqueue.testing.crash.link import Link

FAR_TOO_MANY = 50_000


@pytest.mark.timeout(30)  # without it, who speaks would wait for ever
def test_who_mentions_what_nobody_has_time_to_hear_goes_on_and_says_only_whole_things() -> None:
    ours, theirs = socket.socketpair()
    speaker, hearer = Link(theirs), Link(ours)
    for number in range(FAR_TOO_MANY):
        speaker.mention("passed", ["handler", "before", "ack", number])
    speaker.close()
    heard = [value[-1] for _, value in hearer.heard()]
    hearer.close()
    assert 0 < len(heard) < FAR_TOO_MANY
    assert heard == list(range(len(heard)))
