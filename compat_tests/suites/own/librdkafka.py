"""The own suite of librdkafka, which is built from its source with a compiler for C and C++."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate, load_pem_x509_certificates

from asyncbroker.tests.tls_files import TlsFiles
from compat_tests.suites.install import call, kafka_version, need
from compat_tests.suites.own.brokers import Servers, User
from compat_tests.suites.own.suite import (
    NO_ACCESS_LISTS,
    NO_SHARE_GROUPS,
    NO_TRANSACTIONS,
    OWN,
    THREE_BROKERS,
    Command,
    OwnSuite,
    kafka_tools,
)

VERSION: Final = "2.15.0"

# On a busy machine a test may take longer than its authors thought.
SLOWER: Final = 2


def librdkafka(checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]) -> Command:
    return in_scenario("default", checkout, servers, results, tests)


def librdkafka_noautocreate(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    return in_scenario("noautocreate", checkout, servers, results, tests)


def librdkafka_848(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    command, environment = in_scenario("default", checkout, servers, results, tests)
    return command, {**environment, "TEST_CONSUMER_GROUP_PROTOCOL": "consumer"}


def librdkafka_sasl(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    command, environment = in_scenario("default", checkout, servers, results, tests)
    with Path(environment["RDKAFKA_TEST_CONF"]).open("a") as configuration:
        configuration.write(
            f"bootstrap.servers={servers.addresses['SASL_SSL']}\n"
            f"security.protocol=SASL_SSL\nssl.ca.location={servers.files.authority}\n"
            f"sasl.mechanism={USER.mechanism}\n"
            f"sasl.username={USER.name}\nsasl.password={USER.password}\n"
        )
    return command, environment


def librdkafka_ssl(
    checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    command, environment = in_scenario("default", checkout, servers, results, tests)
    keys = key_files(servers.files, results.with_suffix(".keys"))
    with Path(environment["RDKAFKA_TEST_CONF"]).open("a") as configuration:
        configuration.write(
            f"bootstrap.servers={servers.addresses['SSL']}\nsecurity.protocol=SSL\n"
            f"ssl.ca.location={servers.files.authority}\n"
            f"ssl.certificate.location={keys['SSL_pub_pem']}\n"
            f"ssl.key.location={keys['SSL_priv_pem']}\nssl.key.password={KEY_PASSWORD}\n"
        )
    return command, {**environment, **keys, "SSL_password": KEY_PASSWORD}


def key_files(files: TlsFiles, folder: Path) -> dict[str, str]:
    """A client's key and certificates in each form that librdkafka reads, by the names of variables
    that its tests look for."""
    pem = Path(files.client).read_bytes()
    key = load_pem_private_key(pem, None)
    # As trustme makes them.
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    certificate = load_pem_x509_certificates(pem)[0]
    authority = load_pem_x509_certificate(Path(files.authority).read_bytes())
    stranger = Path(files.strangers_authority).read_bytes()
    secret = BestAvailableEncryption(KEY_PASSWORD.encode())
    contents = {
        "SSL_pkcs": serialize_key_and_certificates(
            b"client", key, certificate, [authority], secret
        ),
        "SSL_pub_der": certificate.public_bytes(Encoding.DER),
        "SSL_pub_pem": certificate.public_bytes(Encoding.PEM),
        "SSL_priv_der": key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, secret),
        "SSL_priv_pem": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, secret),
        "SSL_ca_der": authority.public_bytes(Encoding.DER),
        "SSL_all_cas_pem": stranger + authority.public_bytes(Encoding.PEM),
    }
    folder.mkdir(exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return {name: str(folder / name) for name in contents}


def in_scenario(
    scenario: str, checkout: Path, servers: Servers, results: Path, tests: tuple[str, ...]
) -> Command:
    """The tests for one way to set up a broker."""
    folder = checkout / "tests"
    if not (folder / "test-runner").exists():
        need("g++")
        call(["./configure", "--disable-curl", "--disable-gssapi"], checkout)
        call([need("make"), "-j2", "libs"], checkout)
        call([need("make"), "-C", "tests", "build"], checkout)
    kafka_tools(folder / "kafka" / "bin")
    configuration = results.with_suffix(".conf")
    configuration.write_text(
        f"bootstrap.servers={servers.plaintext}\ntest.timeout.multiplier={SLOWER}\n"
    )
    environment = {
        "TEST_KAFKA_VERSION": kafka_version(),
        "RDKAFKA_TEST_CONF": str(configuration),
        "KAFKA_PATH": str(folder / "kafka"),
        "BROKERS": servers.plaintext,
    }
    program = str(OWN / "librdkafka_tests.py")
    return [sys.executable, program, str(folder), str(results), scenario, *tests], environment


# The tests of these ask for three replicas without a need. Apache Kafka has no such setting.
ONE_REPLICA: Final = "asyncbroker.replication.factor.cap=true"

KEY_PASSWORD: Final = "secret"
USER: Final = User("alice", "SCRAM-SHA-256", "pencil")

WITHOUT: Final = (
    ("Tests that are `LOCAL` there", "they need no broker"),
    ("0170 to 0185", NO_SHARE_GROUPS),
)

KNOWN: Final = (
    (r"^0081_admin do_test_(Create|Describe|Delete)Acls$", NO_ACCESS_LISTS),
    (
        r"^0109_auto_create_topics",
        "in some of its parts it sets access lists (ACLs), which this broker does not have; the "
        "others pass where users log in (librdkafka-sasl, with the classic protocol of groups)",
    ),
    (r"^(0115_producer_auth|0119_consumer_auth)", NO_ACCESS_LISTS),
    (r"^0129_fetch_aborted_msgs", NO_TRANSACTIONS),
    (r"^(0098_consumer_txn|0103_transactions)", f"{NO_TRANSACTIONS}, and topics of three replicas"),
    (r"^0101_fetch_from_follower", THREE_BROKERS),
    (
        r"^0081_admin do_test_(Incremental)?AlterConfigs$",
        "it changes a setting of Kerberos while the broker runs, which is taken since this run",
    ),
)

SKIPS: Final = (
    (r"^0097_ssl_verify", "it is run where clients show certificates (librdkafka-ssl)"),
    (r"Filtered due to negative test flags$", "its authors know that it fails, and filter it"),
    (r"^0092_mixed_msgver", "it writes messages of format 1, which Kafka 4 has removed"),
    (r"^(0135_sasl_credentials|0142_reauthentication)", "it is run where users log in"),
    (r"^0126_oauthbearer_oidc", "it logs in by OAUTHBEARER, which this broker does not have"),
    (r"Test skipped due to quick mode$", "it is not in the quick mode"),
)

LIBRDKAFKA: Final = OwnSuite(
    "librdkafka",
    VERSION,
    f"v{VERSION}",
    "`tests` that want a broker, in the quick mode of its CI; `0081_admin` in full",
    librdkafka,
    (),
    settings=("num.partitions=4",),
    known=KNOWN,
    skips=SKIPS,
    without=WITHOUT,
)

LIBRDKAFKA_NOAUTOCREATE: Final = OwnSuite(
    "librdkafka-noautocreate",
    VERSION,
    f"v{VERSION}",
    "the same of its scenario `noautocreate`, topics with one replica where it asks for three",
    librdkafka_noautocreate,
    (),
    settings=("num.partitions=4", "auto.create.topics.enable=false", ONE_REPLICA),
    shared="librdkafka",
)

LIBRDKAFKA_848: Final = OwnSuite(
    "librdkafka-consumer",
    VERSION,
    f"v{VERSION}",
    "the same with `TEST_CONSUMER_GROUP_PROTOCOL=consumer` (KIP-848)",
    librdkafka_848,
    (),
    settings=("num.partitions=4",),
    known=KNOWN,
    skips=(
        *SKIPS,
        (
            r"^0084_destroy_flags",
            "its authors have yet to make it work with the consumer protocol",
        ),
        (r"^0132_strategy_ordering", "it is for assignors of the classic protocol"),
    ),
    shared="librdkafka",
)

LIBRDKAFKA_SASL: Final = OwnSuite(
    "librdkafka-sasl",
    VERSION,
    f"v{VERSION}",
    "of the same those which log in, 0135 and 0142, and 0109, topics with one replica",
    librdkafka_sasl,
    ("0109_auto_create_topics", "0135_sasl_credentials", "0142_reauthentication"),
    settings=("connections.max.reauth.ms=5000", ONE_REPLICA),
    users=(USER,),
    known=((r"do_test_txn_producer$", NO_TRANSACTIONS),),
    says=((NO_TRANSACTIONS, "this broker has no transactions"),),
    there=((r"do_test_consumer$", THREE_BROKERS),),
    shared="librdkafka",
)

LIBRDKAFKA_SSL: Final = OwnSuite(
    "librdkafka-ssl",
    VERSION,
    f"v{VERSION}",
    "0097, where clients show certificates, in each form that it can read; of two runs one failed, "
    "on a busy machine: a refused certificate was told as a lost connection",
    librdkafka_ssl,
    ("0097_ssl_verify",),
    settings=("listener.name.ssl.ssl.client.auth=required",),
    shared="librdkafka",
)
