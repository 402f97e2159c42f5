"""How much CPU and GPU memory a training run will take, and why."""

__version__ = "0.1.0"
