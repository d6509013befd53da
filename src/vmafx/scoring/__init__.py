"""VMAF of video clips: open, probe, decode, pair, measure, pool.

Scores clips given by path or URI, on this machine. Kubernetes, jobs and the command line do not belong here. Every
failure is a class of errors.py.

    score.py         Scorer: opens and probes clips, has them decoded and measured, and returns Reports
    comparison.py    a distorted clip against its reference, and the report about it
    batch.py         BatchScorer: several distorted clips against one reference, which is decoded once
    frame_stream.py  FrameScorer: scores raw frames as they arrive, in short runs
    request.py       what to score: sources, options and limits
    result.py        what scoring returns: Report, ScoreResult, Progress, pictures
    errors.py        BadInput, EngineFailure, NodeFault
    media/           clips by path or URI, opened as file descriptors; delivery of reports
    clip.py          properties of a clip
    probed.py        clips that are open, and clips that are probed
    decoder/         the only processes that read a clip: they inspect it and emit raw frames
    engines/         what measures pairs of raw frames, behind one protocol
    stall.py         StallWatch: ends scoring that makes no progress
    plan.py          the common format of two clips; refuses pairs that cannot be compared
    notes.py         notes about conversions and other facts that affect a score
    learned.py       learned models: a small network on the features of an engine
    svr_model.py     models of libvmaf, support vector regressions, from a file or a program that contains them
    artifact.py      learned models as OCI artifacts: manifest, media types and digests
    models.py        VMAF models: built into libvmaf, from a file, or learned
    pooling.py       mean, harmonic mean and percentiles of frame values
    cache.py         cached results, keyed by content, model, options and tools
    doctor.py        what this machine can score with, for `vmafx doctor`
"""
