"""Scores on a machine that is no node of the cluster: registers, pulls work, runs a worker for each job, reports."""
