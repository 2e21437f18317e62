"""What ``tune`` concludes from what it saw: no database here."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sa_jobqueue import Backoff
from sa_jobqueue.cli.tune.advice import recommend, too_few
from sa_jobqueue.cli.tune.observed import (
    ENOUGH,
    Deaths,
    Fleet,
    Observation,
    QueueLoad,
    Recommendation,
    Server,
    Settings,
    Table,
    TaskRuns,
)
from sa_jobqueue.cli.tune.rounding import at_least, at_most
from sa_jobqueue.histogram import BUCKETS, bucket_of
from sa_jobqueue.models import TURNOVER

HOUR = 3600.0
SHIPPED = Table("jobqueue_job", options=TURNOVER)


def seen(*tasks: TaskRuns, settings: Settings | None = None, deaths: Deaths | None = None, **more: Any) -> Observation:
    return Observation(
        at=datetime(2030, 1, 1, tzinfo=UTC),
        window=HOUR,
        tasks=tasks,
        settings={task.task: settings for task in tasks if settings},
        deaths={task.task: deaths for task in tasks if deaths},
        **{"counted": HOUR, "fleet": Fleet(cores=4), "tables": {"jobqueue_job": SHIPPED}, **more},
    )


def ran(seconds: float = 0.01, runs: int = 10_000, busiest: int = 0, **outcomes: int) -> TaskRuns:
    return TaskRuns("pay", {"done": runs, **outcomes}, {bucket_of(seconds): runs}, busiest)


def said(seen: Observation) -> Mapping[str, Recommendation]:
    return {each.setting: each for each in recommend(seen)}


def wanted(seen: Observation) -> dict[str, str]:
    return {each.setting: each.recommended for each in recommend(seen) if each.change}


def test_a_task_that_hardly_ran_gets_no_advice_and_is_named() -> None:
    looked = seen(ran(runs=ENOUGH - 1))

    assert recommend(looked) == []
    assert [each.task for each in too_few(looked)] == ["pay"]


def test_a_long_lease_is_cut_to_the_default_whatever_the_run_time_since_heartbeats_extend_it() -> None:
    short, long = (
        said(seen(ran(t), settings=Settings(visibility_timeout=900)))["visibility_timeout"] for t in (1, 400)
    )

    assert (short.now, short.recommended, long.recommended) == ("15 min", "30 s", "30 s")
    assert "REPEATABLE READ" not in short.why
    assert "REPEATABLE READ" in long.why


def test_runs_that_outlive_their_lease_are_right_as_they_are() -> None:
    told = said(seen(ran(40), settings=Settings(visibility_timeout=30)))["visibility_timeout"]

    assert not told.change
    assert "heartbeats extend the lease" in told.why


@pytest.mark.parametrize(("now", "recommended"), [(5.0, "30 s"), (None, "at least 30 s"), (30.0, "30 s")])
def test_leases_that_run_out_ask_for_longer_ones_unless_they_are_long(now: float | None, recommended: str) -> None:
    told = said(seen(ran(requeued=200), settings=Settings(visibility_timeout=now)))["visibility_timeout"]

    assert (told.recommended, told.change) == (recommended, now != 30.0)
    assert ("workers that are killed" in told.why) == (now == 30.0)


@given(seconds=st.floats(0.001, 4000), runs=st.integers(ENOUGH, 10**9))
def test_no_run_that_was_seen_would_have_hit_the_time_limit(seconds: float, runs: int) -> None:
    limit = said(seen(ran(seconds, runs))).get("time_limit")

    assert limit is not None
    assert limit.figures["longest"] >= seconds * 0.999
    assert limit.figures["recommended"] >= max(60, 2 * limit.figures["longest"])


def test_a_few_runs_far_above_the_p99_raise_the_time_limit_above_them() -> None:
    runs = TaskRuns("pay", {"done": 10_005}, {bucket_of(0.01): 10_000, bucket_of(400): 5})

    assert said(seen(runs))["time_limit"].figures["recommended"] >= 2 * 400


def test_runs_too_long_to_be_told_apart_get_no_time_limit() -> None:
    assert "time_limit" not in said(seen(TaskRuns("pay", {"done": 500}, {BUCKETS - 1: 500})))


def test_a_time_limit_with_room_is_left_alone_and_one_without_is_raised() -> None:
    assert "time_limit" not in said(seen(ran(1), settings=Settings(declared=True, time_limit=60)))
    assert wanted(seen(ran(4), settings=Settings(declared=True, time_limit=5)))["time_limit"] == "60 s"


def test_short_runs_at_a_high_rate_should_share_commits_and_the_caveats_are_told() -> None:
    told = said(seen(ran(0.003, busiest=6_000)))["group_commit"]

    assert told.recommended == "20"
    assert "effects outside the database" in told.why
    assert "hot rows" in told.why


@pytest.mark.parametrize(
    "runs",
    [
        ran(0.003, busiest=600),
        ran(0.3, busiest=60_000),
        TaskRuns("pay", {"done": 1_000}, {0: 980, bucket_of(0.4): 20}, 60_000),
        ran(0.003, busiest=6_000, retried=2_000),
    ],
    ids=["few a second", "long", "sometimes long", "often failing"],
)
def test_no_commit_is_shared_where_that_would_not_pay(runs: TaskRuns) -> None:
    assert "group_commit" not in said(seen(runs))


@given(done=st.integers(0, 10**6), retried=st.integers(0, 10**6), size=st.integers(1, 1_000))
def test_of_the_groups_that_are_recommended_at_most_one_in_ten_is_rolled_back(
    done: int, retried: int, size: int
) -> None:
    runs = TaskRuns("pay", {"done": done, "retried": retried}, {0: done + retried}, done + retried)
    told = said(seen(runs, settings=Settings(declared=True, group_commit=size))).get("group_commit")

    if told is not None and told.recommended != "1":
        assert (1 - runs.failing) ** int(told.recommended) >= 0.9 - 1e-9


def test_a_batch_of_jobs_that_often_fail_gets_smaller() -> None:
    settings = Settings(declared=True, batch=100)

    assert wanted(seen(ran(retried=500), settings=settings))["batch"] == "2"
    assert "batch" not in said(seen(ran(retried=5), settings=settings))


def test_retries_in_vain_ask_for_fewer_attempts_and_helpful_ones_for_more() -> None:
    settings = Settings(declared=True, max_attempts=5, backoff=Backoff())
    vain = said(seen(ran(retried=400), settings=settings, deaths=Deaths(failed=100, retries=400)))["max_attempts"]
    few = said(seen(ran(retried=4_000), settings=settings, deaths=Deaths(failed=200, retries=800)))["max_attempts"]

    assert (vain.now, vain.recommended, few.recommended) == ("5", "2", "8")
    assert "RejectJob" in vain.why
    assert "about 30 s" in few.why


@pytest.mark.parametrize(("most", "retries"), [(2, 400), (5, 260)], ids=["one retry", "in vain or not"])
def test_where_another_number_of_attempts_would_not_be_better_none_is_named(most: int, retries: int) -> None:
    settings = Settings(declared=True, max_attempts=most, backoff=Backoff())
    looked = seen(ran(retried=400), settings=settings, deaths=Deaths(failed=200, retries=retries))

    assert "max_attempts" not in said(looked)


def test_many_retries_ask_for_longer_pauses() -> None:
    assert wanted(seen(ran(retried=4_000)))["backoff.base"] == "10 s"
    assert "backoff.base" not in said(seen(ran(retried=400)))


def test_slots_follow_from_the_rate_and_the_run_time() -> None:
    load = QueueLoad("q", finished=36_000, runs=36_000, busy=HOUR * 14)
    told = said(seen(queues=(load,)))["concurrency"]

    assert (told.figures["busy"], told.figures["runs_per_second"], told.figures["slots"]) == (14, 10, 20)
    assert (told.recommended, wanted(seen(queues=(load,)))["processes"]) == ("8", "3")


def test_a_backlog_asks_for_slots_that_do_it_beside_the_usual_work() -> None:
    idle, behind = (
        said(seen(queues=(QueueLoad("q", ready, 0.0, ready, 36_000, 36_000, HOUR),)))["concurrency"].figures["slots"]
        for ready in (0, 360_000)
    )

    assert (idle, behind) == (2, 16)


@given(busy=st.floats(0.001, 10_000), cores=st.integers(1, 64))
def test_there_are_never_fewer_slots_than_were_busy_nor_more_processes_than_cores(busy: float, cores: int) -> None:
    told = said(seen(queues=(QueueLoad("q", runs=1_000, busy=HOUR * busy),), fleet=Fleet(cores)))
    processes, concurrency = (int(told[name].recommended) for name in ("processes", "concurrency"))

    assert processes <= cores
    assert processes * concurrency >= busy


def test_workers_that_have_room_stay_as_they_are() -> None:
    load = QueueLoad("q", finished=36_000, runs=36_000, busy=HOUR * 14)
    looked = seen(queues=(load,), fleet=Fleet(4, processes=2, concurrency=12))

    assert not {"processes", "concurrency"} & set(wanted(looked))


@pytest.mark.parametrize(("waited", "told"), [(59.0, False), (61.0, True)])
def test_a_queue_whose_jobs_wait_long_is_named_with_the_time_that_it_takes(waited: float, *, told: bool) -> None:
    load = QueueLoad("q", ready=7_200, oldest=waited, fresh=7_200, finished=3_600, runs=3_600, busy=HOUR)
    slots = said(seen(queues=(load,))).get("slots")

    assert (slots is not None) == told
    if slots is not None:
        assert slots.figures["drained_in"] == 7_200
        assert slots.figures["grown_at_least"] == 3_600


def test_a_queue_that_nobody_serves_asks_for_a_worker() -> None:
    told = said(seen(queues=(QueueLoad("q", ready=3, oldest=600),)))["workers"]

    assert (told.name, told.recommended) == ("q", "at least 1")


@pytest.mark.parametrize(("busy", "connections"), [(1.0, "100"), (38.0, "100"), (40.0, "200"), (100.0, "500")])
def test_connections_of_all_workers_must_fit_beside_those_of_others(busy: float, connections: str) -> None:
    load = QueueLoad("q", finished=1_000, runs=1_000, busy=HOUR * busy)
    looked = seen(queues=(load,), server=Server(max_connections=100), fleet=Fleet(32))

    assert said(looked)["max_connections"].recommended == connections


def test_connections_that_are_kept_for_superusers_are_no_worker_s() -> None:
    load = QueueLoad("q", finished=1_000, runs=1_000, busy=HOUR)
    looked = seen(queues=(load,), server=Server(max_connections=150), fleet=Fleet(8, processes=8, concurrency=17))

    assert wanted(looked)["max_connections"] == "500"  # 160 are four fifths of 200, and three are kept


def test_commits_that_a_crash_forgets_are_told_and_durable_ones_are_right() -> None:
    off, on = (
        said(seen(server=Server(synchronous_commit=value, fsync_seconds=0.004)))["synchronous_commit"]
        for value in ("off", "on")
    )

    assert (off.recommended, off.change, on.change) == ("on", True, False)
    assert "4.00 ms" in on.why


def test_a_busy_table_wants_autovacuum_more_often() -> None:
    load = QueueLoad("q", finished=3_600 * 500, runs=3_600 * 500, busy=HOUR)

    assert wanted(seen(queues=(load,), server=Server()))["autovacuum_naptime"] == "10 s"
    assert "autovacuum_naptime" not in said(seen(server=Server()))


def test_storage_parameters_are_wanted_back_unless_they_are_stricter() -> None:
    options = {**TURNOVER, "fillfactor": "50", "autovacuum_vacuum_scale_factor": "0.2"}
    del options["autovacuum_vacuum_cost_delay"]

    told = wanted(seen(tables={"jobqueue_job": Table("jobqueue_job", options=options)}))
    assert told == {"autovacuum_vacuum_scale_factor": "0.01", "autovacuum_vacuum_cost_delay": "0"}


def test_a_table_and_indexes_far_larger_than_their_rows_are_bloated() -> None:
    bloated = Table("jobqueue_job", live=1_000, heap=2**30, indexes=2**30, width=200.0, options=TURNOVER)
    full = Table("jobqueue_job", live=4_000_000, heap=2**30, indexes=2**29, width=200.0, options=TURNOVER)

    assert set(wanted(seen(tables={"jobqueue_job": bloated}))) == {"bloat", "index_bloat"}
    assert wanted(seen(tables={"jobqueue_job": full})) == {}


@pytest.mark.parametrize(("own", "setting"), [(0.9, "natural_keys_only"), (0.1, "retention"), (None, "retention")])
def test_dedup_keys_that_grow_fast_are_told_with_rows_a_month(own: float | None, setting: str) -> None:
    keys = Table("jobqueue_dedup_key", live=1_000_000, heap=100 * 2**20, indexes=100 * 2**20)
    told = said(seen(ran(runs=3_600), own_keys=own, tables={"jobqueue_dedup_key": keys}))[setting]

    assert told.figures["rows_a_month"] == 30 * 86_400
    assert told.figures["bytes_a_row"] == pytest.approx(209.7, abs=0.1)


def test_a_minute_is_not_enough_to_say_how_much_comes_along_in_a_month() -> None:
    keys = Table("jobqueue_dedup_key", live=1_000, heap=2**20)

    assert "retention" not in said(seen(ran(runs=3_600), counted=60.0, tables={"jobqueue_dedup_key": keys}))


def test_changes_come_before_what_is_right_as_it_is() -> None:
    told = recommend(seen(ran(40), settings=Settings(visibility_timeout=30)))

    assert [each.change for each in told] == sorted((each.change for each in told), reverse=True)


@given(value=st.floats(1e-6, 1e12))
def test_round_figures_are_on_the_right_side_and_never_far(value: float) -> None:
    assert value * 0.999 <= at_least(value) <= value * 2.6
    assert value * 1.001 >= at_most(value) >= value / 2.6
