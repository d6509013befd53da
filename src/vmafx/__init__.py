"""vmafx: video quality (VMAF) at cluster scale.

The map. Imports point downwards only; `make lint` holds it.

    cli/         what a person types; argument parsing only
    demo/        all of it on this machine in seconds: encodes made, scored and drawn
    operator/    the reconcilers, one folder per kind
    controller/  the front door for clients and agents: gRPC and HTTP
    agent/       scores on a machine outside the cluster, and reports
    worker/      the container of a job that runs as a Pod: scores once, leaves its answer
    fleet/       jobs, nodes and the queue as people look at them; jobs handed in
    devcluster/  etcd and kube-apiserver on this machine, for `vmafx dev` and for the tests
    lifecycle/   what attempts at a job are, how they end, and what is written of it
    scoring/     a real VMAF by ffmpeg and libvmaf: clips by URI, probing, limits, results, reports
    scheduling/  which job goes to which node: pure, in memory
    runtime/     a small controller-runtime: informers, queues, leader election, metrics
    kube/        a typed asyncio client for the Kubernetes API
    api/         the four kinds, declared once: types, validation, CRDs and roles come from here
    meters.py    counters, gauges and histograms, cheap to count with
    settings.py  how a role is configured. tether.py: processes that end with us. plain.py: others' words, to be shown
    wire/        the controller's gRPC messages and calls, generated from proto/
"""
