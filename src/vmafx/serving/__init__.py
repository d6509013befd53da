"""`vmafx serve`: scores over HTTP and gRPC, with a page for people. Each request is a job, which waits for its turn.

It scores with vmafx.scoring, serves with vmafx.http and vmafx.rpc, draws with vmafx.reports, and has none of its own.

    main.py          the process: components, probes, start and stop
    settings.py      flags and variables
    site.py          the HTTP routes
    page.py          the page at `/`
    grpc_service.py  the gRPC service vmafx.v1.VmafxScoring
    openapi.py       the HTTP API as an OpenAPI document
    views.py         jobs as JSON
    request.py       what a client asks for, from JSON or a form
    service.py       ScoringService: from a request to its result
    job.py           ServedJob: the life of one request
    jobs.py          JobRegistry: all jobs, and who waits for their changes
    store.py         JobStore: jobs and uploaded clips on disk
    clips.py         the clips of a job, uploaded or by URI
    answers.py       KnownAnswers: answers to requests that were made before
    models.py        the models that requests can name
    results.py       ResultStore: results by the digest of what was scored
    metrics.py       metrics
"""
