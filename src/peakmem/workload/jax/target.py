"""A card of the catalogue as XLA's description of a GPU that it compiles for without having one.

The text is a `stream_executor.GpuTargetConfigProto` (openxla/xla, xla/stream_executor/device_description.proto).
"""

from __future__ import annotations

from peakmem.vgpu.catalogue import Device

_LANES = {(7, 0): 64, (7, 5): 64, (8, 0): 64}
"""Lanes for numbers of 32 bits in a multiprocessor; 128 on all other cards (CUDA C Programming Guide, arithmetic)."""

CUDNN = (9, 8)
"""The version of cuDNN that is told."""


def target_config(device: Device) -> str:
    """The description of a card."""
    major, minor = device.compute_capability
    bandwidth = device.memory_clock_khz * 1000 * 2 * device.memory_bus_width // 8
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {device.shared_memory_per_multiprocessor}
  threads_per_core_limit: {device.threads_per_multiprocessor}
  core_count: {device.multiprocessors}
  fpus_per_core: {_LANES.get((major, minor), 128)}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {device.l2_cache}
  clock_rate_ghz: {device.clock_khz / 1e6:.3f}
  device_memory_size: {device.total_memory}
  shared_memory_per_block_optin: {device.shared_memory_per_block_optin}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: {CUDNN[0]} minor: {CUDNN[1]} }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{device.name}"
"""
