"""The worker: decisions in a pure machine, waiting in thin shells."""

from sa_jobqueue.worker.worker import Worker

__all__ = ["Worker"]
