"""The whole product on this machine in seconds: encodes made, scored by a fleet of one agent, and drawn.

    main.py     the steps, in order, and what is left behind: nothing but the output folder
    steps.py    what a person sees of them
    clips.py    a reference clip and six encodes of it, by one ffmpeg
    cluster.py  the processes: a control plane, the operator, the controller, an agent
    jobs.py     a VmafxJob for each encode, handed in by kubectl
    table.py    the jobs, live, until each has its score
    errors.py   what can go wrong

reports/ draws the chart. The product's roles are started by their command lines, as anybody would; none is imported.
"""
