"""How much of this process is resident."""

import os


def resident_bytes():
    """Bytes of this process that are resident now."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
