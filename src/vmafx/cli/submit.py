"""`vmafx submit`: a job for one pair of clips."""

import asyncio
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
import typer

from vmafx.api.hardware import Backend
from vmafx.api.job import VmafxJobSpec
from vmafx.api.meta import LocalSecretRef
from vmafx.api.scoring import ScoringOptions
from vmafx.cli import cluster, wait
from vmafx.cli.options import HELP, parse_pairs, parse_seconds
from vmafx.cli.scoring_flags import SCORING, ScoringFlags, with_scoring_flags
from vmafx.cli.tables import as_json, as_yaml, cell
from vmafx.fleet.errors import JobRejected
from vmafx.fleet.submit import WHOLE_JOBS, clip_uri, create_job, job_name_for, manifest, model_uri, scheme_of
from vmafx.kube import Client, ObjectKey
from vmafx.kube.resources import UntypedObject
from vmafx.scoring.errors import BadInput
from vmafx.scoring.media.policy import MODEL_DIR
from vmafx.scoring.media.uri import SCHEMES
from vmafx.scoring.models import BUILT_IN

EXIT_USAGE, EXIT_TIMEOUT = 2, 1
JOB = "Job"
ERRORS = cluster.ERRORS


def add_to(app: typer.Typer) -> None:
    app.command(context_settings=HELP)(with_scoring_flags(submit))


class SubmitOptions(msgspec.Struct, frozen=True):
    """What is to be done beside handing it in."""

    output: cluster.OutputFormat
    own_name: bool
    dry_run: bool
    wait: bool
    timeout: int | None


def submit(
    reference: Annotated[str, typer.Argument(help="Reference clip: a URI, or an absolute path.", metavar="REFERENCE")],
    distorted: Annotated[str, typer.Argument(help="Distorted clip, to be scored.", metavar="DISTORTED")],
    flags: ScoringFlags,
    wait: Annotated[
        bool, typer.Option("--wait", "--watch", "-w", help="Wait for the job to end, and print its score.")
    ] = False,
    timeout: Annotated[
        str, typer.Option(metavar="TIME", help="Stop waiting after this time, e.g. 30m; the job goes on.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Validate and print the job, but do not create it.")
    ] = False,
    output: cluster.OutputOption = "table",
    report: Annotated[
        str, typer.Option(metavar="URI", help="Where to write the per-frame report.", rich_help_panel=SCORING)
    ] = "",
    name: Annotated[
        str, typer.Option(help="Name of the job (default: derived from the distorted clip).", rich_help_panel=JOB)
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUE", help="Label of the job; may be repeated.", rich_help_panel=JOB),
    ] = None,
    priority: Annotated[
        int | None,
        typer.Option(
            min=0, max=1_000_000_000, help="Jobs with a higher priority start first (default: 0).", rich_help_panel=JOB
        ),
    ] = None,
    backend: Annotated[
        Backend | None, typer.Option(help="Hardware to score on (default: any).", rich_help_panel=JOB)
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="Run only on nodes with this label; may be repeated.", rich_help_panel=JOB
        ),
    ] = None,
    retry_limit: Annotated[
        int | None,
        typer.Option(min=0, max=100, help="Number of retries after failed attempts (default: 3).", rich_help_panel=JOB),
    ] = None,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="Fail the job this long after its first start.", rich_help_panel=JOB)
    ] = "",
    ttl: Annotated[
        str, typer.Option(metavar="TIME", help="Delete the job this long after it ends.", rich_help_panel=JOB)
    ] = "",
    suspend: Annotated[bool, typer.Option("--suspend", help="Create the job suspended.", rich_help_panel=JOB)] = False,
    credentials_secret: Annotated[
        str, typer.Option(metavar="NAME", help="Secret with credentials for the URIs.", rich_help_panel=JOB)
    ] = "",
    scheduler: Annotated[
        str, typer.Option(metavar="NAME", help="Scheduler that places the job (default: vmafx).", rich_help_panel=JOB)
    ] = "",
    namespace: cluster.NamespaceOption = "",
    kubeconfig: cluster.KubeconfigOption = "",
    context: cluster.ContextOption = "",
) -> None:
    """Submit a job that scores DISTORTED against REFERENCE.

    Clips are URIs, or absolute paths at which the workers find them. Exit codes with --wait: 0 scored, 2 bad input,
    1 anything else. Times are given as 90s, 10m or 1h30m.
    """
    try:
        first, second = clip_uri(reference), clip_uri(distorted)
        one, other = flags.formats(first, [second])
        options = flags.options()
        optional = _given(
            referenceFormat=one,
            distortedFormat=other,
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
        )
        spec = VmafxJobSpec(first, second, **optional)
        labels = parse_pairs(label or [], "--label")
        wanted = SubmitOptions(output, bool(name), dry_run, wait, _patience(timeout, wait=wait))
        files = warn_about_files((reference, distorted, report, flags.model))
        for doubt in dict.fromkeys((*files, *warn_about_model(spec.model))):
            typer.echo(f"note: {doubt}", err=True)

        async def work(client: Client, where: str) -> int:
            return await _hand_in(client, manifest(where, name or job_name_for(second), labels, spec), wanted)

        cluster.run_with_client(work, kubeconfig, context, namespace)
    except (BadInput, JobRejected) as error:
        typer.echo(f"error: {cell(str(error))}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


async def _hand_in(client: Client, job: UntypedObject, wanted: SubmitOptions) -> int:
    made = await create_job(client, job, another_name=not wanted.own_name, dry_run=wanted.dry_run)
    key = ObjectKey(made["metadata"]["namespace"], made["metadata"]["name"])
    if wanted.dry_run:
        typer.echo(as_json(job) if wanted.output == "json" else as_yaml(job))
        return 0
    if not wanted.wait:
        if wanted.output == "table":
            typer.echo(f"job {key.name} created in namespace {key.namespace}")
            typer.echo(f"to follow it: vmafx jobs {key.name} --watch -n {key.namespace}", err=True)
        _print_whole(made, wanted.output)
        return 0
    try:
        async with asyncio.timeout(wanted.timeout):
            ended = await wait.wait_for_end(client, key, made["metadata"]["resourceVersion"])
    except TimeoutError:
        typer.echo(f"error: the job did not end within {wanted.timeout} s; {_goes_on(key)}", err=True)
        return EXIT_TIMEOUT
    except asyncio.CancelledError:
        typer.echo(_goes_on(key), err=True)
        raise
    if wanted.output != "table":
        _print_whole(await client.get(WHOLE_JOBS, key), wanted.output)
    return wait.print_outcome(ended, quiet=wanted.output != "table")


def _print_whole(job: UntypedObject, output: cluster.OutputFormat) -> None:
    """The job as the server has it, but for what only the server's own bookkeeping is about."""
    job["metadata"].pop("managedFields", None)
    if output != "table":
        typer.echo(as_json(job) if output == "json" else as_yaml(job))


def _goes_on(key: ObjectKey) -> str:
    end = f'kubectl patch vmjob {key.name} -n {key.namespace} --type merge -p \'{{"spec":{{"cancel":true}}}}\''
    return f"job {key.name} goes on; to see it: vmafx jobs {key.name} -n {key.namespace}; to cancel it: {end}"


def _patience(timeout: str, *, wait: bool) -> int | None:
    if timeout and not wait:
        raise BadInput("options", "--timeout needs --wait")
    return parse_seconds(timeout, "--timeout")


def _given(**options: Any) -> dict[str, Any]:
    """What was said, a zero too; for the rest the kind has its own defaults."""
    return {name: value for name, value in options.items() if value or (value == 0 and value is not False)}


def warn_about_files(files: Iterable[str]) -> Iterator[str]:
    """Clips, models and reports, as they were given."""
    for text in files:
        scheme = scheme_of(text)
        if text.startswith("/"):
            yield f"{cell(text)} must exist at this path on the workers too"
        elif re.match(r"[^/]*://[^/?#]*@", text):
            yield "the password in a URI can be read by everyone who may read jobs"
        if scheme and scheme not in SCHEMES:
            yield f"workers of vmafx know no {scheme}://, only {', '.join(f'{one}://' for one in SCHEMES)}"


def warn_about_model(name: str) -> Iterator[str]:
    if name and name not in BUILT_IN and not scheme_of(name):
        yield (
            f"the workers of vmafx know no model {cell(name)}, only {', '.join(BUILT_IN)} and URIs of JSON models,"
            f" unless {MODEL_DIR} is set for them and {cell(name)}.json is in that folder"
        )
