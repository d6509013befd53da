"""A clip as the prober describes it, and the ffmpeg demuxers that may read one."""

import msgspec

from vmafx.api.scoring import RawFormat

IMAGE_DEMUXERS = (
    "bmp", "dds", "dpx", "exr", "gif", "hdr", "j2k", "jpeg", "jpegls", "jpegxl", "pam", "pbm", "pcx", "pfm", "pgm",
    "pgmyuv", "phm", "photocd", "pictor", "png", "ppm", "psd", "qdraw", "qoi", "sgi", "sunrast", "tiff", "vbn",
    "webp", "xbm", "xpm", "xwd",
)  # fmt: skip
STREAM_DEMUXERS = (  # bare codecs: they carry no times, and a frame rate is only guessed
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
CONTAINER_DEMUXERS = (*FILE_DEMUXERS, *STREAM_DEMUXERS, *(f"{name}_pipe" for name in IMAGE_DEMUXERS))
WITHOUT_TIMES = frozenset(STREAM_DEMUXERS) | {f"{name}_pipe" for name in IMAGE_DEMUXERS}


class Clip(msgspec.Struct, frozen=True, kw_only=True):
    """One video stream. Width and height are as it is shown: turned, if the container says so."""

    container: str
    codec: str
    stream: int
    width: int
    height: int
    pixel_format: str
    depth: int
    chroma: str  # 420, 422, 444, gray or rgb
    full_range: bool | None = None
    matrix: int = 2  # the number in the bitstream; 2 is unspecified
    transfer: int = 2
    pixel_aspect: float = 1.0
    rotation: int = 0
    interlaced: bool = False
    packets: int = 0
    broken: int = 0  # of these, by the container's own account
    rate: str | None = None  # frames per second as a fraction; None where only the container's default is known
    even: bool = True  # whether frames follow at even distances
    seconds: float = 0.0  # from the first frame to the end of the last
    longest: float = 0.0  # seconds that one frame stands
    jumps: tuple[tuple[int, float], ...] | None = ()  # frames that come late, by how many frames; None: too many to say
    streams: int = 1  # of video, this one being the first or the one marked as default

    @property
    def shape(self) -> float:
        """Width to height, as it is shown."""
        return self.width * self.pixel_aspect / self.height


class ProbeRefusal(msgspec.Struct, frozen=True):
    """The prober's answer to a clip that is none, or too much."""

    why: str


class ProbeTask(msgspec.Struct, frozen=True):
    """What the prober is told."""

    fd: int
    raw: RawFormat | None
    pixels: int
    frames: int
    memory: int


def raw_options(raw: RawFormat) -> dict[str, str]:
    """What ffmpeg's reader of raw video has to be told."""
    return {
        "video_size": f"{raw.width}x{raw.height}",
        "pixel_format": raw.pixelFormat,
        "framerate": str(raw.frameRate or 25),
    }


def raw_frame_bytes(raw: RawFormat) -> int:
    """The size of one frame of a raw clip."""
    name, _, depth = raw.pixelFormat.removesuffix("le").partition("gray" if raw.pixelFormat.startswith("gray") else "p")
    across, down = {"yuv420": (2, 2), "yuv422": (2, 1), "yuv444": (1, 1), "": (0, 0)}[name]
    samples = raw.width * raw.height
    if across:
        samples += 2 * -(-raw.width // across) * -(-raw.height // down)
    return samples * (2 if depth else 1)
