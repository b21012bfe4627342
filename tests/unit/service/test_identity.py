"""API keys and tokens of an identity provider: good ones, and every way in which one may not be good."""

import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from isthmus.service import credentials, directory, schemas
from isthmus.service.credentials import CACHE_SECONDS
from isthmus.service.model import Role
from isthmus.service.tokens import KEYS_SECONDS, LEEWAY_SECONDS, REFRESH_SECONDS, Issuer, Tokens
from isthmus.specs.errors import NotReady

URL = "https://login.example/realm"


class Provider:
    """An identity provider in memory: a signing key, its two documents, and how often they were asked for."""

    def __init__(self) -> None:
        self.key: Any = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.kid = "k1"
        self.asked = 0
        self.away = False
        self.issuer = URL

    def fetch(self, url: str) -> dict[str, Any]:
        self.asked += 1
        if self.away:
            raise OSError("connection refused")
        if url == f"{URL}/.well-known/openid-configuration":
            return {"issuer": self.issuer, "jwks_uri": f"{URL}/keys"}
        kind = jwt.algorithms.RSAAlgorithm if isinstance(self.key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        public = kind.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self.kid, "use": "sig"}]}

    def token(self, *, key: Any = None, algorithm: str = "RS256", kid: str | None = None, **claims: Any) -> str:
        now = int(time.time())
        document = {"iss": URL, "aud": "isthmus", "sub": "ada", "iat": now, "exp": now + 600} | claims
        document = {name: value for name, value in document.items() if value is not None}
        return jwt.encode(document, key or self.key, algorithm=algorithm, headers={"kid": kid or self.kid})


@pytest.fixture
def provider(house: Any) -> Provider:
    made = Provider()
    house.service.tokens = Tokens(house.database, Issuer(URL, "isthmus", made.fetch, house.time.monotonic))
    with house.database.write() as connection:
        directory.create_user(connection, "ada", now=house.time.now, issuer=URL, subject="ada")
        directory.set_member(connection, 1, "ada", Role.MEMBER)
    return made


def ask(house: Any, token: str) -> Any:
    house.keys["token"] = token
    return house.ask("GET", "/v1/me", "token")


def test_a_good_token_is_its_user(house: Any, provider: Provider) -> None:
    answer = ask(house, provider.token())
    assert answer.status_code == 200, answer.text
    assert answer.json() == {
        "name": "ada",
        "administrator": False,
        "projects": [{"project": "vision", "role": "member"}],
    }
    assert house.submit("token")


def test_tokens_that_are_not_good(house: Any, provider: Provider) -> None:
    now = int(time.time())
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = provider.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    good = provider.token()
    head, body, signature = good.split(".")
    changed = jwt.utils.base64url_encode(jwt.utils.base64url_decode(body).replace(b"ada", b"adb")).decode()
    wrong = {
        "expired": provider.token(exp=now - LEEWAY_SECONDS - 5),
        "not yet": provider.token(nbf=now + LEEWAY_SECONDS + 60),
        "other audience": provider.token(aud="somebody-else"),
        "no audience": provider.token(aud=None),
        "other issuer": provider.token(iss="https://evil.example"),
        "no expiry": provider.token(exp=None),
        "nobody": provider.token(sub=None),
        "forged": provider.token(key=other),
        "changed": f"{head}.{changed}.{signature}",
        "unsigned": jwt.encode({"iss": URL, "aud": "isthmus", "sub": "ada", "iat": now, "exp": now + 60}, None, "none"),
        "signed with the public key": _hmac(public, provider.kid, now),
        "no key": provider.token(kid="unknown"),
        "nonsense": "a.b.c",
        "text": "hello",
    }
    for name, token in wrong.items():
        answer = ask(house, token)
        assert answer.status_code == 401, (name, answer.text)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def _hmac(public: bytes, kid: str, now: int) -> str:
    """The confusion of RFC 8725, 2.1: HMAC with the public key as its secret. PyJWT itself refuses to make one."""
    import hashlib
    import hmac
    import json

    def part(value: Any) -> str:
        return jwt.utils.base64url_encode(json.dumps(value).encode()).decode()

    claims = {"iss": URL, "aud": "isthmus", "sub": "ada", "iat": now, "exp": now + 60}
    text = f"{part({'alg': 'HS256', 'kid': kid, 'typ': 'JWT'})}.{part(claims)}"
    return f"{text}.{jwt.utils.base64url_encode(hmac.digest(public, text.encode(), hashlib.sha256)).decode()}"


def test_a_good_token_of_nobody_here_is_told_what_to_ask_for(house: Any, provider: Provider) -> None:
    answer = ask(house, provider.token(sub="eve"))
    assert answer.status_code == 403
    assert "POST /v1/users" in answer.json()["next"]
    claims = {"administrator": True, "roles": ["maintainer"], "name": "admin"}
    assert ask(house, provider.token(**claims)).json()["administrator"] is False, "no claim gives a role"


def test_a_disabled_users_token_and_keys_count_no_longer(house: Any, provider: Provider) -> None:
    house.client("admin").set_user_enabled("ada", False)
    assert ask(house, provider.token()).status_code == 403
    house.client("admin").set_user_enabled("member", False)
    assert house.ask("GET", "/v1/me", "member").status_code == 401
    house.client("admin").set_user_enabled("member", True)
    assert house.ask("GET", "/v1/me", "member").status_code == 200
    last = house.ask("POST", "/v1/users/admin:disable", "admin")
    assert last.status_code == 409
    assert "last administrator" in last.json()["detail"]


def test_the_issuers_new_key_is_found_and_forged_ids_do_not_flood_it(house: Any, provider: Provider) -> None:
    ask(house, provider.token())
    before = provider.asked
    for number in range(50):
        ask(house, provider.token(kid=f"made-up-{number}"))
    assert provider.asked == before, "not asked again so soon"
    provider.key, provider.kid = ec.generate_private_key(ec.SECP256R1()), "k2"
    house.time.pass_(REFRESH_SECONDS + 1)
    assert ask(house, provider.token(algorithm="ES256")).status_code == 200


def test_an_issuer_that_is_away_is_no_bad_token(house: Any, provider: Provider) -> None:
    assert ask(house, provider.token()).status_code == 200
    provider.away = True
    assert ask(house, provider.token()).status_code == 200, "its keys are kept"
    house.time.pass_(KEYS_SECONDS + 1)
    answer = ask(house, provider.token())
    assert answer.status_code == 503
    assert "API key" in answer.json()["next"]
    provider.away, provider.issuer = False, "https://other.example"
    with pytest.raises(NotReady, match="it says it is"):
        house.service.tokens.issuer.claims(provider.token())


def test_keys_that_are_not_good(house: Any) -> None:
    good = house.keys["member"]
    head, identity, secret = good.split("_", 2)
    wrong = [
        f"{head}_{identity}_{'x' * len(secret)}", f"{head}_{'0' * 12}_{secret}", f"{head}_{identity}_", f"{head}_", "isk",
        good[:-1], good + "x",
    ]  # fmt: skip
    for key in wrong:
        assert ask(house, key).status_code == 401, key
    for header in ("", "Basic abc", "Bearer", "Bearer "):
        answer = house.http.get("/v1/me", headers={"Authorization": header})
        assert answer.status_code == 401
    client = house.client()
    made = client.create_key(schemas.NewKey(label="short", days=1))
    assert ask(house, made.key).status_code == 200
    house.time.pass_(24 * 3600 + CACHE_SECONDS)
    assert ask(house, made.key).status_code == 401, "it has expired"


def test_a_revoked_key_is_gone_at_once_here_and_soon_everywhere(house: Any) -> None:
    client = house.client()
    made = client.create_key(schemas.NewKey(label="other"))
    assert ask(house, made.key).status_code == 200
    client.revoke_key(made.id)
    assert ask(house, made.key).status_code == 401
    assert [key.revoked is not None for key in client.api_keys()] == [False, True]
    second = client.create_key(schemas.NewKey(label="third", days=None))
    assert ask(house, second.key).status_code == 200
    with house.database.write() as connection:  # by another service on the same database
        credentials.revoke(connection, 3, second.id, now=house.time.now)
    house.time.pass_(CACHE_SECONDS + 1)
    assert ask(house, second.key).status_code == 401


def test_no_secret_is_in_the_database_or_shown_again(house: Any) -> None:
    house.submit()
    raw = b"".join(path.read_bytes() for path in house.database.path.parent.glob("service.db*"))
    for key in house.keys.values():
        assert key.split("_", 2)[2].encode() not in raw
    assert "key" not in house.ask("GET", "/v1/me/keys").json()[0]
