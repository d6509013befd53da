"""Variables that make Python run code when it starts, unless it is isolated. The code creates a file."""

from pathlib import Path


def hostile_variables(folder: Path) -> tuple[dict[str, str], Path]:
    """The variables, and the file that exists once any of them had an effect."""
    proof, modules = folder / "hostile-code-ran", folder / "hostile"
    modules.mkdir()
    for name in ("sitecustomize", "usercustomize"):
        (modules / f"{name}.py").write_text(f"open({str(proof)!r}, 'w').close()\n")
    startup = modules / "startup.py"
    startup.write_text(f"open({str(proof)!r}, 'w').close()\n")
    variables = {
        "PYTHONWARNINGS": "all:0:antigravity.x:0:0",  # imports antigravity, which opens a browser
        "BROWSER": f"/bin/sh -c 'touch {proof}' %s",
        "PYTHONPATH": str(modules),
        "PYTHONSTARTUP": str(startup),
        "PYTHONINSPECT": "1",
    }
    return variables, proof
