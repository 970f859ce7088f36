import ssl

import pytest
from tests.unit.cluster.fake import run

from slackline.cluster.links import Credentials, Listener
from slackline.core.errors import ConfigError
from slackline.runtime.address import Address

TLS = Credentials(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


@pytest.mark.parametrize("text", ["7001", ":7001", "localhost", "localhost:", "::1:7001", "a:b", "a:-1", "a:70000"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match=r"is not an address|there is no port"):
        Address.of(text)


@pytest.mark.parametrize("text", ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"])
def test_loopback_needs_no_tls(text):
    assert Credentials().check(Address.of(text)) == Address.of(text)


@pytest.mark.parametrize("text", ["10.0.0.1:1", "192.0.2.7:1", "[2001:db8::1]:1", "example.com:1"])
def test_any_other_address_needs_tls(text):
    with pytest.raises(ConfigError, match=r"not a loopback address.*--tls-cert"):
        Credentials().check(Address.of(text))
    with pytest.raises(ConfigError, match="--tls-cert"):
        run(Listener.at(Address.of(text), Credentials()))
    assert TLS.check(Address.of(text)) == Address.of(text)


@pytest.mark.parametrize("text", ["0.0.0.0:0", "[::]:0"])
def test_an_address_to_which_others_cannot_connect_is_refused(text):
    with pytest.raises(ConfigError, match="stands for every address"):
        run(Listener.at(Address.of(text), TLS))


def test_a_port_in_use_is_refused():
    async def twice():
        first = await Listener.at(Address.of("127.0.0.1:0"), Credentials())
        try:
            await Listener.at(first.address, Credentials())
        finally:
            first.close()

    with pytest.raises(ConfigError, match=r"cannot listen at 127.0.0.1:\d+: .*in use"):
        run(twice())
