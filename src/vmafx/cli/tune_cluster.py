"""`vmaf-tune --cluster`: its flags, and the connection to the cluster that scores."""

import functools
from asyncio import CancelledError
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
import typer

from vmafx.cli.cluster import CLUSTER, ContextOption, KubeconfigOption, NamespaceOption
from vmafx.cli.options import parse_seconds, with_fields_as_options
from vmafx.cli.submit import warn_about_uris
from vmafx.fleet.submit import scheme_of
from vmafx.kube import Client, load_config
from vmafx.kube.errors import KubeError
from vmafx.scoring.errors import BadInput, NodeFault
from vmafx.scoring.media.policy import MediaPolicy
from vmafx.scoring.probed import ProbedClip
from vmafx.scoring.request import ScoreOptions
from vmafx.tune.cluster import ClusterScoring, ClusterSettings
from vmafx.tune.upload import UploadFolder

_option = functools.partial(typer.Option, rich_help_panel=CLUSTER)


class ClusterFlags(msgspec.Struct, frozen=True, kw_only=True):
    """One field per option."""

    cluster: Annotated[
        bool, _option("--cluster", help="Score in a cluster, by VmafxJobs; encodes are made on this machine.")
    ] = False
    upload: Annotated[
        str,
        _option(
            metavar="URI",
            help="Where to upload the encodes for the cluster: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, or a folder "
            "that its nodes have at the same path.",
        ),
    ] = ""
    credentials_secret: Annotated[
        str, _option(metavar="NAME", help="Secret with which the cluster reads and writes there.")
    ] = ""
    jobs: Annotated[int, _option(min=1, max=256, metavar="N", help="Jobs in the cluster at the same time.")] = 32
    job_timeout: Annotated[
        str, _option(metavar="TIME", help="Give up on a job that has not ended after this time, e.g. 30m.")
    ] = "6h"
    namespace: NamespaceOption = ""
    kubeconfig: KubeconfigOption = ""
    context: ContextOption = ""

    def check(self, source: str) -> None:
        """Raises BadInput for options that do not go together, and prints notes on URIs."""
        if self.cluster and not self.upload:
            raise BadInput(
                "options",
                "--cluster requires --upload URI: where the encodes are uploaded for it, e.g. s3://BUCKET/PREFIX",
            )
        if not self.cluster:
            default = ClusterFlags()
            for name in self.__struct_fields__:
                if getattr(self, name) != getattr(default, name):
                    raise BadInput("options", f"--{name.replace('_', '-')} is for scoring in a cluster: add --cluster")
        if not parse_seconds(self.job_timeout, "--job-timeout"):
            raise BadInput("options", f"--job-timeout {self.job_timeout!r} must be longer than 0 s; use e.g. 30m")
        if self.cluster:
            for warning in warn_about_uris((source if scheme_of(source) else "", self.upload)):
                typer.echo(f"note: {warning}", err=True)


def with_cluster_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its parameter `cluster` replaced by one option per field of ClusterFlags."""
    return with_fields_as_options(command, "cluster", ClusterFlags)


@asynccontextmanager
async def cluster_scoring(
    flags: ClusterFlags,
    source: ProbedClip,
    options: ScoreOptions,
    policy: MediaPolicy,
    on_state: Callable[[str], None],
) -> AsyncIterator[ClusterScoring | None]:
    """What scores encodes in the cluster, until the context ends; None without --cluster. Raises ScoringError."""
    if not flags.cluster:
        yield None
        return
    folder = UploadFolder(flags.upload, policy)
    try:
        config = load_config(flags.kubeconfig or None, flags.context or None)
    except KubeError as error:
        raise NodeFault(f"the cluster cannot be used: {error}") from error
    settings = ClusterSettings(
        namespace=flags.namespace or config.namespace,
        secret=flags.credentials_secret,
        jobs=flags.jobs,
        job_timeout=float(parse_seconds(flags.job_timeout, "--job-timeout") or 0),
    )
    async with Client(config) as client, ClusterScoring(client, folder, source, options, settings, on_state) as scoring:
        try:
            yield scoring
        except CancelledError:
            if left := scoring.unfinished:
                labels = ",".join(f"{name}={value}" for name, value in scoring.labels.items())
                typer.echo(
                    f"jobs that go on in the cluster: {left}; run the command again to wait for them, or delete them: "
                    f"kubectl delete vmjob -n {settings.namespace} -l {labels}",
                    err=True,
                )
            raise
