"""What workers ask a coordinator for, beside tasks: files by their content, and to be noted."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import distributed
from distributed.core import Server
from distributed.security import Security
from distributed.utils import get_ip, sync

PIECE = 4 << 20
"""Bytes that are sent at a time; zeros at their end are not."""

_PATIENCE = 120
"""Seconds that a piece may take."""


class Desk:
    """Sends the files that it was made with, and notes which samples are taken alone."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        """`files` are named by their sha256."""
        self._files = dict(files)
        self._server: Server | None = None
        self.alone: set[str] = set()
        """Tasks that nothing else ran beside when they began."""

    async def begin(self, scheduler: str, security: Security | None) -> str:
        """Listen where those can reach it who reach the scheduler; return the address."""
        scheme, _, place = scheduler.partition("://")
        mine = get_ip(place.rpartition(":")[0].strip("[]"))
        address = f"[{mine}]" if ":" in mine else mine
        arguments = security.get_listen_args("scheduler") if security else {}
        self._server = Server({"parcel": self.parcel, "note": self.note}, needs_workdir=False)
        await self._server.listen(f"{scheme}://{address}:0", **arguments)
        return str(self._server.address)

    async def close(self) -> None:
        """Send nothing more; safe to call at any time."""
        if self._server is not None:
            await self._server.close()

    async def note(self, task: str) -> None:
        """Note that a task begins alone."""
        self.alone.add(task)

    async def parcel(self, digest: str, offset: int) -> dict[str, Any]:
        """Return the file's size, and a piece of it."""
        if (file := self._files.get(digest)) is None:
            return {"error": f"the coordinator has no file {digest[:16]}"}
        try:
            return await asyncio.to_thread(_piece, file, offset)
        except OSError as error:
            return {"error": str(error)}


def _piece(file: Path, offset: int) -> dict[str, Any]:
    with file.open("rb") as stream:
        stream.seek(offset)
        data = stream.read(PIECE).rstrip(b"\0")
        return {"size": file.stat().st_size, "data": data}


def fetch(address: str, digest: str, target: Path) -> None:
    """Write the file that the coordinator at the address has; within a task of a worker.

    OSError where it cannot be had, or written.
    """
    worker = distributed.get_worker()

    async def ask(offset: int) -> dict[str, Any]:
        answer: dict[str, Any] = await worker.rpc(address).parcel(digest=digest, offset=offset)
        return answer

    with target.open("wb") as stream:
        offset, size = 0, 1
        while offset < size:
            answer = sync(worker.loop, ask, offset, callback_timeout=_PATIENCE)
            if "error" in answer:
                raise OSError(answer["error"])
            size = answer["size"]
            stream.seek(offset)
            stream.write(answer["data"])
            offset += PIECE
        stream.truncate(size)


def note(address: str, task: str) -> None:
    """Have noted that the task begins alone; OSError or TimeoutError where that cannot be."""
    worker = distributed.get_worker()

    async def tell() -> None:
        await worker.rpc(address).note(task=task)

    sync(worker.loop, tell, callback_timeout=_PATIENCE)
