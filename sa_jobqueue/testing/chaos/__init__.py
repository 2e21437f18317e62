"""Chaos: a fleet of worker processes under load, faults by a seed, and a checker that knows no queue.

``sa-jobqueue chaos`` runs it; :func:`sa_jobqueue.testing.chaos.run.run_chaos` does so from a test. Nothing is imported
here, because modules of this package are run as programs.
"""
