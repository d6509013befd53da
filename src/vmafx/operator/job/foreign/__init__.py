"""Jobs of foreign controllers: their state is polled by gRPC and mirrored into the job's status; never run here.

A job is foreign if its status.controllerJobID is not one of the operator's attempt ids.

decide.py  the next step for a foreign job, from what its controller replied; pure
poller.py  polls each controller that has foreign jobs, while this operator leads
client.py  the gRPC client, imported when the first foreign job appears
"""
