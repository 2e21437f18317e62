"""Peers made ready: an environment, and their tables in the database; or the reason why one is left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.cells.others import Peer
from benchmarks.children import ChildFailed
from benchmarks.peers.environments import PEERS, CannotInstall, interpreter, versions
from benchmarks.server import Arena

__all__ = ["installed"]


def installed(arena: Arena, cache: Path, folder: Path) -> tuple[list[Peer], dict[str, Any]]:
    """The peers that can be measured, and for the conditions what is known of each, or why it is left out."""
    ready, told = [], dict[str, Any]()
    for spec in PEERS:
        try:
            peer = Peer(spec, interpreter(spec, cache), folder)
            peer.ask(arena, "install")
        except (CannotInstall, ChildFailed) as problem:
            told[spec.name] = {"left_out": str(problem)}
            continue
        ready.append(peer)
        known = {"settings": spec.settings, "atomic": spec.atomic}
        told[spec.name] = {**known, "versions": versions(peer.python, spec.requirements)}
    return ready, told
