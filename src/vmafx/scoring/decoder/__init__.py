"""The decoder: the only process that reads the bytes of a clip, locked in before it reads the first.

Outside of it, clip_decoder.py alone is used: inspect a clip, have its frames written to pipes as raw planes, or take
pictures. Everything else runs inside, and nothing outside imports it.

    clip_decoder.py  ClipDecoder: has a clip inspected and decoded, outside of the processes that do it
    process.py       DecoderProcess: one of them, its pipes and limits, from outside
    messages.py      the tasks that they are given, and their answers
    main.py          the process: its limits, its sandbox and its tasks
    container.py     opens a clip with the allowed demuxers and decoders; Refused: it cannot be read, or exceeds a limit
    formats.py       the containers and codecs that are allowed, and why
    inspect_clip.py  counts packets, decodes one frame and derives the properties of a clip
    hdr_metadata.py  the mastering display and light levels of HDR10
    emit.py          writes the frames of a clip to pipes
    convert.py       converts frames: rate, rotation, size, range, pixel format
    pictures.py      single frames as JPEG pictures
"""
