"""A job's life: what its attempts are, how they end, and what is written of it. Pure.

    attempts.py  what an attempt is called, and what is to be done in it
    outcomes.py  how it ended, and what that makes of the job
    status.py    what is then written

Shared by those who write the ends of jobs: the operator for Pods, the controller for agents. Nothing here reads or
writes.
"""
