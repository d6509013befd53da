"""Engines: what measures pairs of raw frames, behind one protocol.

Decoding, pairing and pooling belong to vmafx.scoring.

    engine.py       Engine: the protocol; runs of frames, and what is measured
    find.py         Engines: the engine for a backend on this machine
    libvmaf.py      LibvmafEngine: libvmaf on the CPU or with CUDA, in an ffmpeg that is fed raw frames
    gpu/            TorchEngine: kernels for GPUs of three vendors, in processes that import torch
    libvmaf_log.py  reads libvmaf's log: the values of every frame
    raw_frames.py   what every ffmpeg that is fed raw frames needs: input, log, a count of frames
    ffmpeg.py       finds that ffmpeg, and checks its version, filters and protocols
"""
