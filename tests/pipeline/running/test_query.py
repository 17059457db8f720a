"""Making a query of a description: functions are found, and what is wrong is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from partibus.pipeline.running.query import PipelineWrong, load_function

MODULE = "def doubled(frame):\n    return frame.union(frame)\n\nnumber = 7\n"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module beside a configuration file."""
    (tmp_path / "partibus_test_shop.py").write_text(MODULE)
    (tmp_path / "partibus_test_broken.py").write_text("import partibus_test_nothing\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("shop")
def test_S5_a_function_is_found_by_its_name() -> None:
    assert load_function("partibus_test_shop:doubled").__name__ == "doubled"


@pytest.mark.usefixtures("shop")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("partibus_test_none:f", "no module 'partibus_test_none'; .* beside the configuration"),
        ("partibus_test_shop:halved", "'partibus_test_shop' has no function 'halved'"),
        ("partibus_test_shop:number", "has no function 'number'"),
    ],
)
def test_S5_a_function_that_is_not_there_is_told(name: str, said: str) -> None:
    with pytest.raises(PipelineWrong, match=said):
        load_function(name)


@pytest.mark.usefixtures("shop")
def test_S5_what_a_module_itself_lacks_is_its_own_failure() -> None:
    with pytest.raises(ModuleNotFoundError, match="partibus_test_nothing"):
        load_function("partibus_test_broken:f")
