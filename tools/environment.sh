# Sourced by demo.sh and test.sh: one Python environment for both, made once and kept.
#
# environment EXTRA... makes (or finds) a virtual environment with this checkout, the packages of the given extras and
# of tools/requirements.txt, and sets PATH so that its programs come first. Its folder is named after what goes into
# it, so a change of the requirements makes a new one. PEAKMEM_ENVIRONMENT names another folder, PYTHON another Python.

find_python() {
    for candidate in ${PYTHON:-python3 python}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "peakmem needs Python 3.10 to 3.13 with venv (Debian: apt-get install python3-venv); PYTHON=... names one" >&2
    return 1
}

environment() {
    python=$(find_python) || exit 2
    key=$({ "$python" -VV; cat pyproject.toml tools/requirements.txt; } | cksum | cut -d ' ' -f 1)
    folder=${PEAKMEM_ENVIRONMENT:-${XDG_CACHE_HOME:-$HOME/.cache}/peakmem/environment-$key}
    if [ ! -f "$folder/complete" ]; then
        echo "making the environment $folder (PyTorch with CUDA: about 5.5 GB, a few minutes)" >&2
        rm -rf "$folder"
        "$python" -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check ".[test,plot,notebook]" -r tools/requirements.txt
        touch "$folder/complete"
    fi
    # The checkout itself may have changed since.
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall .
    PATH="$folder/bin:$PATH"
    export PATH
}
