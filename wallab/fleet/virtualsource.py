"""The samples of a bed in virtual time, as bytes that any host can measure by."""

from wallab.bench.schedule import Pending
from wallab.errors import MachineError
from wallab.files import jsonfile
from wallab.fleet.reply import Reply
from wallab.record.samples import Sample
from wallab.virtual import bed
from wallab.virtual.bed import VirtualBed
from wallab.virtual.message import Order


class VirtualSource:
    """Of an open bed; what it takes of itself, it does once for a cell."""

    def __init__(self, bed: VirtualBed) -> None:
        self._bed = bed
        self._setups: dict[tuple[str, ...], bytes] = {}

    def task(self, pending: Pending) -> tuple[bytes, bytes]:
        """Return setup and order, as JSON."""
        cell = pending[2].cell
        name = tuple(cell.values())
        if name not in self._setups:
            self._setups[name] = jsonfile.dumps(self._bed.setup(cell))
        return self._setups[name], jsonfile.dumps(self._order(pending))

    def _order(self, pending: Pending) -> Order:
        number, position, turn = pending
        return self._bed.order(turn.cell, number, position, control=turn.control)

    def sample(self, pending: Pending, reply: Reply) -> Sample:
        """Return the sample of a reply, and note who has taken it."""
        if reply.answer is None:
            raise MachineError(f"{reply.host} answered without an answer")
        control = pending[2].control
        self._bed.note_sample(self._order(pending), reply.seconds, control=control, host=reply.host)
        return bed.sampled(reply.answer)
