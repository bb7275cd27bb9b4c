"""The memory devices of a guest: their sizes tell them apart, for the kernel finds them anyhow."""

ORDERS_MB = 128
"""What is to be done."""

ROOT_MB = 256
SERVER_MB = 512
