"""The life of a job: its attempts, their outcomes, and the status that is written.

Shared by the roles that write outcomes (the operator for Pods, the controller for agents) and those that run workers.
Nothing here decides where a job runs.

    state.py           the current attempt of an unfinished job, and what keeps it out of the queue; pure
    attempt.py         the spec that a worker gets, and the result that it returns
    outcome.py         how an attempt ends, and the job status that follows; pure
    outcome_writer.py  writes an outcome: status, event, metrics and log
    metrics.py         metrics of placements and outcomes
    worker_process.py  a worker as a child process
    cache.py           the informer of unfinished jobs
    sample_token.py    signed tokens to push samples with; pure
    sample_keys.py     the key of these tokens in each namespace, and the attempts whose samples are wanted
"""
