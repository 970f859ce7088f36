import pytest

from slackline.cluster.certificates import make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Two authorities, each with a certificate for a node: the options of Credentials.of, by name."""
    made = {}
    for name in ("ours", "theirs"):
        folder = tmp_path_factory.mktemp(name)
        make_certificates(folder, ["node"], days=2)
        made[name] = {"cert": folder / "node.pem", "key": folder / "node.key", "authority": folder / "ca.pem"}
    return made
