"""The fidelity ledger is current, and says for every behaviour how it is known."""

from isthmus.simulation import coverage


def test_coverage_is_current() -> None:
    assert coverage.PAGE.read_text(encoding="utf-8") == coverage.page(coverage.clouds()), (
        "run: python -m isthmus.simulation.coverage"
    )


def test_every_type_says_how_its_behaviour_is_known() -> None:
    for cloud in coverage.clouds():
        for token, kind in cloud.types.items():
            assert kind.behaviours, token
            for item in kind.behaviours:
                assert item.source or item.fidelity == "assumed", f"{token}: {item.what} has no source"


def test_every_property_is_on_the_page() -> None:
    text = coverage.PAGE.read_text(encoding="utf-8")
    for cloud in coverage.clouds():
        for token, kind in cloud.types.items():
            section = text.split(f"### {token}\n")[1].split("\n### ")[0]
            assert all(item.name in section for item in kind.properties)
