"""Requests with configuration files."""

from typing import Any

from rest_framework.test import APIClient

from tests.configuration.api.common import V1

FILE = f"{V1}/configuration"
WHOLE = """
groups:
  - name: vision
    description: Works on images.
pools:
  - name: Cloud
    capacity: {gpu: 4, license: 2}
    dedicated_to: Vision
profiles:
  - name: Small
    request: {gpu: 0.5, license: 1}
    pools: [{pool: Cloud}]
    queues: [vision-small]
policies:
  - name: Vision
    group: vision
    reserved: {gpu: 2}
    limit: {gpu: 4, license: 2}
    budget: 1000
    queues:
      - profile: Small
        name: vision-small
        max_priority: 3
rules:
  - kind: policy
    name: Vision
    level: read
    users: [alice]
    groups: [research]
"""


def send(client: APIClient, what: str, text: str, **query: Any) -> Any:
    address = "&".join(f"{name}={value}" for name, value in query.items())
    return client.generic(
        "POST", f"{FILE}/{what}/?{address}", text, content_type="application/yaml"
    )


def sentences(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.json()
    return [change["sentence"] for change in answer.json()["changes"]]
