"""`vmafx submit`: creates a job, and waits for its result if asked to."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from vmafx.api.hardware import Backend
from vmafx.api.job import LABELLED, VmafxJobSpec
from vmafx.api.meta import LocalSecretRef
from vmafx.api.scoring import ScoringOptions
from vmafx.cli import cluster, wait
from vmafx.cli.options import HELP, parse_pairs, parse_seconds
from vmafx.cli.scoring_flags import SCORING, ScoringFlags, with_scoring_flags
from vmafx.cli.tables import as_json, as_yaml, cell
from vmafx.fleet.errors import JobRejected
from vmafx.fleet.submit import UNTYPED_JOBS, clip_uri, create_job, job_name_for, manifest, model_uri, scheme_of
from vmafx.kube import Client, ObjectKey
from vmafx.kube.resources import UntypedObject
from vmafx.scoring.engines.ffmpeg import BUILT_IN_MODELS
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MODEL_DIR
from vmafx.scoring.media.uri import SCHEMES

EXIT_USAGE, EXIT_TIMEOUT = 2, 1
JOB = "Job"
THREADS_HELP = "Threads of the worker (default, or 0: the worker's VMAFX_THREADS, or by its CPUs)."
ERRORS = cluster.ERRORS


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(with_scoring_flags(submit, THREADS_HELP))


class SubmitOptions(msgspec.Struct, frozen=True):
    """How to create the job, and what to print."""

    output: cluster.OutputFormat
    named: bool
    dry_run: bool
    wait: bool
    timeout: int | None


def submit(
    reference: Annotated[str, typer.Argument(help="Reference clip: a URI or an absolute path.", metavar="REFERENCE")],
    distorted: Annotated[str, typer.Argument(help="Distorted clip to score.", metavar="DISTORTED")],
    flags: ScoringFlags,
    wait: Annotated[
        bool, typer.Option("--wait", "--watch", "-w", help="Wait for the job to end and print its score.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Stop waiting after this time, e.g. 30m. The job continues.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate and print the job without creating it.")] = False,
    output: cluster.OutputOption = "table",
    report: Annotated[
        str,
        typer.Option(metavar="URI", help="Write the per-frame report to this URI.", rich_help_panel=SCORING),
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Name of the job (default: derived from the distorted clip).", rich_help_panel=JOB
        ),
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Label to set on the job; may be repeated.", rich_help_panel=JOB),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1_000_000_000,
            metavar="N",
            help="Priority of the job; higher starts first (default: 0).",
            rich_help_panel=JOB,
        ),
    ] = None,
    backend: Annotated[
        Backend | None,
        typer.Option(
            help="Backend to score on; the job runs only on nodes with that hardware (default: any node, with its best "
            "engine).",
            rich_help_panel=JOB,
        ),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Run only on nodes with this label; may be repeated.", rich_help_panel=JOB
        ),
    ] = None,
    retry_limit: Annotated[
        int | None,
        typer.Option(
            min=0, max=100, metavar="N", help="Retries after failed attempts (default: 3).", rich_help_panel=JOB
        ),
    ] = None,
    deadline: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Fail the job if it has not ended this long after its start.",
            rich_help_panel=JOB,
        ),
    ] = "",
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="Delete the job this long after it has ended.", rich_help_panel=JOB)
    ] = "",
    suspend: Annotated[
        bool,
        typer.Option(
            "--suspend", help="Create the job suspended; it starts once spec.suspend is false.", rich_help_panel=JOB
        ),
    ] = False,
    human_score: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="SCORE",
            help="Score that people gave the distorted clip, 0 to 100, for trainings.",
            rich_help_panel=JOB,
        ),
    ] = None,
    credentials_secret: Annotated[
        str, typer.Option(metavar="NAME", help="Secret with the credentials for the clip URIs.", rich_help_panel=JOB)
    ] = "",
    scheduler: Annotated[
        str, typer.Option(metavar="NAME", help="Scheduler that places the job (default: vmafx).", rich_help_panel=JOB)
    ] = "",
    namespace: cluster.NamespaceOption = "",
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Create a job that scores DISTORTED against REFERENCE in the cluster.

    A clip is a URI, or an absolute path that exists on every node that may run the job. TIME is written as 90s, 10m or
    1h30m.

    Exit codes: 0 created, or with --wait scored; 2 bad input; 1 any other failure.
    """
    try:
        reference_uri, distorted_uri = clip_uri(reference), clip_uri(distorted)
        reference_format, distorted_format = flags.formats(reference_uri, [distorted_uri])
        options = flags.options()
        optional = _without_unset(
            referenceFormat=reference_format,
            distortedFormat=distorted_format,
            model=model_uri(flags.model),
            backend=backend,
            priority=priority,
            nodeSelector=parse_pairs(node_selector or [], "--node-selector"),
            suspend=suspend,
            retryLimit=retry_limit,
            activeDeadlineSeconds=parse_seconds(deadline, "--deadline"),
            ttlSecondsAfterFinished=parse_seconds(ttl, "--ttl"),
            options=options if options != ScoringOptions() else None,
            output=clip_uri(report) if report else "",
            credentialsSecretRef=LocalSecretRef(credentials_secret) if credentials_secret else None,
            schedulerName=scheduler,
            humanScore=human_score,
        )
        spec = VmafxJobSpec(reference_uri, distorted_uri, **optional)
        labels = parse_pairs(label or [], "--label") | (LABELLED if human_score is not None else {})
        submission = SubmitOptions(output, bool(name), dry_run, wait, _parse_timeout(timeout, wait=wait))
        warnings = (
            *warn_about_uris((reference, distorted, report, flags.model)),
            *warn_about_model(spec.model),
        )
        for warning in dict.fromkeys(warnings):
            typer.echo(f"note: {warning}", err=True)

        async def work(client: Client, where: str) -> int:
            job = manifest(where, name or job_name_for(distorted_uri), labels, spec)
            return await _submit(client, job, submission)

        cluster.run_with_client(work, kubeconfig, context, namespace)
    except (BadInput, JobRejected) as error:
        typer.echo(f"error: {cell(str(error))}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


async def _submit(client: Client, job: UntypedObject, submission: SubmitOptions) -> int:
    created = await create_job(client, job, rename=not submission.named, dry_run=submission.dry_run)
    key = ObjectKey(created["metadata"]["namespace"], created["metadata"]["name"])
    if submission.dry_run:
        typer.echo(as_json(job) if submission.output == "json" else as_yaml(job))
        return 0
    if not submission.wait:
        if submission.output == "table":
            typer.echo(f"job {key.name} created in namespace {key.namespace}")
            typer.echo(f"to follow it: vmafx jobs {key.name} --watch -n {key.namespace}", err=True)
        else:
            _print_document(created, submission.output)
        return 0
    try:
        async with asyncio.timeout(submission.timeout):
            ended = await wait.wait_for_end(client, key, created["metadata"]["resourceVersion"])
    except TimeoutError:
        typer.echo(f"error: timed out after {submission.timeout} s; {_continues(key)}", err=True)
        return EXIT_TIMEOUT
    except asyncio.CancelledError:
        typer.echo(_continues(key), err=True)
        raise
    if submission.output != "table":
        _print_document(await client.get(UNTYPED_JOBS, key), submission.output)
    return wait.print_outcome(ended, quiet=submission.output != "table")


def _print_document(job: UntypedObject, output: cluster.OutputFormat) -> None:
    job["metadata"].pop("managedFields", None)
    typer.echo(as_json(job) if output == "json" else as_yaml(job))


def _continues(key: ObjectKey) -> str:
    cancel = f'kubectl patch vmjob {key.name} -n {key.namespace} --type merge -p \'{{"spec":{{"cancel":true}}}}\''
    show = f"vmafx jobs {key.name} -n {key.namespace}"
    return f"job {key.name} continues in the background; to show it: {show}; to cancel it: {cancel}"


def _parse_timeout(timeout: str, *, wait: bool) -> int | None:
    if timeout and not wait:
        raise BadInput("options", "--timeout requires --wait")
    return parse_seconds(timeout, "--timeout")


def _without_unset(**fields: Any) -> dict[str, Any]:
    """The fields that have a value, which may be 0; the API server sets the defaults of the others."""
    return {name: value for name, value in fields.items() if value or (value == 0 and value is not False)}


def warn_about_uris(texts: Iterable[str]) -> Iterator[str]:
    """Notes on paths and URIs of clips, models and reports that workers may not be able to use."""
    for text in texts:
        scheme = scheme_of(text)
        if text.startswith("/"):
            yield f"{cell(text)} must exist at this path on every node that may run the job"
        elif re.match(r"[^/]*://[^/?#]*@", text):
            yield "everyone who may read jobs can read the password in the URI"
        if scheme and scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            yield f"workers do not support {scheme}:// URIs, only {known}"


def warn_about_model(name: str) -> Iterator[str]:
    if name and name not in BUILT_IN_MODELS and not scheme_of(name):
        yield (
            f"model {cell(name)} is not built in ({', '.join(BUILT_IN_MODELS)}); "
            f"the workers need {cell(name)}.json in the folder that their {MODEL_DIR} names"
        )
