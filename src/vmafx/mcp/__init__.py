"""`vmafx mcp`: quality as tools for assistants, by the Model Context Protocol, over standard input or HTTP.

It scores with vmafx.scoring, encodes with vmafx.tune, submits with vmafx.fleet and draws with vmafx.reports, and has
none of its own. The protocol is that of the official SDK, the package mcp.

    main.py       the process: components, probes, start and stop
    settings.py   flags and variables
    rbac.py       what `--cluster` needs
    server.py     the tools and resources as the SDK serves them
    stdio.py      one client on standard input and output
    site.py       HTTP: the route /mcp
    sessions.py   sessions of protocol versions with a handshake, and what they send again
    asgi.py       calls the SDK's HTTP transport for a request of our HTTP server
    arguments.py  the arguments of the tools, and their JSON Schemas
    views.py      what tools answer, structured and as text
    tools.py      Tools: what each tool does
    job.py        Job: a score, a comparison or a ladder, and what came out
    jobs.py       Jobs: does jobs in turn, and keeps them
    work.py       JobWork: does one job
    state.py      StateFolder: jobs on disk
    cluster.py    Cluster: VmafxJobs and VmafxNodes
    explain.py    which frames and features pulled a score down
    resources.py  Reports: reports of jobs as resources
    metrics.py    metrics
"""
