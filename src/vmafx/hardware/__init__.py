"""The devices of a machine, and how fast they score.

The vendors and their backends are declared in vmafx.api.hardware; which jobs they fit is the scheduler's.

    backends.py  the backends of this machine: devices, and the engines that score on them
    devices.py   detects CPUs and GPUs with the vendors' tools and the kernel
    speed.py     measures frames per second by scoring a test clip
"""
