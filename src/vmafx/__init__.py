"""vmafx: video quality (VMAF) on Kubernetes.

The map, from the top down. A module imports only from layers below its own, and no role imports another;
`make lint` checks both.

Commands
    cli/             the `vmafx` commands: arguments parsed, results printed
    demo/            the whole product on one machine: encodes made, scored by a fleet of one agent, and drawn
    generate/        CRDs, RBAC roles and reference pages, generated from the declarations below

Roles, one process each
    operator/        the reconcilers, one folder per kind
    controller/      the gRPC and HTTP service for clients and agents
    agent/           scores jobs on a machine that is not a Kubernetes node
    trainer/         trains a model on the scores of the fleet
    serving/         the scoring server: scores over HTTP, without a cluster
    mcp/             the MCP server: scores, comparisons and jobs as tools for assistants
    worker/          scores one attempt, as a Pod's container or an agent's child process

Behind the commands and roles
    tune/            encodes a source in many ways, and finds the settings for a quality
    fleet/           jobs, nodes and the queue as commands show them; job submission
    devcluster/      etcd and kube-apiserver on this machine, for `vmafx dev` and the tests

Domain
    hardware/        the devices of a machine, and how fast they score
    scheduling/      which job runs on which node: pure, in memory
    jobs/            the life of a job: attempts, their outcomes, the status that is written
    inference/       model serving with canaries: children, split, status; also as a library
    training/        online training of a model on the fleet's scores: samples, learning, checkpoints
    rpc/             hardened gRPC servers
    auth/            authentication and authorization of callers
    reports/         scores as HTML, CSV and JSON, with charts
    scoring/         VMAF by ffmpeg and libvmaf: clips by URI, probing, limits, results

Foundation
    runtime/         a small controller-runtime: informers, work queues, leader election, metrics
    http/            hardened HTTP servers
    kube/            a typed asyncio client for the Kubernetes API
    process/         child processes that never outlive their parent
    api/             the four kinds, each declared once: types, validation, CRDs
    wire/            gRPC messages, generated from proto/, and the controller's client
    atomic_write.py  files written whole or not at all
    backoff.py       delays between retries
    clock.py         monotonic time and UTC time
    cores.py         the CPU cores that this process may use
    dentry_cache.py  files found without waiting for the disk
    folder_lock.py   a folder that one process uses at a time
    logs.py          structured logs
    meters.py        counters, gauges and histograms that are cheap to update
    scratch.py       temporary files without a name
    segments.py      an append-only log of records, crash-safe
    settings.py      flags and environment variables of a role, each declared once
    tasks.py         asyncio helpers
    text.py          text from elsewhere made safe to print
"""
