"""A job's life: what its attempts are, how they end, and what is written of it.

    attempts.py    what an attempt is called, and what is to be done in it; pure
    outcomes.py    how it ended, and what that makes of the job; pure
    status.py      what is then written; pure
    metrics.py     what is then counted. telling.py: what people are then told
    unfinished.py  the jobs that still need something, as roles keep them in memory

Shared by those who write the ends of jobs: the operator for Pods, the controller for agents. Nothing here writes.
"""
