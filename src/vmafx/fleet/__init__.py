"""The fleet, as people look at it: jobs, nodes and the queue, read through the API; and jobs handed in.

    views.py      what is read of a job and of a node
    reading.py    who reads it, in one namespace or in all
    rows.py       a job or a node in a row
    queue.py      the jobs that wait: position, reason, estimated start
    live.py       jobs, nodes and the queue, kept up to date for as long as somebody looks
    ended.py      jobs that are over, and how fast they are done
    frame.py      all of it at a glance
    glance.py     such frames, read once or kept up to date
    handing.py    a new job
    following.py  one job, to its end
    errors.py     what can go wrong

Nothing is written but new jobs, and nothing here decides: positions and times are computed when somebody asks.
"""
