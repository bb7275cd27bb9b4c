"""The file systems that simulated drives may have."""

FILE_SYSTEMS = ("xfs", "btrfs", "ext4")

BARRIER_OPTION = {"ext4": "nobarrier", "btrfs": "nobarrier"}
"""The mount option that turns barriers off. XFS has had none since Linux 4.19: there the kernel is
told that the drive's cache writes through, so that nobody sends flushes."""
