"""A real VMAF, on anything people have.

    score.py     the flow: open, probe, plan, run, pool; progress on the way, one Report at the end
    request.py   what is to be scored, how, and within which limits
    media/       clips by path or URI, opened once
    prober.py    looks at a clip, in a process of its own; clip.py is what it tells
    plan.py      from two clips and the options to one filter graph; pure; refuses what would score wrongly
    engine.py    the ffmpeg at hand, and what it can do; models.py which model is meant
    process.py   children that never outlive us
    pooling.py   from frames to one number; result.py what comes out; cache.py what was scored before
    report/      HTML, JSON and CSV

Nothing here knows Kubernetes. Every failure is one of errors.py, and says whose it is.
"""
