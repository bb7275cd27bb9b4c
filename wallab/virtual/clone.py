"""A clone of a template: goes on where that was stopped, does as it is told, and ends."""

from collections.abc import Callable
from pathlib import Path

from wallab.virtual.emulator import Emulator, Machine
from wallab.virtual.guests import Guests
from wallab.virtual.message import Answer, Order
from wallab.virtual.template import Template, read_answer, write_order


def run(
    template: Template, order: Order, machine: Callable[[Path, Path], Machine], guests: Guests
) -> Answer:
    """Return what a clone of the template answers; arguments as `template.make` takes them."""
    with guests.work() as work:
        orders = work / "orders"
        write_order(orders, order)
        emulated = Emulator(machine(template.ram, orders), work, clone=True)
        with guests.started(emulated):
            emulated.load(template.devices)
            return read_answer(emulated)
