"""Writes hashes/: the SHA-256 digests of all files of every version in constraints.txt, for `pip --require-hashes`.

There is a file for vmafx itself, one for each extra with what it adds, and one for each dependency group and for the
build. uv resolves them from pyproject.toml, with Python 3.11 on Linux. `--check` writes nothing and needs no network:
it ends with exit code 1 if the files do not match constraints.txt and pyproject.toml.
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
BASE = "vmafx"  # the file of what vmafx needs without extras
HEADER = """\
# Written by `make hashes` from constraints.txt and pyproject.toml. {text}
"""
_PIN = re.compile(r"^(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^\s\\;]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


class RequirementSet(NamedTuple):
    """Requirements that are installed together, into one file of hashes."""

    text: str
    requirements: tuple[str, ...]
    extra: bool = False  # installed together with those of BASE

    def names(self) -> set[str]:
        return {canonical(re.split(r"[ ;<>=!~\[]", line)[0]) for line in self.requirements}


class Package(NamedTuple):
    """A version, the digests of its files, and what requires it; empty if that is pyproject.toml."""

    name: str
    version: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirement_sets(root: Path) -> dict[str, RequirementSet]:
    """What pyproject.toml declares, by the name of the file."""
    declared: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text())
    project = declared["project"]
    sets = {BASE: RequirementSet("What vmafx needs.", tuple(project["dependencies"]))}
    for extra, lines in project.get("optional-dependencies", {}).items():
        sets[extra] = RequirementSet(f"What vmafx[{extra}] needs besides {BASE}.txt.", tuple(lines), extra=True)
    sets["build"] = RequirementSet("What builds the package.", tuple(declared["build-system"]["requires"]))
    for group, lines in declared.get("dependency-groups", {}).items():
        sets[group] = RequirementSet(f"The dependency group {group}.", tuple(lines))
    return sets


def pins(root: Path) -> dict[str, str]:
    """The versions in constraints.txt."""
    lines = (root / "constraints.txt").read_text().splitlines()
    return {found["name"]: found["version"] for line in lines if (found := _PIN.match(line))}


def parse(text: str) -> dict[str, Package]:
    """The packages of a file of hashes."""
    packages = {}
    for block in re.split(r"\n(?=[a-z0-9])", text):
        if found := _PIN.search(block):
            via = [re.sub(r"#", "", line) for line in block.partition("# via")[2].splitlines()]
            users = (user.strip() for user in ",".join(via).split(","))
            packages[found["name"]] = Package(
                found["name"], found["version"], tuple(sorted(_HASH.findall(block))), tuple(filter(None, users))
            )
    return packages


def render(text: str, packages: Iterable[Package]) -> str:
    out = [HEADER.format(text=text)]
    for one in sorted(packages):
        lines = [f"{one.name}=={one.version}", *(f"    --hash=sha256:{digest}" for digest in one.hashes)]
        out.append(" \\\n".join(lines) + f"\n    # via {', '.join(one.via) or 'pyproject.toml'}\n")
    return "".join(out)


def resolve(root: Path, requirements: Iterable[str]) -> dict[str, Package]:
    """All that these requirements need, with constraints.txt."""
    command = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-", "--quiet", "--system-certs"]
    command += ["--constraints=constraints.txt", "--generate-hashes", "--no-header", "--annotation-style=line"]
    command += ["--python-version=3.11", "--python-platform=x86_64-manylinux_2_36"]  # of Debian 12
    lines = "\n".join(requirements)
    done = subprocess.run(command, input=lines, stdout=subprocess.PIPE, text=True, cwd=root, check=False)
    if done.returncode:
        sys.exit("error: uv cannot resolve the dependencies; it says why above")
    named = {"-r -", "-c constraints.txt"}
    return {
        name: one._replace(via=tuple(user for user in one.via if user not in named))
        for name, one in parse(done.stdout).items()
    }


def generate(root: Path) -> dict[str, str]:
    """The files, by name."""
    sets = requirement_sets(root)
    base = resolve(root, sets[BASE].requirements)
    files = {}
    for name, one in sets.items():
        both = [*sets[BASE].requirements, *one.requirements] if one.extra else one.requirements
        packages = base if name == BASE else resolve(root, both)
        added = [package for package in packages.values() if not one.extra or package.name not in base]
        files[f"{name}.txt"] = render(one.text, added)
    return files


def problems(root: Path) -> list[str]:
    """What is wrong with the files in hashes/, compared with constraints.txt and pyproject.toml."""
    sets, pinned = requirement_sets(root), pins(root)
    texts = {path.name: path.read_text() for path in sorted((root / "hashes").glob("*.txt"))}
    files = {name: parse(texts.get(f"{name}.txt", "")) for name in sets}
    out = [f"hashes/{name} belongs to nothing in pyproject.toml" for name in texts if name[:-4] not in sets]
    out += [f"hashes/{name} contains a URL" for name, text in texts.items() if "//" in text]
    for name, declared in sets.items():
        available = files[name] | (files[BASE] if declared.extra else {})
        roots = declared.names() | (sets[BASE].names() if declared.extra else set())
        out += [f"{missing} is not in hashes/{name}.txt" for missing in sorted(declared.names() - available.keys())]
        unused = files[name].keys() - required(roots, available)
        out += [f"{package} in hashes/{name}.txt is required by nothing" for package in sorted(unused)]
        for package in files[name].values():
            if not package.hashes:
                out.append(f"hashes/{name}.txt has no hashes of {package.name}")
            if package.version != (version := pinned.get(package.name)):
                out.append(f"hashes/{name}.txt has {package.name} {package.version}, but constraints.txt {version}")
    listed = {name for packages in files.values() for name in packages}
    return out + [f"{name} in constraints.txt is required by nothing" for name in sorted(pinned.keys() - listed)]


def required(roots: set[str], packages: Mapping[str, Package]) -> set[str]:
    """The packages that these, or what they require, require."""
    found, before = set(roots), -1
    while len(found) != before:
        before = len(found)
        found |= {one.name for one in packages.values() if found & set(one.via)}
    return found


def main(arguments: list[str]) -> int:
    if arguments != ["--check"]:
        (ROOT / "hashes").mkdir(exist_ok=True)
        for name, text in generate(ROOT).items():
            (ROOT / "hashes" / name).write_text(text)
    found = problems(ROOT)
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        print("correct constraints.txt or pyproject.toml, run `make hashes` and commit the result", file=sys.stderr)
        return 1
    print(f"hashes/ has the {len(pins(ROOT))} versions of constraints.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
