"""The suite on a container: whether testcontainers can serve it, where a Docker engine answers."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.database import container, local_image


@pytest.fixture
def image() -> str:
    name, reason = local_image()
    return name or pytest.skip(reason)


def test_a_container_answers_the_first_query_on_a_psycopg_url(image: str) -> None:
    with container(image) as postgres:
        url = make_url(postgres.get_connection_url())
        engine = create_engine(url)
        with engine.connect() as connection:
            answer = connection.scalar(text("SELECT current_setting('max_connections')"))
        engine.dispose()

    assert url.drivername == "postgresql+psycopg"
    assert answer == "200"


def test_a_container_is_gone_after_its_block(image: str) -> None:
    with container(image) as postgres:
        client, identity = postgres.get_docker_client().client, postgres.get_wrapped_container().id

    assert identity not in [found.id for found in client.containers.list(all=True)]
    client.close()
