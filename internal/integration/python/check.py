"""Runs every block of Python of the documents, in a folder that has the dataset OUT: check.py FOLDER, in the root of the project.

A block whose packages cannot be imported is compiled and SKIPPED, by its name. One that raises an error fails the check.
"""

import ast
import contextlib
import glob
import importlib.util
import io
import os
import re
import sys
import traceback

# The documents' date, and their scan, are those of no demo.
(partition,) = os.listdir(os.path.join(sys.argv[1], "OUT", "sites"))
instead = {"2026-11-21": partition.removeprefix("scan_date="), '"ID"': '"demo"'}


def blocks():
    """Yields the page, the place and the text of each block."""
    for name in sorted(glob.glob("*.md") + glob.glob("docs/**/*.md", recursive=True)):
        with open(name, encoding="utf-8") as file:
            page = file.read()
        for block in re.finditer(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            yield name, f"{name}:{page.count(chr(10), 0, block.start(1)) + 1}", block[1]


# What those packages need for what the documents ask of them.
needs = {"pandas": ["matplotlib", "pyarrow"], "duckdb": ["pandas", "polars", "pyarrow"]}


def missing(tree):
    """Names the packages that a block needs and that are not here."""
    wanted = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            wanted.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            wanted.add(node.module.split(".")[0])
    for package in list(wanted):
        wanted.update(needs.get(package, []))
    return sorted(filter(None, map(lack, wanted)))


def sets(tree):
    """Returns the names that a block sets or imports."""
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}


def uses(tree):
    """Returns the names that a block reads."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def lack(package):
    """Says what is missing for the import of a package: nothing, the package, or its build for this version of Python."""
    if importlib.util.find_spec(package) is None:
        return package
    try:
        importlib.import_module(package)
    except ImportError:
        return f"{package} for this version of Python (remove .bin/python)"
    return None


os.environ["MPLBACKEND"] = "agg"
found, ran, failed = 0, 0, 0
pages, skipped = {}, {}  # the blocks of a page follow one another, and what they need
todo = list(blocks())
os.chdir(sys.argv[1])
for page, place, text in todo:
    found += 1
    for word, other in instead.items():
        text = text.replace(word, other)
    tree = ast.parse(text, place)
    names = pages.setdefault(page, {"__name__": page})
    if lacking := missing(tree) or skipped.get(page) and uses(tree) & skipped[page]:
        print(f"SKIPPED: the Python of {place} needs {', '.join(sorted(lacking))}")
        skipped.setdefault(page, set()).update(sets(tree))
        continue
    ran += 1
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(tree, place, "exec"), names)
    except (Exception, SystemExit):
        failed += 1
        print(f"{place} fails:\n{text}\n{said.getvalue()}{traceback.format_exc()}")
if found < 3:
    failed += 1
    print(f"only {found} blocks of Python were found")
print(f"python: {ran} of {found} blocks were run, {failed} failed")
sys.exit(failed > 0)
