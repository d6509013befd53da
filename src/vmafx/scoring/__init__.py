"""A real VMAF, on anything people have.

    score.py     the flow: open, probe, plan, run, pool; progress on the way, one Report at the end
    request.py   what is to be scored, how, and within which limits
    media/       clips by path or URI, opened once
    prober.py    looks at a clip, in a process of its own; clip.py is what it tells
    plan.py      from two clips and the options to one filter graph; pure; refuses what would score wrongly
    notes.py     what a reader of the score should know
    engine.py    the ffmpeg at hand, and what it can do; models.py which model is meant
    run.py       one ffmpeg on two clips; heard.py what it says meanwhile; libvmaf.py what libvmaf wrote
    pooling.py   from frames to one number; result.py what comes out; cache.py what was scored before
    batch.py     several clips against one reference; frames.py single frames as pictures
    checkup.py   what this machine can score, found out by trying

Nothing here knows Kubernetes. Every failure is one of errors.py, and says whose it is.
"""
