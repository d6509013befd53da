"""VMAF of video clips with ffmpeg and libvmaf: open, probe, compare, pool.

Scores clips given by path or URI, on this machine. Kubernetes, jobs and the command line do not belong here. Every
failure is a class of errors.py.

    score.py       Scorer: opens and probes two clips, runs the engine and returns a Report
    batch.py       BatchScorer: several distorted clips against one reference
    request.py     what to score: sources, options and limits
    result.py      what scoring returns: Report, ScoreResult, Progress
    errors.py      BadInput, EngineFailure, NodeFault
    media/         clips by path or URI, opened as file descriptors; delivery of reports
    clip.py        properties of a probed clip, and the ffmpeg demuxers that vmafx allows
    probe.py       starts the prober for a clip and reads its answer
    prober.py      the prober: a separate process that demuxes a clip and decodes one frame
    plan.py        the filter graph for two clips; refuses pairs that cannot be compared
    notes.py       notes about conversions and other facts that affect a score
    engine.py      finds ffmpeg and checks its version, filters and protocols
    ffmpeg.py      runs ffmpeg with libvmaf on two clips
    ffmpeg_log.py  parses ffmpeg's log: decoding errors and format changes
    libvmaf.py     parses libvmaf's log: the values of every frame
    learned.py     learned models: a small network on the features of an engine
    artifact.py    learned models as OCI artifacts: manifest, media types and digests
    models.py      VMAF models: built into libvmaf, from a file, or learned
    pooling.py     mean, harmonic mean and percentiles of frame values
    pictures.py    single frames as JPEG pictures
    cache.py       cached results, keyed by content, model, options and engine
    doctor.py      what this machine can score with, for `vmafx doctor`
"""
