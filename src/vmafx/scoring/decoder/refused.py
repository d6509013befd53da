"""The exception for a clip that the decoder refuses."""


class Refused(Exception):
    """The clip cannot be read or exceeds a limit; the message is for the user."""
