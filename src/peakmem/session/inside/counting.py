"""PyTorch's own peaks of a process that runs for real (`peakmem run --measure`), written at its end. Nothing else."""

import atexit
import json
import os

FORMAT = "peakmem/torch-counters/1"
PEAKS = ("requested", "allocated", "active", "reserved")


def install(torch, folder):
    """Write the counters of this process to the session's folder when it ends, if it used CUDA."""
    counters = Counters(torch, folder)
    atexit.register(counters.write)
    leave = os._exit

    def _exit(status):
        counters.write()
        leave(status)

    os._exit = _exit
    reset = getattr(torch._C, "_cuda_resetPeakMemoryStats", None)
    if reset is not None:  # the script may start the peaks anew; those of the whole run are kept here

        def reset_peak_memory_stats(device):
            counters.collect()
            return reset(device)

        torch._C._cuda_resetPeakMemoryStats = reset_peak_memory_stats


class Counters:
    """The highest values of PyTorch's counters, over resets."""

    def __init__(self, torch, folder):
        self._torch = torch
        self._folder = folder
        self._pid = os.getpid()
        self._peaks = {}
        self._pinned = 0

    def collect(self):
        """Take in the counters as they are now."""
        torch = self._torch
        for device in range(torch.cuda.device_count()):
            stats = torch._C._cuda_memoryStats(device)
            kept = self._peaks.setdefault(device, dict.fromkeys(PEAKS, 0))
            for name in PEAKS:
                kept[name] = max(kept[name], stats[f"{name}_bytes"]["all"]["peak"])
        if hasattr(torch.cuda, "host_memory_stats"):  # since PyTorch 2.8
            self._pinned = max(self._pinned, torch.cuda.host_memory_stats().get("allocated_bytes.peak", 0))

    def write(self):
        """Write the file, where the process used CUDA; a failure is no fault of the script's."""
        torch = self._torch
        try:
            # A forked worker inherits all this, but must not touch CUDA.
            if os.getpid() != self._pid or not torch.cuda.is_initialized():
                return
            self.collect()
            rows = [
                {"device": device, "name": torch.cuda.get_device_name(device), **peaks, "pinned": self._pinned}
                for device, peaks in self._peaks.items()
                if peaks["reserved"]
            ]
            path = os.path.join(self._folder, f"torch-{self._pid}.json")
            with open(path + ".part", "w", encoding="utf-8") as file:
                json.dump({"format": FORMAT, "pid": self._pid, "devices": rows}, file)
            os.replace(path + ".part", path)
        except Exception:
            return
