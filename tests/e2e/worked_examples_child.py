"""Runs examples in the small language of `worked_examples.py` through the allocator, each in a fork of its own.

Standard library and torch only. Reads JSON `[{conf, capacity, program}]` from the file named first, writes the states
to the file named second.
"""

import contextlib
import ctypes
import json
import os
import re
import sys
from pathlib import Path

import torch

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
STATES = {"active_allocated": "A", "active_pending_free": "P", "active_awaiting_free": "P", "inactive": "-"}


def size_of(text):
    """`20M`, `20M+1`, `10M-512`, `700`."""
    return sum(int(sign + number) * UNITS[unit] for sign, number, unit in re.findall(r"([+-]?)(\d+)([KMG]?)", text))


class Runner:
    def __init__(self, capacity):
        torch.cuda.init()
        library = ctypes.CDLL(None)
        library.peakmem_set_capacity.argtypes = [ctypes.c_uint64]
        library.peakmem_set_capacity(capacity)
        self.total = torch.cuda.get_device_properties(0).total_memory
        self.tensors, self.streams, self.pools = {}, {}, {}
        self.caught = []
        self.routing = contextlib.ExitStack()

    def stream(self, name):
        if not name:
            return torch.cuda.default_stream()
        if name not in self.streams:
            self.streams[name] = torch.cuda.Stream()
        return self.streams[name]

    def run(self, program):
        for word in program.split():
            self.do(word)

    def do(self, word):
        if match := re.fullmatch(r"(\w+)=([^@]+)(?:@(\w+))?", word):
            name, size, stream = match.groups()
            try:
                with torch.cuda.stream(self.stream(stream)):
                    self.tensors[name] = torch.empty(size_of(size), dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError as error:
                self.caught.append(str(error).splitlines()[0])
        elif word.startswith("-"):
            self.tensors.pop(word[1:], None)
        elif "~" in word:
            name, stream = word.split("~")
            self.tensors[name].record_stream(self.stream(stream))
        elif word == "sync":
            torch.cuda.synchronize()
        elif word == "empty":
            torch.cuda.empty_cache()
        elif word == "resetpeak":
            torch.cuda.reset_peak_memory_stats()
        elif word.startswith("limit:"):
            torch.cuda.set_per_process_memory_fraction(size_of(word[6:]) / self.total)
        elif word.startswith("conf:"):
            torch._C._accelerator_setAllocatorSettings(word[5:])
        elif word.startswith("pool:"):
            name, *flags = word[5:].split("!")
            if name not in self.pools:
                self.pools[name] = torch.cuda.MemPool(**dict.fromkeys(flags, True))
            self.routing.enter_context(torch.cuda.use_mem_pool(self.pools[name]))
        elif word == "poolend":
            self.routing.close()
        elif word.startswith("drop:"):
            del self.pools[word[5:]]
        else:
            raise ValueError(word)

    def state(self):
        stats = torch.cuda.memory_stats()
        segments = []
        for segment in torch.cuda.memory._snapshot()["segments"]:
            blocks = [(STATES[block["state"]], block["size"]) for block in segment["blocks"]]
            segments.append([bool(segment["is_expandable"]), segment["total_size"], blocks])
        return {"stats": stats, "segments": segments, "caught": self.caught}


def main():
    examples = json.loads(Path(sys.argv[1]).read_text())
    results = []
    for example in examples:
        ours, theirs = os.pipe()
        pid = os.fork()
        if not pid:
            os.environ["PYTORCH_CUDA_ALLOC_CONF"] = example["conf"]
            try:
                runner = Runner(example["capacity"])
                runner.run(example["program"])
                answer = runner.state()
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            with os.fdopen(theirs, "w") as pipe:
                json.dump(answer, pipe)
            os._exit(0)
        os.close(theirs)
        with os.fdopen(ours) as pipe:
            text = pipe.read()
        _, status = os.waitpid(pid, 0)
        results.append(json.loads(text) if text else {"error": f"ended with status {status}"})
    Path(sys.argv[2]).write_text(json.dumps(results))


main()
