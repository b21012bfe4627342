"""Tables, migrations both ways, back-up and restore, on SQLite and on PostgreSQL."""

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, select, update

from isthmus.service import backup
from isthmus.service.database import Database
from isthmus.service.tables import metadata, runs, versions
from isthmus.specs.errors import InvalidSpec, IsthmusError, Refused


def test_the_migrations_make_exactly_the_tables(url: str) -> None:
    database = Database(url)
    database.migrate()
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    database.close()


def test_down_and_up_again(url: str) -> None:
    database = Database(url)
    database.migrate()
    database.migrate("base")
    assert set(inspect(database.engine).get_table_names()) <= {"alembic_version"}
    assert database.revision() is None
    database.migrate()
    database.check_schema()
    database.migrate()  # nothing to do
    database.close()


def test_a_database_of_a_newer_isthmus_is_left_alone(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/new.db")
    database.migrate()
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(Refused, match="newer isthmus"):
        database.migrate()
    with pytest.raises(Refused, match="revision 9999"):
        database.check_schema()


def test_not_ready_before_the_tables_are_there(make_house: Any) -> None:
    house = make_house()
    assert house.ask("GET", "/readyz", None).status_code == 200
    house.database.migrate("base")
    answer = house.ask("GET", "/readyz", None)
    assert answer.status_code == 409
    assert "isthmus serve --migrate" in answer.json()["next"]


@pytest.mark.parametrize("wrong", ["mysql://x/y", "nonsense", "file.db"])
def test_another_kind_of_database_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSpec, match="no database that the service knows"):
        Database(wrong)


def fill(house: Any) -> list[str]:
    made = [house.submit(parameters={"epochs": number}) for number in range(1, 6)]
    house.worker().submit_one()
    return made


def everything(database: Database) -> dict[str, list[Any]]:
    with database.read() as connection:
        return {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in metadata.sorted_tables
        }


def test_a_back_up_is_restored_row_for_row(make_house: Any, url: str, tmp_path: Path) -> None:
    house = make_house()
    fill(house)
    count = backup.back_up(house.database, tmp_path / "file.gz")
    assert (tmp_path / "file.gz").stat().st_mode & 0o777 == 0o600
    other = Database(url)
    assert backup.restore(other, tmp_path / "file.gz") == count
    assert everything(other) == everything(house.database)
    with other.write() as connection:  # the restored one goes on counting where the first stopped
        made = connection.execute(
            runs.insert().values(**{k: v for k, v in house_row(house).items() if k != "seq"} | {"id": "zzzzzz"})
        )
        assert made.inserted_primary_key is not None
        assert made.inserted_primary_key[0] == 6
    with pytest.raises(Refused, match="not empty"):
        backup.restore(other, tmp_path / "file.gz")
    other.close()


def house_row(house: Any) -> dict[str, Any]:
    with house.database.read() as connection:
        return dict(connection.execute(select(runs)).first()._mapping)


def test_half_a_back_up_restores_nothing(make_house: Any, tmp_path: Path) -> None:
    house = make_house()
    fill(house)
    whole = tmp_path / "whole.gz"
    backup.back_up(house.database, whole)
    with pytest.raises(Refused, match="there already"):
        backup.back_up(house.database, whole)
    lines = gzip.decompress(whole.read_bytes()).splitlines(keepends=True)
    broken = {
        "no end": gzip.compress(b"".join(lines[:-1])),
        "a row less": gzip.compress(b"".join(lines[:3] + lines[4:])),
        "cut": whole.read_bytes()[: len(whole.read_bytes()) // 2],
        "something else": gzip.compress(b'{"format": "other"}\n'),
        "no gzip": b"x",
    }
    for name, content in broken.items():
        file = tmp_path / "broken.gz"
        file.write_bytes(content)
        other = Database(f"sqlite:///{tmp_path}/{name.replace(' ', '')}.db")
        with pytest.raises(InvalidSpec):
            backup.restore(other, file)
        assert not any(everything(other).values()), name
        other.close()
    head = json.loads(lines[0])
    assert head["format"] == backup.FORMAT
    assert b"isk_" not in b"".join(lines), "no key is in a back-up"


def test_a_version_that_was_changed_behind_our_back_is_noticed(house: Any) -> None:
    with house.database.write() as connection:
        connection.execute(update(versions).values(mapping={"parameters": {}, "workload": {"kind": "PyTorchJob"}}))
    answer = house.ask("GET", "/v1/projects/vision/algorithms/digits", "viewer")
    assert answer.status_code == 500
    assert "not as it was written" in answer.json()["detail"]


def test_a_full_database_says_so_and_takes_runs_again_when_there_is_room(house: Any) -> None:
    house.submit()
    with house.database.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def most(count: int) -> None:
        from sqlalchemy import event

        def limit(raw: Any, record: Any, proxy: Any) -> None:
            raw.execute(f"PRAGMA max_page_count = {count}")

        event.listen(house.database.engine, "checkout", limit)

    most(pages)
    body = {"algorithm": "digits", "stack": "aws-sim"}
    answers = [house.ask("POST", "/v1/projects/vision/runs", json=body) for _ in range(60)]
    full = [answer for answer in answers if answer.status_code != 201]
    assert full, "it never was full"
    assert {answer.status_code for answer in full} == {503}
    assert full[-1].json()["type"].endswith("database-full")
    taken = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    most(pages + 1000)
    assert house.ask("POST", "/v1/projects/vision/runs", json=body).status_code == 201
    listed = {run.id for run in house.client().runs("vision")}
    assert set(taken) <= listed, "what was acknowledged is there"


def test_threads_write_one_after_the_other(house: Any) -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(house.submit())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 8


def test_a_wrong_answer_of_the_database_is_no_riddle(house: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.exc import OperationalError

    def away() -> Any:
        raise OperationalError("SELECT", {}, Exception("connection refused"))

    monkeypatch.setattr(house.database, "read", away)
    answer = house.ask("GET", "/v1/projects/vision/runs", "viewer")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert not isinstance(answer, IsthmusError)
