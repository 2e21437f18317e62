"""Handlers: plain functions with a name, a queue and a retry policy. A registry is a value; there is no global one."""

from sa_jobqueue.tasks.current import current_job
from sa_jobqueue.tasks.registry import MOST_TOGETHER, TaskRegistry
from sa_jobqueue.tasks.task import Task

__all__ = ["MOST_TOGETHER", "Task", "TaskRegistry", "current_job"]
