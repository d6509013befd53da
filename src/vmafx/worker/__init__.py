"""The container of a job that runs as a Pod: scores once, leaves its answer, ends.

    main.py   the process: what it is told by VMAFX_WORK, and what it leaves as termination message
    score.py  one piece of work, from clips to an answer

It has no token and knows nothing of Kubernetes but the file its answer goes to.
"""
