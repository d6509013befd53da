"""`vmaf-tune`: encodes a source in many ways, scores the encodes, and finds the settings for a quality.

It encodes the frames that the confined decoder of vmafx.scoring emits, so that no encoder reads a clip, and scores with
vmafx.scoring, or by jobs in a cluster. It prints nothing; only cluster.py and cluster_jobs.py know Kubernetes.

    encoders.py         the encoders, their settings, and which of them this machine has
    encoder_options.py  the options that people may pass to encoders
    encoding.py         encodes one clip with one setting
    pyav_encode.py      encodes raw frames with PyAV; run as a script
    frames.py           the frames of a source as encoders get them
    work_folder.py      WorkFolder: finished encodes by the digest of what they were made from
    config.py           TuneConfig: what is tried, from a file or flags
    compare.py          encodes a source with several encoders and qualities, scores each, and compares
    search.py           which quality setting to try next, to reach a score with the fewest encodes
    samples.py          which parts of a long source stand for the whole
    target.py           TargetSearch: the setting of each encoder that reaches a score
    cluster.py          ClusterScoring: encodes scored by VmafxJobs
    cluster_jobs.py     ClusterJobs: these jobs, created or found again, and followed to their end
    upload.py           UploadFolder: clips and reports where this machine and the cluster both reach them
    job_report.py       the report that a job has written, read back
    bd_rate.py          Bjøntegaard's deltas: how much rate, or quality, one curve saves over another
    ladder.py           Ladder: the sizes and qualities to stream a source in
    shot_ladder.py      ShotLadder: a setting for each shot of a rung
    shot_targets.py     which score each shot should have, so that the rung needs the fewest bits
    scenes.py           where a source is cut into shots
    shots.py            encodes the shots of a source, and joins them to one file
    hull.py             the convex hull of curves of rate and quality
    hls.py              an HLS master playlist for a ladder
    results.py          what comes out, as JSON
    page.py             the same as HTML
    outputs.py          the same as CSV, JUnit and metrics
"""
