"""A machine whose clock counts instructions: an emulator, its guest, and the bed in it."""
