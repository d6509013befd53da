"""Jobs, nodes, trainings and the queue as commands show them, read from the API server; and what commands write.

Submission creates jobs, and human scores are set on them; everything else only reads. Positions and estimates are
computed on demand and stored nowhere.

    errors.py        errors of the API server, with what the user can do about them
    human_scores.py  scores that people gave, from a CSV file, set on jobs
    overview.py      the whole fleet, for `vmafx top`: nodes, running, waiting and ended jobs, throughput
    queue.py         the waiting jobs: position, reason, estimated start and end
    reader.py        lists and gets of jobs, nodes and trainings, limited to the fields that are shown
    rows.py          one job or one node as a row of a listing
    submit.py        a new job: its name, its clip URIs, the API call
    trainings.py     one training, and one version of its model, as a row of a listing
    watch.py         caches kept up to date by watches; one job followed to its end
"""
