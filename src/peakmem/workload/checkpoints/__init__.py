"""Checkpoints on disk, read as data: names, shapes and types of their tensors. Nothing in a file is ever executed."""
