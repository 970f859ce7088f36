import asyncio
import contextlib

import pytest
from tests.unit.cluster.fake import LOOPBACK, run, said_by

from slackline.cluster import links as links_module
from slackline.cluster.links import Credentials, HandshakeError, Listener, accept, dial
from slackline.cluster.protocol.messages import VERSION, Envelope, Query, encode
from slackline.core.errors import ConfigError
from slackline.runtime.frames import FrameError, framed

NONE = Credentials()
HELLO = said_by("n2")


@contextlib.asynccontextmanager
async def listening(credentials):
    """An address, and a queue of what became of each connection there: it and its first frames, or an error."""
    came, tasks = asyncio.Queue(), []

    async def accepted(reader, writer):
        try:
            connection = await accept(reader, writer, credentials)
            came.put_nowait((connection, await connection.first()))
        except HandshakeError as error:
            came.put_nowait(error)

    listener = await Listener.at(LOOPBACK, credentials)
    listener.start(lambda reader, writer: tasks.append(asyncio.create_task(accepted(reader, writer))))
    try:
        yield listener.address, came
    finally:
        listener.close()


async def talk(credentials):
    async with listening(credentials) as (address, came):
        one = await dial(address, credentials)
        one.write([HELLO, b"", b"b" * 1_000_000])
        other, received = await came.get()
        other.write([HELLO])
        while len(received) < 3:
            received += await other.read()
        back = await one.first()
        one.drop()
        other.drop()
        return [len(frame) for frame in received], back


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_frames_go_both_ways(certificates, tls):
    credentials = Credentials.of(**certificates["ours"]) if tls else NONE
    assert run(talk(credentials)) == ([len(HELLO), 0, 1_000_000], [HELLO])


async def greeted(words, credentials=NONE):
    """What becomes of a connection whose peer writes these bytes, and what the peer reads."""
    async with listening(credentials) as (address, came):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(words)
        error = await came.get()
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await reader.read()
        writer.close()
        return error, answer


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "a frame of 1195725856 bytes"),
        (b"\x00" * 100, "not an envelope"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a frame of 369295618 bytes"),  # the start of a TLS handshake
        (framed(encode(Envelope(VERSION + 1, "n2", 1, 0, 0, 0, Query()))), f"protocol version {VERSION + 1}"),
    ],
    ids=["http", "zeros", "tls", "release"],
)
def test_a_peer_that_speaks_something_else_is_refused_and_gets_no_answer(words, why):
    error, answer = run(greeted(words))
    assert isinstance(error, HandshakeError) and "does not use the protocol of nodes" in str(error)
    assert why in str(error) and answer == b""


def test_plain_text_to_a_tls_port_is_refused(certificates):
    error, _ = run(greeted(framed(HELLO), Credentials.of(**certificates["ours"])))
    assert isinstance(error, HandshakeError) and "TLS handshake failed" in str(error)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_peer_that_sends_nothing_is_refused_after_a_timeout(certificates, monkeypatch, tls):
    monkeypatch.setattr(links_module, "HANDSHAKE_TIMEOUT", 0.05)
    error, _ = run(greeted(b"", Credentials.of(**certificates["ours"]) if tls else NONE))
    assert isinstance(error, HandshakeError)
    assert ("0.05 s" if not tls else "TLS handshake failed") in str(error)


def test_garbage_in_an_open_connection_is_a_frame_error():
    async def attempt():
        async with listening(NONE) as (address, came):
            one = await dial(address, NONE)
            one.write([HELLO])
            other, _ = await came.get()
            one._writer.write(b"GET / HTTP/1.1\r\n\r\n")
            try:
                return await other.read()
            finally:
                one.drop()
                other.drop()

    with pytest.raises(FrameError, match="exceeds the limit"):
        run(attempt())


async def attempted(caller, callee):
    """Why a caller gets no answer, and what the other side says."""
    async with listening(callee) as (address, came):
        with pytest.raises(HandshakeError) as caught:
            connection = await dial(address, caller)
            connection.write([HELLO])
            await connection.first()
        return str(caught.value), await came.get()


def test_a_certificate_of_another_authority_is_refused_on_both_sides(certificates):
    ours = Credentials.of(**certificates["ours"])
    mixed = certificates["theirs"] | {"authority": certificates["ours"]["authority"]}
    why, error = run(attempted(Credentials.of(**certificates["theirs"]), ours))
    assert "certificate verify failed" in why and isinstance(error, HandshakeError)
    # The caller trusts the authority of the other side, which does not trust the caller's.
    why, error = run(attempted(Credentials.of(**mixed), ours))
    assert "certificate verify failed" in str(error) and isinstance(error, HandshakeError)


def test_one_with_tls_and_one_without_do_not_connect(certificates):
    ours = Credentials.of(**certificates["ours"])
    _, error = run(attempted(NONE, ours))
    assert isinstance(error, HandshakeError) and "TLS handshake failed" in str(error)
    why, error = run(attempted(ours, NONE))
    assert "Does the peer use TLS, too?" in why
    assert isinstance(error, HandshakeError) and "does not use the protocol of nodes" in str(error)


def test_tls_needs_three_files(certificates, tmp_path):
    with pytest.raises(ConfigError, match="TLS needs three files"):
        Credentials.of(cert=certificates["ours"]["cert"])
    wrong = certificates["ours"] | {"key": certificates["theirs"]["key"]}
    with pytest.raises(ConfigError, match=r"cannot use .* for TLS"):
        Credentials.of(**wrong)
    with pytest.raises(ConfigError, match=r"cannot use .* for TLS"):
        Credentials.of(**certificates["ours"] | {"cert": tmp_path / "none.pem"})
