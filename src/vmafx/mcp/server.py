"""The MCP server: tools and resources as the SDK serves them, for any transport."""

import base64
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any, NamedTuple

import mcp_types as types
import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from vmafx.auth.callers import EVERYBODY, ServedCaller
from vmafx.auth.fair_limit import FairLimit
from vmafx.fleet.errors import FleetError
from vmafx.http.errors import StatusError
from vmafx.kube.errors import KubeError
from vmafx.logs import log
from vmafx.mcp import arguments as given
from vmafx.mcp.job import JobFailure, WorkProgress
from vmafx.mcp.metrics import McpMetrics
from vmafx.mcp.resources import TYPES, NoReport, Reports
from vmafx.mcp.tools import Call, ToolFailed, ToolReply, Tools
from vmafx.mcp.views import ExplainView, JobList, McpJobView, NodeList, report_uri
from vmafx.scoring.errors import ScoringError
from vmafx.text import one_line

NAME, TITLE = "vmafx", "vmafx: video quality"
LOCAL_CALLER = ServedCaller(EVERYBODY, EVERYBODY)  # of stdio: the user who started the process
CALLER = "vmafx_caller"  # in the state of an HTTP request
INSTRUCTIONS = (
    "Measures the visual quality of encoded video with VMAF (0 to 100, higher is better; 6 points are about what "
    "viewers notice). Clips are paths in the allowed folders, or URIs. Every score, comparison and ladder is a job: if "
    "a tool answers with the phase Running, call get_job with the ID later. IDs survive a restart of the server."
)
MAX_CALLS, MAX_CALLS_OF_CALLER = 512, 64  # at the same time, those that wait for jobs included
Handler = Callable[[Any, Call], Awaitable[ToolReply]]
Context = ServerRequestContext[Any, Any]
EXPECTED = (ScoringError, StatusError, FleetError, KubeError, ToolFailed, NoReport, given.InvalidArguments, OSError)


class ToolSpec(NamedTuple):
    """A tool as clients see it; its method in Tools has its name."""

    name: str
    title: str
    description: str
    arguments: type[msgspec.Struct]
    result: type[msgspec.Struct]
    hints: types.ToolAnnotations

    def declared(self) -> types.Tool:
        return types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=given.json_schema(self.arguments),
            output_schema=given.json_schema(self.result),
            annotations=self.hints,
        )


# Work makes jobs and files below the state folder, and reads clips by any URI that is allowed.
WORK = types.ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=True
)  # fmt: skip
READ = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
TOOLS = (
    ToolSpec(
        "score", "Score clips",
        "Measure the quality (VMAF) of one or several distorted clips against their reference.",
        given.ScoreArguments, McpJobView, WORK,
    ),
    ToolSpec(
        "compare", "Compare encoders",
        "Encode a clip with several encoders and qualities, score each encode, and compare rate and quality "
        "(BD-rate); or, with targetVmaf, find the setting of each encoder that reaches a score. Takes minutes.",
        given.CompareArguments, McpJobView, WORK,
    ),
    ToolSpec(
        "ladder", "Find a bitrate ladder",
        "Find the sizes and qualities to stream a clip in, as its content needs them. Takes minutes.",
        given.LadderArguments, McpJobView, WORK,
    ),
    ToolSpec(
        "explain_score", "Explain a score",
        "Say which parts and frames of a clip pulled its score down, and which of the features that VMAF is made of "
        "account for the lost points; with the method and its limits.",
        given.ExplainArguments, ExplainView, WORK,
    ),
    ToolSpec(
        "submit_job", "Submit a score in the background",
        "Start a score and return its ID at once: as a VmafxJob if the server has a cluster, else on this machine. "
        "Paths of a cluster's job are paths on its nodes.",
        given.SubmitArguments, McpJobView, WORK,
    ),
    ToolSpec(
        "get_job", "Get a job",
        "Get a job with its result, by the ID that another tool returned or the name of a VmafxJob; waits if asked to.",
        given.GetJobArguments, McpJobView, READ,
    ),
    ToolSpec("list_jobs", "List jobs", "List your jobs, the newest first.", given.ListJobsArguments, JobList, READ),
    ToolSpec(
        "cancel_job", "Cancel a job", "Stop a job. One that has ended stays as it is.",
        given.CancelJobArguments, McpJobView,
        types.ToolAnnotations(
            read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
        ),
    ),
    ToolSpec(
        "list_nodes", "List nodes",
        "List the nodes of the cluster that score jobs; without a cluster, what this machine scores with.",
        given.ListNodesArguments, NodeList, READ,
    ),
)  # fmt: skip
SPECS = {spec.name: spec for spec in TOOLS}


class McpService:
    """Answers requests of MCP clients. Without `on_stdio`, each must have come by HTTP, which says who calls."""

    def __init__(self, tools: Tools, reports: Reports, metrics: McpMetrics, *, on_stdio: bool) -> None:
        self._tools, self._reports, self._metrics, self._on_stdio = tools, reports, metrics, on_stdio
        self._declared = [spec.declared() for spec in TOOLS]
        self._schemas = {tool.name: tool.input_schema for tool in self._declared}
        self._calls = FairLimit(MAX_CALLS, "calls", MAX_CALLS_OF_CALLER)
        metrics.declare(iter(SPECS))

    def server(self) -> Server[Any]:
        server: Server[Any] = Server(
            NAME,
            version=version("vmafx"),
            title=TITLE,
            instructions=INSTRUCTIONS,
            get_tool_input_schema=self._schemas.get,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )
        server.middleware.clear()  # OpenTelemetry, which nothing here exports
        return server

    def _caller(self, context: Context) -> ServedCaller:
        if self._on_stdio:
            return LOCAL_CALLER
        if context.request is None:
            raise MCPError(types.INTERNAL_ERROR, "the request has no caller")
        caller: ServedCaller = context.request.scope[CALLER]
        return caller

    async def _list_tools(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._declared)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        spec = SPECS.get(params.name)
        if spec is None:
            known = ", ".join(SPECS)
            raise MCPError(types.INVALID_PARAMS, f"there is no tool {params.name[:50]!r}; there are {known}")
        handler: Handler = getattr(self._tools, spec.name)
        caller, outcome = self._caller(context), "cancelled"
        try:
            with self._calls.hold(caller.share, caller.owner):
                reply = await handler(given.parse(spec.arguments, params.arguments), Call(caller, _progress(context)))
            outcome = "error" if reply.failed else "ok"
        except EXPECTED as error:
            outcome = "error"
            return _failure(_explained(error))
        except Exception:
            outcome = "error"
            raise
        finally:
            self._metrics.called(spec.name, outcome)
        return types.CallToolResult(
            content=[types.TextContent(text=reply.text)],
            structured_content=msgspec.to_builtins(reply.content),
            is_error=reply.failed,
        )

    async def _list_resources(
        self, context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(
            resources=[
                types.Resource(uri=one.uri, name=one.title, mime_type=one.mime_type)
                for one in self._reports.listed(self._caller(context))
            ]
        )

    async def _list_templates(
        self, _context: Context, _params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=report_uri("{id}", f"report.{kind}"),
                    name=f"Report of a job ({kind})",
                    description="The values of every frame, or of every encode." if kind in {"json", "csv"} else None,
                    mime_type=mime_type,
                )
                for kind, mime_type in TYPES.items()
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        caller = self._caller(context)
        try:
            with self._calls.hold(caller.share, caller.owner):
                mime_type, content = await self._reports.read(params.uri, caller)
        except NoReport as error:
            raise MCPError(types.INVALID_PARAMS, str(error), {"uri": params.uri[:500]}) from None
        except StatusError as error:
            raise MCPError(types.INTERNAL_ERROR, str(error)) from None
        found: types.TextResourceContents | types.BlobResourceContents
        if mime_type == TYPES["png"]:
            found = types.BlobResourceContents(
                uri=params.uri, mime_type=mime_type, blob=base64.b64encode(content).decode()
            )
        else:
            found = types.TextResourceContents(uri=params.uri, mime_type=mime_type, text=content.decode())
        return types.ReadResourceResult(contents=[found])


def _progress(context: Context) -> Callable[[WorkProgress], Awaitable[None]]:
    async def report(progress: WorkProgress) -> None:
        detail = f": {progress.detail}" if progress.detail else ""
        await context.session.report_progress(round(progress.share * 100, 2), 100, f"{progress.stage}{detail}")

    return report


def _explained(error: Exception) -> str:
    if isinstance(error, ScoringError):
        return JobFailure.of(error).text
    if isinstance(error, OSError):
        log.error("cannot use the state folder", error=str(error))
        return f"the server cannot use its state folder: {error.strerror or type(error).__name__}"
    return one_line(str(error), 2000)


def _failure(text: str) -> types.CallToolResult:
    """An error of the input or the machine is a result that a model can read, not one of the protocol."""
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
