"""What can go wrong, beside what the control plane has to say."""


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""
