"""The docstring of each package lists every module and subpackage in it, and nothing else."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.project import ROOT

SOURCE = ROOT / "src" / "vmafx"
PACKAGES = sorted(path.parent for path in SOURCE.rglob("__init__.py"))
ENTRY = re.compile(r"^ *(\w+\.py|\w+/) {2,}\S", re.MULTILINE)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: str(path.relative_to(SOURCE.parent)))
def test_a_package_docstring_lists_its_modules(package: Path) -> None:
    listed = ENTRY.findall(ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or "")
    modules = {path.name for path in package.glob("*.py") if path.name != "__init__.py" and "_pb2" not in path.name}
    folders = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    assert sorted(listed) == sorted(modules | folders)


def test_a_class_name_has_one_meaning() -> None:
    """A reader who finds a public class by its name finds the only one of that name."""
    names = Counter(
        node.name
        for path in SOURCE.rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []
