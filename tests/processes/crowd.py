"""A supervisor and its worker processes as a test sees them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.proofs.process import WorkerProcess
from tests.waiting import wait_until


class Crowd(WorkerProcess):
    """``tests.processes.app``; the settings are those of the supervisor and of its workers."""

    module = "tests.processes.app"

    @property
    def serving(self) -> list[int]:
        """The processes whose worker has begun to poll, in that order; those that ended since, too."""
        return self.said("serving")

    @property
    def names(self) -> list[str]:
        """What the workers are called in ``claimed_by``."""
        return [line.split()[2] for line in list(self.lines) if line.startswith("serving ")]

    def await_serving(self, count: int) -> list[int]:
        wait_until(lambda: len(self.serving) >= count, timeout=60, what=f"{count} that serve: {self.lines}")
        return self.serving

    def ends(self) -> list[tuple[int, int]]:
        """Process and exit code of each one that has ended, as the supervisor tells it."""
        told = [line.split() for line in list(self.lines) if line.startswith("ProcessEnded ")]
        return [(int(pid), int(code)) for _, pid, code in told]

    def await_end_of(self, pid: int) -> int:
        """The exit code of one child."""
        wait_until(lambda: pid in dict(self.ends()), timeout=60, what=f"the end of {pid}: {self.lines}")
        return dict(self.ends())[pid]

    def signal_group(self, number: signal.Signals) -> None:
        """What a terminal or an init system does: everybody gets it."""
        for pid in [self.pid, *self.serving]:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        for pid in self.said("ProcessStarted"):
            if pid not in dict(self.ends()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().close()


def runs(pid: int) -> bool:
    """Whether the process is there, and more than a zombie."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in "ZX"
    return False
