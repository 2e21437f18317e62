"""A process is killed while the server is at work for it: the statement or COMMIT goes on without anybody to hear."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import text

from tests.crash.killing import WORK
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.crash.ground import Ground

_FUNCTION = """
CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql
AS 'BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END'
"""
_IN_THE_DEDUP_INSERT = """
CREATE TRIGGER wait BEFORE INSERT ON jobqueue_dedup_key FOR EACH ROW EXECUTE FUNCTION wait_for_the_test()
"""
_IN_THE_COMMIT = """
CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON effect DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION wait_for_the_test()
"""
_WAITING = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")


def test_a_kill_in_the_dedup_insert_undoes_effect_and_ack_together(ground: Ground) -> None:
    job_id = ground.enqueue("q", "write", keyed=True)
    _kill_inside(ground, _IN_THE_DEDUP_INSERT)
    left = ground.fates([job_id])[0]
    assert (left.status, left.attempt, left.effects, left.dedup_rows) == ("claimed", 1, 0, 0)
    ground.queue.expire_leases()
    rescuer = ground.start(WORK, ["q"])
    rescuer.finish()
    assert ground.effects("q") == [rescuer.pid]


def test_a_kill_in_the_commit_leaves_a_job_that_is_done(ground: Ground) -> None:
    job_id = ground.enqueue("q", "write", keyed=True)
    victim = _kill_inside(ground, _IN_THE_COMMIT)
    left = ground.fates([job_id])[0]
    assert (left.status, left.effects, left.dedup_rows, left.outcomes) == ("gone", 1, 1, (("done", 1),))
    ground.start(WORK, ["q"]).finish()
    assert ground.effects("q") == [victim]


def _kill_inside(ground: Ground, trigger: str) -> int:
    """Kill the process that is first to fire the trigger, while it waits in there; the answer is its process id."""
    with ground.engine.begin() as connection:
        connection.execute(text(_FUNCTION))
        connection.execute(text(trigger))
    with _locked(ground):
        victim = ground.start(WORK, ["q"])
        wait_until(lambda: _count_waiting(ground) == 1, timeout=60, what="the trigger to fire")
        victim.kill()
    ground.queue.wait_until_gone(victim.backends)
    return victim.pid


@contextmanager
def _locked(ground: Ground) -> Iterator[None]:
    with ground.engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(7)"))
        yield


def _count_waiting(ground: Ground) -> int:
    with ground.engine.connect() as connection:
        return int(connection.execute(_WAITING).scalar_one())
