"""How every command is asked for help."""

HELP = {"help_option_names": ["-h", "--help"]}
