import subprocess

import pytest


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """Two authorities, each with a certificate for a node, by openssl."""
    folder = tmp_path_factory.mktemp("tls")
    made = {}
    for name in ("ours", "theirs"):
        ca, node = folder / f"{name}-ca", folder / name

        def openssl(*arguments):
            try:
                subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)
            except FileNotFoundError:
                pytest.skip("makes certificates with the command openssl, which is not installed")

        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        openssl("req", "-x509", *new, "-days", 2, "-subj", f"/CN={name}", "-keyout", f"{ca}.key", "-out", f"{ca}.pem")
        openssl("req", *new, "-subj", "/CN=node", "-keyout", f"{node}.key", "-out", f"{node}.csr")
        signer = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial")
        openssl("x509", "-req", "-in", f"{node}.csr", *signer, "-days", 2, "-out", f"{node}.pem")
        made[name] = {
            "cert": node.with_suffix(".pem"), "key": node.with_suffix(".key"), "authority": folder / f"{name}-ca.pem",
        }  # fmt: skip
    return made
