"""The life of a job: what its attempts are, what a worker is handed and answers, how attempts end, what is written.

    work.py            what a worker is handed, and what it answers
    worker_process.py  a worker as a child process: started, heard, ended
    attempts.py        what an attempt is called, and what is to be done in it; pure
    pending.py         whether a pending job is in the queue, or held back; pure
    outcomes.py        how an attempt ended, and what that makes of the job; pure
    status.py          what is then written; pure. reasons.py: every reason that its conditions give
    ending.py          writes it, counts it (metrics.py) and tells people (events.py)
    informer.py        unfinished jobs, as roles keep them in memory

Shared by those who write the ends of jobs (the operator for Pods, the controller for agents) and those who run them.
"""
