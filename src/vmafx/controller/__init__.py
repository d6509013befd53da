"""The front door for clients and agents: gRPC on 9090, HTTP on 8080.

Stateless: the Kubernetes API is the queue and the database. Replicas are free, and a restart loses nothing.

    calls.py      the calls of the wire, each once: who may, what is asked, what is answered
    grpc_door.py  by gRPC. web.py: by HTTP (routes.py, jsonform.py, openapi.py)
    errors.py     what failures of the Kubernetes API mean for callers
    jobs.py       for clients: handed in, looked up, cancelled. streams.py: followed
    nodes.py      agents: their registration and signs of life. sessions.py: the tokens they get
    work.py       what agents are to run, and to stop. results.py: what they report
    messages.py   jobs as the wire has them
    cache.py      what is kept in memory
    around.py     what is done around every call; metrics.py
    main.py       puts it together; options.py, rbac.py
"""
