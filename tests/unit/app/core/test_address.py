"""What `--db` names: a file, a folder beside ClickHouse, or why it is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from compileboard.app.cli.main import main
from compileboard.app.core.address import parse_address, read_password
from compileboard.collectors.cli.main import main as collect
from compileboard.collectors.store.connection import AddressError, find_board
from compileboard.collectors.terminal.values import dashboard_command


def test_a_file_is_a_store_of_its_own() -> None:
    address = parse_address("/data/team.db")
    assert (address.board, address.folder, address.clickhouse) == ("/data/team.db", None, None)
    assert find_board("team.db") == "team.db"


def test_an_address_names_a_server_and_a_folder() -> None:
    address = parse_address("clickhouse://ann@db.local:9440/board?folder=/srv/a&secure=yes")
    assert address.clickhouse is not None
    assert (address.board, address.run_files, address.cache) == (
        "/srv/a/board.db",
        "/srv/a/runs",
        "/srv/a/cache",
    )
    server = address.clickhouse
    assert (server.host, server.port, server.user, server.database) == (
        "db.local",
        9440,
        "ann",
        "board",
    )
    assert (server.is_secure, server.label) == (True, "clickhouse://db.local:9440/board")
    plain = parse_address("clickhouse://h/db?folder=/a").clickhouse
    assert plain is not None and plain.label == "clickhouse://h/db"
    inside = parse_address("clickhouse:///srv/b%20c").clickhouse
    assert inside is not None and (inside.host, inside.path) == (None, "/srv/b c/clickhouse")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("clickhouse://ann:secret@h/db?folder=/a", "must not contain a password"),
        ("clickhouse://h:port/db?folder=/a", "Port could not be cast"),
        ("clickhouse://h/db", "names an absolute folder"),
        ("clickhouse:///", "names an absolute folder"),
        ("clickhouse://h/a/b?folder=/a", "expected clickhouse://"),
        ("clickhouse:///a?color=red", "'color' is not an option"),
        ("clickhouse:///a?secure=1", "expected yes or no"),
        ("clickhouse:///a?secure=yes", "secure is for a server"),
        ("clickhouse://h/db?folder=/a&cluster=fleet", "'cluster' is not an option"),
        ("clickhouse:/srv/board", "expected clickhouse://"),
        ("ClickHouse://h/db?folder=/a", "expected clickhouse://"),
    ],
)
def test_what_is_no_address_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(AddressError) as refused:
        parse_address(text)
    assert problem in str(refused.value) and "secret" not in str(refused.value)


def test_the_password_is_in_the_environment_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from a file\n")
    assert read_password({"COMPILEBOARD_CLICKHOUSE_PASSWORD": "plain"}) == "plain"
    assert read_password({"COMPILEBOARD_CLICKHOUSE_PASSWORD_FILE": str(file)}) == "from a file"
    with pytest.raises(AddressError, match="expected a file with the password"):
        read_password({"COMPILEBOARD_CLICKHOUSE_PASSWORD_FILE": str(tmp_path / "none")})


def test_collectors_write_into_the_board(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"clickhouse://h/db?folder={tmp_path}"
    assert main(["migrate", "--db", str(tmp_path / "board.db")]) == 0
    assert collect(["list", "--db", address]) == 0
    assert dashboard_command("serve", database=find_board(address)).endswith(
        f" serve --db '{address}'"
    )
    assert f"{tmp_path}/board.db has no runs yet" in capsys.readouterr().out
    assert collect(["list", "--db", "clickhouse://h/db?folder=/not/here"]) == 2
    assert "not on this machine. Send to its dashboard with --server URL" in capsys.readouterr().err


def test_a_folder_alone_is_told_its_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["migrate", "--db", str(tmp_path / "board.db")]) == 0
    for command in (["incidents", "list", "--db", str(tmp_path)], ["verify", str(tmp_path)]):
        assert main(command) == 2
        assert (
            "is a folder beside ClickHouse; give its address: --db clickhouse://"
            in capsys.readouterr().err
        )


def test_commands_about_words_need_no_clickhouse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"clickhouse://127.0.0.1:1/db?folder={tmp_path}"
    assert main(["migrate", "--db", str(tmp_path / "board.db")]) == 0
    for command in (["incidents", "list"], ["token", "list"], ["verify"]):
        assert main([*command, "--db", address]) == 0, command
    assert "no open incidents" in capsys.readouterr().out


def test_one_process_alone_serves_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--db", f"clickhouse://{tmp_path}", "--port", "0", "--workers", "2"]) == 2
    assert "--workers 2: one process alone can open ClickHouse's files" in capsys.readouterr().err
