from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from typer.testing import CliRunner

from slackline.cli import app
from slackline.cluster.certificates import make_certificates
from slackline.cluster.links import Credentials
from slackline.core.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_command_makes_an_authority_and_certificates_and_prints_the_options(tmp_path):
    folder = tmp_path / "tls"
    result = CliRunner().invoke(app, ["certificates", str(folder), "--name", "n1", "--name", "n2"])
    assert result.exit_code == 0, result.stderr
    assert sorted(contents(folder)) == ["ca.key", "ca.pem", "n1.key", "n1.pem", "n2.key", "n2.pem"]
    assert result.stdout.splitlines()[0] == (
        f"n1: --tls-cert {folder / 'n1.pem'} --tls-key {folder / 'n1.key'} --tls-ca {folder / 'ca.pem'}"
    )
    for name in ("n1", "n2"):
        credentials = Credentials.of(folder / f"{name}.pem", folder / f"{name}.key", folder / "ca.pem")
        assert credentials.server is not None and credentials.client is not None


def test_private_keys_are_readable_by_their_owner_only(tmp_path):
    make_certificates(tmp_path, ["n1"])
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes["ca.key"] == modes["n1.key"] == 0o600


def test_the_authority_is_reused(tmp_path):
    make_certificates(tmp_path, ["n1"], days=30, now=NOW)
    before = contents(tmp_path)
    written = make_certificates(tmp_path, ["n2"], days=30, now=NOW + timedelta(days=100))
    assert [path.name for path in written] == ["n2.pem", "n2.key"]
    assert {name: data for name, data in contents(tmp_path).items() if name in before} == before
    authority = x509.load_pem_x509_certificate(before["ca.pem"])
    node = x509.load_pem_x509_certificate((tmp_path / "n2.pem").read_bytes())
    node.verify_directly_issued_by(authority)
    assert node.not_valid_after_utc == NOW + timedelta(days=130)
    assert authority.not_valid_after_utc == NOW + timedelta(days=300)


def test_no_certificate_is_valid_longer_than_its_authority(tmp_path):
    make_certificates(tmp_path, [], days=10, now=NOW)
    make_certificates(tmp_path, ["n1"], days=365, now=NOW)
    node = x509.load_pem_x509_certificate((tmp_path / "n1.pem").read_bytes())
    assert node.not_valid_after_utc == NOW + timedelta(days=100)
    with pytest.raises(ConfigError, match="expired on 2030-04-11"):
        make_certificates(tmp_path, ["n2"], now=NOW + timedelta(days=200))


def test_existing_files_are_not_overwritten(tmp_path):
    make_certificates(tmp_path, ["n1"])
    before = contents(tmp_path)
    result = CliRunner().invoke(app, ["certificates", str(tmp_path), "--name", "n0", "--name", "n1"])
    assert result.exit_code == 2 and "n1.pem exists and is not overwritten" in " ".join(result.stderr.split())
    assert contents(tmp_path) == before


@pytest.mark.parametrize("damage", ["ca.key", "ca.pem"])
def test_an_authority_that_is_incomplete_is_refused(tmp_path, damage):
    make_certificates(tmp_path, ["n1"])
    (tmp_path / damage).unlink()
    with pytest.raises(ConfigError, match=r"cannot use .*ca.pem and .*ca.key as the authority"):
        make_certificates(tmp_path, ["n2"])


def test_a_key_of_another_authority_is_refused(tmp_path):
    for folder in ("a", "b"):
        make_certificates(tmp_path / folder, ["n1"])
    (tmp_path / "a" / "ca.key").write_bytes((tmp_path / "b" / "ca.key").read_bytes())
    with pytest.raises(ConfigError, match="the key is not the one of the certificate"):
        make_certificates(tmp_path / "a", ["n2"])


@pytest.mark.parametrize("name", ["", "ca", "a/b", "x" * 65, "a\nb"])
def test_a_name_that_is_no_file_or_no_common_name_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="cannot be made for a node called"):
        make_certificates(tmp_path, [name])
    assert contents(tmp_path) == {}
