"""The commands of `vmafx` and `vmaf-tune`: arguments are parsed and results printed here. What they do lives elsewhere.

Each command has a module with `add_to(app)`, which adds it, and `ERRORS`, its expected failures.

    bars.py           progress bars of scores on a terminal
    cluster.py        options and connection of the commands that read or write a cluster
    crd.py            `vmafx crd`
    demo.py           `vmafx demo`
    dev.py            `vmafx dev`
    devices.py        `vmafx devices`
    doctor.py         `vmafx doctor`
    jobs.py           `vmafx jobs`
    label.py          `vmafx label`
    listing.py        rows printed once, or watched: redrawn on a terminal, a line per change elsewhere
    main.py           the entry point: loads the command, maps errors to exit codes
    models.py         `vmafx models`
    models_diff.py    `vmafx models diff`
    nodes.py          `vmafx nodes`
    options.py        values of options: durations, KEY=VALUE pairs
    progress.py       progress of scores on standard error: bars or lines
    queue.py          `vmafx queue`
    roles.py          `vmafx operator`, `controller`, `agent` and `worker`
    score.py          `vmafx score`
    score_table.py    scores as tables for people
    scoring_flags.py  the options that `score` and `submit` share
    spinner.py        the current step of a long action on standard error
    submit.py         `vmafx submit`
    tables.py         tables fitted to a width; JSON and YAML
    terminal.py       redrawing, key presses, closed pipes
    top.py            `vmafx top`
    top_screen.py     the screen of `vmafx top`
    train.py          `vmafx train`
    tune.py           `vmaf-tune compare`, and the entry point of `vmaf-tune`
    tune_cluster.py   `vmaf-tune --cluster`: its flags, and the connection to the cluster that scores
    tune_flags.py     what the commands of vmaf-tune share: flags, checks of them, and where results go
    tune_ladder.py    `vmaf-tune ladder`
    tune_progress.py  progress of vmaf-tune on standard error
    tune_table.py     comparisons of encoders as tables for people
    wait.py           `vmafx submit --wait`
"""
