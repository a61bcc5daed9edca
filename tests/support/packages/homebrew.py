"""Write the formula of a Homebrew tap from uv.lock and a built wheel: `make release-check`.

All is installed from wheels, since MLX comes as nothing else; so it is for a tap, not for Homebrew's own
repository. Its order and texts follow `brew style` (`FormulaAudit/ComponentsOrder`, `FormulaAudit/Desc`).
"""

from __future__ import annotations

import hashlib
import sys
import tomllib
from pathlib import Path

from greenroom.tests.support.packages.locked import MAC, ROOT, installed_on, wheel_of

PYTHON = "3.13"

_FORMULA = """class Greenroom < Formula
  include Language::Python::Virtualenv

  desc "{desc}"
  homepage "https://pypi.org/project/greenroom/"
  url "https://files.pythonhosted.org/packages/py3/g/greenroom/{file}", using: :nounzip
  sha256 "{digest}"
  license "{licence}"

  depends_on arch: :arm64
  depends_on macos: :sonoma
  depends_on "python@{python}"

{resources}
  def install
    virtualenv_create(libexec, "python{python}")
    wheels = buildpath/"wheels"
    resources.each {{ |wheel| wheel.stage(wheels) }}
    system "python{python}", "-m", "pip", "--python=#{{libexec}}/bin/python", "install",
           "--no-deps", "--no-index", *Dir["#{{wheels}}/*.whl"], *Dir["#{{buildpath}}/*.whl"]
    bin.install_symlink libexec/"bin/greenroom"
  end

  service do
    run [opt_bin/"greenroom", "serve", "--supervised"]
    keep_alive true
  end

  test do
    assert_match version.to_s, shell_output("#{{bin}}/greenroom --version")
  end
end
"""
_RESOURCE = """  resource "{name}" do
    url "{url}", using: :nounzip
    sha256 "{digest}"
  end
"""


def formula(wheel: Path) -> str:
    """Return the formula of a built wheel, with every package that it needs on a Mac."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    resources = []
    for wanted in sorted(installed_on(MAC, PYTHON), key=lambda wish: wish.name):
        found = wheel_of(wanted, MAC, PYTHON)
        assert found is not None, f"{wanted} has no wheel for a Mac"
        digest = found["hash"].removeprefix("sha256:")
        resources.append(_RESOURCE.format(name=wanted.name, url=found["url"], digest=digest))
    return _FORMULA.format(
        desc=project["description"].removeprefix("A ").capitalize().replace("mlx", "MLX"),
        file=wheel.name,
        digest=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        licence=project["license"],
        python=PYTHON,
        resources="\n".join(resources),
    )


if __name__ == "__main__":
    [built] = Path(sys.argv[1]).glob("greenroom-*.whl")
    (built.parent / "greenroom.rb").write_text(formula(built), encoding="utf-8")
