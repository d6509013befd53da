"""vmafx: video quality (VMAF) at cluster scale.

The map: three floors. Imports point downwards only, and a role never imports another; `make lint` holds it.

What a person types
    cli/         the commands; argument parsing only
    generate/    the CRDs, the roles and pages of the docs, from the declarations
    generate/    CRDs, roles and pages of the docs, from the declarations of everything below
    demo/        all of it on this machine in seconds: encodes made, scored and drawn

The roles: one process each, mostly I/O
    operator/    the reconcilers, one folder per kind
    controller/  the front door for clients and agents: gRPC and HTTP
    agent/       scores on a machine outside the cluster, and reports
    worker/      the container of a job that runs as a Pod: scores once, leaves its answer
    fleet/       jobs, nodes and the queue as people look at them; jobs handed in
    devcluster/  etcd and kube-apiserver on this machine, for `vmafx dev` and for the tests

What roles share
    hardware/    what a machine has to score with, and how fast it is
    scheduling/  which job goes to which node: pure, in memory
    jobs/        the life of a job: what workers are handed and answer, how attempts end, what is written
    auth/        who calls and what they may do: tokens, certificates, access reviews
    reports/     scores as HTML, CSV and JSON; every chart
    scoring/     a real VMAF by ffmpeg and libvmaf: clips by URI, probing, limits, results
    runtime/     a small controller-runtime: informers, queues, leader election, metrics
    http/        hardened HTTP servers
    process/     child processes that end with us

What everything stands on
    kube/        a typed asyncio client for the Kubernetes API
    api/         the four kinds, declared once: types, validation, CRDs and roles come from here
    wire/        the controller's gRPC messages and calls, generated from proto/
    settings.py  how a role is configured. logs.py: structured logs. meters.py: counters, cheap to count with
    times.py     the clocks. backoff.py: how long to wait before a retry. threads.py: slow calls beside the event loop
    scratch.py   files without a name. atomic_write.py: files that are there whole. plain.py: others' words, to be shown
"""
