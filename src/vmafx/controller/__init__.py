"""The controller: the service for clients and agents, gRPC on port 9090 and HTTP on 8080.

It is stateless: jobs and nodes are in the Kubernetes API, so replicas can be added or restarted at any time. Only the
operator places jobs and creates Pods.

    caches.py         caches of unfinished jobs, of nodes and of trainings
    connections.py    probes whether the gRPC port serves a new connection
    dispatch.py       dispatches placed jobs to agents, and tells them which attempts to stop
    errors.py         errors of the Kubernetes API as status errors
    grpc_server.py    the service on a gRPC server
    http_server.py    the HTTP server
    jobs.py           jobs for clients: submit, get, cancel, stream
    json_messages.py  protobuf messages as JSON
    main.py           the process: builds the components and runs them
    messages.py       VmafxJobs as protobuf messages
    middleware.py     recognizes agents around every call, and limits calls
    openapi.py        the OpenAPI document
    openapi_texts.py  its descriptions and examples
    paths.py          clips by absolute path, for old clients and old agents
    rbac.py           permissions of the controller and of its callers
    registry.py       registration and heartbeats of agents
    results.py        progress and results from agents
    routes.py         the HTTP route of each call
    samples.py        samples from agents and Pods, forwarded to the trainers that want them
    servicer.py       the calls of the service, each implemented once for gRPC and HTTP
    sessions.py       session tokens of agents
    settings.py       flags and environment variables
"""
