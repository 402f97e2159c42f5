#!/bin/sh
# test.sh - sets up an environment with PyTorch and peakmem, then runs the linters, the type checker and all tests.
# Needs a POSIX shell and Python 3.10 to 3.13 with venv, on Linux; no GPU. Arguments go to pytest.
set -eu
cd "$(dirname "$0")"
. tools/environment.sh
environment

ruff format --check .
ruff check .
mypy
if [ $# -eq 0 ]; then
    set -- -n 2 --dist worksteal
fi
exec python -m pytest "$@"
