"""The pages: they can be built without a warning, say what the programs do, and are short where they have to be."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pykaldist.cli import train, verbs
from pykaldist.programs.table import PROGRAMS

pytest.importorskip("mkdocs", reason="the site is built with mkdocs (requirements.txt)")
LINK = re.compile(r"\]\(([^)#\s]+)")


def build(root: Path, site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The site, in a folder; mkdocs.yml says that warnings are errors."""
    env = {**os.environ, "PYTHONPATH": str(root), "NO_MKDOCS_2_WARNING": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site), *options], cwd=root, env=env,
                          capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(root, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(root, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_option_of_training_is_on_its_page(site):
    page = (site / "options.html").read_text(encoding="utf-8")
    parser = argparse.ArgumentParser(add_help=False)
    train.add_arguments(parser)
    names = {action.option_strings[0] for action in parser._actions if action.option_strings}
    assert len(names) > 60 and not {name for name in names if f"<td><code>{name}</code></td>" not in page}
    for kind, variants in train.VARIANTS.items():
        for variant in variants:
            assert f"<code>--{kind} {variant}</code>" in page


def test_every_verb_script_room_and_recipe_has_its_place(root, site):
    headings = {name: set(re.findall(r'<h2 id="[^"]*">([^<]*)<', (site / name).read_text(encoding="utf-8")))
                for name in ("verbs.html", "scripts.html")}
    assert headings["verbs.html"] == set(verbs()) - {"train"}
    assert headings["scripts.html"] >= {f"steps/{path.relative_to(root / 'steps')}" for path in (root / "steps").rglob("*.sh")
                                        if os.access(path, os.X_OK) and not path.is_symlink()}
    for name in ("utils/filter_scp.pl", "utils/combine_data.sh", "utils/validate_lang.pl", "utils/nnet/make_nnet_proto.py"):
        assert name in headings["scripts.html"]
    rooms = {path.parent.name for path in root.glob("pykaldist/*/__init__.py")}
    assert rooms == {path.stem for path in site.glob("api/*.html")} - {"index"}
    assert "Strategy" in (site / "api" / "parallel.html").read_text(encoding="utf-8")
    assert {path.parent.parent.name for path in root.glob("egs/*/s5*/RESULTS.md")} == {path.stem for path in site.glob("results/*.html")}


def test_every_program_has_its_place(root, site):
    found = re.findall(r'<h3 id="[^"]*">([^<]*)<', (site / "programs.html").read_text(encoding="utf-8"))
    assert sorted(found) == sorted(PROGRAMS)
    rows = {cells[1].strip(): set(re.findall(r"`([^`]*)`", cells[2])) for line in (root / "docs/from-kaldi.md").read_text().splitlines()
            if len(cells := line.split("|")) == 4}
    assert rows["here"] <= set(PROGRAMS) and not rows["not here"] & set(PROGRAMS) and len(rows["here"]) > 40


def test_a_link_that_leads_nowhere_is_an_error(root, tmp_path):
    config = f"INHERIT: {root / 'mkdocs.yml'}\ndocs_dir: {tmp_path / 'docs'}\nnav: [index.md]\nhooks: []\nplugins: []\n"
    (tmp_path / "mkdocs.yml").write_text(config, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    links = ("missing.md", "#missing", "/etc/missing")
    for text, status in (("", 0), (" ".join(f"[gone]({link})" for link in links), 1)):
        (tmp_path / "docs" / "index.md").write_text(f"# Page\n\n{text}\n", encoding="utf-8")
        done = build(root, tmp_path / "site", "--config-file", str(tmp_path / "mkdocs.yml"))
        assert done.returncode == status, done.stdout + done.stderr
    assert not {link for link in links if f"'{link}'" not in done.stdout + done.stderr} and "3 warnings" in done.stdout + done.stderr


def test_readme_is_short_and_begins_with_the_two_commands(root):
    lines = (root / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 120
    assert [line.split()[0] for line in lines[lines.index("```") + 1:][:2]] == ["egs/prompts/s5/run.sh", "tests/run.sh"]


def test_links_of_the_root_pages_hold_in_a_checkout(root):
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"):
        links = {link for link in LINK.findall((root / name).read_text(encoding="utf-8")) if "://" not in link}
        assert not {link for link in links if not (root / link).is_file()}, name
    assert "docs/images/speed_ups.png" in LINK.findall((root / "README.md").read_text(encoding="utf-8"))
