"""Host memory: the model of the process, pinned memory, workers, loading."""
