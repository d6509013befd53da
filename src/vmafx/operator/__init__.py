"""The operator: one process that reconciles the kinds of vmafx.dev, one folder per kind, all of the same shape.

Each kind gathers what it needs (gather.py), decides without I/O (decide.py) and writes the result (reconciler.py).
Code that another role needs too belongs in jobs/ or runtime/.

main.py      the process: client, manager, leader election, and the kinds
start.py     the entry point: imports main.py with the garbage collector off
settings.py  flags and environment variables of the process
context.py   what a kind is set up with: client, manager, shared caches
kind.py      what a kind declares: settings, permissions, reasons, set-up
kinds.py     the kinds that the operator reconciles
job/         VmafxJob: placement, Pods, retries, results
inference/   ZerfooInferenceService: Deployments, Services, autoscalers, routes
node/        VmafxNode: health, and deletion of abandoned nodes
training/    VmafxModelTraining: trainers, their volumes and status, human scores
"""
