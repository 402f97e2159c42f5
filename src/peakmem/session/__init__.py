"""Starts a command on the virtual GPU in a child process, watches it, ends it."""
