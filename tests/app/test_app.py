"""The server of `clvm app`: who may ask, the way to a result, and files from outside."""

import io
import json
import shlex
import time
import warnings
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run

pytest.importorskip("starlette", reason="needs the extra app")
testclient = pytest.importorskip("starlette.testclient", reason="needs httpx (group dev)")

from contrastive_lvm.app import inspect_files, jobs, server, sessions  # noqa: E402
from contrastive_lvm.app.choices import Choices, as_json, parse_choices  # noqa: E402

TOKEN, PORT = "a-secret", 8123
HOME = f"http://127.0.0.1:{PORT}"
OWN = {"Origin": HOME}
EVIL = '<img src=x onerror="alert(1)">'


def table(n: int = 60) -> pd.DataFrame:
    data = clvm.datasets.make_subgroups(n, n, random_state=0)
    rows = np.vstack([data.target, data.background])[:, :8].round(3)
    frame = pd.DataFrame(rows, columns=[f"gene{i}" for i in range(8)])
    frame["group"] = ["case"] * n + ["control"] * n
    frame["donor"] = [f"d{i % 12}" for i in range(2 * n)]
    return frame


def csv(frame: pd.DataFrame | None = None) -> bytes:
    return (table() if frame is None else frame).to_csv(index=False).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "private"
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def stranger(folder: Path) -> Iterator[Any]:
    """A client without the token."""
    app = server.Server(folder).app(TOKEN, PORT)
    with testclient.TestClient(app, base_url=HOME, follow_redirects=False) as client:
        yield client


@pytest.fixture
def client(stranger: Any) -> Any:
    assert stranger.get(f"/?token={TOKEN}").status_code == 200
    return stranger


def opened(client: Any) -> str:
    answer = client.get("/")
    assert answer.status_code == 303
    return str(answer.headers["location"])


def put(client: Any, place: str, name: str, content: bytes) -> Any:
    return client.put(f"{place}/files", params={"name": name}, content=content, headers=OWN)


def choose(client: Any, place: str, **given: Any) -> Any:
    chosen = client.get(f"{place}/state").json()["choices"] | given
    answer = client.put(f"{place}/choices", content=json.dumps(chosen), headers=OWN)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(client: Any, place: str, name: str) -> Any:
    for _ in range(1200):
        fit = next(f for f in client.get(f"{place}/state").json()["fits"] if f["name"] == name)
        if fit["status"] not in ("waiting", "running"):
            return fit
        time.sleep(0.1)
    raise AssertionError(f"{name} does not end")


# --- who may ask --------------------------------------------------------------------------------


def test_nothing_is_shown_without_the_token(stranger: Any, folder: Path) -> None:
    for path in ("/", "/?token=", "/?token=wrong", "/app.js", "/s/x", "/s/x/state", "/etc/passwd"):
        answer = stranger.get(path)
        assert answer.status_code == 403
        assert "token" in answer.text
    assert stranger.put("/s/x/files?name=a.csv", content=b"a", headers=OWN).status_code == 403
    assert list(folder.iterdir()) == []


def test_the_token_becomes_a_cookie_that_scripts_cannot_read(stranger: Any) -> None:
    answer = stranger.get(f"/?token={TOKEN}")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert TOKEN not in answer.text
    assert stranger.get("/app.js").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"evil.example:{PORT}", "[::1]:1"])
def test_other_hosts_are_refused(client: Any, host: str) -> None:
    assert client.get("/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", None])
def test_other_origins_are_refused(client: Any, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    place = opened(client)
    assert client.post(f"{place}/fits", headers=headers).status_code == 403
    if origin is not None:
        assert client.get(f"{place}/state", headers=headers).status_code == 403


def test_every_answer_forbids_foreign_content(client: Any) -> None:
    place = opened(client)
    for path in (place, "/app.js", "/nothing", f"{place}/state"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "path",
    [
        "fits/..%2f..%2fsession.json",
        "fits/fit1.html",
        "files/..%2f..%2fetc%2fpasswd",
        "../../etc/passwd",
        "fits/%2e%2e/passwd.html",
    ],
)
def test_no_path_of_the_machine_can_be_read(client: Any, path: str) -> None:
    place = opened(client)
    assert put(client, place, "a.csv", csv()).status_code == 200
    assert client.get(f"{place}/{path}").status_code in (404, 405)


def test_an_upload_cannot_leave_the_folder(client: Any, folder: Path) -> None:
    place = opened(client)
    found = put(client, place, "../../../-evil dir/..\\a b.csv", csv()).json()
    assert [file["name"] for file in found["files"]] == ["a b.csv"]
    assert [path.name for path in folder.rglob("*.csv")] == ["a b.csv"]
    assert folder.stat().st_mode & 0o077 == 0
    assert next(folder.iterdir()).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["", ".csv", "a.exe", "a.html", "fit1.clvm", "..", "a.csv/"])
def test_other_files_are_refused_in_a_sentence(client: Any, name: str) -> None:
    answer = put(client, opened(client), name, b"a,b\n1,2\n")
    assert answer.status_code == 400
    assert answer.text.endswith(".")


def test_uploads_are_limited(client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LARGEST", 1000)
    place = opened(client)
    answer = put(client, place, "a.csv", b"x" * 1001)
    assert answer.status_code == 413
    assert "command line" in answer.text
    parts = (b"x" * 600 for _ in range(2))  # without a length that is said before
    answer = client.put(f"{place}/files?name=a.csv", content=parts, headers=OWN)
    assert answer.status_code == 413
    assert not list(folder.rglob("*.csv"))


def test_a_third_file_is_refused(client: Any) -> None:
    place = opened(client)
    for name in ("a.csv", "a.csv"):
        assert put(client, place, name, csv()).status_code == 200
    names = [file["name"] for file in client.get(f"{place}/state").json()["files"]]
    assert names == ["a.csv", "a-2.csv"]
    assert put(client, place, "c.csv", csv()).status_code == 400


@pytest.mark.parametrize(
    "given", [[], {"by": 1}, {"evil": "x"}, {"values": "x"}, {"na": "x"}, {"by": "a\x00"}]
)
def test_choices_from_outside_are_checked(given: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"load the page again\."):
        parse_choices(given)


# --- the way from a file to a result ------------------------------------------------------------


def test_it_says_what_was_read(client: Any) -> None:
    frame = table()
    frame.iloc[0, 0] = np.nan
    frame["sample"] = range(1, 121)
    place = opened(client)
    read = put(client, place, "a.csv", csv(frame)).json()["files"][0]["read"]
    assert (read["rows"], read["features"], read["values"]) == (120, 8, "measurements")
    assert read["missing"] == pytest.approx(1 / 960)
    columns = {column["name"]: column for column in read["columns"]}
    assert columns["group"]["values"] == [["case", 60], ["control", 60]]
    assert columns["sample"]["kind"] == "identifier"
    assert ["donor", 12] in read["replicates"]


def test_counts_and_units_are_recognized(client: Any) -> None:
    counts = pd.DataFrame(np.arange(40).reshape(10, 4) % 7, columns=list("abcd"))
    state = put(client, opened(client), "a.csv", csv(counts)).json()
    assert (state["choices"]["values"], state["choices"]["n_shared"]) == ("counts", "auto")
    genes = pd.DataFrame(
        np.arange(1010).reshape(10, 101) % 7, columns=[f"g{i}" for i in range(101)]
    )
    state = put(client, opened(client), "a.csv", csv(genes)).json()
    assert (state["choices"]["values"], state["choices"]["n_shared"]) == ("counts", "10")
    uneven = pd.DataFrame({"a": np.linspace(0, 1, 9), "b": np.linspace(0, 1e5, 9)})
    state = put(client, opened(client), "a.csv", csv(uneven)).json()
    assert state["choices"]["scale"] == "standard"


def held(content: bytes) -> tuple[object, bytes]:
    """What a model file holds; the order of its header is any."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), content[end:]


def test_results_equal_those_of_the_command_and_of_the_code(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    place = opened(client)
    put(client, place, "my data.csv", csv())
    choose(client, place, by="group", target=["case"], replicates="donor", scale="standard")
    assert client.post(f"{place}/fits", headers=OWN).status_code == 200
    fit = ended(client, place, "fit1")
    assert fit["status"] == "done", fit
    assert any("Fitting" in line for line in fit["said"])
    monkeypatch.chdir(tmp_path)
    Path("my data.csv").write_bytes(csv())
    [line] = client.get(f"{place}/commands.sh").text.splitlines()
    assert line.startswith("clvm fit 'my data.csv' --by=group --target=case")
    assert run([*shlex.split(line)[1:], "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert client.get(f"{place}/fits/fit1.json").json() == facts
    found = held(client.get(f"{place}/fits/fit1.clvm").content)
    assert found == held(Path("fit1.clvm").read_bytes())
    assert client.get(f"{place}/fits/fit1.html?save").content == Path("fit1.html").read_bytes()
    code = client.get(f"{place}/fits/fit1.py").text
    exec(compile(code, "fit1.py", "exec"), {})
    assert capsys.readouterr().out.strip() == facts["verdict"]
    assert found == held(Path("fit1.clvm").read_bytes())
    assert client.get(f"{place}/fits/fit1.html?save").content == Path("fit1.html").read_bytes()


def test_tables_and_figures_are_those_of_the_commands(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = opened(client)
    put(client, place, "data.csv", csv())
    choose(client, place, by="group", target=["case"])
    client.post(f"{place}/fits", headers=OWN)
    assert ended(client, place, "fit1")["status"] == "done"
    wanted = ("tables.xlsx", "latents.svg")
    got = {what: client.get(f"{place}/fits/fit1/{what}") for what in wanted}
    assert [answer.status_code for answer in got.values()] == [200, 200]
    assert all(answer.headers["content-disposition"] for answer in got.values())
    assert client.get(f"{place}/fits/fit1/model.pkl").status_code == 404
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_bytes(csv())
    lines = client.get(f"{place}/commands.sh").text.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0
    read = partial(pd.read_excel, sheet_name=None, engine="openpyxl")
    sheets = read(io.BytesIO(got["tables.xlsx"].content))
    for name, own in read("fit1-tables.xlsx").items():
        pd.testing.assert_frame_equal(own, sheets[name])
    assert b"<svg" in got["latents.svg"].content
    assert b"<svg" in Path("fit1-latents.svg").read_bytes()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"values": "counts"},
        {"values": "binary"},
        {"robust": True, "subgroups": True, "n_target": "1", "n_shared": "3"},
        {"sparse": True, "errors": True, "scale": "robust"},
        {"where": ["donor=d1"], "drop": ["gene1"], "annotation": ["gene2"], "na": ["-9"]},
        {"features": ["all"], "index": "donor", "decimal": "comma", "transpose": True},
        {"target": ["=a", "-b"], "background": ["c"], "by": "group"},
    ],
)
def test_every_choice_is_an_option_of_the_command_and_valid_code(given: dict[str, Any]) -> None:
    """The command parses, and the code builds the same estimator."""
    from typer.main import get_command

    from contrastive_lvm.app.choices import fit_arguments, python_code
    from contrastive_lvm.cli.main import app

    choices = Choices(**given)
    assert parse_choices(as_json(choices)) == choices
    _, *arguments = fit_arguments(choices, ["a.csv"], "fit1")
    command = get_command(app).commands["fit"]  # type: ignore[attr-defined]
    command.make_context("fit", arguments)
    compile(python_code(choices, ["a.csv"], "fit1"), "fit1.py", "exec")


def test_what_the_command_refuses_is_said(client: Any) -> None:
    place = opened(client)
    assert client.post(f"{place}/fits", headers=OWN).status_code == 400
    put(client, place, "a.csv", csv())
    client.post(f"{place}/fits", headers=OWN)
    fit = ended(client, place, "fit1")
    assert fit["status"] == "failed"
    assert "does not say which rows are the background" in fit["error"]


def test_a_broken_file_is_said(client: Any) -> None:
    place = opened(client)
    for name, content in {"a.xlsx": b"PK\x03\x04 no", "b.csv": b"\x00\x01\x02" * 50}.items():
        read = put(client, place, name, content).json()["files"][0]["read"]
        assert read["error"].startswith(name)
        assert "/" not in read["error"].split()[0]  # no path of the machine
        client.delete(f"{place}/files/{name}", headers=OWN)
    assert client.get(f"{place}/state").json()["files"] == []


def test_a_fit_that_dies_says_so_and_nothing_else_is_lost(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = opened(client)
    put(client, place, "a.csv", csv())
    choose(client, place, by="group", target=["case"])
    client.post(f"{place}/fits", headers=OWN)
    assert ended(client, place, "fit1")["status"] == "done"
    monkeypatch.setattr(jobs, "COMMAND", "import os; os.kill(os.getpid(), 9)")
    client.post(f"{place}/fits", headers=OWN)
    fit = ended(client, place, "fit2")
    assert "SIGKILL" in fit["error"]
    monkeypatch.setattr(jobs, "COMMAND", "raise RuntimeError('oh')")
    client.post(f"{place}/fits", headers=OWN)
    assert "RuntimeError: oh" in ended(client, place, "fit3")["error"]
    assert client.get(f"{place}/fits/fit1.json").status_code == 200


def test_a_fit_can_be_cancelled_and_removed(
    client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    note = "import os, sys, time; print(os.getpid(), file=sys.stderr, flush=True); time.sleep(600)"
    monkeypatch.setattr(jobs, "COMMAND", note)
    place = opened(client)
    put(client, place, "a.csv", csv())
    client.post(f"{place}/fits", headers=OWN)
    for _ in range(200):
        said = client.get(f"{place}/state").json()["fits"][0]["said"]
        if said and said[-1].isdecimal():
            break
        time.sleep(0.05)
    state = client.delete(f"{place}/fits/fit1", headers=OWN).json()
    assert state["fits"][0]["status"] == "cancelled"
    assert not Path(f"/proc/{said[-1]}").exists()
    assert client.delete(f"{place}/fits/fit1", headers=OWN).json()["fits"] == []
    assert not list(folder.rglob("fit1*"))


@pytest.mark.parametrize("ending", ["csv", "xlsx", "h5ad", "npz", "parquet"])
def test_no_mutated_file_breaks_the_reading(ending: str, tmp_path: Path) -> None:
    """A hundred of each kind: what cannot be read is a sentence."""
    rng = np.random.default_rng(0)
    whole = write(tmp_path / f"whole.{ending}")
    path, said = tmp_path / f"a.{ending}", as_json(Choices())
    for _ in range(100):
        path.write_bytes(mutated(whole, rng))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = inspect_files.answer({"file": str(path), "choices": said})
        assert found.get("rows", 0) > 0 or found["error"].endswith((".", "?")), found
        json.dumps(found, allow_nan=False)


def write(path: Path) -> bytes:
    """A small table in any format."""
    frame = table(10)
    if path.suffix == ".csv":
        frame.to_csv(path, index=False)
    elif path.suffix == ".xlsx":
        frame.to_excel(path, index=False)
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, X=frame.iloc[:, :8].to_numpy(), group=frame.group.to_numpy(str))
    else:
        anndata = pytest.importorskip("anndata")
        obs = frame[["group"]].set_axis([f"c{i}" for i in range(20)])
        anndata.AnnData(frame.iloc[:, :8].to_numpy(), obs).write_h5ad(path)
    return path.read_bytes()


def mutated(whole: bytes, rng: np.random.Generator) -> bytes:
    """Change some bytes, and cut a part out or off."""
    content = np.frombuffer(whole, dtype=np.uint8).copy()
    places = rng.integers(len(content), size=rng.integers(1, 20))
    content[places] = rng.integers(256, size=len(places))
    first, last = np.sort(rng.integers(len(content) + 1, size=2))
    kept = rng.integers(3)
    parts = [content, content[:last], np.concatenate([content[:first], content[last:]])]
    return parts[kept].tobytes()


@pytest.mark.slow
def test_many_pages_and_fits_at_once(client: Any) -> None:
    """Twenty pages, of which five fit: none is lost, and the server stays small."""
    from concurrent.futures import ThreadPoolExecutor

    places = [opened(client) for _ in range(20)]
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda place: put(client, place, "a.csv", csv()), places))
        assert all(answer.json()["files"][0]["read"]["rows"] == 120 for answer in answers)
        for place in places[:5]:
            choose(client, place, by="group", target=["case"])
            client.post(f"{place}/fits", headers=OWN)
        fits = list(pool.map(lambda place: ended(client, place, "fit1"), places[:5]))
    assert [fit["status"] for fit in fits] == ["done"] * 5
    verdicts = {client.get(f"{place}/fits/fit1.json").json()["verdict"] for place in places[:5]}
    assert len(verdicts) == 1


# --- sessions -----------------------------------------------------------------------------------


def test_a_session_is_a_file_that_can_be_opened_again(client: Any) -> None:
    place = opened(client)
    put(client, place, "a.csv", csv())
    choose(client, place, by="group", target=["case"], n_target="1")
    client.post(f"{place}/fits", headers=OWN)
    assert ended(client, place, "fit1")["status"] == "done"
    saved = client.get(f"{place}/session.zip").content
    other = opened(client)
    found = put(client, other, "clvm-session.zip", saved).json()
    before = client.get(f"{place}/state").json()
    assert found["choices"] == before["choices"]
    assert found["files"] == before["files"]
    assert client.get(f"{other}/commands.sh").text == client.get(f"{place}/commands.sh").text
    for ending in OUTPUTS:
        assert (
            client.get(f"{other}/fits/fit1.{ending}").content
            == client.get(f"{place}/fits/fit1.{ending}").content
        )
    client.post(f"{other}/fits", headers=OWN)
    assert ended(client, other, "fit2")["status"] == "done"
    found = client.get(f"{other}/compare?first=fit1&second=fit2").json()
    assert found["angles"] == pytest.approx([0.0], abs=1e-3)


OUTPUTS = ("clvm", "html", "json")


def archive(said: object, **others: bytes) -> bytes:
    place = io.BytesIO()
    with zipfile.ZipFile(place, "w") as made:
        made.writestr("session.json", said if isinstance(said, str) else json.dumps(said))
        for name, content in others.items():
            made.writestr(name, content)
    return place.getvalue()


GOOD = {"files": ["a.csv"], "choices": {}, "fits": []}


@pytest.mark.parametrize(
    "content",
    [
        b"no archive",
        archive("{"),
        archive([]),
        archive({}),
        archive(GOOD),  # its file is not there
        archive(GOOD | {"files": ["../a.csv"]}, **{"../a.csv": b"a"}),
        archive(GOOD | {"files": ["/etc/passwd"]}),
        archive(GOOD | {"choices": {"evil": 1}}, **{"a.csv": b"a,b\n1,2\n"}),
        archive(GOOD | {"fits": [{"name": "../x", "choices": {}, "files": []}]}, **{"a.csv": b"a"}),
        archive(GOOD | {"fits": [{"name": "fit1", "choices": {}, "files": []}]}, **{"a.csv": b"a"}),
    ],
)
def test_a_session_that_is_none_is_refused(client: Any, folder: Path, content: bytes) -> None:
    place = opened(client)
    answer = put(client, place, "session.zip", content)
    assert answer.status_code == 400
    assert "is not a session" in answer.text
    assert client.get(f"{place}/state").json()["files"] == []
    assert not [path for path in folder.parent.rglob("*") if path.name in ("passwd", "x.clvm")]


def test_a_damaged_session_leaves_the_present_one_as_it_is(client: Any, folder: Path) -> None:
    """Even if its files have the names of present ones, and only the last of them is damaged."""
    place = opened(client)
    put(client, place, "a.csv", csv())
    choose(client, place, by="group", target=["case"], n_target="1")
    client.post(f"{place}/fits", headers=OWN)
    assert ended(client, place, "fit1")["status"] == "done"
    files = {path.name: path.read_bytes() for path in (folder / place[3:]).iterdir()}
    fits = [{"name": "fit1", "choices": as_json(Choices()), "files": ["a.csv"]}]
    outputs = {"fit1.clvm": b"x" * 99, "fit1.html": b"y" * 99}  # without fit1.json
    damaged = archive(GOOD | {"fits": fits}, **{"a.csv": b"p,q\n1,2\n"}, **outputs)
    assert put(client, place, "other.zip", damaged).status_code == 400
    assert {path.name: path.read_bytes() for path in (folder / place[3:]).iterdir()} == files


def test_no_mutated_session_breaks_the_server(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "QUESTION", "print('{}')")  # what the file holds is no matter
    rng, place = np.random.default_rng(1), opened(client)
    fits = [{"name": "fit1", "choices": as_json(Choices()), "files": ["a.csv"]}]
    outputs = dict.fromkeys(["fit1.html", "fit1.json", "fit1.clvm"], b"x" * 99)
    whole = archive(GOOD | {"fits": fits}, **{"a.csv": csv()}, **outputs)
    assert put(client, place, "a.zip", whole).status_code == 200
    for _ in range(100):
        answer = put(client, place, "a.zip", mutated(whole, rng))
        assert answer.status_code in (200, 400), answer.text


def test_a_session_that_unpacks_to_too_much_is_refused(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "LARGEST", 10_000)
    content = archive(GOOD, **{"a.csv": b"0" * 20_000})
    assert "too large" in put(client, opened(client), "session.zip", content).text


def test_a_report_from_elsewhere_has_no_origin(client: Any) -> None:
    said = GOOD | {"fits": [{"name": "fit1", "choices": {}, "files": ["a.csv"]}]}
    others = {"a.csv": csv(), "fit1.html": EVIL.encode(), "fit1.json": b"{}", "fit1.clvm": b""}
    place = opened(client)
    assert put(client, place, "session.zip", archive(said, **others)).status_code == 200
    policy = client.get(f"{place}/fits/fit1.html").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts allow-downloads;")
    assert "connect-src" not in policy  # nothing beyond default-src 'none'
    state = client.get(f"{place}/compare?first=fit1&second=fit1").json()
    assert "error" in state


# --- the end ------------------------------------------------------------------------------------


def test_a_closed_page_is_removed_unless_it_is_opened_again(
    client: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "GRACE", 0.3)
    place = opened(client)
    put(client, place, "a.csv", csv())
    client.post(f"{place}/closed", headers=OWN)
    assert client.get(f"{place}/state").status_code == 200  # as a reload does
    time.sleep(0.6)
    assert client.get(f"{place}/state").status_code == 200
    client.post(f"{place}/closed", headers=OWN)
    time.sleep(0.6)
    answer = client.get(f"{place}/state")
    assert (answer.status_code, list(folder.iterdir())) == (404, [])
    assert answer.text == "This session has ended; open a new page."


def test_the_end_of_the_server_ends_its_fits_and_removes_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = server.Server(folder).app(TOKEN, PORT)
    monkeypatch.setattr(jobs, "COMMAND", "import time; time.sleep(600)")
    with testclient.TestClient(app, base_url=HOME, follow_redirects=False) as client:
        client.get(f"/?token={TOKEN}")
        place = opened(client)
        put(client, place, "a.csv", csv())
        client.post(f"{place}/fits", headers=OWN)
    assert list(folder.iterdir()) == []


def test_a_file_of_the_command_line_is_read_where_it_is(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "big.csv"
    path.write_bytes(csv())
    app = server.Server(folder, path).app(TOKEN, PORT)
    with testclient.TestClient(app, base_url=HOME, follow_redirects=False) as client:
        client.get(f"/?token={TOKEN}")
        place = opened(client)
        for _ in range(300):
            [file] = client.get(f"{place}/state").json()["files"] or [{"read": None}]
            if file["read"]:
                break
            time.sleep(0.1)
        assert file["read"]["rows"] == 120
        assert not list(folder.rglob("*.csv"))
        client.delete(f"{place}/files/big.csv", headers=OWN)
    assert path.exists()


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "uvicorn", None)
    assert run(["app"]) == 2
    assert "pip install 'contrastive-lvm[app]'" in capsys.readouterr().err


def test_the_address_can_be_opened_as_soon_as_it_is_printed() -> None:
    import socket

    from contrastive_lvm.cli.app import _listen

    with _listen(0) as listener:
        socket.create_connection(listener.getsockname()).close()


def test_a_file_that_is_absent_or_a_port_in_use_is_refused(capsys: Any) -> None:
    import socket

    assert run(["app", "absent.csv"]) == 2
    assert "absent.csv does not exist" in capsys.readouterr().err
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        assert run(["app", "--no-browser", "--port", str(other.getsockname()[1])]) == 2
    assert "--port=" in capsys.readouterr().err
