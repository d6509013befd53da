"""Scores on a machine that is no node of the cluster: registers, pulls work, runs a worker for each job, reports.

    main.py     the process: settings, one agent per state folder, signals, exit codes
    options.py  how it is configured
    agent.py    the loops: stay registered, send heartbeats, pull, report; what is in hand
    link.py     the calls to the controller; foreign errors end here
    spool.py    finished answers, on disk until the controller has them

Nothing here knows Kubernetes: the controller is all it talks to.
"""
