"""Kafka's settings of authentication, authorization and TLS that have no effect here.

How a row is read is told in `settings.py`. Names, types, ranges and defaults are those of Kafka
4.3.
"""

from __future__ import annotations

from typing import Final

SECURITY_SETTINGS: Final = """
# Who may do what
authorizer.class.name  string  ""  .
    The class that allows or forbids each request.
principal.builder.class  class  \
    org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder  .
    The class that names the user of a connection.
security.providers  string  -  .
    Java security providers to load.
delegation.token.expiry.check.interval.ms  long  3600000  1..
    How often expired tokens are looked for.
delegation.token.expiry.time.ms  long  86400000  1..
    How long a token holds before it must be renewed.
delegation.token.max.lifetime.ms  long  604800000  1..
    How long a token can be renewed.
delegation.token.secret.key  password  -  .
    The key that signs tokens.

# SASL
sasl.client.callback.handler.class        class     -               .
    The class that answers SASL questions as a client.
sasl.jaas.config                          password  -               .
    Users and passwords in JAAS syntax.
sasl.kerberos.kinit.cmd                   string    /usr/bin/kinit  .
    The path of kinit.
sasl.kerberos.min.time.before.relogin     long      60000           .
    The shortest time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules    list      DEFAULT         .
    How Kerberos principals become user names.
sasl.kerberos.service.name                string    -               .
    The Kerberos service name.
sasl.kerberos.ticket.renew.jitter         double    0.05            .
    How much chance there is in renewal times.
sasl.kerberos.ticket.renew.window.factor  double    0.8             .
    The share of a ticket's life after which it is renewed.
sasl.login.callback.handler.class         class     -               .
    The class that answers questions of a login.
sasl.login.class                          class     -               .
    The class that logs in.
sasl.login.connect.timeout.ms             int       -               .
    How long a connection to an identity provider may take.
sasl.login.read.timeout.ms                int       -               .
    How long an identity provider may take to answer.
sasl.login.refresh.buffer.seconds         short     300             .
    Time left of a credential when it is refreshed.
sasl.login.refresh.min.period.seconds     short     60              .
    The shortest time between two refreshes.
sasl.login.refresh.window.factor          double    0.8             .
    The share of a credential's life after which it is refreshed.
sasl.login.refresh.window.jitter          double    0.05            .
    How much chance there is in refresh times.
sasl.login.retry.backoff.max.ms           long      10000           .
    The longest wait before another login.
sasl.login.retry.backoff.ms               long      100             .
    The first wait before another login.
sasl.mechanism.controller.protocol        string    GSSAPI          .
    The SASL mechanism towards controllers.
sasl.mechanism.inter.broker.protocol      string    GSSAPI          .
    The SASL mechanism between brokers.
sasl.server.callback.handler.class        class     -               .
    The class that checks credentials.

# SASL/OAUTHBEARER
sasl.oauthbearer.assertion.algorithm  string  RS256  ~ES256|RS256
    How an assertion is signed.
sasl.oauthbearer.assertion.claim.aud  string  -  .
    The audience claim of an assertion.
sasl.oauthbearer.assertion.claim.exp.seconds  int  300  0..86400
    How long an assertion holds.
sasl.oauthbearer.assertion.claim.iss  string  -  .
    The issuer claim of an assertion.
sasl.oauthbearer.assertion.claim.jti.include  boolean  false  .
    Whether an assertion has an id.
sasl.oauthbearer.assertion.claim.nbf.seconds  int  60  0..3600
    How long before its making an assertion holds.
sasl.oauthbearer.assertion.claim.sub  string  -  .
    The subject claim of an assertion.
sasl.oauthbearer.assertion.file  string  -  .
    A file with a ready assertion.
sasl.oauthbearer.assertion.private.key.file  string  -  .
    The file of the signing key.
sasl.oauthbearer.assertion.private.key.passphrase  password  -  .
    The passphrase of the signing key.
sasl.oauthbearer.assertion.template.file  string  -  .
    A file with claims and headers.
sasl.oauthbearer.client.credentials.client.id  string  -  .
    The client id at the identity provider.
sasl.oauthbearer.client.credentials.client.secret  password  -  .
    The client secret at the identity provider.
sasl.oauthbearer.clock.skew.seconds  int  30  .
    How far the clocks may differ.
sasl.oauthbearer.expected.audience  list  ""  .
    The audiences that a token may name.
sasl.oauthbearer.expected.issuer  string  -  .
    The issuer that a token must name.
sasl.oauthbearer.jwks.endpoint.refresh.ms  long  3600000  .
    How often the keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms  long  10000  .
    The longest wait before the keys are fetched again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms  long  100  .
    The first wait before the keys are fetched again.
sasl.oauthbearer.jwks.endpoint.url  string  -  .
    Where the keys are.
sasl.oauthbearer.jwt.retriever.class  class  \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever  .
    The class that gets a token.
sasl.oauthbearer.jwt.validator.class  class  \
    org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator  .
    The class that checks a token.
sasl.oauthbearer.scope  string  -  .
    The scope that is asked for.
sasl.oauthbearer.scope.claim.name  string  scope  .
    The claim that has the scope.
sasl.oauthbearer.sub.claim.name  string  sub  .
    The claim that has the subject.
sasl.oauthbearer.token.endpoint.url  string  -  .
    Where tokens are issued.

# TLS
ssl.allow.dn.changes                   boolean   false            .
    Whether a new certificate may have another name.
ssl.allow.san.changes                  boolean   false            .
    Whether a new certificate may have other alternative names.
ssl.cipher.suites                      list      ""               .
    The cipher suites that are allowed.
ssl.endpoint.identification.algorithm  string    https            .
    How the peer's host name is checked.
ssl.engine.factory.class               class     -                .
    The class that makes TLS engines.
ssl.keymanager.algorithm               string    SunX509          .
    The algorithm of Java's key manager.
ssl.keystore.certificate.chain         password  -                .
    The certificates in PEM.
ssl.keystore.key                       password  -                .
    The private key in PEM.
ssl.keystore.password                  password  -                .
    The password of the key store.
ssl.principal.mapping.rules            string    DEFAULT          .
    How a certificate's name becomes a user name.
ssl.protocol                           string    TLSv1.3          .
    The TLS version to make contexts with.
ssl.provider                           string    -                .
    The Java security provider for TLS.
ssl.secure.random.implementation       string    -                .
    Java's source of random numbers for TLS.
ssl.trustmanager.algorithm             string    PKIX             .
    The algorithm of Java's trust manager.
ssl.truststore.certificates            password  -                .
    The trusted certificates in PEM.
ssl.truststore.password                password  -                .
    The password of the trust store.
"""
