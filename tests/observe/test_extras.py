"""Without its extra, a module says which one to install, and the rest of the package works."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "needs", "extra"),
    [
        ("sa_jobqueue.observe.prometheus", "prometheus_client", "prometheus"),
        ("sa_jobqueue.observe.otel", "opentelemetry", "otel"),
        ("sa_jobqueue.testing.factories", "factory", "testing"),
    ],
)
def test_a_missing_dependency_is_named_by_its_extra(module: str, needs: str, extra: str) -> None:
    source = (
        f"import sys; sys.modules[{needs!r}] = None\nimport sa_jobqueue.testing, sa_jobqueue.observe\nimport {module}"
    )

    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"pip install 'sa-jobqueue[{extra}]'" in done.stderr
