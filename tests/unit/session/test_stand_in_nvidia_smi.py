from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import peakmem.session

PROGRAM = Path(peakmem.session.__file__).parent / "programs" / "nvidia-smi"
CARD = {
    "PEAKMEM_VGPU_NAME": "NVIDIA GeForce RTX 4090",
    "PEAKMEM_VGPU_TOTAL_MEMORY": "25250627584",
    "PEAKMEM_VGPU_COUNT": "2",
    "PEAKMEM_VGPU_COMPUTE_CAPABILITY": "8.9",
    "PEAKMEM_VGPU_CUDA": "13000",
}


def run(*arguments: str, shell: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], **CARD, **variables}
    command = [*shell, str(PROGRAM), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def query(fields: str, *arguments: str, **variables: str) -> list[str]:
    result = run(f"--query-gpu={fields}", *arguments, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def test_it_can_be_run() -> None:
    assert os.access(PROGRAM, os.X_OK)


def test_list() -> None:
    assert run("-L").stdout == (
        "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-00000000-0000-0000-0000-000000000001)\n"
        "GPU 1: NVIDIA GeForce RTX 4090 (UUID: GPU-00000000-0000-0000-0000-000000000002)\n"
    )


def test_query() -> None:
    fields = (
        "index,name,memory.total,memory.used,memory.free,driver_version,compute_cap,utilization.gpu,temperature.gpu"
    )
    assert query(fields, "--format=csv", "-i", "1") == [
        "index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB], driver_version, compute_cap,"
        " utilization.gpu [%], temperature.gpu",
        "1, NVIDIA GeForce RTX 4090, 24080 MiB, 0 MiB, 24080 MiB, 580.65.06, 8.9, 0 %, 30",
    ]


def test_query_without_header_and_units() -> None:
    assert query("memory.free", "--format=csv,noheader,nounits") == ["24080", "24080"]
    assert query("memory.free", "--format", "csv, nounits, noheader", "--id=0") == ["24080"]
    assert query("name", "--format=csv,noheader,nounits", PEAKMEM_VGPU_COUNT="1") == ["NVIDIA GeForce RTX 4090"]


def test_what_the_driver_keeps_back_and_what_is_used() -> None:
    lines = query(
        "memory.total,memory.reserved,memory.used,memory.free",
        "--format=csv,noheader,nounits",
        "-i",
        "0",
        PEAKMEM_VGPU_SMI_MEMORY=str(24564 * 2**20),
        PEAKMEM_VGPU_USED_MEMORY=str(1000 * 2**20),
    )
    total, reserved, used, free = map(int, lines[0].split(", "))
    assert (total, reserved, used) == (24564, 484, 1000)
    assert total == reserved + used + free


def test_cuda_12() -> None:
    assert "CUDA Version: 12.4 " in run(PEAKMEM_VGPU_CUDA="12040").stdout
    assert query("driver_version", "--format=csv,noheader", "-i", "0", PEAKMEM_VGPU_CUDA="12040") == ["525.60.13"]


@pytest.mark.parametrize("name", ["T4", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition"])
def test_the_table_keeps_its_shape(name: str) -> None:
    lines = run(PEAKMEM_VGPU_NAME=name).stdout.splitlines()
    assert {len(line) for line in lines[1:] if line} == {91}
    assert "0MiB / 24080MiB" in "\n".join(lines)


def test_details() -> None:
    output = run("-q", "-d", "MEMORY").stdout
    assert output.count("FB Memory Usage") == 2
    assert "        Total                             : 24080 MiB" in output
    assert "Product Name" in run("-q").stdout


def test_no_process_is_shown() -> None:
    assert run("--query-compute-apps=pid,used_gpu_memory", "--format=csv").stdout == "pid, used_gpu_memory [MiB]\n"
    assert run("--query-compute-apps=pid", "--format=csv,noheader").stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--gom=0"], 2, "knows no option --gom"),
        (["topo", "-m"], 2, "knows no option topo"),
        (["-q", "-d", "CLOCK"], 2, "knows no -d CLOCK"),
        (["--query-gpu=age", "--format=csv"], 2, 'Field "age" is not a valid field to query.'),
        (["--query-gpu=name"], 2, '"--format=" switch is missing.'),
        (["-L", "-i"], 2, "without a value"),
        (["-L", "-i", "7"], 6, "No devices were found"),
        (["-L", "-i", "x"], 6, "No devices were found"),
    ],
)
def test_what_it_does_not_know(arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.returncode == code
    assert said in result.stdout + result.stderr


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_every_posix_shell_gives_the_same(shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    arguments = ("--query-gpu=index,memory.total,uuid", "--format=csv")
    result = run(*arguments, shell=(path, "sh") if shell == "busybox" else (path,))
    assert result.returncode == 0
    assert result.stdout == run(*arguments).stdout
