import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import struct

import pyarrow as pa
import pytest
from tests.unit.cluster.fake import LOOPBACK, NO_TLS, NotingNode, NotingSink, hosted, met, run, said_by, until

import slackline as sl
from slackline.cluster import links as links_module
from slackline.cluster import tcp as tcp_module
from slackline.cluster.ingress import Ingress, TablesSource
from slackline.cluster.links import Credentials, Listener, dial
from slackline.cluster.protocol import Node
from slackline.cluster.tcp import TcpHost
from slackline.connectors.files import FileSource, FolderSink
from slackline.core.errors import ConfigError, SlacklineError
from slackline.core.event import Event
from slackline.core.outcome import Output
from slackline.runtime.address import Address
from slackline.runtime.metrics import MetricsCollector
from slackline.runtime.schema import Decoder, RecordSchema


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_two_nodes_connect_and_detect_when_the_other_is_gone(tls, certificates):
    credentials = Credentials.of(**certificates["ours"]) if tls else NO_TLS

    async def meeting():
        one, two = NotingNode("n1"), NotingNode("n2")
        async with hosted(one, credentials) as (address, _):
            async with hosted(two, credentials, join=[address]):
                await until(lambda: one.peers() == ["n2"] and two.peers() == ["n1"])
            await until(lambda: not one.links)

    run(meeting())


def test_nodes_learn_of_each_other_and_have_one_connection_each():
    async def meeting():
        nodes = [NotingNode(name) for name in ("n1", "n2", "n3")]
        one, two, three = nodes
        async with (
            hosted(one) as (first, _),
            hosted(two, join=[first]) as (second, _),
            hosted(three, join=[first]) as (third, _),
        ):
            addresses = {"n1": str(first), "n2": str(second), "n3": str(third)}
            for node in nodes:
                node.known = addresses
            await until(lambda: all(len(node.peers()) == 2 for node in nodes))
            await asyncio.sleep(3 * links_module.LOOK)
            return [(len(node.links), sum(call[0] == "up" for call in node.calls)) for node in nodes]

    assert run(meeting()) == [(2, 2)] * 3


def test_two_nodes_that_dial_each_other_at_once_stop_dialling_when_they_are_connected():
    async def meeting():
        one, two = NotingNode("n1"), NotingNode("n2")
        first, second = [await Listener.at(LOOPBACK, NO_TLS) for _ in range(2)]
        addresses = first.address, second.address
        first.close()
        second.close()
        async with (
            hosted(one, address=addresses[0], join=[addresses[1]]),
            hosted(two, address=addresses[1], join=[addresses[0]]),
        ):
            await until(lambda: one.peers() == ["n2"] and two.peers() == ["n1"])
            await asyncio.sleep(4 * links_module.LOOK)
            return len(one.links), len(two.links), sum(call[0] == "up" for call in one.calls)

    left, right, ups = run(meeting())
    assert left == right == ups <= 2


def test_a_connection_that_breaks_is_made_again(monkeypatch):
    monkeypatch.setattr(links_module, "FIRST", 0.02)

    async def meeting():
        one, two = NotingNode("n1"), NotingNode("n2")
        async with hosted(two) as (address, _), hosted(one, join=[address]) as (_, host):
            for _ in range(3):
                await until(lambda: len(one.links) == 1 and two.peers() == ["n1"])
                link = one.links[0]
                host._links.abort(link)
                await until(lambda link=link: link not in one.links)

    run(meeting())


@pytest.mark.parametrize(
    ("garbage", "why"),
    [
        (struct.pack(">I", 3) + b"\x01\x02\x03", "not an envelope"),
        (struct.pack(">I", 2**31) + b"x", "a frame of 2147483648 bytes"),
        (struct.pack(">I", 0), "not an envelope"),
    ],
    ids=["no envelope", "oversized", "empty"],
)
def test_a_link_with_garbage_is_closed_and_logged_and_the_node_continues(garbage, why, caplog):
    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            good = await met(address, "good")
            bad = await met(address, "bad")
            await until(lambda: node.peers() == ["bad", "good"])
            bad._writer.write(garbage)
            await until(lambda: node.peers() == ["good"])
            while await bad.read():
                pass
            good.write([said_by("good")])
            await until(lambda: sum(call[0] == "received" for call in node.calls) == 3)
            good.drop()

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting())
    (record,) = caplog.records
    assert "link to 'bad'" in record.message and "closed: " in record.message and why in record.message


@pytest.mark.parametrize(
    ("tls", "why"), [(False, "does not use the protocol of nodes"), (True, "TLS handshake failed")]
)
def test_a_client_that_is_no_node_is_refused_and_logged_and_the_node_does_not_notice(tls, why, certificates, caplog):
    credentials = Credentials.of(**certificates["ours"]) if tls else NO_TLS

    async def meeting():
        node = NotingNode()
        async with hosted(node, credentials) as (address, _):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            answer = await reader.read()
            assert tls or answer == b""
            writer.close()
            assert [call for call in node.calls if call[0] in ("up", "down", "received")] == []
            good = await met(address, "good", credentials)
            await until(lambda: ("received", "good") in [(call[0], call[-1]) for call in node.calls])
            good.drop()

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting())
    (record,) = caplog.records
    assert "connection from 127.0.0.1:" in record.message and "refused: " in record.message and why in record.message


def test_a_node_that_dials_something_else_logs_it_and_tries_again(monkeypatch, caplog):
    monkeypatch.setattr(links_module, "FIRST", 0.02)
    dialled = []

    async def meeting():
        async def serve(reader, writer):
            dialled.append(await reader.read(4))
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        node = NotingNode()
        async with server, hosted(node, join=[Address(*server.sockets[0].getsockname())]):
            await until(lambda: len(dialled) == 3)
            await until(lambda: not node.links)
        return node.peers()

    with caplog.at_level(logging.WARNING):
        assert run(meeting()) == []
    assert "does not use the protocol of nodes" in caplog.text and "attempt 3 " in caplog.text


def test_a_peer_that_does_not_read_is_disconnected_when_too_much_waits_for_it(monkeypatch, caplog):
    monkeypatch.setattr(links_module, "MAX_QUEUED", 1_000_000)

    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, host):
            slow = await met(address, "slow")
            await until(lambda: node.peers() == ["slow"])
            (link,) = node.links
            slow._reader._transport.pause_reading()
            most = sent = 0
            while host._links.has(link):
                node.next.messages.append((link, bytes(100_000)))
                host._wake.set()
                sent += 1
                await asyncio.sleep(0)
                if host._links.has(link):
                    most = max(most, host._links._links[link].connection.queued)
            await until(lambda: not node.links)
            slow.drop()
            return most, sent

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        most, sent = run(meeting())
    assert most < 1_200_000 and sent > 10
    assert "'slow'" in caplog.text and "the peer does not read" in caplog.text


def test_records_and_the_checkpoint_are_written_before_anything_is_sent():
    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, host):
            peer = await met(address, "peer")
            await until(lambda: node.peers() == ["peer"])
            send = host._links.send
            host._links.send = lambda messages: (node.calls.append(("send", len(messages))), send(messages))
            node.calls.clear()
            node.next.checkpoint = b"state"
            node.next.outputs.append(Output("insert", "high:High:0", Event("high", ts=5), True, 7, "High"))
            node.next.messages.append((node.links[0], said_by("n1")))
            host._wake.set()
            await until(lambda: ("send", 1) in node.calls)
            calls = node.calls[: node.calls.index(("send", 1)) + 1]
            peer.drop()
            return calls

    assert run(meeting())[-4:] == [("run",), ("write", [("event", "high:High:0")]), ("commit", 0), ("send", 1)]


def test_a_node_commits_a_checkpoint_before_its_first_and_after_its_last_message():
    async def meeting():
        node = NotingNode()
        async with hosted(node):
            await until(lambda: ("run",) in node.calls)
        return node.calls

    calls = run(meeting())
    assert calls[0] == ("commit", 0) and calls[-1] == ("commit", 0)


def test_what_has_come_is_taken_in_one_turn():
    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            peer = await met(address, "peer")
            await until(lambda: node.peers() == ["peer"])
            node.calls.clear()
            peer.write([said_by("peer")] * 50)
            await until(lambda: sum(call[0] == "received" for call in node.calls) == 50)
            peer.drop()
            return sum(call[0] == "run" for call in node.calls)

    assert run(meeting()) < 10


def test_a_node_that_was_rejected_stops_with_the_reason():
    async def meeting():
        node = NotingNode()
        listener = await Listener.at(LOOPBACK, NO_TLS)
        node.failed = "another node is called n1"
        await TcpHost(node, listener, NotingSink(node)).run()

    with pytest.raises(SlacklineError, match="another node is called n1"):
        run(meeting())


def test_a_node_leaves_before_it_stops():
    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, host):
            await until(lambda: ("run",) in node.calls)
            host.stop()
            await asyncio.sleep(0.05)
            assert ("leave",) in node.calls and node.calls[-1] != ("commit", 0)
            node.has_left = True
            host._wake.set()
            await until(lambda: node.calls[-1] == ("commit", 0))
            with pytest.raises(OSError):
                await asyncio.open_connection(*address)

    run(meeting())


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_the_last_messages_are_sent_before_a_node_stops(tls, certificates):
    credentials = Credentials.of(**certificates["ours"]) if tls else NO_TLS

    async def meeting():
        node = NotingNode()
        async with hosted(node, credentials) as (address, host):
            peer = await met(address, "peer", credentials)
            await until(lambda: node.peers() == ["peer"])
            words = [said_by("n1")] * 2000
            node.next.messages += [(node.links[0], word) for word in words]
            host.stop()
            node.has_left = True
            received = 0
            while frames := await peer.read():
                received += len(frames)
            peer.drop()
            return received

    assert run(meeting()) == 2001


def test_an_address_to_join_beyond_this_machine_needs_tls():
    async def meeting():
        async with hosted(NotingNode(), join=[Address("192.0.2.1", 7000)]):
            await asyncio.sleep(0.05)

    with pytest.raises(ConfigError, match="--tls-cert"):
        run(meeting())


def test_an_address_from_a_peer_is_not_dialled_without_tls(caplog):
    async def meeting():
        node = NotingNode("n9")
        node.known = {"n1": "192.0.2.1:7000", "n2": "nonsense"}
        async with hosted(node):
            await until(lambda: len(caplog.records) == 2)
            await asyncio.sleep(2 * links_module.LOOK)

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting())
    assert ["'n1' cannot be reached" in caplog.text, "'n2' cannot be reached" in caplog.text] == [True, True]


# Local arrivals.


class Echo(sl.Detector):
    listens, publishes = ("a",), ("echo",)

    def on_event(self, event):
        yield event.derive("echo")


def rows(*sizes):
    def made():
        at = 0
        for size in sizes:
            yield pa.table({"ts": range(at, at + size)})
            at += size

    return Ingress([TablesSource(made)], None)


def pushes(node):
    return [call[1] for call in node.calls if call[0] == "push"]


def test_local_arrivals_wait_until_the_network_is_ready_and_takes_more():
    async def meeting():
        node = NotingNode()
        node.is_ready = False
        async with hosted(node, ingress=rows(12_000)) as (_, host):
            await until(lambda: node.calls.count(("run",)) >= 1)
            assert pushes(node) == []
            node.is_ready = node.is_full = True
            host._wake.set()
            await asyncio.sleep(0.05)
            assert pushes(node) == []
            node.is_full = False
            host._wake.set()
            await until(lambda: ("end",) in node.calls)
        return node.calls

    calls = run(meeting())
    assert [call for call in calls if call[0] in ("push", "end")] == [
        ("push", 5000),
        ("push", 5000),
        ("push", 2000),
        ("end",),
    ]
    assert calls[-1] == ("commit", 12_000)


def test_a_node_may_stop_by_itself_when_all_has_ended():
    async def meeting():
        node = NotingNode()
        async with hosted(node, ingress=rows(10), until_end=True) as (_, host):
            await until(lambda: ("end",) in node.calls)
            await asyncio.sleep(0.05)
            assert node.calls[-1] != ("commit", 10)
            node.has_ended = True
            host._wake.set()
            await until(lambda: node.calls[-1] == ("commit", 10))

    run(meeting())


def test_input_is_shown_counted_and_resumed_by_the_checkpoint(tmp_path, caplog):
    path = tmp_path / "a.csv"
    path.write_text("ts,source,seq\n" + "".join(f"{10 * i},s,{i // 2}\n" for i in range(400)) + "x,s,1\n")
    hierarchy = sl.Hierarchy([Echo()], clock="a")

    async def whole(sink, saved):
        header = None if saved is None else saved.header
        node = (
            Node("n1", hierarchy, identity=1, ingress=["a"], detectors=["Echo"])
            if saved is None
            else Node.load(saved.pieces[0], hierarchy)
        )
        decoder = Decoder(RecordSchema(), hierarchy)
        ingress = Ingress([FileSource(path)], decoder, saved=None if header is None else header["ingress"])
        listener = await Listener.at(LOOPBACK, NO_TLS)
        collector = MetricsCollector(hierarchy.names)
        host = TcpHost(node, listener, sink, ingress, saved=header, until_end=True, collector=collector)
        await host.run()
        await sink.close()
        return host.metrics()

    with caplog.at_level(logging.INFO, "slackline"):
        sink = FolderSink(tmp_path / "out", kind="node")
        metrics = run(whole(sink, sink.open()))
    assert (metrics.events, metrics.outputs, metrics.duplicates) == (400, 200, 200)
    assert metrics.quarantined == {"not an event": 1} and metrics.detectors["Echo"].delivered == 200
    assert "record schema: ts 'ts', in us" in caplog.text and "seq 'seq', by its name" in caplog.text
    records = [json.loads(line) for line in (tmp_path / "out" / "outputs.jsonl").read_text().splitlines()]
    assert [record["change"] for record in records] == list(range(200))

    again = FolderSink(tmp_path / "out", kind="node")
    saved = again.open()
    assert saved.header["changes"] == 200 and saved.header["schema"]["unit"] == "us"
    metrics = run(whole(again, saved))
    assert (metrics.events, metrics.outputs, metrics.duplicates) == (400, 200, 200)
    assert len((tmp_path / "out" / "outputs.jsonl").read_text().splitlines()) == 200


def test_connections_are_capped_per_address_in_favour_of_those_that_send_a_message(monkeypatch, caplog):
    monkeypatch.setattr(links_module, "max_connections", lambda: 8)

    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            good = await met(address, "good")
            await until(lambda: node.peers() == ["good"])
            flood = [await asyncio.open_connection(*address) for _ in range(50)]
            refused = [reader for reader, _ in flood if await _is_closed(reader)]
            late = await met(address, "late")
            await until(lambda: node.peers() == ["good", "late"])
            good.write([said_by("good")])
            await until(lambda: sum(call[0] == "received" for call in node.calls) == 3)
            known = [good, late, await met(address, "third"), await met(address, "fourth")]
            await until(lambda: node.peers() == ["fourth", "good", "late", "third"])
            one_more, _ = await asyncio.open_connection(*address)
            assert await _is_closed(one_more)
            for each in known:
                each.drop()
            return len(refused)

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        assert run(meeting()) == 47  # half of eight are for one address, and one of these is in use
    (record,) = caplog.records
    assert "refused: 4 connections from 127.0.0.1 are open, and no more are accepted" in record.message


def test_connections_are_capped_in_all(monkeypatch, caplog):
    monkeypatch.setattr(links_module, "max_connections", lambda: 3)

    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            from_hosts = [("127.0.0.1", 0), ("127.0.0.2", 0), ("127.0.0.3", 0), ("127.0.0.4", 0)]
            flood = [await asyncio.open_connection(*address, local_addr=host) for host in from_hosts]
            return [await _is_closed(reader) for reader, _ in flood]

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        assert run(meeting()) == [True, False, False, False]
    assert "refused: 3 connections are open" in caplog.text


def test_a_warning_that_others_cause_is_logged_once_in_a_while_with_the_number_of_the_others(caplog):
    time = iter([0.0, 1.0, 2.0, 2.0, 10.0, 10.5])
    log = links_module.WarningLog(lambda: next(time))
    for kind, value in (("refused", 1), ("refused", 2), ("refused", 3), ("closed", 4), ("refused", 5), ("refused", 6)):
        log.warning(kind, "%s %d", kind, value)
    assert [record.message for record in caplog.records] == [
        "refused 1", "closed 4", "refused 5 (2 more like this since the last one)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "the peer sent nothing for 0.2 s"),
        (struct.pack(">I", 60_000_000) + b"x" * 1000, "inside a message, 1,004"),
    ],
    ids=["silent", "incomplete"],
)
def test_a_link_that_falls_silent_is_closed(monkeypatch, caplog, sent, why):
    monkeypatch.setattr(links_module, "IDLE_TIMEOUT", 0.2)
    monkeypatch.setattr(links_module, "HANDSHAKE_TIMEOUT", 0.2)

    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            silent = await met(address, "silent")
            await until(lambda: node.peers() == ["silent"])
            silent._writer.write(sent)
            await until(lambda: node.peers() == [])

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting())
    assert "link to 'silent'" in caplog.text and why in caplog.text


def test_incomplete_messages_are_bounded_over_all_links(monkeypatch, caplog):
    monkeypatch.setattr(links_module, "MAX_UNFINISHED", 100_000)

    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            names = ["p1", "p2", "p3"]
            peers = [await met(address, name) for name in names]
            await until(lambda: node.peers() == names)
            for peer in peers:
                peer._writer.write(struct.pack(">I", 60_000_000) + b"x" * 40_000)
            await until(lambda: len(node.peers()) == 2)
            for peer in peers:
                peer.drop()

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting())
    assert "bytes of incomplete messages wait, 100,000 are allowed" in caplog.text


def test_the_first_message_is_small():
    async def meeting():
        node = NotingNode()
        async with hosted(node) as (address, _):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(struct.pack(">I", links_module.MAX_FIRST + 1))
            return await reader.read()

    assert run(meeting()) == b""


async def _is_closed(reader):
    try:
        async with asyncio.timeout(0.1):
            return await reader.read() == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


class OpeningSink(NotingSink):
    """Opens a file for each commit, as a folder does."""

    def commit(self, checkpoint):
        try:
            with open(os.devnull, "wb"):
                super().commit(checkpoint)
        except OSError as error:
            raise SlacklineError(f"cannot write the checkpoint: {error}.") from error


def test_a_checkpoint_is_committed_when_no_file_descriptor_is_left():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def meeting():
        node = NotingNode()
        async with hosted(node, sink=OpeningSink(node)) as (_, host):
            await until(lambda: ("run",) in node.calls)
            taken = []
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[0]), limits[1]))
                with contextlib.suppress(OSError):
                    while True:
                        taken.append(os.open(os.devnull, os.O_RDONLY))
                commits = node.calls.count(("commit", 0))
                for nth in (1, 2):
                    node.next.checkpoint = b"state"
                    host._wake.set()
                    await until(lambda nth=nth: node.calls.count(("commit", 0)) == commits + nth)
            finally:
                for descriptor in taken:
                    os.close(descriptor)
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    run(meeting())


def test_a_checkpoint_without_a_file_descriptor_is_retried_and_then_fails(monkeypatch, caplog):
    monkeypatch.setattr(tcp_module, "RETRY", 0.01)

    class Exhausted(NotingSink):
        failures = 3

        def commit(self, checkpoint):
            if self.failures:
                self.failures -= 1
                raise SlacklineError("cannot write the checkpoint.") from OSError(errno.EMFILE, "Too many open files")
            super().commit(checkpoint)

    async def meeting(failures):
        node = NotingNode()
        sink = Exhausted(node)
        sink.failures = failures
        async with hosted(node, sink=sink):
            await until(lambda: ("commit", 0) in node.calls)

    with caplog.at_level(logging.WARNING, "slackline.cluster"):
        run(meeting(3))
        assert len(caplog.records) == 2 and "attempt 3" in caplog.text
        with pytest.raises(SlacklineError, match="cannot write the checkpoint"):
            run(meeting(10_000))


def test_each_link_has_its_share_of_a_turn():
    """Ten thousand queries of one link do not make the heartbeat of another wait."""

    async def turns():
        listener = await Listener.at(LOOPBACK, NO_TLS)
        links = links_module.Links("n1", listener, asyncio.Event())
        for number in range(10_000):
            links._enqueue(links_module.LinkEvent("client", b"%d" % number))
        links._enqueue(links_module.LinkEvent("n2", b"heartbeat"))
        taken = [links.take()]
        while taken[-1]:
            taken.append(links.take())
        listener.close()
        return taken

    taken = run(turns())
    assert b"heartbeat" in [event.frame for event in taken[0]] and len(taken[0]) <= links_module.MAX_TURN_FRAMES
    assert [event.frame for turn in taken for event in turn if event.link == "client"] == [
        b"%d" % number for number in range(10_000)
    ]


def test_links_close_while_more_was_received_than_the_node_takes(monkeypatch):
    monkeypatch.setattr(links_module, "MAX_RECEIVED", 10)
    monkeypatch.setattr(links_module, "HANDSHAKE_TIMEOUT", 0.5)  # for the peer to close, too

    async def meeting():
        listener = await Listener.at(LOOPBACK, NO_TLS)
        links = links_module.Links("n1", listener, asyncio.Event())
        links.start({})
        client = await dial(listener.address, NO_TLS)
        client.write([said_by("n2")])
        await until(lambda: not links._room.is_set())
        async with asyncio.timeout(5):
            await links.close()
        client.drop()

    run(meeting())
