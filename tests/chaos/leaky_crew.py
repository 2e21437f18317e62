"""A worker process whose handlers break the rule: they commit their effect by themselves, before the job is done."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from sa_jobqueue import TaskRegistry
from sa_jobqueue.testing.chaos import crew

if TYPE_CHECKING:
    from sa_jobqueue.testing.chaos.work import Notebook


def leaky_tasks(notebook: Notebook, lease: float) -> TaskRegistry:
    def work(_session: Session, tag: str, seconds: float = 0.0, **_rest: Any) -> None:
        with Session(notebook.engine) as own, own.begin():
            own.add(notebook.begin(tag))
        threading.Event().wait(seconds)

    tasks = TaskRegistry()
    for name in ("work", "work_core", "work_async", "hang"):
        tasks.task(name=name, queue=crew.QUEUE, visibility_timeout=lease)(work)
    return tasks


if __name__ == "__main__":
    crew.main(leaky_tasks)
