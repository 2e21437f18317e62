"""What JSON or PostgreSQL cannot keep is refused before any SQL, by its path; what is accepted comes back equal."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sa_jobqueue import InvalidPayload, NewJob

if TYPE_CHECKING:
    from tests.behaviour.clients import Client
    from tests.behaviour.observer import Observer

REFUSED = {
    "$.a": [
        {"a": "x\u0000"},
        {"a": "\ud800"},
        {"a": float("nan")},
        {"a": float("-inf")},
        {"a": 1e16},
        {"a": 10**4_000},
        {"a": (1, 2)},
        {"a": {1}},
        {"a": b"x"},
        {"a": Decimal(1)},
        {"a": uuid.UUID(int=1)},
        {"a": date(2026, 1, 2)},
        {"a": datetime(2026, 1, 2, tzinfo=UTC)},
        {"a": {1: "x"}},
    ],
    "$.a[0]": [{"a": [float("inf")]}],
    "$.a[2].b": [{"a": [1, 2, {"b": object()}]}],
    "$": [{1: "a"}, {None: 1}],
    "$['a b'].c": [{"a b": {"c": ...}}],
}
CASES = [
    pytest.param(path, value, id=f"{path} case {number}")
    for path, values in REFUSED.items()
    for number, value in enumerate(values)
]

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
leaves = st.none() | st.booleans() | text | st.integers() | st.floats(-1e16, 1e16, exclude_min=True, exclude_max=True)
objects = st.dictionaries(
    text, st.recursive(leaves, lambda below: st.lists(below) | st.dictionaries(text, below), max_leaves=20)
)
strangers = st.floats() | st.text() | st.binary() | st.decimals() | st.dates() | st.tuples(st.integers())
anything = st.dictionaries(st.text(), st.recursive(leaves | strangers, st.lists, max_leaves=5))


@pytest.mark.parametrize(("path", "value"), CASES)
def test_a_bad_value_is_named_by_its_path_and_the_transaction_goes_on(
    path: str, value: Any, queue: Client, observer: Observer
) -> None:
    queue.execute("INSERT INTO effect (name) VALUES ('order')")
    with pytest.raises(InvalidPayload) as refused:
        queue.enqueue("t", value)
    queue.commit()
    assert refused.value.path == path
    assert observer.effects() == ["order"]


def test_the_error_tells_the_place_and_never_the_value(queue: Client) -> None:
    with pytest.raises(InvalidPayload) as refused:
        queue.enqueue("t", {"password": "S3CRET\x00"})
    assert "S3CRET" not in str(refused.value)
    assert "S3CRET" not in repr(refused.value)


def test_headers_are_checked_as_arguments_are(queue: Client) -> None:
    with pytest.raises(InvalidPayload, match=r"headers\.trace"):
        queue.enqueue("t", headers={"trace": b"x"})


def test_what_contains_itself_is_refused(queue: Client) -> None:
    loop: dict[str, Any] = {}
    loop["again"] = [loop, loop]
    with pytest.raises(InvalidPayload, match="contains itself"):
        queue.enqueue("t", loop)


@pytest.mark.parametrize("given", [{}, None, "omitted"])
def test_no_arguments_have_one_stored_form(given: Any, queue: Client, observer: Observer) -> None:
    made = queue.enqueue("t") if given == "omitted" else queue.enqueue("t", given)
    (many,) = queue.enqueue_many([NewJob("t", None if given == "omitted" else given)])
    queue.commit()
    empty = observer.all("SELECT id FROM jobqueue_job WHERE args = '{}' AND headers = '{}' ORDER BY id")
    assert [row.id for row in empty] == [made.id, many.id]


@given(value=objects)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_an_accepted_payload_comes_back_equal(value: dict[str, Any], queue: Client) -> None:
    queue.enqueue("t", value)
    queue.enqueue_many([NewJob("t", value)])
    one, many = queue.claim_many(limit=2)
    queue.rollback()
    assert one.args == many.args == value
    assert repr(one.args) == repr(many.args)


@given(value=anything)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_given_is_refused_before_any_sql_or_stored_unchanged(value: dict[str, Any], queue: Client) -> None:
    try:
        queue.enqueue("t", value)
    except InvalidPayload:
        assert not queue.run(lambda session: session.in_transaction())
    else:
        assert queue.claim().args == value
    queue.rollback()
