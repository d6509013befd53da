"""Properties of a probed clip, and the ffmpeg demuxers that vmafx allows.

Playlists and other formats that open further files are left out.
"""

import msgspec

from vmafx.api.scoring import RawFormat

IMAGE_DEMUXERS = (
    "bmp", "dds", "dpx", "exr", "gif", "hdr", "j2k", "jpeg", "jpegls", "jpegxl", "pam", "pbm", "pcx", "pfm", "pgm",
    "pgmyuv", "phm", "photocd", "pictor", "png", "ppm", "psd", "qdraw", "qoi", "sgi", "sunrast", "tiff", "vbn",
    "webp", "xbm", "xpm", "xwd",
)  # fmt: skip
STREAM_DEMUXERS = (  # elementary streams: without timestamps, so ffmpeg only guesses a frame rate
    "av1", "avs2", "avs3", "cavsvideo", "dirac", "dnxhd", "evc", "h261", "h263", "h264", "hevc", "ingenient", "m4v",
    "mjpeg", "mjpeg_2000", "mpegvideo", "obu", "rawvideo", "vc1", "vvc",
)  # fmt: skip
FILE_DEMUXERS = (
    "4xm", "aiff", "amv", "anm", "apng", "asf", "avi", "avr", "bethsoftvid", "bink", "c93", "cdxl", "cine", "dfa",
    "dv", "dxa", "ea", "ea_cdata", "ffm", "film_cpk", "flic", "flv", "gif", "gxf", "hnm", "idcin", "iff", "ipmovie",
    "ipu", "ivf", "ivr", "jpegxl_anim", "jv", "kux", "live_flv", "lmlm4", "lxf", "matroska", "mcc", "mgsts", "mlv",
    "mm", "mov", "mp4", "mpeg", "mpegts", "mtv", "mv", "mvi", "mxf", "mxg", "nc", "nsv", "nut", "nuv", "ogg", "pmp",
    "psxstr", "pva", "r3d", "rl2", "rm", "roq", "rpl", "sdr2", "segafilm", "smk", "smush", "svs", "swf", "thp",
    "tmv", "ty", "v210", "v210x", "vc1test", "viv", "vividas", "vmd", "wc3movie", "webm", "wsvqa", "wtv", "wv",
    "xmv", "yop", "yuv4mpegpipe",
)  # fmt: skip
ASPECT_RATIO_TOLERANCE = 0.02  # a larger difference means that a clip was cropped or stretched
CONTAINER_DEMUXERS = (*FILE_DEMUXERS, *STREAM_DEMUXERS, *(f"{name}_pipe" for name in IMAGE_DEMUXERS))
WITHOUT_TIMESTAMPS = frozenset(STREAM_DEMUXERS) | {f"{name}_pipe" for name in IMAGE_DEMUXERS}


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """One video stream of a clip. Width and height are those of the displayed frame, with rotation applied."""

    container: str
    codec: str
    stream: int  # index in the container
    width: int
    height: int
    pixel_format: str
    bit_depth: int
    chroma: str  # 420, 422, 444, gray or rgb
    full_range: bool | None = None
    matrix: int = 2  # matrix coefficients (ITU-T H.273); 2 is unspecified
    transfer: int = 2  # transfer characteristics (ITU-T H.273)
    pixel_aspect: float = 1.0
    rotation: int = 0
    interlaced: bool = False
    packets: int = 0
    corrupt_packets: int = 0  # flagged by the demuxer
    frame_rate: str | None = None  # as a fraction; None if the container states none
    constant_rate: bool = True  # all frames have the same duration
    duration: float = 0.0  # seconds, from the first frame to the end of the last
    longest_frame: float = 0.0  # seconds
    gaps: tuple[tuple[int, float], ...] | None = ()  # (frame, frames it is late by); None if there are too many
    video_streams: int = 1

    @property
    def is_raw(self) -> bool:
        return self.container == "rawvideo"

    @property
    def aspect_ratio(self) -> float:
        """Display aspect ratio: width to height."""
        return self.width * self.pixel_aspect / self.height


class ProbeRefusal(msgspec.Struct, frozen=True):
    """The prober's answer for a clip that cannot be read or exceeds a limit."""

    why: str
    remedy: str = ""  # names flags of `vmafx score`


class ProbeTask(msgspec.Struct, frozen=True):
    """The prober's argument: the file descriptor of the clip, and the limits."""

    fd: int
    raw: RawFormat | None
    pixels: int
    frames: int
    memory: int


def raw_options(raw: RawFormat) -> dict[str, str]:
    """Options of ffmpeg's rawvideo demuxer."""
    return {
        "video_size": f"{raw.width}x{raw.height}",
        "pixel_format": raw.pixelFormat,
        "framerate": str(raw.frameRate or 25),
    }


def raw_frame_bytes(raw: RawFormat) -> int:
    """The size of one frame of raw video."""
    name, _, depth = raw.pixelFormat.removesuffix("le").partition("gray" if raw.pixelFormat.startswith("gray") else "p")
    across, down = {"yuv420": (2, 2), "yuv422": (2, 1), "yuv444": (1, 1), "": (0, 0)}[name]
    samples = raw.width * raw.height
    if across:
        samples += 2 * -(-raw.width // across) * -(-raw.height // down)
    return samples * (2 if depth else 1)
