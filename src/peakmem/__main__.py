"""`python -m peakmem`."""

from __future__ import annotations


def main() -> None:
    """Run the command line."""
    from peakmem.cli.main import peakmem

    peakmem(prog_name="peakmem")


if __name__ == "__main__":
    main()
