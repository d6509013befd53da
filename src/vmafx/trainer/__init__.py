"""`vmafx trainer`: the process of one VmafxModelTraining. It has no token and does not access Kubernetes.

main.py      the process: settings, HTTP server, signals
settings.py  flags and environment variables
trainer.py   the loops around a training: learning, checkpoints, publishing
base.py      the model that a training starts from
metrics.py   metrics, read from the status
server.py    samples and human scores received; status, probes and metrics served
"""
