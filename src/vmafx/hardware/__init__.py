"""What a machine has to score with, and how fast it is.

    devices.py  CPUs and GPUs, found by asking the vendors' tools and the kernel
    speed.py    frames per second, measured by scoring a clip

Which vendors there are is declared in vmafx.api.hardware.
"""
