"""The page at `/`: a form for two clips, the progress of their job, and recent jobs.

It calls the same routes as every other client, so it needs no credentials itself; its files are in the folder page/.
"""

from importlib import resources

from vmafx.http.request import HttpRequest
from vmafx.http.responses import TEXT, Response, static_response
from vmafx.http.server import HttpRoute

TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
}
FILES = {  # by path; style sheet and script of reports come first, so that the page looks like them
    "/": "serving/page/index.html",
    "/page/report.css": "reports/page.css",
    "/page/report.js": "reports/page.js",
    "/page/app.css": "serving/page/app.css",
    "/page/app.js": "serving/page/app.js",
}
POLICY = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self' data: blob:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
))  # fmt: skip
HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"}


def page_routes() -> list[HttpRoute]:
    return [_route(path, file) for path, file in FILES.items()]


def sign_in_response(key: str) -> Response:
    """Leads from the address of a report to the page, which asks for credentials and then opens the report."""
    return Response(303, TEXT, b"", {"Location": f"/#result-{key}"})


def _route(path: str, file: str) -> HttpRoute:
    content = resources.files("vmafx").joinpath(file).read_bytes()
    response = static_response(TYPES[file.rpartition(".")[2]], content, headers=HEADERS)

    async def respond(_request: HttpRequest) -> Response:
        return response

    return HttpRoute("GET", path, respond, linkable=path == "/")
