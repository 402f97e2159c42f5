#!/bin/sh
# demo.sh - sets up an environment with PyTorch and peakmem, then says what training ResNet-50 takes on an RTX 4090.
# Needs a POSIX shell and Python 3.10 to 3.13 with venv, on Linux; no GPU.
set -eu
cd "$(dirname "$0")"
. tools/environment.sh
environment

peakmem run --gpu "${GPU:-4090}" examples/resnet50.py
