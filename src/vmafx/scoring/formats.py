"""Which of ffmpeg's demuxers may read a clip: those that read one file and nothing else.

Left out are playlists and scripts (hls, dash, concat, sdp, imf, image2, avisynth, ...), whatever opens devices or
the network, and `tty`, which would show a text file as a video.
"""

PICTURES = (
    "bmp", "dds", "dpx", "exr", "gif", "hdr", "j2k", "jpeg", "jpegls", "jpegxl", "pam", "pbm", "pcx", "pfm", "pgm",
    "pgmyuv", "phm", "photocd", "pictor", "png", "ppm", "psd", "qdraw", "qoi", "sgi", "sunrast", "tiff", "vbn",
    "webp", "xbm", "xpm", "xwd",
)  # fmt: skip
STREAMS = (  # bare codecs: they carry no times, and a frame rate is only guessed
    "av1", "avs2", "avs3", "cavsvideo", "dirac", "dnxhd", "evc", "h261", "h263", "h264", "hevc", "ingenient", "m4v",
    "mjpeg", "mjpeg_2000", "mpegvideo", "obu", "rawvideo", "vc1", "vvc",
)  # fmt: skip
FILES = (
    "4xm", "aiff", "amv", "anm", "apng", "asf", "avi", "avr", "bethsoftvid", "bink", "c93", "cdxl", "cine", "dfa",
    "dv", "dxa", "ea", "ea_cdata", "ffm", "film_cpk", "flic", "flv", "gif", "gxf", "hnm", "idcin", "iff", "ipmovie",
    "ipu", "ivf", "ivr", "jpegxl_anim", "jv", "kux", "live_flv", "lmlm4", "lxf", "matroska", "mcc", "mgsts", "mlv",
    "mm", "mov", "mp4", "mpeg", "mpegts", "mtv", "mv", "mvi", "mxf", "mxg", "nc", "nsv", "nut", "nuv", "ogg", "pmp",
    "psxstr", "pva", "r3d", "rl2", "rm", "roq", "rpl", "sdr2", "segafilm", "smk", "smush", "svs", "swf", "thp",
    "tmv", "ty", "v210", "v210x", "vc1test", "viv", "vividas", "vmd", "wc3movie", "webm", "wsvqa", "wtv", "wv",
    "xmv", "yop", "yuv4mpegpipe",
)  # fmt: skip
CONTAINERS = (*FILES, *STREAMS, *(f"{name}_pipe" for name in PICTURES))
WITHOUT_TIMES = frozenset(STREAMS) | {f"{name}_pipe" for name in PICTURES}
