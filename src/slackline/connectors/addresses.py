"""Sources and sinks by address: paths, ``-`` for standard input and output, ``http(s)://`` and ``mqtt://``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from slackline import connectors
from slackline.connectors.files import FILES, FileSink, FileSource, FolderSink
from slackline.connectors.formats import ENDINGS
from slackline.connectors.stdio import StdinSource, StdoutSink
from slackline.connectors.store import SCHEMES, StoreSink
from slackline.core.errors import ConfigError
from slackline.runtime.options import RunOptions
from slackline.runtime.sink import Sink
from slackline.runtime.source import Source


def scheme_of(url: str) -> str:
    """The scheme of an address, empty for a path.

    >>> scheme_of("mqtt://127.0.0.1/hall"), scheme_of("door.csv"), scheme_of("-")
    ('mqtt', '', '')
    """
    return urlsplit(url).scheme.lower() if "://" in url else ""


def open_sources(urls: Sequence[str], follow: bool = False) -> list[Source]:
    """The sources at these addresses. Nothing is read yet.

    A folder is one source for each of its files; with ``follow`` it is one source of Parquet files as they are added. A
    file is named by its stem, and by its path where two have the same stem.
    """
    if not urls:
        raise ConfigError("no source is given; give a file, a folder, a URL, or - for standard input.")
    addresses = [address for url in urls for address in _expanded(url, follow)]
    twice = sorted(address for address, count in Counter(addresses).items() if count > 1)
    if twice:
        raise ConfigError(f"{', '.join(twice)}: given several times; each source is read once.")
    sources = [_source(address, follow) for address in addresses]
    names = Counter(source.name for source in sources)
    return [
        source if names[source.name] == 1 else _source(address, follow, name=address)
        for source, address in zip(sources, addresses, strict=True)
    ]


def check_output(option: str, output: str | Path, inputs: Sequence[str | Path]) -> None:
    """Refuse an output that is an input: it would be overwritten before it is read.

    Nor may a folder of results be an input, or one of its files, and a file of results must not be in a folder that is
    read. ``option`` names the output in the error.
    """
    if str(output) == "-":
        return
    if "://" in str(output):
        if str(output) in map(str, inputs):
            raise ConfigError(
                f"{option} {output} is an input, too: results would be read again. Give another {option}."
            )
        return
    target = Path(output).resolve()
    results = {target, *(target / name for name in FILES.values())}
    is_file = target.name.lower().endswith(ENDINGS)
    for each in inputs:
        path = Path(each).resolve() if str(each) != "-" and "://" not in str(each) else None
        if path in results:
            raise ConfigError(f"{option} {output} would overwrite the input {each}. Give another {option}.")
        if is_file and path == target.parent:
            raise ConfigError(f"{option} {output} is in the folder {each}, which is read. Give another {option}.")


def is_kafka(url: str) -> bool:
    """Whether the address is of a topic of Kafka."""
    return scheme_of(url) == "kafka"


def sources_of(options: RunOptions) -> list[Source]:
    """The sources that the options of a run name, topics of Kafka among them."""
    topics = [url for url in options.sources if is_kafka(url)]
    others = [url for url in options.sources if not is_kafka(url)]
    found: list[Source] = list(open_sources(others, options.follow)) if others else []
    if topics:
        from slackline.connectors.kafka import KafkaSource

        found += [KafkaSource.of(url, options) for url in topics]
    return found


def sink_of(options: RunOptions) -> Sink:
    """The sink that the options of a run name."""
    if is_kafka(options.to):
        from slackline.connectors.kafka import KafkaSink

        return KafkaSink.of(options.to, options)
    return open_sink(options.to, duplicates=options.duplicates == "write", fresh=options.fresh)


def _source(url: str, follow: bool, name: str | None = None) -> Source:
    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        return connectors.HttpSource(url, name=name)
    if scheme == "mqtt":
        return connectors.MqttSource(**broker_of(url))
    if scheme:
        raise _unknown(url)
    return StdinSource() if url == "-" else FileSource(url, name=name, follow=follow)


def _expanded(url: str, follow: bool) -> list[str]:
    """An address, or those of the files in a folder."""
    path = Path(url)
    if follow or scheme_of(url) or url == "-":
        return [url]
    try:
        if not path.exists():
            raise ConfigError(f"{url}: no such file or folder. To wait for a file that is written later, add --follow.")
        if not path.is_dir():
            return [url]
        files = [each for each in sorted(path.iterdir()) if each.name.lower().endswith(ENDINGS)]
    except PermissionError as error:
        raise ConfigError(f"cannot read {url}: {error}. Give this user the permission to read it.") from error
    files = [each for each in files if not each.name.startswith((".", "_"))]
    if not files:
        raise ConfigError(f"{url}: no file in this folder ends with one of {', '.join(ENDINGS)}.")
    return list(map(str, files))


def open_sink(url: str, duplicates: bool = False, fresh: bool = False) -> Sink:
    """The sink at an address: ``-`` is standard output, a path with the ending ``.jsonl`` a file, any other a folder;
    a URI of a file system a folder there.

    ``duplicates``  whether a folder gets a file of duplicates.
    ``fresh``       whether the results and the checkpoint in a folder are discarded. Other sinks store none.
    """
    scheme = scheme_of(url)
    if scheme in ("http", "https"):
        return connectors.HttpSink(url)
    if scheme == "mqtt":
        return connectors.MqttSink(**broker_of(url))
    if scheme in SCHEMES:
        return StoreSink(url, duplicates, fresh=fresh)
    if scheme:
        raise _unknown(url, *SCHEMES)
    if url == "-":
        return StdoutSink()
    path = Path(url)
    if path.suffix in (".jsonl", ".ndjson"):
        return FileSink(path)
    if path.suffix and not path.is_dir():
        raise ConfigError(f"{url} is not a sink: give a .jsonl file, or a folder, whose name has no ending.")
    return FolderSink(path, duplicates, fresh=fresh)


def broker_of(url: str) -> dict[str, Any]:
    """The broker, topic and login in an address: ``mqtt://USER:PASSWORD@HOST:PORT/TOPIC``.

    >>> broker_of("mqtt://127.0.0.1/hall/+/door")
    {'host': '127.0.0.1', 'topic': 'hall/+/door', 'port': 1883, 'username': None, 'password': None}
    """
    parts = urlsplit(url.replace("#", "%23"))  # here "#" stands for all levels that follow
    try:
        port = parts.port or 1883
    except ValueError:
        port = 0
    topic = unquote(parts.path.removeprefix("/"))
    if parts.scheme != "mqtt" or not parts.hostname or not topic or not port or parts.query:
        raise ConfigError(
            f"{url!r} does not name a broker and a topic; give mqtt://HOST:PORT/TOPIC, e.g. mqtt://127.0.0.1/hall."
        )
    login = {"username": parts.username, "password": parts.password}
    login = {name: None if value is None else unquote(value) for name, value in login.items()}
    return {"host": parts.hostname, "topic": topic, "port": port, **login}


def _unknown(url: str, *more: str) -> ConfigError:
    if is_kafka(url):
        return ConfigError(f"{url}: this command does not read Kafka; `slackline run` and `slackline node` do.")
    known = ", ".join(f"{scheme}://" for scheme in ("http", "https", "mqtt", "kafka", *more))
    return ConfigError(f"{url}: unknown scheme {scheme_of(url)}://; known are {known}, paths and -.")
