"""Jobs of external controllers: their state is polled by gRPC and mirrored into the job's status; never run here.

A job is external if its status.controllerJobID is not one of the operator's attempt ids.

decide.py  the next step for an external job, from what its controller replied; pure
poller.py  polls each controller that has external jobs, while this operator leads
client.py  the gRPC client, imported when the first external job appears
"""
