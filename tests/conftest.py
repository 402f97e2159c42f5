"""Makes `tests` importable as a package from every test below it."""
