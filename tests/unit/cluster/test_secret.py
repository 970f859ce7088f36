import asyncio
import contextlib

import pytest
from tests.unit.cluster.fake import LOOPBACK, run

from slackline.cluster import secret as secret_module
from slackline.cluster.connection import Connection, answer, dial
from slackline.cluster.links import Listener
from slackline.cluster.secret import AuthenticationError, Credentials, Seal
from slackline.core.errors import ConfigError
from slackline.nodes.messages import ProtocolError
from slackline.runtime.frames import FrameError

SECRET = Credentials(secret=b"a secret of some length")
OTHER = Credentials(secret=b"a secret of other length")
NONE = Credentials()


class Callee:
    """Somebody who is called: what came of each call."""

    def __init__(self):
        self.came = asyncio.Queue()
        self.credentials = NONE

    async def take_call(self, reader, writer):
        try:
            self.came.put_nowait(await answer(reader, writer, self.credentials))
        except (AuthenticationError, ProtocolError) as error:
            self.came.put_nowait(error)


@contextlib.asynccontextmanager
async def called(credentials):
    callee = Callee()
    callee.credentials = credentials
    listener = await Listener.at(LOOPBACK, credentials)
    listener.start(callee.take_call)
    try:
        yield listener.address, callee.came
    finally:
        listener.close()


async def both(caller, callee):
    """Two ends of a connection, or what went wrong at each."""
    async with called(callee) as (address, came):
        try:
            one = await dial(address, caller)
        except (AuthenticationError, OSError) as error:
            one = error
        return one, await came.get()


async def talk(caller, callee):
    one, other = await both(caller, callee)
    assert isinstance(one, Connection) and isinstance(other, Connection)
    one.write([b"a", b"", b"b"])
    other.write([b"c"])
    heard = []
    while len(heard) < 3:
        heard += await other.read()
    back = await one.read()
    one.drop()
    other.drop()
    return heard, back


@pytest.mark.parametrize("credentials", [SECRET, NONE], ids=["secret", "none"])
def test_those_with_the_same_secret_understand_each_other(credentials):
    assert run(talk(credentials, credentials)) == ([b"a", b"", b"b"], [b"c"])


@pytest.mark.parametrize(
    ("caller", "callee", "at_caller", "at_callee"),
    [
        (SECRET, OTHER, "hung up", "has another secret"),
        (NONE, SECRET, "it wants a secret, and we have none. Give --secret-file", "it has no secret, and we want one"),
        (SECRET, NONE, "it has no secret, and we want one", "it wants a secret, and we have none"),
    ],
)
def test_others_are_told_what_is_missing(caller, callee, at_caller, at_callee):
    one, other = run(both(caller, callee))
    assert isinstance(one, AuthenticationError) and at_caller in str(one)
    assert isinstance(other, AuthenticationError) and at_callee in str(other)


def test_who_is_called_proves_nothing_to_who_has_not_proved_anything():
    async def attempt():
        async with called(SECRET) as (address, came):
            reader, writer = await asyncio.open_connection(*address)
            ours = secret_module._greeting(SECRET.secret)
            writer.write(ours)
            theirs = await reader.readexactly(len(ours))
            # Its own greeting, and a proof that is not one: all that somebody without the secret has.
            writer.write(theirs[-32:])
            rest = await reader.read()
            writer.close()
            return rest, await came.get()

    rest, error = run(attempt())
    assert rest == b"" and "another secret" in str(error)


def test_a_proof_cannot_be_played_back():
    """What one dialler said, word by word, is worth nothing on another connection."""

    async def attempt():
        async with called(SECRET) as (address, came):
            said = []
            reader, writer = await asyncio.open_connection(*address)
            write = writer.write
            writer.write = lambda data: (said.append(data), write(data))
            await secret_module.greet(reader, writer, SECRET.secret, dialled=True)
            assert isinstance(await came.get(), Connection)
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"".join(said))
            error = await came.get()
            writer.close()
            return error

    assert "another secret" in str(run(attempt()))


@pytest.mark.parametrize("words", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x00" * 100, b"slackline\x09" + b"-" * 40])
def test_who_speaks_something_else_is_no_node(words):
    async def attempt():
        async with called(NONE) as (address, came):
            _, writer = await asyncio.open_connection(*address)
            writer.write(words)
            error = await came.get()
            writer.close()
            return error

    error = run(attempt())
    assert isinstance(error, ProtocolError) and "does not speak as a node does" in str(error)


def test_who_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(secret_module, "PATIENCE", 0.05)

    async def attempt():
        async with called(SECRET) as (address, came):
            _, writer = await asyncio.open_connection(*address)
            error = await came.get()
            writer.close()
            return error

    assert "within 0.05 s" in str(run(attempt()))


def test_a_frame_that_is_altered_repeated_left_out_or_turned_round_is_found():
    def seals():
        return Seal(b"k" * 32, b"there"), Seal(b"k" * 32, b"there")

    out, back = seals()
    assert [back.take(out.put(data)) for data in (b"a", b"", b"b")] == [b"a", b"", b"b"]
    out, back = seals()
    sealed = out.put(b"abc")
    for wrong in (b"abd" + sealed[3:], sealed[:-1], b"", out.put(b"abc"), Seal(b"k" * 32, b"back").put(b"abc")):
        out, back = seals()
        with pytest.raises(FrameError, match="seal is wrong"):
            back.take(wrong)
    out, back = seals()
    back.take(sealed)
    with pytest.raises(FrameError, match="seal is wrong"):
        back.take(sealed)


def test_bytes_slipped_into_a_connection_are_found():
    async def attempt():
        one, other = await both(SECRET, SECRET)
        one._writer.write(b"\x00\x00\x00\x28" + b"x" * 40)
        try:
            return await other.read()
        finally:
            one.drop()
            other.drop()

    with pytest.raises(FrameError, match="seal is wrong"):
        run(attempt())


def test_a_secret_that_could_be_guessed_is_refused(tmp_path):
    file = tmp_path / "secret"
    file.write_text("short\n")
    with pytest.raises(ConfigError, match=r"has 5 bytes; it needs at least 16.*openssl rand -hex 32"):
        Credentials.of(secret_file=file)
    with pytest.raises(ConfigError, match="cannot read the secret"):
        Credentials.of(secret_file=tmp_path / "none")
    file.write_text("0123456789abcdef\n")
    assert Credentials.of(secret_file=file).secret == b"0123456789abcdef"


# TLS.


@pytest.mark.parametrize("secret", [None, b"a secret of some length"], ids=["tls", "tls and secret"])
def test_those_of_one_authority_understand_each_other(certificates, secret):
    tls = Credentials.of(**certificates["ours"])
    credentials = Credentials(secret, tls.listening, tls.dialling)
    assert credentials.reach_beyond
    assert run(talk(credentials, credentials)) == ([b"a", b"", b"b"], [b"c"])


def test_a_certificate_of_another_authority_is_refused_on_both_sides(certificates):
    ours = Credentials.of(**certificates["ours"])
    mixed = certificates["theirs"] | {"authority": certificates["ours"]["authority"]}

    async def attempt(caller, callee):
        async with called(callee) as (address, came):
            with pytest.raises((OSError, AuthenticationError)):
                await dial(address, caller)
            return came.qsize()

    assert run(attempt(Credentials.of(**certificates["theirs"]), ours)) == 0
    # It believes us, but we do not believe it.
    assert run(attempt(Credentials.of(**mixed), ours)) == 0


def test_one_with_tls_and_one_without_do_not_meet(certificates):
    ours = Credentials.of(**certificates["ours"])

    async def attempt():
        async with called(ours) as (address, came):
            with pytest.raises((OSError, AuthenticationError, ProtocolError)):
                await dial(address, NONE)
            return came.qsize()

    assert run(attempt()) == 0


def test_tls_needs_three_files(certificates, tmp_path):
    with pytest.raises(ConfigError, match="TLS needs three files"):
        Credentials.of(cert=certificates["ours"]["cert"])
    wrong = certificates["ours"] | {"key": certificates["theirs"]["key"]}
    with pytest.raises(ConfigError, match=r"cannot use .* for TLS"):
        Credentials.of(**wrong)
    with pytest.raises(ConfigError, match=r"cannot use .* for TLS"):
        Credentials.of(**certificates["ours"] | {"cert": tmp_path / "none.pem"})
