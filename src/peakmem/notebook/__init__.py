"""peakmem in a notebook: `%load_ext peakmem`, then `%peakmem` and `%%peakmem`.

Whatever the kernel has loaded, its GPU included, is left alone: the work is done by a process of its own,
on a virtual GPU.
"""
