"""REST of access rules, and of why a user may do something."""

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group
from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.viewsets import GenericViewSet

from apps.access.isolation import rules_without_other_tenants
from apps.access.levels import Level, RuleKind
from apps.access.rules.delegation import groups_nameable_by, people_nameable_by
from apps.access.rules.rule import ALL, Rule, RuleFilter
from apps.access.rules.selectors import PAGE, rule_by_key, rules_visible_to, target_of
from apps.accounts.api.permissions import person
from apps.accounts.models import User
from apps.accounts.models.grants import GrantSource
from apps.configuration.access_explanation import (
    ObjectKind,
    explanation,
    people_explainable_to,
)
from apps.configuration.api.request_checks import validated_body
from apps.configuration.api.rule_etag import RULE_ETAG, rule_version
from apps.configuration.api.rule_serializers import (
    AccessExplanationSerializer,
    RuleChangeSerializer,
    RuleCreateSerializer,
    RulePageSerializer,
    RuleSerializer,
)
from apps.configuration.services.rules import (
    RuleSubjects,
    rule_change,
    rule_grant,
    rule_remove,
    subjects_named_by,
)
from apps.core.errors import BadInput, Conflict, NotFound

KEY = r"[a-z]+\.[0-9a-f-]+\.[a-z]+\.[a-z]+|[a-z]+\.all\.[a-z]+\.[a-z]+"
MOST_TARGETS = 200
_FILTERS = [
    OpenApiParameter("kind", enum=RuleKind.values),
    OpenApiParameter("object", description="Id of the object, or `all` for the kind's own rules."),
    OpenApiParameter("name", description="Part of the name of the object."),
    OpenApiParameter("level", enum=Level.values),
    OpenApiParameter("source", enum=GrantSource.values),
    OpenApiParameter("user", description="User name of a person or service account."),
    OpenApiParameter("group", description="Name of a group."),
    OpenApiParameter("cursor", description="From `next`."),
    OpenApiParameter("limit", int, description="Objects on a page; each has a few rules."),
]


class AccessRuleViewSet(GenericViewSet[Any]):
    """Access rules: all for administrators, for others those of what they manage.

    One rule is what one object, or every object of a kind, gives on one level to its subjects.
    Rules that policies make by themselves are restricted by `policies/{id}/restriction/`.
    """

    serializer_class = RuleSerializer
    filter_backends = []
    pagination_class = None
    queryset = Group.objects.none()
    lookup_field = "key"
    lookup_value_regex = KEY

    @extend_schema(parameters=_FILTERS, responses=RulePageSerializer)
    def list(self, request: Request) -> Response:
        """Rules by kind and name of their object, the highest level first."""
        actor, given = person(request), request.query_params
        wanted = _rule_filter(actor, given)
        if wanted is None:
            return Response({"next": None, "previous": None, "results": []})
        page = rules_visible_to(
            actor, wanted, after=given.get("cursor", ""), limit=_limit(given.get("limit", ""))
        )
        further = (
            request.build_absolute_uri(f"?{_query(given, page.after)}") if page.after else None
        )
        rules: Any = page.rules
        results = RuleSerializer(rules, many=True).data
        return Response({"next": further, "previous": None, "results": results})

    @extend_schema(request=RuleCreateSerializer, responses={201: RuleSerializer})
    def create(self, request: Request) -> Response:
        """Give these people and groups a level; they join an existing rule of that level."""
        actor = person(request)
        body = validated_body(RuleCreateSerializer, request)
        target = target_of(actor, RuleKind(body["kind"]), body["object"] or ALL)
        if target is None:
            problem = "there is no such object, or you do not manage it"
            raise NotFound(f"object: {problem}.", fields={"object": problem})
        subjects = _subjects(actor, body["users"], body["groups"], known=RuleSubjects())
        rule = rule_grant(actor=actor, target=target, level=Level(body["level"]), subjects=subjects)
        return _response(actor, rule, status=201)

    @extend_schema(responses=RuleSerializer)
    def retrieve(self, request: Request, key: str) -> Response:
        """One rule; its ETag changes with its subjects."""
        actor = person(request)
        return _response(actor, _visible_rule(actor, key))

    @extend_schema(request=RuleChangeSerializer, parameters=[RULE_ETAG], responses=RuleSerializer)
    def partial_update(self, request: Request, key: str) -> Response:
        """Replace the subjects or the level; fields that are left out stay. Needs If-Match."""
        actor = person(request)
        rule = _changeable_rule(_visible_rule(actor, key))
        version = rule_version(request, is_required=True)
        body = validated_body(RuleChangeSerializer, request, is_partial=True)
        known = subjects_named_by(rule)
        users = body.get("users", [one.username for one in known.users])
        groups = body.get("groups", [one.name for one in known.groups])
        changed = rule_change(
            actor=actor,
            target=rule.target,
            level=rule.level,
            new_level=Level(body["level"]) if "level" in body else None,
            subjects=_subjects(actor, users, groups, known=known),
            version=version,
        )
        if changed is None:
            raise BadInput("Delete the rule instead.", fields={"users": "name a user or a group"})
        return _response(actor, changed)

    @extend_schema(parameters=[RULE_ETAG], responses={204: None})
    def destroy(self, request: Request, key: str) -> Response:
        """Delete the rule: from the next request on it gives no permission; open sockets close."""
        actor = person(request)
        rule = _changeable_rule(_visible_rule(actor, key))
        version = rule_version(request, is_required=False)
        rule_remove(actor=actor, target=rule.target, level=rule.level, version=version)
        return Response(status=204)


class ExplainView(GenericAPIView[Any]):
    """What a user can see and do with one object, and why."""

    serializer_class = AccessExplanationSerializer
    queryset = Group.objects.none()

    @extend_schema(
        parameters=[
            OpenApiParameter("user", description="User name or id; default: yourself."),
            OpenApiParameter(
                "object", required=True, description="Kind and id, such as `policy.7`."
            ),
        ],
        responses=AccessExplanationSerializer,
    )
    def get(self, request: Request) -> Response:
        """Each permission, whether it is held, and each source of it."""
        viewer, given = person(request), request.query_params
        kind, _, pk = given.get("object", "").partition(".")
        if kind not in ObjectKind.values or not pk:
            problem = (
                f"kind and id such as policy.7, where the kind is {', '.join(ObjectKind.values)}"
            )
            raise BadInput(f"object: {problem}.", fields={"object": problem})
        about = _person(viewer, given.get("user", ""))
        payload = explanation(viewer, person=about, thing=ObjectKind(kind), object_id=pk)
        return Response(AccessExplanationSerializer(payload).data)


def _visible_rule(actor: User, key: str) -> Rule:
    rule = rule_by_key(actor, key)
    if rule is None:
        raise NotFound("There is no such rule, or you may not see it.")
    return rule


def _changeable_rule(rule: Rule) -> Rule:
    if rule.by_policy:
        raise Conflict("Its policy makes this rule: restrict the policy instead.")
    return rule


def _response(actor: User, rule: Rule, *, status: int = 200) -> Response:
    headers = {"ETag": f'"{rule.version}"'}
    (payload,) = rules_without_other_tenants(actor, [rule])
    return Response(RuleSerializer(payload).data, status=status, headers=headers)


def _rule_filter(actor: User, given: Mapping[str, str]) -> RuleFilter | None:
    """The filter of the query parameters; None where it names an unknown user or group."""
    choices: dict[str, Any] = {"kind": RuleKind, "level": Level, "source": GrantSource}
    values: dict[str, Any] = {}
    for name, known in choices.items():
        if given.get(name):
            values[name] = _choice(known, given[name], name)
    for name, rows, column in (
        ("user", people_explainable_to(actor), "username"),
        ("group", groups_nameable_by(actor), "name"),
    ):
        if given.get(name):
            row: Any = _is_storable(given[name]) and rows.filter(**{column: given[name]}).first()
            if not row:
                return None
            values[name] = row.pk
    name = given.get("name", "")
    if not _is_storable(name or "-"):
        return None
    return RuleFilter(object_id=given.get("object", ""), name=name, **values)


def _is_storable(text: str) -> bool:
    """Databases refuse a zero byte."""
    return "\0" not in text


def _choice(known: Any, text: str, field: str) -> Any:
    try:
        return known(text)
    except ValueError as error:
        problem = f"must be one of {', '.join(one.value for one in known)}"
        raise BadInput(f"{field} {problem}.", fields={field: problem}) from error


def _limit(text: str) -> int:
    is_number = text.isascii() and text.isdigit() and len(text) < 6
    return min(max(int(text), 1), MOST_TARGETS) if is_number else PAGE


def _query(given: Any, after: str) -> str:
    query = given.copy()
    query["cursor"] = after
    return str(query.urlencode())


def _subjects(
    actor: User, users: list[str], groups: list[str], *, known: RuleSubjects
) -> RuleSubjects:
    """The rows of these names, among those whom the actor may name and those named already."""
    return RuleSubjects(
        tuple(_rows(people_nameable_by(actor), known.users, "username", users, field="users")),
        tuple(_rows(groups_nameable_by(actor), known.groups, "name", groups, field="groups")),
    )


def _rows(
    rows: QuerySet[Any], known: tuple[Any, ...], column: str, names: list[str], *, field: str
) -> list[Any]:
    wanted = {name for name in names if _is_storable(name)}
    found = {getattr(row, column): row for row in rows.filter(**{f"{column}__in": wanted})}
    found |= {getattr(row, column): row for row in known if getattr(row, column) in wanted}
    missing = sorted(set(names) - set(found))
    if missing:
        problem = f"{missing[0]!r} is not known"
        raise BadInput(f"{field}: {problem}.", fields={field: problem})
    return list(found.values())


def _person(viewer: User, text: str) -> User:
    """The person of the query, by name or id; the name comes first."""
    if not text:
        return viewer
    people = people_explainable_to(viewer)
    found = people.filter(username=text).first() if _is_storable(text) else None
    if found is None and text.isascii() and text.isdigit() and len(text) < 19:
        found = people.filter(pk=int(text)).first()
    if found is None:
        problem = "is not known"
        raise BadInput(f"user {problem}.", fields={"user": problem})
    return found
