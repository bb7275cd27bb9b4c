"""The machine: processes, mounts, loop devices, disks, and what must be undone on it."""
