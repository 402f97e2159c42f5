"""One module for each kind of thing that can be predicted; each turns a `Request` into a `Workload`."""
