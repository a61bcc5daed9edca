"""Client identification, by API key or address."""

from __future__ import annotations

from werkzeug.datastructures import Headers

from greenroom.http.guard.host_guard import client_name


def test_clients_are_told_apart_by_key_and_address() -> None:
    def name(address: str | None, **headers: str) -> str:
        return client_name(Headers({key.replace("_", "-"): value for key, value in headers.items()}), address)

    bearer, other = {"authorization": "Bearer sk-one"}, {"authorization": "bearer sk-two"}
    names = [name("10.0.0.1"), name("10.0.0.2"), name("10.0.0.1", **bearer), name("10.0.0.1", **other)]
    assert len({*names, name("10.0.0.2", **bearer)}) == 5
    assert name("10.0.0.1", x_api_key="sk-one") == names[2]
    assert name("10.0.0.1", authorization="Basic sk-one") == names[0]
    assert name(None) == ""
    assert "sk-one" not in names[2]


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    def name(address: str) -> str:
        return client_name(Headers(), address)

    assert name("2001:db8:1:2::3") == name("2001:db8:1:2:ffff::1") != name("2001:db8:1:3::3")
    assert name("fe80::1%eth0") == name("fe80::2")
    assert name("::1") == name("127.0.0.1")  # a local program may use either address
    assert name("::ffff:10.0.0.1") == name("10.0.0.1") != name("10.0.0.2")
