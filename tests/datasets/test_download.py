"""Downloads, from a server on this machine."""

import http.server
import threading
from functools import partial

import pytest
from publishers import (
    assert_holds,
    write_mnist,
)

from spr_jax.datasets import mnist, prepared


@pytest.fixture
def publisher(tmp_path, monkeypatch):
    """(source, what it holds, folder of its files) of a server on this machine."""
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    source, expected = write_mnist(tmp_path / "raw")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "raw"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host = f"http://127.0.0.1:{server.server_port}"
        urls = {name: f"{host}/{name}" for name in source.urls}
        yield source._replace(urls=urls), expected, tmp_path / "raw"
        server.shutdown()


def test_files_are_downloaded_through_tfds(publisher, tmp_path):
    source, expected, _ = publisher
    splits = prepared.load(source, str(tmp_path / "data"))
    assert_holds(splits["train"], *expected["train"])


def test_a_damaged_download_is_fetched_anew(publisher, tmp_path):
    source, expected, raw = publisher
    page = raw / "t10k-labels-idx1-ubyte.gz"
    content = page.read_bytes()
    page.write_text("<html>Please log in.</html>")
    with pytest.raises(ValueError, match="Cannot read .*t10k-labels"):
        prepared.prepare(source, "", str(tmp_path / "data"))
    page.write_bytes(content)
    prepared.prepare(source, "", str(tmp_path / "data"))
    assert_holds(prepared.load(source, str(tmp_path / "data"))["test"], *expected["test"])


def test_a_publisher_that_is_away_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("SPR_RAW_DIR", raising=False)
    urls = dict.fromkeys(mnist.SOURCE.urls, "http://127.0.0.1:9/nothing")
    with pytest.raises(ValueError, match="Cannot download mnist .*; get it from http://yann"):
        prepared.prepare(mnist.SOURCE._replace(urls=urls), "", str(tmp_path / "offline"))
