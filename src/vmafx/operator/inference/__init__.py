"""ZerfooInferenceService: its Deployments, Services, autoscalers and route, kept as the spec asks for.

What they should be is decided in vmafx.inference, which also works without the operator.

kind.py        what the kind declares: permissions, reasons, set-up
settings.py    settings for services
reconciler.py  the reconciler: gather, decide, apply, write the status; and what triggers it
gather.py      what is live of a service
gateway.py     the Gateway that splits requests, and the route of a service
gpu_nodes.py   which Kubernetes nodes have the GPUs that services need
"""
