"""The containers and codecs that the decoder accepts, each for a reason. Each of FFmpeg's many others would be a
risk without a use.

Playlists and other formats that open further files are left out, and so are the formats of games.
"""

CONTAINERS = {
    "mov": "MP4, QuickTime and fragmented MP4: most encodes and camera files",
    "matroska": "Matroska and WebM: encodes, and FFV1 masters",
    "mpegts": "transport streams: broadcast, HLS segments",
    "mpeg": "programme streams: DVD and archives",
    "avi": "archives, and lossless captures",
    "flv": "recordings of RTMP streams",
    "asf": "Windows Media archives",
    "mxf": "masters of broadcasters and studios",
    "ogg": "Theora test clips",
    "ivf": "VP8, VP9 and AV1 from the reference encoders",
    "nut": "FFmpeg's own container, common for lossless intermediates",
    "yuv4mpegpipe": "y4m: uncompressed test clips, such as those of Xiph",
    "dv": "camera tapes",
    "gif": "animations",
}
STREAMS = {  # without a container: no timestamps, so a frame rate is only a guess
    "h264": "H.264 from an encoder's test",
    "hevc": "HEVC from an encoder's test",
    "vvc": "VVC from an encoder's test",
    "av1": "AV1 (Annex B) from an encoder's test",
    "obu": "AV1 from an encoder's test",
    "m4v": "MPEG-4 Part 2",
    "mpegvideo": "MPEG-1 and MPEG-2",
    "mjpeg": "camera streams",
    "dnxhd": "DNxHD from editing systems",
    "vc1": "VC-1 from an encoder's test",
    "png_pipe": "a still picture",
    "jpeg_pipe": "a still picture",
    "rawvideo": "raw video, which the user describes",
}
DECODERS = {
    "h264": "H.264/AVC",
    "hevc": "H.265/HEVC",
    "vvc": "H.266/VVC",
    "libdav1d": "AV1",
    "vp9": "VP9",
    "vp8": "VP8",
    "mpeg2video": "MPEG-2: broadcast and DVD",
    "mpeg1video": "MPEG-1: archives",
    "mpeg4": "MPEG-4 Part 2: archives",
    "h263": "H.263: archives of mobile video",
    "flv": "Sorenson H.263: archives of web video",
    "vc1": "VC-1: Blu-ray and Windows Media",
    "wmv3": "Windows Media 9",
    "theora": "Theora",
    "prores": "ProRes: masters",
    "dnxhd": "DNxHD and DNxHR: masters",
    "cfhd": "CineForm: masters",
    "jpeg2000": "JPEG 2000: cinema and archive masters in MXF",
    "ffv1": "FFV1: archives and lossless references",
    "huffyuv": "lossless captures",
    "ffvhuff": "lossless captures",
    "utvideo": "lossless captures",
    "magicyuv": "lossless captures",
    "mjpeg": "cameras and still pictures",
    "dvvideo": "camera tapes",
    "v210": "uncompressed 4:2:2 with 10 bit, from capture cards",
    "v410": "uncompressed 4:4:4 with 10 bit",
    "rawvideo": "uncompressed video",
    "gif": "animations",
    "png": "still pictures, and animations in MOV",
    "qtrle": "QuickTime animations",
}
DEMUXER_NAMES = ",".join((*CONTAINERS, *STREAMS))
DECODER_NAMES = ",".join(DECODERS)
WITHOUT_TIMESTAMPS = frozenset(STREAMS)
